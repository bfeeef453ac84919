// What a change of policy costs under ten thousand open exchanges of which it revokes half: how long until their clients had seen
// the last of those closed, whether any ended otherwise than it should, and what is left behind. Each has an upstream connection
// of its own, HTTP/1.1 under TLS, and is a stream of HTTP/2 to its client: 10,200 descriptors, the clients' ends of a hundred
// connections included. The origin has a process of its own.

#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/proxy/swap_crowd.h"

namespace {

using namespace sluice::proxy::testing;

constexpr int kRuns = 3;  // ten thousand handshakes each
constexpr size_t kFirst = 1'000;

// `places`: how many different requests there are. False: something was wrong.
bool Measure(size_t exchanges, size_t places) {
  ForkedOrigin origin(HoldTls);
  SwapBed bed(origin.port(), SwapBed::Over::kTls, places);
  // What is kept to be used again is there after the first time.
  bool right = SwapUnderACrowd(bed, origin, std::min(kFirst, exchanges)).whole && Rest(bed, origin);
  const auto rest = [] {
    ::malloc_trim(0);  // what is free is the kernel's again
    return ResidentMiB();
  };
  const size_t descriptors = OpenDescriptors();
  const double resident = rest();
  std::vector<Swapped> runs;
  size_t wrong = 0;
  for (int i = 0; i < kRuns && right; ++i) {
    runs.push_back(SwapUnderACrowd(bed, origin, exchanges));
    const Swapped& run = runs.back();
    wrong += run.wrong + run.untold;
    right = run.whole && Rest(bed, origin);
    std::printf("closed within %.1f ms, for %.1f ms of which some thread had no processor; told within %.1f ms\n",
                run.seen.count(), run.starved.count(), run.told.count());
  }
  if (!right) {
    std::printf("%5zu different requests: not every exchange was opened or ended\n", places);
    return false;
  }
  std::ranges::sort(runs, {}, &Swapped::seen);
  const Swapped& median = runs[runs.size() / 2];
  std::printf(
      "%5zu different requests: %zu of %zu exchanges closed within %.1f ms (median of %d; %.1f to %.1f), %zu wrong; %zu "
      "decisions; "
      "descriptors %zu, %zu, %zu and resident %.0f, %.0f, %.0f MiB before, under way and afterwards\n",
      places, exchanges / 2, exchanges, median.seen.count(), kRuns, runs.front().seen.count(), runs.back().seen.count(), wrong,
      median.judged.decisions, descriptors, descriptors + median.descriptors, OpenDescriptors(), resident, median.resident,
      rest());
  return wrong == 0;
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const size_t exchanges = RoomForConnections();
  const bool few = Measure(exchanges, 10);
  const bool many = Measure(exchanges, exchanges);
  return few && many ? 0 : 1;
}
