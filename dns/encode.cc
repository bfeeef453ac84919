// Encode and EncodeWithin of message.h.
#include <array>

#include "dns/message.h"
#include "dns/rdata.h"

namespace sluice::dns {
namespace {

constexpr size_t kMaxPointer = 0x3fff;
constexpr size_t kMaxRemembered = 64;  ///< names that later ones may point to: bounds the search, costs only octets

class Writer {
 public:
  explicit Writer(const Message& message) {  // NOLINT(cppcoreguidelines-pro-type-member-init)
    out_.reserve(512);
    WriteHeader(message);
    for (const Question& q : message.questions) {
      WriteName(q.name);
      U16(static_cast<uint16_t>(q.type));
      U16(q.klass);
    }
    Count(6, Records(message.answers));
    Count(8, Records(message.authority));
    size_t additional = Records(message.additional);
    if (message.edns) {
      WriteOpt(*message.edns, message.header.rcode);
      ++additional;
    }
    Count(10, additional);
  }

  [[nodiscard]] std::vector<uint8_t> Take() && { return std::move(out_); }

 private:
  void U16(uint16_t value) {
    out_.push_back(static_cast<uint8_t>(value >> 8));
    out_.push_back(static_cast<uint8_t>(value & 0xff));
  }
  void U32(uint32_t value) {
    U16(static_cast<uint16_t>(value >> 16));
    U16(static_cast<uint16_t>(value & 0xffff));
  }
  void Bytes(std::string_view bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }
  void Count(size_t at, size_t count) {
    out_[at] = static_cast<uint8_t>(count >> 8);
    out_[at + 1] = static_cast<uint8_t>(count & 0xff);
  }

  void WriteHeader(const Message& message) {
    const Header& h = message.header;
    U16(h.id);
    uint16_t flags = static_cast<uint16_t>((h.opcode & 0x0f) << 11 | (static_cast<uint16_t>(h.rcode) & 0x0f));
    if (h.response) flags |= 0x8000;
    if (h.authoritative) flags |= 0x0400;
    if (h.truncated) flags |= 0x0200;
    if (h.recursion_desired) flags |= 0x0100;
    if (h.recursion_available) flags |= 0x0080;
    if (h.checking_disabled) flags |= 0x0010;
    U16(flags);
    U16(static_cast<uint16_t>(message.questions.size()));
    U16(0);
    U32(0);
  }

  // Points to the longest suffix already written with the same spelling.
  void WriteName(const Name& name) {
    const std::string_view wire = name.wire();
    for (size_t at = 0; wire[at] != '\0'; at += static_cast<unsigned char>(wire[at]) + 1u) {
      const std::string_view suffix = wire.substr(at);
      for (size_t i = 0; i < known_count_; ++i) {
        if (std::string_view(known_[i].octets, known_[i].size) != suffix) continue;
        U16(static_cast<uint16_t>(0xc000 | known_[i].offset));
        return;
      }
      if (out_.size() <= kMaxPointer && known_count_ < kMaxRemembered)
        known_[known_count_++] = {suffix.data(), static_cast<uint16_t>(suffix.size()), static_cast<uint16_t>(out_.size())};
      Bytes(suffix.substr(0, static_cast<unsigned char>(wire[at]) + 1u));
    }
    out_.push_back(0);
  }

  size_t Records(const std::vector<Record>& records) {
    size_t count = 0;
    for (const Record& r : records) {
      if (!r.understood || r.rdata.size() > 0xffff) continue;
      WriteName(r.owner);
      U16(static_cast<uint16_t>(r.type));
      U16(r.klass);
      U32(r.ttl);
      U16(static_cast<uint16_t>(r.rdata.size()));
      Bytes(r.rdata);
      ++count;
    }
    return count;
  }

  void WriteOpt(const Edns& edns, Rcode rcode) {
    out_.push_back(0);
    U16(static_cast<uint16_t>(Type::kOpt));
    U16(edns.udp_octets);
    U32(static_cast<uint32_t>(static_cast<uint16_t>(rcode) >> 4) << 24 | static_cast<uint32_t>(edns.version) << 16 |
        (edns.dnssec_ok ? 0x8000u : 0u));
    if (!edns.error) {
      U16(0);
      return;
    }
    const std::string_view text = std::string_view(edns.error->text).substr(0, kMaxExtendedText);
    U16(static_cast<uint16_t>(6 + text.size()));
    U16(15);
    U16(static_cast<uint16_t>(2 + text.size()));
    U16(static_cast<uint16_t>(edns.error->code));
    Bytes(text);
  }

  std::vector<uint8_t> out_;
  struct Known {
    const char* octets;  // of the message being written
    uint16_t size;
    uint16_t offset;
  };
  // Not cleared first: most messages hold one name, and only the first known_count_ are looked at.
  std::array<Known, kMaxRemembered> known_;
  size_t known_count_ = 0;
};

}  // namespace

std::vector<uint8_t> Encode(const Message& message) { return Writer(message).Take(); }

std::vector<uint8_t> EncodeWithin(const Message& message, size_t limit) {
  std::vector<uint8_t> bytes = Encode(message);
  if (bytes.size() <= limit) return bytes;
  Message empty;
  empty.header = message.header;
  empty.header.truncated = true;
  empty.questions = message.questions;
  empty.edns = message.edns;
  bytes = Encode(empty);
  if (bytes.size() > limit && empty.edns) {
    empty.edns->error.reset();
    bytes = Encode(empty);
  }
  return bytes;
}

}  // namespace sluice::dns
