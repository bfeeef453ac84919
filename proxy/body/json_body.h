#pragma once

// JSON bodies as leaves under their pointers. Refused besides what is no JSON: NUL characters, and two keys of one object that
// are equal or differ in case alone, since readers disagree on which of them counts (Go's takes the last and ignores case).
//
//   const auto reading = ReadJson(R"({"a":{"b":[1]}})");   // "", "/a", "/a/b", "/a/b/0"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "policy/body.h"

namespace sluice::proxy {

inline constexpr size_t kMaxBodyDepth = 64;                          ///< arrays and objects open at a time
inline constexpr size_t kMaxBodyValues = 100'000;                    ///< values of one body
inline constexpr size_t kMaxPointerBytes = size_t{4} * 1024 * 1024;  ///< pointers of one body, together

/// The whole text as one value.
[[nodiscard]] policy::BodyReading<policy::JsonLeaf> ReadJson(std::string_view text);

/// The whole text as one message, or as an array of them; pointers begin at the message.
struct JsonMessages {
  bool batch = false;
  std::vector<policy::JsonLeaves> messages{};
  std::string fault{};  ///< as in policy::BodyReading
};
[[nodiscard]] JsonMessages ReadJsonMessages(std::string_view text);

/// The leaf under exactly this pointer, or null. `leaves` are sorted.
[[nodiscard]] const policy::JsonLeaf* FindLeaf(const policy::JsonLeaves& leaves, std::string_view pointer);

/// Whether the object that `leaves` are has no member but those of `names`, which need no escaping in a pointer.
[[nodiscard]] bool HasOnlyMembers(const policy::JsonLeaves& leaves, std::initializer_list<std::string_view> names);

/// ASCII letters in lower case, and the two other characters that fold to ASCII ones (U+017F, U+212A).
[[nodiscard]] std::string FoldCase(std::string_view text);

}  // namespace sluice::proxy
