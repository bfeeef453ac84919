// What a decision costs: at 10 rules and at 10,000 rules of exact hosts, and at the sizes where the other indexes matter.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "policy/io/load.h"
#include "policy/target.h"

namespace {
std::atomic<uint64_t> g_allocations{0};
}

void* operator new(size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace {

using namespace sluice;
using namespace sluice::policy;

SnapshotPtr Rules(size_t count, const char* format) {
  std::string text = "version: 1\nrules:\n";
  for (size_t i = 0; i < count; ++i) text += fmt::format("  - allow: {}\n", fmt::format(fmt::runtime(format), i));
  auto snapshot = LoadText(text, "bench.yaml");
  if (!snapshot) {
    fmt::print(stderr, "{}\n", RenderError(snapshot.error(), false));
    std::exit(2);
  }
  return *snapshot;
}

// Counts what the loop allocated: the allow path must not.
class Allocations {
 public:
  explicit Allocations(benchmark::State& state) : state_(state), before_(g_allocations.load()) {}
  ~Allocations() { state_.counters["allocations"] = static_cast<double>(g_allocations.load() - before_); }

 private:
  benchmark::State& state_;
  const uint64_t before_;
};

void Request(benchmark::State& state, const SnapshotPtr& snapshot, const std::string& host, const char* path,
             const char* method) {
  const auto target = CanonicalizeTarget(path);
  const HeaderView headers[] = {{"host", host}, {"user-agent", "curl/7.88.1"}, {"accept", "*/*"}, {"accept-encoding", "gzip"}};
  RequestQuery request;
  request.connection.host = host;
  request.connection.port = 443;
  request.connection.address = IpAddress::FromV4(0x01010101);
  request.method = method;
  request.target = &*target;
  request.headers = headers;
  if (!snapshot->DecideRequest(request).allowed) state.SkipWithError("denied");
  const Allocations allocations(state);
  for (auto _ : state) benchmark::DoNotOptimize(snapshot->DecideRequest(request));
}

void Connect(benchmark::State& state, const SnapshotPtr& snapshot, const std::string& host) {
  ConnectQuery query;
  query.host = host;
  query.port = 443;
  query.address = IpAddress::FromV4(0x01010101);
  if (!snapshot->DecideConnect(query).allowed()) state.SkipWithError("denied");
  const Allocations allocations(state);
  for (auto _ : state) benchmark::DoNotOptimize(snapshot->DecideConnect(query));
}

void RequestExactHosts(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  Request(state, Rules(count, "GET host{}.example.com/repos/**"), fmt::format("host{}.example.com", count / 2),
          "/repos/octo/hello/issues", "GET");
}
BENCHMARK(RequestExactHosts)->Arg(10)->Arg(10000);

void ConnectExactHosts(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  Connect(state, Rules(count, "GET host{}.example.com/repos/**"), fmt::format("host{}.example.com", count / 2));
}
BENCHMARK(ConnectExactHosts)->Arg(10)->Arg(10000);

void RequestWildcardHosts(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  Request(state, Rules(count, "GET **.zone{}.example.com/repos/**"), fmt::format("a.b.zone{}.example.com", count / 2),
          "/repos/octo/hello", "GET");
}
BENCHMARK(RequestWildcardHosts)->Arg(10)->Arg(10000);

void RequestPathsOfOneHost(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  Request(state, Rules(count, "GET api.example.com/v{}/**"), "api.example.com", fmt::format("/v{}/x", count - 1).c_str(), "GET");
}
BENCHMARK(RequestPathsOfOneHost)->Arg(10)->Arg(100)->Arg(1000);

void GitFetch(benchmark::State& state) {
  Request(state, Rules(10, "git fetch-pack github.com/org{}/*"), "github.com",
          "/org7/hello.git/info/refs?service=git-upload-pack", "GET");
}
BENCHMARK(GitFetch);

// A call of MCP among ten tools: what the request costs before its body is read, and with it.
void McpCall(benchmark::State& state) {
  std::string text = "version: 1\nrules:\n  - allow: mcp initialize a.example.com/mcp\n";
  for (int i = 0; i < 10; ++i) text += fmt::format("  - allow: mcp tools/call a.example.com/mcp\n    tool: [tool{}_*]\n", i);
  const auto snapshot = *LoadText(text, "bench.yaml");
  const auto target = CanonicalizeTarget("/mcp");
  const HeaderView headers[] = {{"host", "a.example.com"}, {"accept", "*/*"}, {"content-type", "application/json"}};
  RequestBody body;
  body.rpc.emplace().items.push_back({"tools/call", "tool7_search", {}});
  RequestQuery request;
  request.connection.host = "a.example.com";
  request.connection.port = 443;
  request.method = "POST";
  request.target = &*target;
  request.headers = headers;
  if (state.range(0) != 0) request.body = &body;
  const Decision decision = snapshot->DecideRequest(request);
  if (decision.allowed != (state.range(0) != 0)) state.SkipWithError("another answer");
  const Allocations allocations(state);
  for (auto _ : state) benchmark::DoNotOptimize(snapshot->DecideRequest(request));
}
BENCHMARK(McpCall)->Arg(0)->Arg(1);

void ConnectPrefixes(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  std::string text = "version: 1\nrules:\n";
  for (size_t i = 0; i < count; ++i) text += fmt::format("  - allow: tcp 8.{}.{}.0/24:443\n", i / 256, i % 256);
  const auto snapshot = *LoadText(text, "bench.yaml");
  ConnectQuery query;
  query.port = 443;
  query.address = IpAddress::FromV4(0x08000501);
  if (!snapshot->DecideConnect(query).allowed()) state.SkipWithError("denied");
  const Allocations allocations(state);
  for (auto _ : state) benchmark::DoNotOptimize(snapshot->DecideConnect(query));
}
BENCHMARK(ConnectPrefixes)->Arg(10)->Arg(10000);

void Lookup(benchmark::State& state) {
  const auto snapshot = Rules(10000, "GET host{}.example.com");
  const NameQuery query{nullptr, "host5000.example.com", 1, {}};
  const Allocations allocations(state);
  for (auto _ : state) benchmark::DoNotOptimize(snapshot->DecideName(query));
}
BENCHMARK(Lookup);

void Canonicalize(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(CanonicalizeTarget("/repos/octo/hello/issues/7?per_page=100&page=2"));
}
BENCHMARK(Canonicalize);

void Load10000Rules(benchmark::State& state) {
  std::string text = "version: 1\nrules:\n";
  for (int i = 0; i < 10000; ++i) text += fmt::format("  - allow: GET host{}.example.com/repos/**\n", i);
  for (auto _ : state) benchmark::DoNotOptimize(LoadText(text, "bench.yaml"));
}
BENCHMARK(Load10000Rules)->Unit(benchmark::kMillisecond);

}  // namespace
