// The prover against brute force: small policies over small worlds, in which each policy's reach is written down tuple by tuple
// through the enforcer's decisions. Verdicts and the rules that grant must be the same.

#include <charconv>
#include <cstring>
#include <random>

#include "tests/prover/brute_force.h"

namespace sluice::prover {
namespace {

constexpr size_t kFamily = 24;  // policies, of which every two are compared

// Related policies: each an edit of one before it, so that most differ in little.
size_t CheckFamily(const World& world, const Draw& draw, size_t* given_up) {
  std::vector<Member> family;
  family.push_back(MemberOf(world, DrawPolicy(world, draw)));
  while (family.size() < kFamily) {
    const bool fresh = draw(8) == 0;
    family.push_back(
        MemberOf(world, fresh ? DrawPolicy(world, draw) : DrawEdit(world, family[draw(family.size())].policy, draw)));
  }
  size_t pairs = 0;
  for (size_t i = 0; i < family.size(); ++i) {
    for (size_t j = 0; j <= i; ++j) {
      // The other way round is the same question: what one gains the other loses. So one of the two is drawn.
      const bool turned = draw(2) == 0;
      CheckPair(world, family[turned ? i : j], family[turned ? j : i], given_up);
      if (testing::Test::HasFatalFailure()) return pairs;
      ++pairs;
    }
  }
  return pairs;
}

class Differential : public testing::TestWithParam<size_t> {};

// A whole number of the environment; `otherwise` where there is none. 0 where it is no number.
size_t FromEnvironment(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  size_t number = 0;
  const char* end = text + std::strlen(text);
  return std::from_chars(text, end, number).ptr == end ? number : 0;
}

// SLUICE_SEED draws other policies, SLUICE_PAIRS compares so many in each world, SLUICE_TIMES so many times the usual.
TEST_P(Differential, AgreesWithBruteForce) {
  const World& world = Worlds()[GetParam()];
  std::mt19937 random(static_cast<unsigned>(FromEnvironment("SLUICE_SEED", 1)));
  const Draw draw = [&](size_t n) { return random() % n; };
  size_t pairs = 0;
#ifdef SLUICE_SANITIZED
  constexpr size_t kSlowness = 4;  // the memory faults are looked for here, and the usual build has the numbers
#else
  constexpr size_t kSlowness = 1;
#endif
  const size_t enough = FromEnvironment("SLUICE_PAIRS", FromEnvironment("SLUICE_TIMES", 1) * world.pairs / kSlowness);
  ASSERT_GT(enough, 0U) << "SLUICE_PAIRS and SLUICE_TIMES are whole numbers above 0";
  size_t given_up = 0;
  while (pairs < enough) {
    pairs += CheckFamily(world, draw, &given_up);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_LT(given_up, pairs / 4);
  RecordProperty("pairs", std::to_string(pairs));
}

INSTANTIATE_TEST_SUITE_P(Worlds, Differential, testing::Range(size_t{0}, Worlds().size()),
                         [](const auto& info) { return Worlds()[info.param].name; });

}  // namespace
}  // namespace sluice::prover
