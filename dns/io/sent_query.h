#pragma once

// A question as it is sent upstream: written afresh from its parsed fields, with a random id and a random spelling, and known
// again only by all of it (RFC 5452, draft-vixie-dnsext-dns0x20).

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "dns/chain.h"
#include "dns/message.h"

namespace sluice::dns {

enum class Extension : uint8_t { kEdns, kPlain };

struct SentQuery {
  uint16_t id = 0;
  Question question;  ///< as spelled
  Extension extension = Extension::kEdns;
  std::vector<uint8_t> wire;
};

/// Unpredictable octets, drawn from the kernel a page at a time. One thread.
class RandomOctets {
 public:
  void Take(std::span<uint8_t> out);

 private:
  std::array<uint8_t, 2048> octets_{};
  size_t used_ = octets_.size();
};

/// Written into `sent`, whose buffers are used again.
void MakeQuery(const Question& question, Extension extension, RandomOctets* random, SentQuery* sent);
[[nodiscard]] inline SentQuery MakeQuery(const Question& question, Extension extension, RandomOctets* random) {
  SentQuery sent;
  MakeQuery(question, extension, random, &sent);
  return sent;
}

/// What an answer by UDP comes to.
enum class Reception : uint8_t {
  kAnswer,      ///< exactly this question's
  kStranger,    ///< no answer to it: forged, late or broken
  kAskByTcp,    ///< truncated, or in another case
  kAskPlainly,  ///< the server knows no EDNS (RFC 6891 section 7)
};
/// `message` is filled for kAnswer.
[[nodiscard]] Reception ReadAnswer(const SentQuery& sent, std::span<const uint8_t> datagram, Message* message);

}  // namespace sluice::dns
