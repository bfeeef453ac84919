#pragma once

// What a request's body asks for, as rules speak of it. proxy/body/ reads a body into this; a policy judges it item by item:
// each allowed by some rule and none denied (docs/policy-language.md, exact point 8). Values only, nothing points elsewhere.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::policy {

/// The readings of a body that a rule may need; a set of bits.
enum BodyKind : uint8_t {
  kBodyJson = 1u << 0,     ///< any JSON text, for `json` keys
  kBodyGraphql = 1u << 1,  ///< a GraphQL request, a batch of them, or its GET form
  kBodyRpc = 1u << 2,      ///< a JSON-RPC 2.0 message or batch (MCP is one)
  kBodyPush = 1u << 3,     ///< the commands of a git push
  kBodyLfs = 1u << 4,      ///< a git LFS batch request
};
using BodyKinds = uint8_t;

/// One value of a JSON text under its pointer (RFC 6901; "" is the whole text). Sorted by pointer where there are several; no
/// pointer stands twice, since texts with duplicate keys are not read.
struct JsonLeaf {
  enum class Type : uint8_t { kString, kNumber, kBoolean, kNull, kArray, kObject };
  std::string pointer;
  Type type = Type::kNull;
  std::string text;  ///< a string decoded; a number as written; "true", "false", "null"; empty for arrays and objects
  bool operator==(const JsonLeaf&) const = default;
};
using JsonLeaves = std::vector<JsonLeaf>;

enum class GraphqlKind : uint8_t { kQuery, kMutation, kSubscription };

/// One root field of one operation, fragments expanded. An operation that only refers to a persisted query is not readable.
struct GraphqlItem {
  GraphqlKind kind = GraphqlKind::kQuery;
  std::string operation;  ///< its name; empty where it has none
  std::string field;      ///< the field's own name, never its alias
  bool operator==(const GraphqlItem&) const = default;
};

/// One call or notification. Responses that a client sends (MCP) are items too, with an empty method.
struct RpcItem {
  std::string method;
  std::optional<std::string> tool{};  ///< params.name where method is "tools/call"
  JsonLeaves message{};               ///< the whole message, for `json` keys
  bool operator==(const RpcItem&) const = default;
};

enum RefChange : uint8_t { kRefCreate = 1u << 0, kRefUpdate = 1u << 1, kRefDelete = 1u << 2 };
using RefChanges = uint8_t;

/// One command of a push. Whether an update is a fast-forward cannot be seen in it.
struct RefUpdate {
  std::string ref;  ///< "refs/heads/main"
  RefChange change = kRefUpdate;
  bool operator==(const RefUpdate&) const = default;
};

enum class LfsOperation : uint8_t { kDownload, kUpload };

/// A body in one reading. What could not be read has `fault` set and no items: no allow that needs this reading matches it, and
/// every deny that does.
template <class Item>
struct BodyReading {
  std::vector<Item> items{};
  std::string fault{};  ///< a sentence without its stop; empty: it was read
  [[nodiscard]] bool readable() const { return fault.empty(); }
};

/// The readings that were asked for (Decision::body_needed); the others are absent.
struct RequestBody {
  std::optional<BodyReading<JsonLeaf>> json{};
  std::optional<BodyReading<GraphqlItem>> graphql{};
  std::optional<BodyReading<RpcItem>> rpc{};
  std::optional<BodyReading<RefUpdate>> push{};
  std::optional<BodyReading<LfsOperation>> lfs{};
};

}  // namespace sluice::policy
