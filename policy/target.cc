#include "policy/target.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/hex.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxTarget = 16 * 1024;
constexpr char kHex[] = "0123456789ABCDEF";
// Raw characters that RFC 3986 keeps out of a path although clients send them: they travel escaped.
constexpr std::string_view kEscapeRaw = "\"<>[]^`{|}";
// Escapes that mean the same as the character, for matching (exact point 13). ';' and '/' are apart.
constexpr std::string_view kMatchDecoded = ":@!$&'()*+,=";

bool IsUnreserved(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
         c == '~';
}

void AppendEscape(std::string* out, int byte) {
  *out += '%';
  *out += kHex[byte >> 4];
  *out += kHex[byte & 15];
}

// The value of the escape at `at`, or -1 where it is broken.
int EscapeAt(std::string_view text, size_t at) {
  if (at + 2 >= text.size()) return -1;
  const int high = HexValue(text[at + 1]);
  const int low = HexValue(text[at + 2]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Removes dot segments and empty segments. False where ".." climbs above the root; with `clamp` it stays there instead.
enum class AboveRoot { kRefuse, kClamp };
bool NormalizeSegments(std::string_view path, AboveRoot above, std::string* out) {
  out->clear();
  bool open = true;  // whether the result ends in a slash that the next segment shares
  *out += '/';
  size_t at = 1;
  while (at <= path.size()) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view segment = path.substr(at, end - at);
    const bool last = end == path.size();
    if (segment == "..") {
      if (out->size() <= 1) {
        if (above == AboveRoot::kRefuse) return false;
      } else {
        if (open) out->pop_back();
        out->resize(out->rfind('/') + 1);
      }
      open = true;
    } else if (segment.empty() || segment == ".") {
      if (!open) *out += '/';
      open = true;
    } else {
      if (!open) *out += '/';
      *out += segment;
      open = false;
    }
    if (!last && !open) {
      *out += '/';
      open = true;
    }
    at = end + 1;
  }
  return true;
}

std::string DecodeForMatching(std::string_view path) {
  std::string out;
  out.reserve(path.size());
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '%') {
      const int value = EscapeAt(path, i);
      if (value > 0 && kMatchDecoded.find(static_cast<char>(value)) != std::string_view::npos) {
        out += static_cast<char>(value);
        i += 2;
        continue;
      }
    }
    out += path[i];
  }
  return out;
}

std::string WithSlashesDecoded(std::string_view path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '%' && EscapeAt(path, i) == '/') {
      out += '/';
      i += 2;
    } else {
      out += path[i];
    }
  }
  return out;
}

std::string WithoutParams(std::string_view path) {
  std::string out;
  bool skipping = false;
  for (const char c : path) {
    if (c == '/') skipping = false;
    if (c == ';') skipping = true;
    if (!skipping) out += c;
  }
  return out;
}

bool HasDotSegment(std::string_view path) {
  for (size_t at = 1; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view segment = path.substr(at, end - at);
    if (segment == "." || segment == "..") return true;
    at = end + 1;
  }
  return false;
}

// A server may take %2F for a slash and may drop ";x" from a segment; a deny is tested against each combination.
std::vector<std::string> WideReadings(CanonicalTarget* whole) {
  const CanonicalTarget& target = *whole;
  std::vector<std::string> raw;
  if (target.has_encoded_slash) raw.push_back(WithSlashesDecoded(target.path));
  if (target.has_path_params) {
    raw.push_back(WithoutParams(target.path));
    if (target.has_encoded_slash) raw.push_back(WithoutParams(WithSlashesDecoded(target.path)));
  }
  std::vector<std::string> readings;
  for (const std::string& text : raw) {
    whole->has_hidden_dots |= HasDotSegment(text);
    std::string normal;
    (void)NormalizeSegments(text, AboveRoot::kClamp, &normal);
    readings.push_back(DecodeForMatching(normal));
  }
  return readings;
}

Error PathError(std::string message, size_t column) {
  return Error{Code::kInvalid, std::move(message), 0, SourceSpan{"", 1, static_cast<uint32_t>(column + 1), 1}};
}

}  // namespace

std::string CanonicalTarget::ForUpstream() const { return has_query ? path + '?' + query : path; }

