#include "policy/overlap.h"

#include <algorithm>

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

bool PrefixesOverlap(const std::vector<Cidr>& a, const std::vector<Cidr>& b) {
  if (a.empty() || b.empty()) return true;
  for (const Cidr& x : a)
    for (const Cidr& y : b)
      if (x.Contains(y) || y.Contains(x)) return true;
  return false;
}

std::vector<Cidr> Addresses(const Rule& rule) {
  if (!rule.ip.empty()) return rule.ip;
  return rule.host.cidr ? std::vector<Cidr>{*rule.host.cidr} : std::vector<Cidr>{};
}

bool ProcessesOverlap(const Rule& allow, const Rule& deny) {
  if (allow.by.empty() || deny.by.empty()) return true;
  for (const ExecutablePattern& x : allow.by)
    for (const ExecutablePattern& y : deny.by)
      if (x.sha256 && y.sha256 ? x.sha256 == y.sha256 : x.sha256 || y.sha256 || GlobsOverlap(x.path, y.path)) return true;
  return false;
}

}  // namespace

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
