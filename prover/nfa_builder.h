#pragma once

// How patterns are put together: nodes, edges and epsilons, then one Finish.

#include <string_view>
#include <vector>

#include "prover/nfa.h"

namespace sluice::prover {

class NfaBuilder {
 public:
  NodeId Add();
  void Edge(NodeId from, const ByteSet& on, NodeId to) { nfa_.nodes[from].edges.push_back({on, to}); }
  void Epsilon(NodeId from, NodeId to) { epsilons_[from].push_back(to); }
  void Accept(NodeId node) { nfa_.nodes[node].accepts = true; }

  /// Without epsilons and dead ends. The builder is of no use after it.
  [[nodiscard]] Nfa Finish(NodeId start);

 private:
  void DropDeadEnds();
  void Close(NodeId from);

  Nfa nfa_;
  std::vector<std::vector<NodeId>> epsilons_;
};

[[nodiscard]] ByteSet ByteOf(char c);
[[nodiscard]] inline ByteSet AllBytes() { return ByteSet().set(); }

/// Each gives the node behind what is added.
NodeId AddByte(NfaBuilder* builder, NodeId from, const ByteSet& on);
NodeId AddText(NfaBuilder* builder, NodeId from, std::string_view text, Case fold);
/// Any number of bytes, none too.
NodeId AddStar(NfaBuilder* builder, NodeId from, const ByteSet& on);

}  // namespace sluice::prover