Result<CanonicalTarget> CanonicalizeTarget(std::string_view raw) {
  if (raw.empty() || raw[0] != '/') return Fail(Code::kProtocol, "the request target does not begin with '/'");
  if (raw.size() > kMaxTarget) return Fail(Code::kExhausted, "the request target is longer than 16 KiB");
  for (const char c : raw)
    if (c <= 0x20 || c > 0x7e || c == '#')
      return Fail(Code::kProtocol, "the request target has a control character, a space, a fragment or a raw non-ASCII byte");
  CanonicalTarget target;
  const size_t mark = raw.find('?');
  if (mark != std::string_view::npos) {
    target.has_query = true;
    target.query = raw.substr(mark + 1);
  }
  const std::string_view path = raw.substr(0, mark);
  std::string decoded;
  decoded.reserve(path.size());
  for (size_t i = 0; i < path.size(); ++i) {
    const char c = path[i];
    if (c == '\\') return Fail(Code::kProtocol, "the path has a backslash");
    if (c != '%') {
      if (kEscapeRaw.find(c) != std::string_view::npos) {
        AppendEscape(&decoded, c);
      } else {
        decoded += c;
      }
      continue;
    }
    const int value = EscapeAt(path, i);
    if (value < 0) return Fail(Code::kProtocol, "the path has a broken escape");
    if (value < 0x20 || value == 0x7f) return Fail(Code::kProtocol, "the path has an escaped control character");
    if (value == '\\') return Fail(Code::kProtocol, "the path has an escaped backslash");
    if (IsUnreserved(value)) {
      decoded += static_cast<char>(value);
    } else {
      AppendEscape(&decoded, value);
    }
    i += 2;
  }
  if (!NormalizeSegments(decoded, AboveRoot::kRefuse, &target.path))
    return Fail(Code::kProtocol, "the path climbs above its root");
  target.has_encoded_slash = target.path.find("%2F") != std::string::npos;
  target.has_path_params = target.path.find(';') != std::string::npos;
  if (target.path.find('%') != std::string::npos) target.matched = DecodeForMatching(target.path);
  if (target.has_encoded_slash || target.has_path_params) target.wide_readings = WideReadings(&target);
  return target;
}

Result<PathGlobText> CanonicalizePathGlob(std::string_view raw) {
  if (raw.empty() || raw[0] != '/') return std::unexpected(PathError("a path begins with `/`", 0));
  PathGlobText result;
  for (size_t i = 0; i < raw.size(); ++i) {
    const char c = raw[i];
    if (c == '?') return std::unexpected(PathError("`?` is not part of a path; use the key `query:`", i));
    if (c == '#') return std::unexpected(PathError("`#` is not part of a path", i));
    if (c == '\\') return std::unexpected(PathError("a backslash is never forwarded", i));
    if (c <= 0x20 || c > 0x7e) return std::unexpected(PathError("write this byte percent-encoded", i));
    if (kEscapeRaw.find(c) != std::string_view::npos)
      return std::unexpected(PathError("only `*` and `**` are wildcards; write this character percent-encoded", i));
    if (c == ';') result.has_path_params = true;
    if (c != '%') {
      result.text += c;
      continue;
    }
    const int value = EscapeAt(raw, i);
    if (value < 0) return std::unexpected(PathError("a broken escape; `%` itself is written `%25`", i));
    if (value < 0x20 || value == 0x7f || value == '\\') return std::unexpected(PathError("this character is never forwarded", i));
    if (value == '/') result.has_encoded_slash = true;
    if (IsUnreserved(value) || (value != '*' && kMatchDecoded.find(static_cast<char>(value)) != std::string_view::npos)) {
      result.text += static_cast<char>(value);
    } else {
      AppendEscape(&result.text, value);
    }
    i += 2;
  }
  std::string normal;
  if (!NormalizeSegments(result.text, AboveRoot::kRefuse, &normal) || normal != result.text)
    return std::unexpected(PathError("write the path without `//`, `.` and `..`: no request has them", 0));
  return result;
}

bool IsToken(std::string_view text) {
  if (text.empty()) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

}  // namespace sluice::policy
