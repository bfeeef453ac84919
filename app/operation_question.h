#pragma once

// Questions about requests that are judged by what they are for: `ws`, `grpc`, `graphql`, `jsonrpc`, `mcp`, and bodies of pushes
// and of JSON. A question names the body's items; no body is read.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "policy/query.h"

namespace sluice::app {

/// What is said of a body beside the question.
struct AskedBody {
  std::vector<std::string> fields{};                        ///< root fields of GraphQL
  std::string operation{};                                  ///< name of the GraphQL operation
  std::string tool{};                                       ///< of `mcp tools/call`
  std::vector<std::string> refs{};                          ///< of a push, in full
  std::string ref_change{};                                 ///< create, update (where empty) or delete
  std::vector<std::pair<std::string, std::string>> json{};  ///< pointer and value

  [[nodiscard]] bool empty() const {
    return fields.empty() && operation.empty() && tool.empty() && refs.empty() && ref_change.empty() && json.empty();
  }
};

/// A request as it would be sent.
struct OperationRequest {
  std::string asked;   ///< the question in one spelling, without host and path
  std::string method;  ///< "POST"
  std::string url;     ///< as AskUrl takes it
  std::vector<policy::HeaderView> headers{};
  policy::Upgrade upgrade = policy::Upgrade::kNone;
  std::optional<policy::RequestBody> body{};
  std::string note{};  ///< what the question left open
};

[[nodiscard]] bool IsOperationVerb(std::string_view word);
/// kInvalid where the question is not understood.
[[nodiscard]] Result<OperationRequest> ReadOperation(std::string_view verb, std::string_view rest, const AskedBody& body);
/// The body of a push of these refs; nothing where none is named.
[[nodiscard]] Result<std::optional<policy::RequestBody>> PushBody(const AskedBody& body);
/// A JSON body of these values; nothing where none is named.
[[nodiscard]] std::optional<policy::RequestBody> JsonBody(const AskedBody& body);

}  // namespace sluice::app
