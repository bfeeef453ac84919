#pragma once

// The spellings a secret takes in a request: base64 (RFC 4648), percent-encoding (RFC 3986), a JSON string (RFC 8259).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::proxy {

[[nodiscard]] std::string Base64Encode(std::string_view bytes);
/// What a lenient reader takes it for: either alphabet, with or without padding. Absent where another character stands in it.
[[nodiscard]] std::optional<std::string> Base64Decode(std::string_view text);

/// Everything but unreserved characters becomes %XX, upper case. "/" too, unless it is `kept`.
[[nodiscard]] std::string PercentEncode(std::string_view bytes, char kept = '\0');
enum class Plus : uint8_t { kLiteral, kSpace };
/// Escapes decoded once; a malformed one stays as it is.
[[nodiscard]] std::string PercentDecode(std::string_view text, Plus plus);

/// The inside of a JSON string.
[[nodiscard]] std::string JsonEscape(std::string_view text);

/// Lower case, and '-' for whatever is neither a letter nor a digit: names that some server takes for the same fold to the same
/// (CGI, WSGI and PHP know no difference between "X-Api-Key" and "x_api.key").
[[nodiscard]] std::string FoldFieldName(std::string_view name);
/// Whether `name` folds to `folded`.
[[nodiscard]] bool FoldsTo(std::string_view name, std::string_view folded);

/// ASCII letters to lower case.
[[nodiscard]] std::string LowerCase(std::string_view text);

}  // namespace sluice::proxy
