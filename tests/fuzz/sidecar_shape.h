#pragma once

// The shapes of what a sidecar reads: lookups and their answers, the kernel's rules, the administration's requests, bundles.

#include "tests/fuzz/shape.h"

namespace sluice::fuzz {

// DNS messages (RFC 1035 section 4): behind the header of twelve octets questions and records.

inline size_t DnsNameLength(std::string_view rest) {
  for (size_t at = 0; at < rest.size();) {
    const auto octet = static_cast<unsigned char>(rest[at]);
    if (octet >= 0xc0) return at + 2;
    if (octet == 0) return at + 1;
    at += 1 + octet;
  }
  return rest.size();
}

// What follows a question's class would be a TTL beyond any, or is the start of OPT.
inline bool IsDnsQuestion(std::string_view rest) {
  const size_t name = DnsNameLength(rest);
  if (rest.size() < name + 10) return true;
  return detail::Big(rest, name + 4, 4) >= 1U << 24 || detail::Big(rest, name + 4, 3) == 41;
}
inline size_t DnsLength(std::string_view rest) {
  const size_t name = DnsNameLength(rest);
  if (IsDnsQuestion(rest)) return name + 4;
  return name + 10 + detail::Big(rest, name + 8, 2);
}
inline void MendDns(std::string* record) {
  const size_t name = DnsNameLength(*record);
  if (!IsDnsQuestion(*record)) detail::PutBig(record, name + 8, 2, (record->size() - name - 10) & 0xffff);
}
inline void CountDns(std::string* header, std::span<const std::string> records) {
  size_t questions = 0;
  size_t additional = 0;
  for (const std::string& record : records) {
    const size_t name = DnsNameLength(record);
    if (IsDnsQuestion(record)) {
      ++questions;
    } else if (detail::Big(record, name, 2) == 41) {
      ++additional;
    }
  }
  detail::PutBig(header, 4, 2, questions);
  detail::PutBig(header, 6, 2, records.size() - questions - additional);
  detail::PutBig(header, 8, 2, 0);
  detail::PutBig(header, 10, 2, additional);
}
inline constexpr std::string_view kDnsRecords[] = {
    "\x01"
    "a\x04test\0\0\x01\0\x01"sv,  // a.test, A
    "\x01"
    "a\x04test\0\0\x41\0\x01"sv,                               // and HTTPS
    "\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x5d\xb8\xd8\x22"sv,  // an address of it
    "\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x02\xc0\x0c"sv,          // an alias of itself
    "\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01"
    "b\xc0\x0e"sv,  // of another
    "\x01"
    "b\xc0\x0e\0\x01\0\x01\0\0\0\x3c\0\x04\x5d\xb8\xd8\x23"sv,                                       // whose address this is
    "\xc0\x0c\0\x1c\0\x01\x80\0\0\0\0\x10\x26\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\x01"sv,                  // AAAA, TTL of 2^31
    "\xc0\x0e\0\x06\0\x01\0\0\0\x3c\0\x16\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x05"sv,  // SOA
    "\xc0\x0c\0\x41\0\x01\0\0\0\x3c\0\x0a\0\x01\0\0\x01\0\x03\x02h2"sv,                              // HTTPS with its protocols
    "\xc0\x0c\0\x10\0\x01\0\0\0\x3c\0\x03\x02hi"sv,                                                  // TXT
    "\0\0\x29\x04\xd0\0\0\0\0\0\0"sv,                                                                // OPT
    "\0\0\x29\x04\xd0\0\x01\0\0\0\x04\0\x0a\0\0"sv,  // of version 1, with an option
};
inline constexpr Shape kDns{12, DnsLength, MendDns, kDnsRecords, CountDns};

// Netlink messages: a length in the machine's order, each aligned to four octets.

inline size_t NetlinkLength(std::string_view rest) {
  uint32_t length = 0;
  if (rest.size() < 16) return 0;
  std::memcpy(&length, rest.data(), sizeof length);
  return length < 16 || length > rest.size() ? 0 : (size_t{length} + 3) / 4 * 4;
}
inline void MendNetlink(std::string* record) {
  if (record->size() < 16) return;
  const auto length = static_cast<uint32_t>(record->size());
  std::memcpy(record->data(), &length, sizeof length);
  record->resize((record->size() + 3) / 4 * 4);
}
// Elements of sets are read by code of our own. libnftnl ends the process where an attribute of another message is not what it
// must be: the kernel is trusted that far, and those messages are only moved, doubled and dropped.
inline bool IsElements(std::string_view record) {
  return record.size() >= 16 && record[4] == '\x0c' && record[5] == '\x0a';  // NFT_MSG_NEWSETELEM of nftables
}
inline constexpr Shape kNetlink{0, NetlinkLength, MendNetlink, {}, nullptr, IsElements};

// Requests to the administration: words of their line, and of their JSON or YAML.

inline constexpr std::string_view kAdminWords[] = {"GET /v1/policy\n"sv,
                                                   "PUT /v1/policy\n"sv,
                                                   "PUT /v1/policy?prove=1&apply=1\n"sv,
                                                   "PATCH /v1/policy\n"sv,
                                                   "PUT /v1/policy/rules/first\n"sv,
                                                   "DELETE /v1/policy/rules/first\n"sv,
                                                   "POST /v1/explain\n"sv,
                                                   "GET /v1/sets?limit=1\n"sv,
                                                   "GET /v1/dns/192.0.2.1\n"sv,
                                                   "run "sv,
                                                   "?"sv,
                                                   "&limit=18446744073709551616"sv,
                                                   "%2f"sv,
                                                   "version: 1\n"sv,
                                                   "rules:\n"sv,
                                                   "  - allow: GET b.test\n"sv,
                                                   "  - deny: GET a.test\n"sv,
                                                   "    id: first\n"sv,
                                                   "    until: 2027-01-01\n"sv,
                                                   "{\"add\":[{\"allow\":\"GET c.test\"}]}"sv,
                                                   "{\"remove\":[\"first\"]}"sv,
                                                   "{\"question\":\"GET https://a.test/\"}"sv,
                                                   "\"id\":\"x\","sv,
                                                   "\"by\":[\"/usr/bin/a\"],"sv,
                                                   "\"note\":\"' }\","sv,
                                                   "{"sv,
                                                   "}"sv,
                                                   "["sv,
                                                   "]"sv,
                                                   ","sv};
inline constexpr Shape kAdminRequest{0, WordLength, nullptr, kAdminWords};

// Bundles, their signatures, and what is kept of them: lines.

inline constexpr std::string_view kBundleLines[] = {"# sluice-bundle serial=7\n"sv,
                                                    "# sluice-bundle serial=18446744073709551615\n"sv,
                                                    "# sluice-bundle serial=18446744073709551616\n"sv,
                                                    "# sluice-bundle serial=-1\n"sv,
                                                    "# sluice-bundle\n"sv,
                                                    "version: 1\n"sv,
                                                    "-----BEGIN PUBLIC KEY-----\n"sv,
                                                    "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n"sv,
                                                    "-----END PUBLIC KEY-----\n"sv,
                                                    "\"serial\": 3, "sv,
                                                    "\r\n"sv};
inline constexpr Shape kBundle{0, LineLength, nullptr, kBundleLines};

}  // namespace sluice::fuzz
