#include "dns/message.h"

#include <fmt/format.h>

#include <algorithm>

#include "dns/rdata.h"

namespace sluice::dns {
namespace {

constexpr uint16_t kEdeOption = 15;
constexpr uint32_t kTopTtl = 0x7fffffff;

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  [[nodiscard]] std::optional<DecodeFault> Questions(size_t count, std::vector<Question>* out) {
    for (size_t i = 0; i < count; ++i) {
      auto name = Name::Read(bytes_, &at_);
      if (!name) return DecodeFault::kName;
      if (left() < 4) return DecodeFault::kRecord;
      out->push_back({std::move(*name), Type{LoadU16(bytes_, at_)}, LoadU16(bytes_, at_ + 2)});
      at_ += 4;
    }
    return std::nullopt;
  }

  /// `edns` is null outside the additional section.
  [[nodiscard]] std::optional<DecodeFault> Records(size_t count, std::vector<Record>* out, Message* edns) {
    for (size_t i = 0; i < count; ++i) {
      Record record;
      auto owner = Name::Read(bytes_, &at_);
      if (!owner) return DecodeFault::kName;
      if (left() < 10) return DecodeFault::kRecord;
      record.owner = std::move(*owner);
      record.type = Type{LoadU16(bytes_, at_)};
      record.klass = LoadU16(bytes_, at_ + 2);
      record.ttl = LoadU32(bytes_, at_ + 4);
      const size_t begin = at_ + 10;
      const size_t length = LoadU16(bytes_, at_ + 8);
      if (bytes_.size() - begin < length) return DecodeFault::kRecord;
      at_ = begin + length;
      if (record.type == Type::kOpt) {
        if (edns == nullptr || edns->edns || !record.owner.is_root()) return DecodeFault::kEdns;
        if (!ReadOpt(record, bytes_.subspan(begin, length), edns)) return DecodeFault::kEdns;
        continue;
      }
      auto rdata = ExpandRdata(bytes_, record.type, begin, at_);
      if (!rdata) return DecodeFault::kRecord;
      record.rdata = std::move(*rdata);
      record.understood = IsUnderstood(record.type);
      if (record.ttl > kTopTtl) record.ttl = 0;
      out->push_back(std::move(record));
    }
    return std::nullopt;
  }

  [[nodiscard]] size_t left() const { return bytes_.size() - at_; }

 private:
  static bool ReadOpt(const Record& record, std::span<const uint8_t> options, Message* message) {
    Edns edns{
        .udp_octets = record.klass, .version = static_cast<uint8_t>(record.ttl >> 16), .dnssec_ok = (record.ttl & 0x8000) != 0};
    message->header.rcode = Rcode{static_cast<uint16_t>((record.ttl >> 24 << 4) | static_cast<uint16_t>(message->header.rcode))};
    while (!options.empty()) {
      if (options.size() < 4) return false;
      const size_t length = LoadU16(options, 2);
      if (options.size() - 4 < length) return false;
      const auto value = options.subspan(4, length);
      if (LoadU16(options, 0) == kEdeOption && length >= 2 && !edns.error)
        edns.error =
            ExtendedError{Ede{LoadU16(value, 0)},
                          std::string(value.begin() + 2,
                                      value.begin() + static_cast<std::ptrdiff_t>(std::min(value.size(), 2 + kMaxExtendedText)))};
      options = options.subspan(4 + length);
    }
    message->edns = std::move(edns);
    return true;
  }

  std::span<const uint8_t> bytes_;
  size_t at_ = kHeaderOctets;
};

}  // namespace

std::string TypeText(Type type) {
  switch (type) {
    case Type::kA:
      return "A";
    case Type::kNs:
      return "NS";
    case Type::kCname:
      return "CNAME";
    case Type::kSoa:
      return "SOA";
    case Type::kPtr:
      return "PTR";
    case Type::kHinfo:
      return "HINFO";
    case Type::kMx:
      return "MX";
    case Type::kTxt:
      return "TXT";
    case Type::kAaaa:
      return "AAAA";
    case Type::kSrv:
      return "SRV";
    case Type::kDname:
      return "DNAME";
    case Type::kOpt:
      return "OPT";
    case Type::kSvcb:
      return "SVCB";
    case Type::kHttps:
      return "HTTPS";
    case Type::kIxfr:
      return "IXFR";
    case Type::kAxfr:
      return "AXFR";
    case Type::kAny:
      return "ANY";
  }
  return fmt::format("TYPE{}", static_cast<uint16_t>(type));
}

