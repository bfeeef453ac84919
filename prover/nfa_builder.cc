#include "prover/nfa_builder.h"

#include <algorithm>
#include <deque>
#include <unordered_set>
#include <utility>

namespace sluice::prover {
namespace {

ByteSet Letter(char c, Case fold) {
  ByteSet set = ByteOf(c);
  if (fold == Case::kFolded && c >= 'a' && c <= 'z') set.set(static_cast<unsigned char>(c - 0x20));
  if (fold == Case::kFolded && c >= 'A' && c <= 'Z') set.set(static_cast<unsigned char>(c + 0x20));
  return set;
}

}  // namespace

NodeId NfaBuilder::Add() {
  nfa_.nodes.emplace_back();
  epsilons_.emplace_back();
  return static_cast<NodeId>(nfa_.nodes.size() - 1);
}

Nfa NfaBuilder::Finish(NodeId start) {
  DropDeadEnds();
  std::unordered_set<ByteSet> sets;
  for (NodeId i = 0; i < nfa_.nodes.size(); ++i) {
    Close(i);
    for (const Nfa::Edge& edge : nfa_.nodes[i].edges)
      if (sets.insert(edge.on).second) nfa_.sets.push_back(edge.on);
  }
  nfa_.start = nfa_.nodes[start].closure;
  return std::move(nfa_);
}

// How far each node is from what is accepted. One from which nothing is accepted is not led to: products have many.
void NfaBuilder::DropDeadEnds() {
  constexpr uint32_t kNever = UINT32_MAX;
  struct Step {
    NodeId from;
    uint32_t bytes;
  };
  std::vector<std::vector<Step>> before(nfa_.nodes.size());
  std::deque<std::pair<NodeId, uint32_t>> queue;
  for (NodeId i = 0; i < nfa_.nodes.size(); ++i) {
    for (const Nfa::Edge& edge : nfa_.nodes[i].edges) before[edge.to].push_back({i, 1});
    for (const NodeId next : epsilons_[i]) before[next].push_back({i, 0});
    nfa_.nodes[i].far = kNever;
    if (nfa_.nodes[i].accepts) queue.emplace_back(i, 0);
  }
  while (!queue.empty()) {
    const auto [node, far] = queue.front();
    queue.pop_front();
    if (nfa_.nodes[node].far <= far) continue;
    nfa_.nodes[node].far = far;
    for (const Step& step : before[node]) {
      if (step.bytes == 0) queue.emplace_front(step.from, far);
      if (step.bytes == 1) queue.emplace_back(step.from, far + 1);
    }
  }
  for (NodeId i = 0; i < nfa_.nodes.size(); ++i) {
    std::erase_if(nfa_.nodes[i].edges, [&](const Nfa::Edge& edge) { return nfa_.nodes[edge.to].far == kNever; });
    std::erase_if(epsilons_[i], [&](NodeId next) { return nfa_.nodes[next].far == kNever; });
  }
}

void NfaBuilder::Close(NodeId from) {
  std::vector<NodeId> reached{from};
  for (size_t i = 0; i < reached.size(); ++i)
    for (const NodeId next : epsilons_[reached[i]])
      if (std::find(reached.begin(), reached.end(), next) == reached.end()) reached.push_back(next);
  Nfa::Node& node = nfa_.nodes[from];
  const bool accepts = std::any_of(reached.begin(), reached.end(), [&](NodeId n) { return nfa_.nodes[n].accepts; });
  node.absorbs = accepts && std::any_of(node.edges.begin(), node.edges.end(),
                                        [&](const Nfa::Edge& e) { return e.to == from && e.on.all(); });
  for (const NodeId n : reached)
    if (!nfa_.nodes[n].edges.empty() || nfa_.nodes[n].accepts) node.closure.push_back(n);
  std::sort(node.closure.begin(), node.closure.end());
}

ByteSet ByteOf(char c) {
  ByteSet set;
  set.set(static_cast<unsigned char>(c));
  return set;
}

NodeId AddByte(NfaBuilder* builder, NodeId from, const ByteSet& on) {
  const NodeId next = builder->Add();
  builder->Edge(from, on, next);
  return next;
}

NodeId AddText(NfaBuilder* builder, NodeId from, std::string_view text, Case fold) {
  for (const char c : text) from = AddByte(builder, from, Letter(c, fold));
  return from;
}

// A node that loops, and one after it.
NodeId AddStar(NfaBuilder* builder, NodeId from, const ByteSet& on) {
  const NodeId loop = builder->Add();
  builder->Epsilon(from, loop);
  builder->Edge(loop, on, loop);
  const NodeId after = builder->Add();
  builder->Epsilon(loop, after);
  return after;
}

}  // namespace sluice::prover
