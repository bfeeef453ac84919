#pragma once

// Patterns as nondeterministic automata over bytes, small enough to be run together. A state set is a sorted list of node
// numbers; epsilons are gone once a pattern is finished.

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/rule.h"

namespace sluice::prover {

using ByteSet = std::bitset<256>;
using NodeId = uint32_t;

struct Nfa {
  struct Edge {
    ByteSet on;
    NodeId to = 0;
  };
  struct Node {
    std::vector<Edge> edges{};
    std::vector<NodeId> closure{};  ///< where one is when one is here: nodes with edges, and the accepting ones
    bool accepts = false;
    bool absorbs = false;  ///< accepts now and whatever follows
    uint32_t far = 0;      ///< the fewest bytes after which it is accepted
  };
  std::vector<Node> nodes{};
  std::vector<NodeId> start{};
  std::vector<ByteSet> sets{};  ///< that some edge is on, each once
};

enum class Case : uint8_t { kExact, kFolded };  ///< folded: a lower-case letter of the pattern stands for both

/// Joined globs; none stands for any text.
[[nodiscard]] Nfa AnyOf(const std::vector<policy::Glob>& globs);
[[nodiscard]] Nfa OfGlob(const policy::Glob& glob);
/// One of the words, in any case of letters.
[[nodiscard]] Nfa OfWords(const std::vector<std::string>& words);
/// application/json and its like, and application/grpc, with the parameters that they may have (policy/media_type.h).
[[nodiscard]] Nfa OfJsonTypes();
[[nodiscard]] Nfa OfGrpcTypes();
/// That of git LFS.
[[nodiscard]] Nfa OfLfsType();
/// What GraphQL takes for a name.
[[nodiscard]] Nfa OfGraphqlNames();
/// The paths at which a git rule speaks (policy/match.cc): `suffix` is "/info/refs" or "/git-upload-pack".
[[nodiscard]] Nfa OfRepositories(const policy::Rule& rule, std::string_view suffix);

/// The calls of git LFS below "/info/lfs/" of a git rule's repositories, as policy/match.cc tells them apart.
enum class LfsCalls : uint8_t {
  kObjects,  ///< an object, neither the batch call nor one that verifies
  kPosts,    ///< what `git receive-pack` posts beside the batch call: verifications and locks
  kAny,      ///< as a deny reads it: whatever is no batch call
};
[[nodiscard]] Nfa OfLfsCalls(const policy::Rule& rule, LfsCalls calls);
/// The texts of the pattern that `text` is no part of.
[[nodiscard]] Nfa Without(const Nfa& pattern, std::string_view text);

/// The texts of both patterns.
[[nodiscard]] Nfa Both(const Nfa& a, const Nfa& b);

/// Bytes that no edge of the patterns tells apart get the same number; numbers are dense from 0.
struct ByteClasses {
  std::array<uint16_t, 256> of{};
  uint16_t count = 0;
};
[[nodiscard]] ByteClasses ClassesOf(const std::vector<const Nfa*>& patterns, const std::vector<ByteSet>& more);

}  // namespace sluice::prover
