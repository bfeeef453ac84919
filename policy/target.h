#pragma once

// Host names, paths and method names brought into the one form that policies compare and the proxy sends.
// RFC 3986 section 6.2.2, UTS 46; docs/policy-language.md, exact points 9 to 15.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "policy/query.h"

namespace sluice::policy {

/// A request-target's path and query ("/a/../b?q=1", or "*" refused) in canonical form. Refuses: no leading '/', a control
/// character, a raw space, a fragment, a backslash (raw or escaped), %00, an escaped control character, a broken escape, bytes
/// over 0x7e, a dot segment above the root, more than 16 KiB. %2F is kept and flagged.
[[nodiscard]] Result<CanonicalTarget> CanonicalizeTarget(std::string_view raw);

/// A name as it appears at run time (DNS question, SNI, Host): ASCII lower-cased, one final dot removed; letters, digits,
/// '-' and '_' in labels of 1 to 63, 253 in all. Never maps: a non-ASCII name is refused. An address literal is refused.
[[nodiscard]] std::optional<std::string> CanonicalName(std::string_view raw);

/// A Host header or authority. Exactly one of name and address is set. The port is absent when not written.
struct Authority {
  std::string name;
  std::optional<IpAddress> address;
  std::optional<uint16_t> port;
};
/// "host", "host:443", "1.2.3.4", "[::1]:80". Refuses userinfo, escapes, empty ports, odd IPv4 spellings (0x7f.1, 127.1,
/// 017700000001).
[[nodiscard]] std::optional<Authority> ParseAuthority(std::string_view raw);

/// A path of a rule in the form that is compared: as CanonicalizeTarget, but the escapes of :@!$&'()*+,= are decoded too, '*' is
/// a wildcard and an escaped one stays "%2A". An error says what
/// stands against the text; its column counts from 1 inside `raw`.
struct PathGlobText {
  std::string text;
  bool has_encoded_slash = false;
  bool has_path_params = false;
};
[[nodiscard]] Result<PathGlobText> CanonicalizePathGlob(std::string_view raw);

/// Whether a name would be read as an IPv4 address by some program: its last label is a number, decimal or 0x.
[[nodiscard]] bool EndsInNumber(std::string_view name);

/// RFC 9110 token; methods are case-sensitive.
[[nodiscard]] bool IsToken(std::string_view text);

}  // namespace sluice::policy
