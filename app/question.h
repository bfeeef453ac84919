#pragma once

// Questions to a policy in words, as `explain` and policy unit tests ask them: "POST https://api.github.com/x",
// "https://a.test/" (a GET), "git fetch-pack github.com/octo/hello", "ws a.test/s", "grpc a.test pkg.Svc/Get",
// "graphql mutation a.test/graphql", "mcp tools/call a.test/mcp", "connect a.test:443", "tcp a.test:443", "dns a.test [TYPE]",
// "unix /run/x.sock".

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/operation_question.h"
#include "base/clock.h"
#include "base/ip.h"
#include "base/result.h"
#include "policy/credential.h"
#include "policy/snapshot.h"

namespace sluice::app {

/// Who asks, when, and of which policy.
struct Asker {
  policy::SnapshotPtr snapshot;
  WallTime now{};
  std::optional<policy::Process> process{};  ///< nothing: unknown
  std::optional<IpAddress> address{};        ///< where the name leads; nothing: not resolved
  std::vector<std::pair<std::string, std::string>>
      headers{};  ///< names in lower case; in place of what the question brings along
  AskedBody body{};
  std::optional<std::string> sent_body{};  ///< the body as it is sent, to be read as the enforcer reads it
  std::string content_type{};              ///< of sent_body; empty: application/json, or git's own for a push

  [[nodiscard]] const policy::Process* who() const { return process ? &*process : nullptr; }
};

/// The way that an allowed request or connection leaves by.
struct Travel {
  const policy::UpstreamProxy* via = nullptr;  ///< into the snapshot; null: directly
  const policy::Credential* credential = nullptr;
  policy::RuleRef pinned_by = policy::RuleRef::kNone;
};

struct Answer {
  std::string asked;  ///< the question in one spelling
  policy::Decision decision;
  std::string carried{};  ///< "opaque", "inspected", or nothing
  policy::Advice advice{};
  std::string note{};
  std::optional<Travel> travel{};  ///< of what is allowed and leaves by a connection
};

/// kInvalid where the question is not understood; the message says what is wrong with it.
[[nodiscard]] Result<Answer> Ask(const Asker& asker, std::string_view question);

/// An executable as the kernel names it, with its digest where the policy asks for one and the file is here.
[[nodiscard]] Result<policy::Process> ProcessNamed(const std::string& path, const policy::Snapshot& snapshot);
/// "NAME: VALUE", the name in lower case.
[[nodiscard]] Result<std::pair<std::string, std::string>> ParseHeader(std::string_view text);
/// `until`'s forms; a bare date is its first instant.
[[nodiscard]] Result<WallTime> ParseInstant(std::string_view text);

}  // namespace sluice::app
