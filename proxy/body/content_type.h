#pragma once

// What a request says its body is. Only spellings that every server takes alike are told apart; the rest is ambiguous.

#include <cstdint>
#include <span>
#include <string_view>

#include "policy/query.h"

namespace sluice::proxy {

enum class ContentKind : uint8_t {
  kNone,       ///< no Content-Type: readers guess
  kJson,       ///< application/json, application/…+json, application/json-rpc, application/jsonrequest
  kGraphql,    ///< application/graphql
  kPush,       ///< application/x-git-receive-pack-request
  kForm,       ///< application/x-www-form-urlencoded
  kMultipart,  ///< multipart/…, such as GraphQL file uploads
  kOther,
  kAmbiguous,  ///< several fields, a charset other than UTF-8, other parameters, a malformed value, a name with `_` for `-`
};

[[nodiscard]] ContentKind KindOfContent(std::span<const policy::HeaderView> headers);

/// Why a body of this kind cannot be read as JSON: a sentence without its stop.
[[nodiscard]] std::string_view WhyNotJson(ContentKind kind);

/// Whether a field is one that CGI programs cannot tell from `name`, since they write `-` as `_`.
[[nodiscard]] bool HasUnderscoredField(std::span<const policy::HeaderView> headers, std::string_view name);

}  // namespace sluice::proxy
