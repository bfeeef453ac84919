// What a proof costs. Loading is apart: its time is the counter `load_ms`, once for both policies.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "policy/io/load.h"
#include "prover/prove.h"

namespace {

using namespace sluice;

const WallTime kNow = std::chrono::sys_days{std::chrono::year{2026} / 11 / 29};

policy::SnapshotPtr Loaded(const std::string& rules) {
  auto snapshot = policy::LoadText("version: 1\nrules:\n" + rules, "bench.yaml");
  if (!snapshot) {
    fmt::print(stderr, "{}\n", policy::RenderError(snapshot.error(), false));
    std::exit(2);
  }
  return *snapshot;
}

void Run(benchmark::State& state, const std::string& base_text, const std::string& head_text) {
  const auto begin = std::chrono::steady_clock::now();
  const auto base = Loaded(base_text);
  const auto head = Loaded(head_text);
  const std::chrono::duration<double, std::milli> load = std::chrono::steady_clock::now() - begin;
  prover::Proof proof;
  for (auto _ : state) proof = prover::Compare(*base, *head, {.at = kNow});
  state.counters["load_ms"] = load.count();
  state.counters["steps"] = static_cast<double>(proof.steps);
  state.counters["gains"] = static_cast<double>(proof.gains.size());
  state.SetLabel(std::string(prover::VerdictText(proof.verdict)) + (proof.why_unknown.empty() ? "" : ": " + proof.why_unknown));
}

// 500 rules with a host wildcard and a path glob each; one path is opened, one rule is new.
std::string Globs(bool edited) {
  std::string text;
  for (int i = 0; i < 500; ++i) {
    const bool opened = edited && i == 250;
    text += fmt::format("  - allow: GET,POST '*.team{}.example.com/v{}/*/items/{}'\n", i % 100, i, opened ? "**" : "*");
  }
  if (edited) text += "  - allow: GET new.example.com/**\n";
  return text;
}
std::string Unquoted(std::string text) {
  std::erase(text, '\'');
  return text;
}
void FiveHundredRulesWithAThousandGlobs(benchmark::State& state) { Run(state, Unquoted(Globs(false)), Unquoted(Globs(true))); }

// The same globs at one host: nothing is set apart by name.
std::string OneHost(bool edited) {
  std::string text;
  for (int i = 0; i < 500; ++i)
    text += fmt::format("  - allow: GET api.example.com/team{}/*/v{}/{}\n", i % 100, i, edited && i == 250 ? "**" : "*");
  return text;
}
void FiveHundredGlobsAtOneHost(benchmark::State& state) { Run(state, OneHost(false), OneHost(true)); }

std::string Exact(bool edited) {
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += fmt::format("  - allow: {} host{}.zone{}.example.com/**\n", edited && i == 2500 ? "GET,POST" : "GET", i, i % 50);
  return text;
}
void FiveThousandExactHosts(benchmark::State& state) { Run(state, Exact(false), Exact(true)); }

// A deny for all hosts is dropped, so that every host differs.
void FiveThousandHostsThatAllDiffer(benchmark::State& state) {
  Run(state, Exact(false) + "  - deny: GET **/secret/**\n", Exact(false));
}

// Globs of which every combination can be told apart.
std::string Adversarial(size_t count, bool edited) {
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text +=
        fmt::format("  - allow: GET api.example.com/**/x{}/**\n", edited && i == count / 2 ? "changed" : fmt::format("{}", i));
  return text;
}
void FortyContainingGlobs(benchmark::State& state) { Run(state, Adversarial(40, false), Adversarial(40, true)); }

// The head allows what contains every word, the base what lacks one of them: nothing is gained, and that takes a search.
void FortyContainingGlobsUnderOne(benchmark::State& state) {
  std::string base = "  - allow: GET api.example.com/**\n";
  for (int i = 0; i < 40; ++i) base += fmt::format("  - deny: GET api.example.com/**/x{}/**\n", i);
  Run(state, base, "  - allow: GET api.example.com/**\n  - deny: GET api.example.com/**/x0/**\n");
}

void FortyStarsInLabels(benchmark::State& state) {
  std::string base;
  for (int i = 0; i < 40; ++i) base += fmt::format("  - allow: GET *{}{}*.example.com\n", static_cast<char>('a' + i % 26), i);
  Run(state, base, base + "  - allow: GET *zz*.example.com\n");
}

BENCHMARK(FiveHundredRulesWithAThousandGlobs)->Unit(benchmark::kMillisecond);
BENCHMARK(FiveHundredGlobsAtOneHost)->Unit(benchmark::kMillisecond);
BENCHMARK(FiveThousandExactHosts)->Unit(benchmark::kMillisecond);
BENCHMARK(FiveThousandHostsThatAllDiffer)->Unit(benchmark::kMillisecond);
BENCHMARK(FortyContainingGlobs)->Unit(benchmark::kMillisecond);
BENCHMARK(FortyContainingGlobsUnderOne)->Unit(benchmark::kMillisecond);
BENCHMARK(FortyStarsInLabels)->Unit(benchmark::kMillisecond);

}  // namespace
