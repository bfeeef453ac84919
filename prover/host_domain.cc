#include "prover/host_domain.h"

#include <algorithm>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "policy/match.h"
#include "prover/string_atoms.h"

namespace sluice::prover {
namespace {

using policy::Glob;
using policy::HostPattern;

constexpr size_t kMaxName = 253;
constexpr size_t kMaxHostStates = 400'000;

// Labels from the right, as policy/compiled.h has them, but for all policies at once and for exact names too.
struct Node {
  std::unordered_map<std::string, uint32_t> exact{};
  std::vector<std::pair<uint32_t, uint32_t>> globs{};  ///< number of the label glob, node
  bool deep = false;                                   ///< a "**." stands before this suffix
};

// Where a name stands, read from the right.
struct State {
  std::vector<uint32_t> active{};  ///< node and whether an allow reaches it too, sorted
  std::vector<uint32_t> deep{};    ///< the same, of nodes whose "**." has its label
  bool operator==(const State&) const = default;
};

struct StateHash {
  size_t operator()(const State& state) const noexcept {
    size_t hash = state.active.size();
    for (const auto* list : {&state.active, &state.deep})
      for (const uint32_t item : *list) hash = (hash ^ item) * 0x9e3779b97f4a7c15u + (hash >> 31) + 1;
    return hash;
  }
};

void SortUnique(std::vector<uint32_t>* items) {
  std::sort(items->begin(), items->end());
  items->erase(std::unique(items->begin(), items->end()), items->end());
}

class HostAutomaton {
 public:
  explicit HostAutomaton(Budget* budget) : budget_(budget), nodes_(1) { a_label_ = OfGlob(*Glob::Text("xn--*")); }

  void Insert(const HostPattern& host) {
    if (!seen_.insert(host.text).second) return;
    uint32_t node = 0;
    if (host.kind == HostPattern::Kind::kName) {
      std::string_view rest = host.text;
      while (!rest.empty()) {
        const size_t dot = rest.rfind('.');
        node = Child(node, std::string(dot == std::string_view::npos ? rest : rest.substr(dot + 1)));
        rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(0, dot);
      }
      return;
    }
    for (size_t i = host.labels.size(); i-- > 0;)
      node = host.labels[i].is_literal() ? Child(node, host.labels[i].text()) : GlobChild(node, host.labels[i]);
    nodes_[node].deep |= host.deep;
  }

  // Shortest names first, so the first name of a state is its shortest.
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    std::unordered_set<State, StateHash> done;
    std::priority_queue<Open> queue;
    queue.push({"", {{1}, {}}});  // the root, as an allow reaches it
    while (!queue.empty()) {
      Open open = queue.top();
      queue.pop();
      if (!done.insert(open.state).second) continue;
      if (done.size() > kMaxHostStates) budget_->Exhaust("the wildcard hosts combine in too many ways");
      if (!budget_->Spend(4)) break;
      if (!open.name.empty()) names.push_back(open.name);
      if (open.state.active.empty()) continue;
      for (const std::string& label : Labels(open)) {
        std::string name = open.name.empty() ? label : label + '.' + open.name;
        if (name.size() > kMaxName) continue;
        State next = Step(open.state, label);
        if (!done.contains(next)) queue.push({std::move(name), std::move(next)});
      }
    }
    return names;
  }

 private:
  struct Open {
    std::string name;
    State state;
    bool operator<(const Open& other) const {
      return name.size() != other.name.size() ? name.size() > other.name.size() : name > other.name;
    }
  };

  uint32_t Child(uint32_t node, std::string label) {
    const auto [at, fresh] = nodes_[node].exact.try_emplace(std::move(label), static_cast<uint32_t>(nodes_.size()));
    const uint32_t child = at->second;
    if (fresh) nodes_.emplace_back();
    return child;
  }

