// What a decision pays for its record on the deciding thread, and what the writer thread pays to format it.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "audit/audit.h"
#include "audit/record.h"
#include "policy/io/load.h"

namespace sluice::audit {
namespace {

policy::DecisionEvent Event() {
  static const policy::SnapshotPtr policy = [] {
    auto loaded = policy::LoadRules({.extra_allows = {"GET api.test/v1/**"}, .check_executables = false});
    if (!loaded) std::abort();
    return *loaded;
  }();
  static const auto process = [] {
    auto made = std::make_shared<policy::Process>();
    made->pid = 4711;
    made->exe = {"/usr/bin/node", true, {}};
    made->comm = "node";
    made->ancestors = {{"/usr/bin/npm", true, {}}};
    return policy::ProcessPtr(made);
  }();
  policy::DecisionEvent event;
  event.time = SystemClock().Wall();
  event.layer = policy::EventLayer::kRequest;
  event.target = {
      .host = "api.example.test", .port = 443, .scheme = "https", .method = "GET", .path = "/v1/items/12345", .query = "page="};
  event.process = process;
  event.decision = {true, policy::Reason::kAllowed, policy::RuleRef{0}, false};
  event.snapshot = policy;
  return event;
}

// Bursts that the queue can hold, the writer catching up between them: the price of Record without waiting for room.
void Record(benchmark::State& state) {
  const auto path = std::filesystem::temp_directory_path() / ("sluice-record-bench-" + std::to_string(getpid()));
  auto writer =
      *Writer::Start({.file = path.string(), .console = false, .sandbox = "box", .labels = {{"job", "7"}}, .queue = 1 << 16});
  constexpr int kBurst = 4096;
  uint64_t refused = 0;
  for (auto _ : state) {
    state.PauseTiming();
    std::vector<policy::DecisionEvent> events(kBurst, Event());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    state.ResumeTiming();
    for (auto& event : events) refused += writer->Record(std::move(event)) ? 0 : 1;
  }
  state.SetItemsProcessed(state.iterations() * kBurst);
  state.counters["refused"] = static_cast<double>(refused);
  state.counters["ns_per_record"] = benchmark::Counter(static_cast<double>(state.iterations()) * kBurst * 1e-9,
                                                       benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  writer.reset();
  std::filesystem::remove(path);
}
BENCHMARK(Record)->Iterations(50)->Unit(benchmark::kMicrosecond);

void Format(benchmark::State& state) {
  const RecordFormat format("box", {{"job", "7"}});
  const policy::DecisionEvent event = Event();
  std::string out;
  for (auto _ : state) {
    out.clear();
    format.Append(&out, event);
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["octets"] = static_cast<double>(out.size());
}
BENCHMARK(Format);

}  // namespace
}  // namespace sluice::audit
