#pragma once

// The media type of a request, where a rule depends on it: a body that one program reads as JSON is a form to another, and only
// its type says which.

#include <span>
#include <string_view>

#include "policy/query.h"

namespace sluice::policy {

/// The value of the one Content-Type; empty where there is none, or more than one.
[[nodiscard]] std::string_view ContentTypeOf(std::span<const HeaderView> headers);

/// application/json, or an application type that ends in "+json" or is called json-rpc, jsonrequest; with no parameter but
/// charset=utf-8.
[[nodiscard]] bool IsJson(std::string_view content_type);
/// application/vnd.git-lfs+json, the same way.
[[nodiscard]] bool IsLfsJson(std::string_view content_type);
/// application/grpc, or application/grpc+SUBTYPE.
[[nodiscard]] bool IsGrpc(std::string_view content_type);

}  // namespace sluice::policy
