#include "policy/overlap.h"

#include <algorithm>
#include <set>

namespace sluice::policy {
namespace {

constexpr int kSegment = 256;
constexpr int kAny = 257;
constexpr size_t kMaxCells = 16 * 1024;  // longer pairs are taken to overlap
using Symbols = std::vector<int>;        // a byte, or one of the wildcards

Symbols Expand(const std::vector<Glob::Token>& tokens) {
  Symbols out;
  for (const Glob::Token& token : tokens) {
    if (token.kind == Glob::Kind::kLiteral) {
      for (const char c : token.literal) out.push_back(static_cast<unsigned char>(c));
    } else {
      out.push_back(token.kind == Glob::Kind::kSegment ? kSegment : kAny);
    }
  }
  return out;
}

bool IsWild(int symbol) { return symbol >= kSegment; }
bool Stretches(int wild, int over) { return wild == kAny || over == kSegment || over != '/'; }

// Which pairs of positions can both be reached by one text; row by row, so the cost is the product of the lengths.
bool SymbolsOverlap(const Symbols& a, const Symbols& b) {
  if (a.size() * b.size() > kMaxCells) return true;
  std::vector<std::vector<bool>> reach(a.size() + 1, std::vector<bool>(b.size() + 1, false));
  reach[0][0] = true;
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (!reach[i][j]) continue;
      const bool more_a = i < a.size();
      const bool more_b = j < b.size();
      if (more_a && IsWild(a[i])) {
        reach[i + 1][j] = true;
        if (more_b && Stretches(a[i], b[j])) reach[i][j + 1] = true;
      }
      if (more_b && IsWild(b[j])) {
        reach[i][j + 1] = true;
        if (more_a && Stretches(b[j], a[i])) reach[i + 1][j] = true;
      }
      if (more_a && more_b && !IsWild(a[i]) && a[i] == b[j]) reach[i + 1][j + 1] = true;
    }
  }
  return reach[a.size()][b.size()];
}

// Labels as segments: '.' becomes '/', the one character that kSegment stops at.
Symbols HostSymbols(const HostPattern& host) {
  Symbols out;
  if (host.deep) out.push_back(kAny);
  for (size_t i = 0; i < host.labels.size(); ++i) {
    if (i > 0 || host.deep) out.push_back('/');
    const Symbols label = Expand(host.labels[i].tokens());
    out.insert(out.end(), label.begin(), label.end());
  }
  return out;
}

bool HostsOverlap(const HostPattern& a, const HostPattern& b) {
  using Kind = HostPattern::Kind;
  if (a.kind == Kind::kAny || b.kind == Kind::kAny) return true;
  // A name may lead to the address.
  if (a.kind == Kind::kAddress || b.kind == Kind::kAddress) return true;
  if (a.kind == Kind::kName) return HostMatchesName(b, a.text, false);
  if (b.kind == Kind::kName) return HostMatchesName(a, b.text, false);
  return SymbolsOverlap(HostSymbols(a), HostSymbols(b));
}

std::vector<Cidr> Addresses(const Rule& rule) {
  if (!rule.ip.empty()) return rule.ip;
  return rule.host.cidr ? std::vector<Cidr>{*rule.host.cidr} : std::vector<Cidr>{};
}

// Walks the texts of a pattern and keeps, for each, where in the other patterns it may stand.
class Inclusion {
 public:
  Inclusion(const std::vector<PathPattern>& outer, const PathPattern& inner) : outer_(outer), inner_(inner) {
    // Bytes that no pattern writes are all alike: one of them stands for the others.
    std::set<int> bytes = {'/'};
    for (const PathPattern& pattern : outer)
      for (const int symbol : pattern)
        if (!IsWild(symbol)) bytes.insert(symbol);
    int other = 0;
    while (bytes.contains(other)) ++other;
    bytes.insert(other);
    bytes_.assign(bytes.begin(), bytes.end());
  }

  bool Holds() {
    Places start;
    for (size_t p = 0; p < outer_.size(); ++p) Enter(p, 0, &start);
    Visit(0, std::move(start));
    while (!work_.empty() && holds_) {
      const auto [at, places] = std::move(work_.back());
      work_.pop_back();
      Step(at, places);
    }
    return holds_;
  }

 private:
  using Places = std::set<std::pair<size_t, size_t>>;  // pattern, position

  void Enter(size_t pattern, size_t at, Places* places) const {
    places->insert({pattern, at});
    if (at < outer_[pattern].size() && IsWild(outer_[pattern][at])) Enter(pattern, at + 1, places);
  }

  void Visit(size_t at, Places places) {
    if (!seen_.insert({at, places}).second) return;
    if (seen_.size() > kMaxCells) holds_ = false;
    work_.emplace_back(at, std::move(places));
  }

  [[nodiscard]] Places After(const Places& places, int byte) const {
    Places next;
    for (const auto& [pattern, at] : places) {
      if (at == outer_[pattern].size()) continue;
      const int symbol = outer_[pattern][at];
      if (IsWild(symbol) && Stretches(symbol, byte)) Enter(pattern, at, &next);
      if (symbol == byte) Enter(pattern, at + 1, &next);
    }
    return next;
  }

