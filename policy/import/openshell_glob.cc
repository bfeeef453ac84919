#include "policy/import/openshell_glob.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::policy {
namespace {

constexpr size_t kMaxAlternatives = 64;

std::unexpected<Error> GlobError(std::string message) {
  return std::unexpected(Error{Code::kInvalid, std::move(message), 0, {}});
}

// One symbol of a pattern: a character that stands for itself, or a wildcard.
struct Symbol {
  enum class Kind : uint8_t { kCharacter, kStar, kAnyOne };
  Kind kind = Kind::kCharacter;
  char character = 0;
};
using Symbols = std::vector<Symbol>;

// The alternatives of `{a,b}`, one level deep.
Result<std::vector<std::string>> ExpandBraces(std::string_view text) {
  const size_t open = text.find('{');
  if (open == std::string_view::npos) {
    if (text.find('}') != std::string_view::npos) return GlobError("a `}` without its `{`");
    return std::vector<std::string>{std::string(text)};
  }
  const size_t close = text.find('}', open);
  const std::string_view inside = text.substr(open + 1, close == std::string_view::npos ? 0 : close - open - 1);
  if (close == std::string_view::npos || inside.find('{') != std::string_view::npos || text.find('\\') != std::string_view::npos)
    return GlobError("alternatives `{a,b}` inside others, unclosed or with escapes; write them out as rules of their own");
  const auto tails = ExpandBraces(text.substr(close + 1));
  if (!tails) return tails;
  std::vector<std::string> out;
  for (size_t at = 0; at <= inside.size();) {
    const size_t comma = std::min(inside.find(',', at), inside.size());
    for (const std::string& tail : *tails)
      out.push_back(fmt::format("{}{}{}", text.substr(0, open), inside.substr(at, comma - at), tail));
    if (out.size() > kMaxAlternatives) return GlobError("too many alternatives; write them out as rules of their own");
    at = comma + 1;
  }
  return out;
}

Result<Symbols> ReadSymbols(std::string_view text) {
  Symbols out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      if (++i == text.size()) return GlobError("a `\\` at the end");
      out.push_back({Symbol::Kind::kCharacter, text[i]});
    } else if (c == '*') {
      out.push_back({Symbol::Kind::kStar, '*'});
    } else if (c == '?') {
      out.push_back({Symbol::Kind::kAnyOne, '?'});
    } else if (c == '[') {
      // `[]a]` and `[!]a]` hold a bracket.
      size_t from = i + 1;
      if (from < text.size() && (text[from] == '!' || text[from] == '^')) ++from;
      const size_t close = text.find(']', from + 1);
      if (close == std::string_view::npos) return GlobError("a `[` is not closed");
      out.push_back({Symbol::Kind::kAnyOne, '['});
      i = close;
    } else {
      out.push_back({Symbol::Kind::kCharacter, c});
    }
  }
  return out;
}

std::vector<Symbols> Segments(const Symbols& symbols) {
  std::vector<Symbols> out(1);
  for (const Symbol& symbol : symbols) {
    if (symbol.kind == Symbol::Kind::kCharacter && symbol.character == '/') {
      out.emplace_back();
    } else {
      out.back().push_back(symbol);
    }
  }
  return out;
}

bool IsStar(const Symbol& symbol) { return symbol.kind == Symbol::Kind::kStar; }
bool IsTree(const Symbols& segment) { return segment.size() == 2 && IsStar(segment[0]) && IsStar(segment[1]); }

class PathRewriter {
 public:
  PathRewriter(Effect effect, RewrittenGlob* out) : effect_(effect), out_(out) {}

  Result<void> Rewrite(std::string_view pattern) {
    const auto symbols = ReadSymbols(pattern);
    if (!symbols) return std::unexpected(symbols.error());
    std::vector<Symbols> segments = Segments(*symbols);
    // A path begins with a slash: only a tree may stand before the first one.
    if (!segments[0].empty() && !IsTree(segments[0])) return {};
    if (segments[0].empty()) segments.erase(segments.begin());
    heads_ = {""};
    for (size_t i = 0; i < segments.size(); ++i) {
      const auto more = Append(segments[i], i + 1 == segments.size());
      if (!more) return std::unexpected(more.error());
      if (!*more) break;
    }
    for (std::string& head : heads_) out_->globs.push_back(head.empty() ? "/" : std::move(head));
    if (out_->globs.size() > kMaxAlternatives) return GlobError("too many alternatives; write them out as rules of their own");
    return {};
  }

