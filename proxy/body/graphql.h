#pragma once

// GraphQL requests: which operation would run, its kind, name and root fields. The document is parsed by the grammar of the 2021
// specification (executable definitions alone); a request that names no text to judge, such as one for a persisted query, is
// not readable, nor is one that two servers could run differently.
//
//   ReadGraphqlJson(R"({"query":"query Q { a: viewer { id } ...F } fragment F on Query { node }"})");
//   // {kQuery, "Q", "viewer"}, {kQuery, "Q", "node"}

#include <cstddef>
#include <string_view>

#include "policy/body.h"

namespace sluice::proxy {

inline constexpr size_t kMaxGraphqlDepth = 64;        ///< selection sets, lists and objects open at a time
inline constexpr size_t kMaxGraphqlTokens = 100'000;  ///< of one document
inline constexpr size_t kMaxGraphqlItems = 1000;      ///< root fields of one body
inline constexpr size_t kMaxGraphqlBatch = 100;       ///< requests of one body

using GraphqlReading = policy::BodyReading<policy::GraphqlItem>;

/// `{"query": …, "operationName": …, "variables": …, "extensions": …}`, or an array of such.
[[nodiscard]] GraphqlReading ReadGraphqlJson(std::string_view text);

/// A document alone, as application/graphql. `operation_name` selects; empty: there must be one operation.
[[nodiscard]] GraphqlReading ReadGraphqlDocument(std::string_view text, std::string_view operation_name);

/// The GET form, out of a query string as it was sent.
[[nodiscard]] GraphqlReading ReadGraphqlQuery(std::string_view query);

/// Whether a query string holds a parameter that some server would take for part of a GraphQL request, beside the body.
[[nodiscard]] bool QueryHoldsGraphql(std::string_view query);

}  // namespace sluice::proxy
