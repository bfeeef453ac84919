#pragma once

// One request to the administration and its answer, as values: what routes, authorises and answers needs no socket. Errors are
// JSON for programs and sentences for people: {"error", "code", "detail", "suggest"}.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice::app {

inline constexpr size_t kMaxAdminTarget = 4096;  ///< bytes of path and query
inline constexpr size_t kMaxAdminParameters = 16;

struct AdminRequest {
  std::string method;
  std::string path;                                         ///< decoded, "/v1/policy"; without an empty or dot segment
  std::vector<std::pair<std::string, std::string>> query;   ///< decoded
  std::vector<std::pair<std::string, std::string>> fields;  ///< names in lower case
  std::string body;
  bool from_here = false;  ///< over TCP from an address of this host: in a shared namespace that may be the workload

  /// Null where it is absent. A parameter that comes twice is refused by ReadTarget, a field by the server.
  [[nodiscard]] const std::string* Field(std::string_view name) const;
  [[nodiscard]] const std::string* Parameter(std::string_view name) const;
  /// "1", "true" and an empty value say yes; "0" and "false" no; kInvalid else.
  [[nodiscard]] Result<bool> Says(std::string_view parameter) const;
};

struct AdminResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> fields{};
  std::string body{};
};

/// Fills path and query from a request target in origin form. kInvalid: another form, bad percent encoding, NUL or control
/// characters, dot segments, a parameter twice.
[[nodiscard]] Result<void> ReadTarget(std::string_view target, AdminRequest* out);

/// kInvalid names a parameter that is none of `known`, and those: one that is misspelt must not count as absent.
[[nodiscard]] Result<void> CheckParameters(const AdminRequest& request, std::initializer_list<std::string_view> known);

[[nodiscard]] AdminResponse Problem(int status, std::string_view code, std::string_view error, std::string_view detail = {},
                                    std::string_view suggest = {});
/// 405 with its Allow field.
[[nodiscard]] AdminResponse WrongMethod(std::string_view allow);
[[nodiscard]] std::string_view StatusPhrase(int status);

/// Whether the `Authorization` field has this bearer token; takes as long for every wrong one.
[[nodiscard]] bool HasBearer(const AdminRequest& request, std::string_view token);
/// Compares without telling where the two differ.
[[nodiscard]] bool SameSecret(std::string_view a, std::string_view b);

/// An entity tag of an If-Match or If-None-Match field.
struct EntityTag {
  std::string text;   ///< what stands in the quotes: a revision
  bool weak = false;  ///< `W/"7"`
  bool operator==(const EntityTag&) const = default;
};
/// `"7"`, `"7", W/"8"`, `*` (an empty list). kInvalid: something else.
[[nodiscard]] Result<std::vector<EntityTag>> ReadEntityTags(std::string_view field);
/// RFC 9110 section 8.8.3.2. kStrong, of If-Match: a weak tag is like none. kWeak, of If-None-Match: it is like the strong one.
enum class Comparison : uint8_t { kStrong, kWeak };
/// Whether the list, as ReadEntityTags gives it, names the revision.
[[nodiscard]] bool NamesRevision(const std::vector<EntityTag>& tags, uint64_t revision, Comparison comparison);

}  // namespace sluice::app