  uint32_t GlobChild(uint32_t node, const Glob& label) {
    const auto [at, fresh] = glob_numbers_.try_emplace(label.text(), static_cast<uint32_t>(globs_.size()));
    const uint32_t glob = at->second;
    if (fresh) {
      globs_.push_back(label);
      patterns_.push_back(std::make_unique<Nfa>(OfGlob(label)));
    }
    for (const auto& [number, child] : nodes_[node].globs)
      if (number == glob) return child;
    const auto child = static_cast<uint32_t>(nodes_.size());
    nodes_[node].globs.emplace_back(glob, child);
    nodes_.emplace_back();
    return child;
  }

  State Step(const State& from, const std::string& label) {
    State to;
    to.deep = from.deep;
    for (const uint32_t item : from.active) {
      const Node& node = nodes_[item >> 1];
      const uint32_t reach = item & 1;  // 1: allows and denies alike
      if (node.deep) to.deep.push_back(item);
      if (const auto exact = node.exact.find(label); exact != node.exact.end()) to.active.push_back(exact->second << 1 | reach);
      for (const auto& [glob, child] : node.globs) {
        if (!budget_->Spend(1)) return to;
        if (policy::LabelMatches(globs_[glob], label, true)) {
          to.active.push_back(child << 1 | reach);
        } else if (policy::LabelMatches(globs_[glob], label, false)) {
          to.active.push_back(child << 1);
        }
      }
    }
    SortUnique(&to.active);
    SortUnique(&to.deep);
    return to;
  }

  // The labels that lead to different places from here.
  std::vector<std::string> Labels(const Open& open) {
    std::unordered_set<std::string> literals;
    std::set<uint32_t> globs;
    for (const uint32_t item : open.state.active) {
      const Node& node = nodes_[item >> 1];
      for (const auto& [label, child] : node.exact) literals.insert(label);
      for (const auto& [glob, child] : node.globs)
        if (globs_[glob].text() != "*") globs.insert(glob);
    }
    const bool top = open.name.empty();
    std::vector<std::string> labels = AtomsOf(globs, top).Members(literals, budget_);
    labels.insert(labels.end(), literals.begin(), literals.end());
    return labels;
  }

  const StringAtoms& AtomsOf(const std::set<uint32_t>& globs, bool top) {
    auto& atoms = atoms_[{globs, top}];
    if (atoms) return *atoms;
    std::vector<const Nfa*> patterns;
    for (const uint32_t glob : globs) patterns.push_back(patterns_[glob].get());
    if (!globs.empty()) patterns.push_back(&a_label_);
    atoms = std::make_unique<StringAtoms>(std::move(patterns), top ? Language::kTopLabel : Language::kLabel, budget_);
    return *atoms;
  }

  Budget* budget_;
  std::vector<Node> nodes_;
  std::unordered_set<std::string> seen_;
  std::vector<Glob> globs_;
  std::unordered_map<std::string, uint32_t> glob_numbers_;
  std::vector<std::unique_ptr<Nfa>> patterns_;
  Nfa a_label_;
  std::map<std::pair<std::set<uint32_t>, bool>, std::unique_ptr<StringAtoms>> atoms_;
};

// Names alone: each is an atom, and all the others are one.
std::vector<std::string> ExactAtoms(const std::unordered_set<std::string>& names, Budget* budget) {
  std::vector<std::string> atoms = StringAtoms({}, Language::kTopLabel, budget).Members(names, budget);
  atoms.insert(atoms.end(), names.begin(), names.end());
  std::sort(atoms.begin(), atoms.end(),
            [](const std::string& a, const std::string& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
  return atoms;
}

}  // namespace

std::vector<std::string> HostAtoms(const std::vector<const HostPattern*>& hosts, Budget* budget) {
  std::unordered_set<std::string> names;
  bool globs = false;
  for (const HostPattern* host : hosts) {
    if (host->kind == HostPattern::Kind::kName) names.insert(host->text);
    globs |= host->kind == HostPattern::Kind::kGlob;
  }
  if (!globs) return ExactAtoms(names, budget);
  HostAutomaton automaton(budget);
  for (const HostPattern* host : hosts)
    if (host->kind == HostPattern::Kind::kName || host->kind == HostPattern::Kind::kGlob) automaton.Insert(*host);
  return automaton.Names();
}

}  // namespace sluice::prover
