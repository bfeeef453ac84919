#include "policy/glob.h"

#include <cstring>

namespace sluice::policy {
namespace {

void AppendLiteral(std::vector<Glob::Token>* tokens, char c) {
  if (tokens->empty() || tokens->back().kind != Glob::Kind::kLiteral) tokens->push_back({Glob::Kind::kLiteral, ""});
  tokens->back().literal += c;
}

// First place at or after `from` where `needle` stands; memmem is linear in glibc.
size_t Find(std::string_view subject, std::string_view needle, size_t from) {
  const void* hit = memmem(subject.data() + from, subject.size() - from, needle.data(), needle.size());
  return hit == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(hit) - subject.data());
}

Error GlobError(std::string message, size_t column) {
  return Error{Code::kInvalid, std::move(message), 0, SourceSpan{"", 1, static_cast<uint32_t>(column + 1), 1}};
}

constexpr size_t kNone = static_cast<size_t>(-1);

// Where matching resumes after a mismatch: the newest wildcard of each kind, and how far it has already stretched.
struct Wildcard {
  size_t token = kNone;
  size_t position = 0;
};

}  // namespace

Result<Glob> Glob::Path(std::string_view text) {
  if (text.size() > kMaxGlob) return std::unexpected(GlobError("a glob is at most 1024 bytes", 0));
  Glob glob;
  glob.text_ = text;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 3) == "%2A") {
      AppendLiteral(&glob.tokens_, '*');
      i += 2;
    } else if (text[i] != '*') {
      AppendLiteral(&glob.tokens_, text[i]);
    } else if (text.substr(i, 2) != "**") {
      glob.tokens_.push_back({Kind::kSegment, ""});
    } else {
      const bool starts = i > 0 && text[i - 1] == '/';
      const bool ends = i + 2 == text.size() || text[i + 2] == '/';
      if (!starts || !ends) return std::unexpected(GlobError("`**` stands alone between slashes; inside a segment write `*`", i));
      glob.tokens_.push_back({Kind::kAny, ""});
      ++i;
    }
  }
  return glob;
}

Result<Glob> Glob::Text(std::string_view text) {
  if (text.size() > kMaxGlob) return std::unexpected(GlobError("a glob is at most 1024 bytes", 0));
  Glob glob;
  glob.text_ = text;
  for (const char c : text) {
    if (c != '*') {
      AppendLiteral(&glob.tokens_, c);
    } else if (glob.tokens_.empty() || glob.tokens_.back().kind != Kind::kAny) {
      glob.tokens_.push_back({Kind::kAny, ""});
    }
  }
  return glob;
}

// Greedy: what follows a wildcard is taken at its leftmost place, which leaves most room to the wildcards after it. Only the
// newest '*' may need to stretch, and when it meets a slash, only the newest '**' before it.
bool Glob::Matches(std::string_view subject) const {
  Wildcard segment;
  Wildcard any;
  size_t token = 0;
  size_t position = 0;
  while (true) {
    if (token == tokens_.size()) {
      if (position == subject.size()) return true;
    } else if (tokens_[token].kind == Kind::kLiteral) {
      if (subject.substr(position).starts_with(tokens_[token].literal)) {
        position += tokens_[token].literal.size();
        ++token;
        continue;
      }
    } else if (tokens_[token].kind == Kind::kSegment) {
      segment = {token++, position};
      continue;
    } else {
      if (token + 1 == tokens_.size()) return true;
      any = {token++, position};
      segment = {};
      const std::string& next = tokens_[token].literal;
      // A last literal can only stand at the end.
      if (token + 1 == tokens_.size() && tokens_[token].kind == Kind::kLiteral)
        return subject.size() - position >= next.size() && subject.ends_with(next);
      continue;
    }
    // Mismatch: stretch the newest wildcard that still can.
    if (segment.token != kNone && segment.position < subject.size() && subject[segment.position] != '/') {
      position = ++segment.position;
      token = segment.token + 1;
      continue;
    }
    if (any.token == kNone || any.position >= subject.size()) return false;
    segment = {};
    ++any.position;
    token = any.token + 1;
    if (tokens_[token].kind == Kind::kLiteral) {
      const size_t hit = Find(subject, tokens_[token].literal, any.position);
      if (hit == std::string_view::npos) return false;
      any.position = hit;
    }
    position = any.position;
  }
}

}  // namespace sluice::policy
