#pragma once

// DNS messages (RFC 1035, RFC 6891) as values. Decode accepts only what it understands to the last octet: names inside the
// record data it knows are expanded, so that Encode can write any record afresh, and nothing is ever copied through unread.

#include <array>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip.h"
#include "dns/name.h"

namespace sluice::dns {

/// RR types that Sluice knows by name; any other number is a legal value.
enum class Type : uint16_t {
  kA = 1,
  kNs = 2,
  kCname = 5,
  kSoa = 6,
  kPtr = 12,
  kHinfo = 13,
  kMx = 15,
  kTxt = 16,
  kAaaa = 28,
  kSrv = 33,
  kDname = 39,
  kOpt = 41,
  kSvcb = 64,
  kHttps = 65,
  kIxfr = 251,
  kAxfr = 252,
  kAny = 255,
};
inline constexpr uint16_t kClassIn = 1;

/// "A", "HTTPS", or "TYPE1234" (RFC 3597).
[[nodiscard]] std::string TypeText(Type type);

enum class Rcode : uint16_t {
  kNoError = 0,
  kFormErr = 1,
  kServFail = 2,
  kNxDomain = 3,
  kNotImp = 4,
  kRefused = 5,
  kBadVers = 16
};

/// Extended DNS Errors (RFC 8914).
enum class Ede : uint16_t { kOther = 0, kBlocked = 15, kFiltered = 17, kProhibited = 18, kNoReachableAuthority = 22 };

inline constexpr size_t kHeaderOctets = 12;
inline constexpr size_t kMaxRecords = 1024;      ///< of one message, all sections
inline constexpr size_t kMaxExtendedText = 512;  ///< of one EDE
inline constexpr size_t kMaxMessageOctets = 65535;
inline constexpr size_t kUdpOctets = 1232;      ///< advertised both ways, and the most that is sent by UDP
inline constexpr size_t kUdpOctetsPlain = 512;  ///< without EDNS

struct Header {
  uint16_t id = 0;
  bool response = false;
  uint8_t opcode = 0;
  bool authoritative = false;
  bool truncated = false;
  bool recursion_desired = false;
  bool recursion_available = false;
  bool checking_disabled = false;
  Rcode rcode = Rcode::kNoError;  ///< with the upper bits of OPT

  bool operator==(const Header&) const = default;
};

struct Question {
  Name name;
  Type type = Type::kA;
  uint16_t klass = kClassIn;

  bool operator==(const Question&) const = default;
};

struct Record {
  Name owner;
  Type type = Type::kA;
  uint16_t klass = kClassIn;
  uint32_t ttl = 0;   ///< 2^31 and above were read as 0 (RFC 2181 section 8)
  std::string rdata;  ///< names in it expanded where `understood`
  bool understood = true;

  bool operator==(const Record&) const = default;
};

struct ExtendedError {
  Ede code = Ede::kOther;
  std::string text;

  bool operator==(const ExtendedError&) const = default;
};

/// The OPT pseudo-record. Options other than EDE are dropped when read: cookies, padding and client subnets are channels.
struct Edns {
  uint16_t udp_octets = kUdpOctets;
  uint8_t version = 0;
  bool dnssec_ok = false;
  std::optional<ExtendedError> error{};

  bool operator==(const Edns&) const = default;
};

struct Message {
  Header header;
  std::vector<Question> questions;
  std::vector<Record> answers;
  std::vector<Record> authority;
  std::vector<Record> additional;  ///< without OPT
  std::optional<Edns> edns;

  bool operator==(const Message&) const = default;
};

enum class DecodeFault : uint8_t {
  kShort,     ///< not even a header
  kName,      ///< a bad label, pointer or length
  kRecord,    ///< record data that does not have its type's form, or ends early
  kTrailing,  ///< octets after the last record
  kTooMany,   ///< more than kMaxRecords
  kEdns,      ///< two OPT, one outside the additional section, or one not owned by the root
};

[[nodiscard]] std::expected<Message, DecodeFault> Decode(std::span<const uint8_t> bytes);
/// The header alone, with the rcode's low four bits; nothing under twelve octets.
[[nodiscard]] std::optional<Header> DecodeHeader(std::span<const uint8_t> bytes);

/// Owner names are compressed, names in record data are not. Records that are not `understood` are left out.
[[nodiscard]] std::vector<uint8_t> Encode(const Message& message);
/// The same within `limit` octets: what does not fit is sent as TC with empty sections, OPT kept (RFC 6891 section 7).
[[nodiscard]] std::vector<uint8_t> EncodeWithin(const Message& message, size_t limit);

/// Nothing unless the record is an A or AAAA.
[[nodiscard]] std::optional<IpAddress> AddressOf(const Record& record);
/// The target of a CNAME, DNAME, NS or PTR.
[[nodiscard]] std::optional<Name> TargetOf(const Record& record);
/// The smaller of a SOA's own TTL and its minimum field (RFC 2308 section 5).
[[nodiscard]] std::optional<uint32_t> NegativeTtlOf(const Record& soa);

[[nodiscard]] Record AddressRecord(Name owner, const IpAddress& address, uint32_t ttl);
[[nodiscard]] Record NameRecord(Name owner, Type type, const Name& target, uint32_t ttl);
[[nodiscard]] Record SoaRecord(Name owner, const Name& mname, const Name& rname, uint32_t ttl);

}  // namespace sluice::dns
