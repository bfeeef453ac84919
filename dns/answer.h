#pragma once

// The policy of answers, as functions from a query and what was found to the response message.
// Answers echo the client's spelling of the name (draft-vixie-dnsext-dns0x20), clear AD, and carry no client option back.

#include <cstdint>
#include <span>
#include <string_view>

#include "base/ip.h"
#include "dns/message.h"
#include "dns/query.h"

namespace sluice::dns {

inline constexpr uint32_t kMinTtl = 5;
inline constexpr uint32_t kMaxTtl = 300;
inline constexpr uint32_t kDenialTtl = 5;  ///< a policy may be changed at any moment
inline constexpr uint32_t kLocalTtl = 60;  ///< localhost, reverse names of synthetic addresses
inline constexpr size_t kMaxEdeText = 200;
inline constexpr size_t kMaxRelayed = 100;  ///< records of one relayed answer

/// A denied name: NXDOMAIN, a SOA of 5 s, EDE 15 with `why` where the client speaks EDNS.
[[nodiscard]] Message Denied(const Query& query, std::string_view why);
/// The same as REFUSED, which speaks of the asking and not of the name.
[[nodiscard]] Message Refused(const Query& query, std::string_view why);
/// Nothing of this type, and no word about what lies below the name (RFC 8020). `why` empty: not a denial, no EDE.
[[nodiscard]] Message NoData(const Query& query, std::string_view why);
/// Addresses exist and none may be told: NODATA with EDE 17, since the name itself is allowed.
[[nodiscard]] Message Filtered(const Query& query, std::string_view why);
/// What the upstream says does not exist.
[[nodiscard]] Message NoSuchName(const Query& query);
[[nodiscard]] Message Failed(const Query& query, Rcode rcode, Ede code, std::string_view why);
/// The addresses of the question's own family.
[[nodiscard]] Message WithAddresses(const Query& query, std::span<const IpAddress> addresses, uint32_t ttl);
[[nodiscard]] Message WithName(const Query& query, const Name& target, uint32_t ttl);
/// RFC 8482: one HINFO instead of everything.
[[nodiscard]] Message MinimalAny(const Query& query);

enum class TargetVerdict : uint8_t { kAllowed, kForbidden };

/// An upstream answer of another type, written afresh: records of the asked type at the end of the CNAME chain, under the
/// question's own name; TTLs clamped; SVCB and HTTPS stripped, and dropped whole where `judge` forbids their target.
/// `judge` is called with a canonical name, and the port where the record names one.
template <class Judge>
[[nodiscard]] Message Relayed(const Query& query, const Message& upstream, Judge&& judge);

namespace internal {
[[nodiscard]] Message RelayedRecords(const Query& query, const Message& upstream);
/// Where a SVCB or HTTPS record leads; the owner where it names itself.
struct ServiceTarget {
  Name name;
  std::optional<uint16_t> port{};
};
[[nodiscard]] std::optional<ServiceTarget> SvcbTarget(const Record& record);
}  // namespace internal

template <class Judge>
Message Relayed(const Query& query, const Message& upstream, Judge&& judge) {
  Message response = internal::RelayedRecords(query, upstream);
  std::erase_if(response.answers, [&](const Record& record) {
    if (record.type != Type::kSvcb && record.type != Type::kHttps) return false;
    const auto target = internal::SvcbTarget(record);
    if (!target) return true;
    const bool here = target->name.EqualsIgnoringCase(query.question.name);
    return (!here || target->port) && judge(target->name.Canonical(), target->port) == TargetVerdict::kForbidden;
  });
  return response.answers.empty() ? NoData(query, {}) : response;
}

}  // namespace sluice::dns
