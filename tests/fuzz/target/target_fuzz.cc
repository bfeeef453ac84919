// Request targets and path globs: canonical form is a fixed point, keeps its promises, and no glob takes long.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "policy/glob.h"
#include "policy/target.h"

namespace {

using namespace sluice::policy;

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckTarget(std::string_view raw) {
  const auto target = CanonicalizeTarget(raw);
  if (!target) return;
  Require(target->path.starts_with('/'));
  Require(target->path.find("//") == std::string::npos);
  Require(target->path.find("/../") == std::string::npos && !target->path.ends_with("/.."));
  Require(target->path.find("/./") == std::string::npos && !target->path.ends_with("/."));
  Require(std::all_of(target->path.begin(), target->path.end(),
                      [](char c) { return c > 0x20 && c < 0x7f && c != '\\' && c != '?'; }));
  const auto again = CanonicalizeTarget(target->ForUpstream());
  Require(again.has_value());
  Require(again->path == target->path && again->query == target->query && again->has_query == target->has_query);
  Require(again->ForMatching() == target->ForMatching() && again->wide_readings == target->wide_readings);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find('\n');
  CheckTarget(text.substr(0, cut));
  if (cut == std::string_view::npos) return 0;
  const std::string_view rest = text.substr(cut + 1);
  const auto canonical = CanonicalizePathGlob(rest);
  if (!canonical) return 0;
  const auto glob = Glob::Path(canonical->text);
  if (!glob) return 0;
  (void)glob->Matches(text.substr(0, cut));
  // A glob without wildcards is a path, and matches itself.
  if (const auto itself = CanonicalizeTarget(rest); glob->is_literal() && itself) Require(glob->Matches(itself->ForMatching()));
  return 0;
}
