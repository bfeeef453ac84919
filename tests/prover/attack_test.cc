// Whole policies as text, all keys mixed, against requests drawn from the same few words: what the enforcer lets out under one
// policy and not under the other must be a gain to the prover. Each pair uses a few words only, so that rules meet.
// SLUICE_ATTACK_PAIRS and SLUICE_ATTACK_SEED make a longer run.

#include <fmt/format.h>

#include <cstdlib>

#include "policy/compiled.h"
#include "tests/prover/attack_attempts.h"
#include "tests/prover/support.h"

namespace sluice::prover {
namespace {

using policy::Snapshot;

struct Outcome {
  bool reached = false;
  bool denied = false;  ///< by a deny rule
};

Outcome Try(const Snapshot& snapshot, const Attempt& a) {
  const policy::Process* process = a.process ? &*a.process : nullptr;
  const auto denied = [](const policy::Decision& d) { return d.reason == policy::Reason::kDenyRule; };
  if (a.kind == Attempt::Kind::kLookup) {
    if (a.host.empty()) return {};
    const auto name = snapshot.DecideName({process, a.host, a.type, a.now});
    return {name.verdict == policy::NameVerdict::kAllow, denied(name.decision)};
  }
  if (a.kind == Attempt::Kind::kSocket) {
    if (a.target.path.ends_with('/')) return {};
    const auto decision = snapshot.DecideUnix({process, a.target.path, a.now});
    return {decision.allowed, denied(decision)};
  }
  policy::ConnectQuery query;
  query.process = process;
  query.host = a.host;
  query.address = a.address;
  query.port = a.port;
  query.transport = a.kind == Attempt::Kind::kUdp ? policy::Transport::kUdp : policy::Transport::kTcp;
  query.now = a.now;
  const auto connect = snapshot.DecideConnect(query);
  using policy::ConnectVerdict;
  switch (a.kind) {
    case Attempt::Kind::kUdp:
      return {connect.allowed(), denied(connect.decision)};
    case Attempt::Kind::kTcp:
      return {connect.verdict == ConnectVerdict::kOpaqueTcp, denied(connect.decision)};
    case Attempt::Kind::kTls:
      return {connect.verdict == ConnectVerdict::kOpaqueTcp || connect.verdict == ConnectVerdict::kOpaqueTls, false};
    default:
      break;
  }
  std::vector<policy::HeaderView> headers;
  for (const auto& [name, value] : a.headers) headers.emplace_back(name, value);
  policy::RequestQuery request;
  request.connection = query;
  request.scheme = a.scheme;
  request.method = a.method;
  request.target = &a.target;
  request.headers = headers;
  const auto decision = snapshot.DecideRequest(request);
  return {decision.allowed && connect.allowed(), denied(decision)};
}

bool Gains(const Proof& proof) {
  return proof.verdict == Verdict::kUnknown || proof.verdict == Verdict::kWidened || proof.verdict == Verdict::kIncomparable;
}
bool Loses(const Proof& proof) {
  return proof.verdict == Verdict::kUnknown || proof.verdict == Verdict::kNarrowed || proof.verdict == Verdict::kIncomparable;
}

policy::Rule OnlyRule(const std::string& text) { return Loaded(text)->compiled().rules.at(0); }

size_t FromEnvironment(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// All questions about one pair of policies, and every attempt against each answer.
class Pair {
 public:
  explicit Pair(Random& r) : random_(r), vocabulary_(r) {
    base_text_ = DrawDraft(r, vocabulary_);
    head_text_ = Edited(r, vocabulary_, base_text_);
    base_ = Loaded(base_text_.Text());
    head_ = Loaded(head_text_.Text());
    options_.at = kStart;
    options_.limit = 2'000'000;
    compared_ = Compare(*base_, *head_, options_);
    Known("compare", compared_);
    never_text_ = DrawLoadable(r, vocabulary_, false);
    always_text_ = DrawLoadable(r, vocabulary_, true);
  }

  void Run() {
    if (!never_text_.empty()) {
      never_ = Loaded(never_text_);
      never_proof_ = CheckNever(*head_, OnlyRule(never_text_), options_);
      Known("never", never_proof_);
    }
    if (!always_text_.empty()) {
      always_ = Loaded(always_text_);
      always_proof_ = CheckAlways(*head_, OnlyRule(always_text_), options_);
      Known("always", always_proof_);
      Options accepting = options_;
      accepting.accepted = {OnlyRule(always_text_)};
      accepting_proof_ = Compare(*base_, *head_, accepting);
      Known("accepted", accepting_proof_);
    }
    for (size_t i = 0; i < 1200 && !failed_; ++i) {
      const Attempt attempt = DrawAttempt(random_);
      Judge(attempt);
    }
  }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool given_up() const { return given_up_; }
  [[nodiscard]] size_t differences() const { return differences_; }

 private:
  void Judge(const Attempt& a) {
    const bool base = Try(*base_, a).reached;
    const bool head = Try(*head_, a).reached;
    differences_ += base != head ? 1 : 0;
    if (head && !base && !Gains(compared_)) Fail("missed widening", a, compared_);
    if (base && !head && !Loses(compared_)) Fail("missed loss", a, compared_);
    if (never_ && head && Try(*never_, a).denied && !Gains(never_proof_)) Fail("missed never", a, never_proof_);
    if (!always_) return;
    const bool always = Try(*always_, a).reached;
    if (always && !head && !Loses(always_proof_)) Fail("missed always", a, always_proof_);
    if (head && !base && !always && !Gains(accepting_proof_)) Fail("missed beside the accepted", a, accepting_proof_);
  }
  // A bound that is reached is an answer that fails closed; a witness that does not hold is a fault.
  void Known(const char* what, const Proof& proof) {
    if (proof.verdict != Verdict::kUnknown) return;
    if (!proof.replay_failed) {
      given_up_ = true;
      return;
    }
    failed_ = true;
    ADD_FAILURE() << what << " is unknown: " << Shown(proof) << "\n" << Texts();
  }
  void Fail(const char* what, const Attempt& a, const Proof& proof) {
    failed_ = true;
    ADD_FAILURE() << what << ": " << a.Text() << "\n" << Shown(proof) << "\n" << Texts();
  }
  [[nodiscard]] std::string Texts() const {
    return "base:\n" + base_text_.Text() + "head:\n" + head_text_.Text() + "never:\n" + never_text_ + "always or accepted:\n" +
           always_text_;
  }

  Random& random_;
  Vocabulary vocabulary_;
  Options options_;
  Draft base_text_, head_text_;
  std::string never_text_, always_text_;
  policy::SnapshotPtr base_, head_, never_, always_;
  Proof compared_, never_proof_, always_proof_, accepting_proof_;
  bool failed_ = false;
  bool given_up_ = false;
  size_t differences_ = 0;
};

TEST(Attack, NothingIsLetOutThatTheProverDoesNotSee) {
  const size_t pairs = FromEnvironment("SLUICE_ATTACK_PAIRS", 800);
  const size_t seed = FromEnvironment("SLUICE_ATTACK_SEED", 20241004);
  size_t failures = 0;
  size_t differences = 0;
  size_t given_up = 0;
  for (size_t i = FromEnvironment("SLUICE_ATTACK_FROM", 0); i < pairs && failures < 3; ++i) {
    Random random(seed * 1000003 + i);
    SCOPED_TRACE(fmt::format("pair {} of seed {}", i, seed));
    Pair pair(random);
    if (!pair.failed()) pair.Run();
    failures += pair.failed() ? 1 : 0;
    differences += pair.differences();
    given_up += pair.given_up() ? 1 : 0;
  }
  EXPECT_LE(given_up, 2 + pairs / 300);
  EXPECT_GT(differences, pairs / 2);  // the policies do differ where they are asked
}

}  // namespace
}  // namespace sluice::prover