  void Step(size_t at, const Places& places) {
    if (at == inner_.size()) {
      holds_ = std::any_of(places.begin(), places.end(), [&](const auto& p) { return p.second == outer_[p.first].size(); });
      return;
    }
    const int symbol = inner_[at];
    if (!IsWild(symbol)) return Visit(at + 1, After(places, symbol));
    Visit(at + 1, places);
    for (const int byte : bytes_)
      if (Stretches(symbol, byte)) Visit(at, After(places, byte));
  }

  const std::vector<PathPattern>& outer_;
  const PathPattern& inner_;
  std::vector<int> bytes_;
  std::set<std::pair<size_t, Places>> seen_;
  std::vector<std::pair<size_t, Places>> work_;
  bool holds_ = true;
};

}  // namespace

bool PrefixesOverlap(const std::vector<Cidr>& a, const std::vector<Cidr>& b) {
  if (a.empty() || b.empty()) return true;
  for (const Cidr& x : a)
    for (const Cidr& y : b)
      if (x.Contains(y) || y.Contains(x)) return true;
  return false;
}

bool ProcessesOverlap(const Rule& allow, const Rule& deny) {
  if (allow.by.empty() || deny.by.empty()) return true;
  for (const ExecutablePattern& x : allow.by)
    for (const ExecutablePattern& y : deny.by)
      if (x.sha256 && y.sha256 ? x.sha256 == y.sha256 : x.sha256 || y.sha256 || GlobsOverlap(x.path, y.path)) return true;
  return false;
}

bool HostGlobsOverlap(const HostPattern& a, const HostPattern& b) { return SymbolsOverlap(HostSymbols(a), HostSymbols(b)); }

PathPattern PatternOf(const Glob& path, std::string_view suffix, PathCase fold) {
  PathPattern out = Expand(path.tokens());
  for (const char c : suffix) out.push_back(static_cast<unsigned char>(c));
  if (fold == PathCase::kFoldedBelow) out.push_back(kAny);
  if (fold == PathCase::kExact) return out;
  for (int& symbol : out)
    if (symbol >= 'A' && symbol <= 'Z') symbol |= 0x20;
  return out;
}

PathPattern AnyPath() { return {'/', kAny}; }

bool PathsHold(const std::vector<PathPattern>& outer, const PathPattern& inner) {
  Inclusion inclusion(outer, inner);
  return inclusion.Holds();
}

std::optional<std::string> CommonText(const PathPattern& a, const PathPattern& b) {
  if (a.size() * b.size() > kMaxCells) return "/";
  const size_t width = b.size() + 1;
  constexpr int kUnreached = -2;
  constexpr int kSilent = -1;  // reached without a byte
  std::vector<std::pair<size_t, int>> from((a.size() + 1) * width, {0, kUnreached});
  from[0] = {0, kSilent};
  const auto reach = [&](size_t at, size_t i, size_t j, int byte) {
    if (from[i * width + j].second == kUnreached) from[i * width + j] = {at, byte};
  };
  for (size_t at = 0; at < from.size(); ++at) {
    if (from[at].second == kUnreached) continue;
    const size_t i = at / width;
    const size_t j = at % width;
    const bool more_a = i < a.size();
    const bool more_b = j < b.size();
    if (more_a && IsWild(a[i])) {
      reach(at, i + 1, j, kSilent);
      if (more_b && Stretches(a[i], b[j])) reach(at, i, j + 1, IsWild(b[j]) ? kSilent : b[j]);
    }
    if (more_b && IsWild(b[j])) {
      reach(at, i, j + 1, kSilent);
      if (more_a && Stretches(b[j], a[i])) reach(at, i + 1, j, IsWild(a[i]) ? kSilent : a[i]);
    }
    if (more_a && more_b && !IsWild(a[i]) && a[i] == b[j]) reach(at, i + 1, j + 1, a[i]);
  }
  if (from.back().second == kUnreached) return std::nullopt;
  std::string text;
  for (size_t at = from.size() - 1; at != 0; at = from[at].first)
    if (from[at].second >= 0) text.insert(text.begin(), static_cast<char>(from[at].second));
  return text;
}

bool GlobsOverlap(const Glob& a, const Glob& b) { return SymbolsOverlap(Expand(a.tokens()), Expand(b.tokens())); }

bool GlobOverlapsSuffixed(const Glob& path, const Glob& repo, std::string_view suffix) {
  Symbols symbols = Expand(repo.tokens());
  for (const char c : suffix) symbols.push_back(static_cast<unsigned char>(c));
  return SymbolsOverlap(Expand(path.tokens()), symbols);
}

bool PortsOverlap(const std::vector<PortRange>& a, const std::vector<PortRange>& b) {
  if (a.empty() || b.empty()) return true;
  return std::any_of(a.begin(), a.end(), [&](const PortRange& x) {
    return std::any_of(b.begin(), b.end(), [&](const PortRange& y) { return x.first <= y.last && y.first <= x.last; });
  });
}

bool ConnectionsOverlap(const Rule& allow, const Rule& deny) {
  return HostsOverlap(allow.host, deny.host) && ProcessesOverlap(allow, deny) &&
         PrefixesOverlap(Addresses(allow), Addresses(deny));
}

}  // namespace sluice::policy
