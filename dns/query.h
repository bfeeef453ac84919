#pragma once

// What a client sent, judged before any policy is asked: silence, an answer that needs no policy, or a question.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "dns/message.h"

namespace sluice::dns {

/// A well-formed question of class IN that a policy must now judge.
struct Query {
  Header header;
  Question question;
  std::optional<Edns> edns;
  std::string name;        ///< lower-case text, escapes included; "." for the root
  bool host_name = false;  ///< `name` is one that a policy can name (policy::CanonicalName accepts it)
};

/// Nothing is sent back: too short, or itself a response (an answer could make two servers talk for ever).
struct Silence {};
/// The fault is answered at once; nobody is asked.
struct Refusal {
  Message response;
  std::optional<Query> asked;  ///< set where there was a question worth a record: zone transfers, classes other than IN
};

[[nodiscard]] std::variant<Query, Silence, Refusal> ReadQuery(std::span<const uint8_t> bytes);

/// The most octets that the client takes by UDP: 512 without EDNS, else its own figure within 512..1232.
[[nodiscard]] size_t UdpLimit(const std::optional<Edns>& edns);

}  // namespace sluice::dns
