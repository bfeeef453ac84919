#pragma once

// OpenShell's globs in native ones. Its matcher (Rego's glob.match over the globset library) has `?`, `[…]`, `{a,b}` and `\`
// beside `*` and `**`; `/**/` stands for no segment too; and a `**` glued to other characters is a `*`, whatever the manual says.
// An allow is never rewritten to match more, a deny never to match less.

#include <string>
#include <string_view>
#include <vector>

#include "policy/rule_text.h"

namespace sluice::policy {

struct RewrittenGlob {
  std::vector<std::string> globs;  ///< their union; empty where nothing can match
  bool empty_segments = false;     ///< a `/**/` was written out for no segment
  bool glued_stars = false;        ///< a glued `**` was read as `*`
  bool widened = false;            ///< a deny that now matches more
};

/// A path of a URL or of an executable: `/` separates.
[[nodiscard]] Result<RewrittenGlob> RewritePathGlob(Effect effect, std::string_view text);
/// A query value.
[[nodiscard]] Result<RewrittenGlob> RewriteValueGlob(Effect effect, std::string_view text);

}  // namespace sluice::policy
