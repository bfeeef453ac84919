#pragma once

// Two policies, what the prover should say of them, and the shortest witness of each side.

#include <string>

#include "tests/prover/support.h"

namespace sluice::prover {

struct Case {
  const char* what;
  std::string base;
  std::string head;
  Verdict verdict;
  const char* gain = "";
  const char* loss = "";
};

inline void Check(const Case& c) {
  const Options options{.at = kNow};
  const auto base = Loaded(c.base);
  const auto head = Loaded(c.head);
  const Proof proof = Compare(*base, *head, options);
  EXPECT_EQ(proof.verdict, c.verdict) << c.what << "\n" << Shown(proof);
  if (*c.gain != 0) EXPECT_TRUE(Has(proof.gains, c.gain)) << c.what << ": " << c.gain << "\n" << Shown(proof);
  if (*c.loss != 0) EXPECT_TRUE(Has(proof.losses, c.loss)) << c.what << ": " << c.loss << "\n" << Shown(proof);
  EXPECT_EQ(proof.gains.empty(), c.verdict == Verdict::kEqual || c.verdict == Verdict::kNarrowed) << c.what;
  EXPECT_EQ(proof.losses.empty(), c.verdict == Verdict::kEqual || c.verdict == Verdict::kWidened) << c.what;
  // The same question the other way round.
  const Proof turned = Compare(*head, *base, options);
  EXPECT_EQ(turned.gains.size(), proof.losses.size()) << c.what << "\n" << Shown(turned);
  EXPECT_EQ(turned.losses.size(), proof.gains.size()) << c.what << "\n" << Shown(turned);
  EXPECT_EQ(Compare(*head, *head, options).verdict, Verdict::kEqual) << c.what;
}

inline std::string Allow(const std::string& rule) { return "  - allow: " + rule + "\n"; }
inline std::string Deny(const std::string& rule) { return "  - deny: " + rule + "\n"; }
inline std::string Key(const std::string& key) { return "    " + key + "\n"; }

inline constexpr auto kWidened = Verdict::kWidened;
inline constexpr auto kNarrowed = Verdict::kNarrowed;
inline constexpr auto kEqual = Verdict::kEqual;
inline constexpr auto kIncomparable = Verdict::kIncomparable;

}  // namespace sluice::prover
