// What a change of policy costs under ten thousand open exchanges of which it revokes half: from the change until the last of them
// was closed, measured in the workers.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "tests/proxy/holding_origin.h"
#include "tests/proxy/testbed.h"

namespace {

using namespace sluice::proxy;
using namespace sluice::proxy::testing;

constexpr size_t kExchanges = 10'000;
constexpr unsigned kWorkers = 2;

// `places`: how many different requests there are.
Rejudging Swap(size_t places) {
  const size_t count = RoomForExchanges(kExchanges) / 4 * 4;
  HoldingOrigin origin;
  const std::string kept = LoopbackRule(fmt::format("GET http://a.test:{}/kept/**", origin.port()));
  EngineOptions options;
  options.workers = kWorkers;
  Testbed bed(kept + LoopbackRule(fmt::format("GET http://a.test:{}/revoked/**", origin.port())), std::move(options));
  std::vector<Peer> clients;
  for (size_t i = 0; i < count; ++i) {
    clients.push_back(bed.Connect("a.test", origin.port(), Speak::kPlain));
    clients.back().Write(Get(fmt::format("/{}/{}", i / kWorkers % 2 == 0 ? "kept" : "revoked", i % places), origin.port()));
  }
  for (Peer& client : clients) client.ReadUntil("begin\r\n");
  bed.SetPolicy(kept);
  for (int i = 0; i < 5000 && bed.engine().LastRejudging().passes < kWorkers; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return bed.engine().LastRejudging();
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (const size_t places : {size_t{10}, kExchanges}) {
    std::vector<Rejudging> runs;
    for (int i = 0; i < 5; ++i) runs.push_back(Swap(places));
    std::ranges::sort(runs, {}, &Rejudging::closing);
    const Rejudging& median = runs[runs.size() / 2];
    std::printf("%5zu different requests: %zu of %zu exchanges closed after %zu decisions, within %.1f ms (median of 5; %.1f to %.1f)\n",
                places, median.ended, median.flows, median.decisions, static_cast<double>(median.closing.count()) / 1000,
                static_cast<double>(runs.front().closing.count()) / 1000, static_cast<double>(runs.back().closing.count()) / 1000);
  }
}
