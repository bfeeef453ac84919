#pragma once

// The values of one text dimension, cut into atoms: texts that match the same patterns are one. Only the shortest member of each
// atom is needed, since every predicate is constant on an atom.

#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "prover/budget.h"
#include "prover/nfa.h"

namespace sluice::prover {

/// Which texts exist at all.
enum class Language : uint8_t {
  kLabel,        ///< one label of a host
  kTopLabel,     ///< the last label of a host, which is no number
  kExecutable,   ///< an absolute path of a file, lexically normal
  kQueryValue,   ///< any bytes
  kHeaderValue,  ///< printable, without space at the ends
};

[[nodiscard]] bool InLanguage(Language language, std::string_view text);

/// By length, then by text.
[[nodiscard]] inline bool ShorterFirst(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

/// The patterns run together over a language.
class StringAtoms {
 public:
  StringAtoms(std::vector<const Nfa*> patterns, Language language, Budget* budget);

  /// The shortest text of each atom that has one outside `excluded`, shortest first.
  [[nodiscard]] std::vector<std::string> Members(const std::unordered_set<std::string>& excluded, Budget* budget) const;

 private:
  struct State {
    uint8_t place = 0;               ///< in the language
    std::vector<uint64_t> inside{};  ///< pattern number and node, sorted
    bool operator==(const State&) const = default;
  };
  struct StateHash {
    size_t operator()(const State& state) const noexcept;
  };
  struct Found {
    uint32_t parent = 0;
    uint8_t byte = 0;
    uint32_t length = 0;
    uint32_t atom = UINT32_MAX;    ///< the set of patterns it accepts, where the text may end here
    std::vector<uint32_t> next{};  ///< by class; UINT32_MAX is nowhere
  };

  void Explore(Budget* budget);
  [[nodiscard]] uint32_t AtomOf(const State& state);
  [[nodiscard]] State Step(const State& from, uint8_t byte) const;
  [[nodiscard]] std::string TextOf(uint32_t state) const;
  using Steps = std::vector<std::vector<uint32_t>>;  ///< by state: those that lead to it
  [[nodiscard]] std::string Outside(uint32_t atom, const Steps& before, const std::unordered_set<std::string>& excluded,
                                    Budget* budget) const;

  std::vector<const Nfa*> patterns_;
  Language language_;
  std::vector<std::vector<uint8_t>> classes_;  ///< members, the preferred first; classes in order of preference
  std::vector<Found> found_;
  std::map<std::vector<uint32_t>, uint32_t> signatures_;
  std::vector<uint32_t> shortest_;  ///< by atom: the state where its shortest text ends
};

}  // namespace sluice::prover