std::optional<Header> DecodeHeader(std::span<const uint8_t> bytes) {
  if (bytes.size() < kHeaderOctets) return std::nullopt;
  Header header;
  header.id = LoadU16(bytes, 0);
  header.response = (bytes[2] & 0x80) != 0;
  header.opcode = bytes[2] >> 3 & 0x0f;
  header.authoritative = (bytes[2] & 0x04) != 0;
  header.truncated = (bytes[2] & 0x02) != 0;
  header.recursion_desired = (bytes[2] & 0x01) != 0;
  header.recursion_available = (bytes[3] & 0x80) != 0;
  header.checking_disabled = (bytes[3] & 0x10) != 0;
  header.rcode = Rcode{static_cast<uint16_t>(bytes[3] & 0x0f)};
  return header;
}

std::expected<Message, DecodeFault> Decode(std::span<const uint8_t> bytes) {
  const auto header = DecodeHeader(bytes);
  if (!header) return std::unexpected(DecodeFault::kShort);
  Message message;
  message.header = *header;
  const size_t counts[4] = {LoadU16(bytes, 4), LoadU16(bytes, 6), LoadU16(bytes, 8), LoadU16(bytes, 10)};
  if (counts[0] + counts[1] + counts[2] + counts[3] > kMaxRecords) return std::unexpected(DecodeFault::kTooMany);
  Reader reader(bytes);
  if (const auto fault = reader.Questions(counts[0], &message.questions)) return std::unexpected(*fault);
  if (const auto fault = reader.Records(counts[1], &message.answers, nullptr)) return std::unexpected(*fault);
  if (const auto fault = reader.Records(counts[2], &message.authority, nullptr)) return std::unexpected(*fault);
  if (const auto fault = reader.Records(counts[3], &message.additional, &message)) return std::unexpected(*fault);
  if (reader.left() != 0) return std::unexpected(DecodeFault::kTrailing);
  return message;
}

std::optional<IpAddress> AddressOf(const Record& record) {
  const auto bytes = Octets(record.rdata);
  if (record.type == Type::kA && bytes.size() == 4) return IpAddress::FromV4(LoadU32(bytes, 0));
  if (record.type != Type::kAaaa || bytes.size() != 16) return std::nullopt;
  std::array<uint8_t, 16> address{};
  std::ranges::copy(bytes, address.begin());
  return IpAddress::FromV6(address);
}

std::optional<Name> TargetOf(const Record& record) {
  if (record.type != Type::kCname && record.type != Type::kDname && record.type != Type::kNs && record.type != Type::kPtr)
    return std::nullopt;
  size_t at = 0;
  return Name::Read(Octets(record.rdata), &at);
}

std::optional<uint32_t> NegativeTtlOf(const Record& soa) {
  if (soa.type != Type::kSoa || soa.rdata.size() < 22) return std::nullopt;
  const uint32_t minimum = LoadU32(Octets(soa.rdata), soa.rdata.size() - 4);
  return std::min(soa.ttl, minimum > kTopTtl ? 0 : minimum);
}

Record AddressRecord(Name owner, const IpAddress& address, uint32_t ttl) {
  const auto* bytes = reinterpret_cast<const char*>(address.bytes().data());
  if (address.is_v4()) return {std::move(owner), Type::kA, kClassIn, ttl, std::string(bytes + 12, 4)};
  return {std::move(owner), Type::kAaaa, kClassIn, ttl, std::string(bytes, 16)};
}

Record NameRecord(Name owner, Type type, const Name& target, uint32_t ttl) {
  return {std::move(owner), type, kClassIn, ttl, target.wire()};
}

Record SoaRecord(Name owner, const Name& mname, const Name& rname, uint32_t ttl) {
  std::string rdata = mname.wire() + rname.wire();
  for (const uint32_t field : {1u, 3600u, 600u, 86400u, ttl}) AppendU32(&rdata, field);
  return {std::move(owner), Type::kSoa, kClassIn, ttl, std::move(rdata)};
}

}  // namespace sluice::dns
