// What a connect pays for its name, and the codec's part of a lookup.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "dns/answer.h"
#include "dns/query.h"
#include "dns/synthetic.h"

namespace sluice::dns {
namespace {

void NameOf(benchmark::State& state) {
  static SyntheticPool pool;
  static const std::vector<IpAddress> addresses = [] {
    std::vector<IpAddress> made;
    for (int i = 0; i < 10000; ++i) made.push_back(*pool.AddressFor("host-" + std::to_string(i) + ".example.test", Family::kV4));
    return made;
  }();
  size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(pool.NameOf(addresses[i++ * 7919 % addresses.size()]));
}
BENCHMARK(NameOf)->Threads(1)->Threads(2);

void AddressForKnownName(benchmark::State& state) {
  SyntheticPool pool;
  for (auto _ : state) benchmark::DoNotOptimize(pool.AddressFor("api.example.test", Family::kV4));
}
BENCHMARK(AddressForKnownName);

void ReadQueryAndAnswer(benchmark::State& state) {
  Message question;
  question.header.recursion_desired = true;
  question.questions.push_back({*Name::FromText("api.example.test"), Type::kA, kClassIn});
  question.edns.emplace();
  const auto wire = Encode(question);
  const IpAddress address = IpAddress::FromV4(0xc6120001);
  for (auto _ : state) {
    const auto read = ReadQuery(wire);
    benchmark::DoNotOptimize(EncodeWithin(WithAddresses(std::get<Query>(read), std::span(&address, 1), 60), kUdpOctets));
  }
}
BENCHMARK(ReadQueryAndAnswer);

}  // namespace
}  // namespace sluice::dns