 private:
  // False where the rest of the pattern is swallowed.
  Result<bool> Append(const Symbols& segment, bool last) {
    if (IsTree(segment)) {
      if (!last) {
        out_->empty_segments = true;
        const std::vector<std::string> without = heads_;
        for (std::string& head : heads_) head += "/**";
        heads_.insert(heads_.end(), without.begin(), without.end());
        if (heads_.size() > kMaxAlternatives) return GlobError("too many `/**/`; write the alternatives out");
        return true;
      }
      for (std::string& head : heads_) head += "/**";
      return true;
    }
    std::string text;
    for (size_t i = 0; i < segment.size(); ++i) {
      const Symbol& symbol = segment[i];
      if (symbol.kind == Symbol::Kind::kAnyOne) {
        if (effect_ == Effect::kAllow)
          return GlobError(
              fmt::format("`{}` matches one character there, which no glob here does; use `*` or write the paths out",
                          symbol.character == '[' ? "[…]" : "?"));
        out_->widened = true;
        if (!text.ends_with('*')) text += '*';
      } else if (IsStar(symbol)) {
        const bool glued = i + 1 < segment.size() && IsStar(segment[i + 1]);
        if (glued) out_->glued_stars = true;
        if (glued && effect_ == Effect::kDeny) return SwallowRest(text);
        if (!text.ends_with('*')) text += '*';
      } else {
        text += symbol.character == '*' ? "%2A" : std::string(1, symbol.character);
      }
    }
    for (std::string& head : heads_) head += '/' + text;
    return true;
  }

  // Whichever way a glued `**` in a deny is read, all below what stands before it is refused.
  bool SwallowRest(const std::string& text) {
    out_->widened = true;
    std::vector<std::string> below;
    for (std::string& head : heads_) {
      head += '/' + text + (text.ends_with('*') ? "" : "*");
      below.push_back(head + "/**");
    }
    heads_.insert(heads_.end(), below.begin(), below.end());
    return false;
  }

  Effect effect_;
  RewrittenGlob* out_;
  std::vector<std::string> heads_;
};

void Unique(std::vector<std::string>* list) {
  std::sort(list->begin(), list->end());
  list->erase(std::unique(list->begin(), list->end()), list->end());
}

}  // namespace

Result<RewrittenGlob> RewritePathGlob(Effect effect, std::string_view text) {
  const auto patterns = ExpandBraces(text);
  if (!patterns) return std::unexpected(patterns.error());
  RewrittenGlob out;
  for (const std::string& pattern : *patterns) {
    PathRewriter rewriter(effect, &out);
    if (auto done = rewriter.Rewrite(pattern); !done) return std::unexpected(done.error());
  }
  Unique(&out.globs);
  return out;
}

Result<RewrittenGlob> RewriteValueGlob(Effect effect, std::string_view text) {
  const auto patterns = ExpandBraces(text);
  if (!patterns) return std::unexpected(patterns.error());
  RewrittenGlob out;
  for (const std::string& pattern : *patterns) {
    const auto symbols = ReadSymbols(pattern);
    if (!symbols) return std::unexpected(symbols.error());
    std::string glob;
    for (const Symbol& symbol : *symbols) {
      if (symbol.kind == Symbol::Kind::kCharacter) {
        if (symbol.character == '*') return GlobError("an escaped `*` has no form in a query value here");
        glob += symbol.character;
        continue;
      }
      if (symbol.kind == Symbol::Kind::kAnyOne) {
        if (effect == Effect::kAllow) return GlobError("`?` and `[…]` have no form in a query value here; use `*`");
        out.widened = true;
      }
      if (!glob.ends_with('*')) glob += '*';
    }
    out.globs.push_back(std::move(glob));
  }
  Unique(&out.globs);
  return out;
}

}  // namespace sluice::policy
