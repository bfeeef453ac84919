// What the kernel is taken to have answered: any bytes are read within bounds, and nothing but a whole listing equals a plan.
#include <cstdint>
#include <cstdlib>

#include "nft/listing.h"
#include "tests/fuzz/sidecar_shape.h"

using namespace sluice::nft;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Table table = [] {
    Table made{
        Family::kInet, "t", {{"c", Hook::kOutput, 0, Policy::kDrop, {{MarkIs{1}, Counter{}, Verdict::kAccept, Comment{"x"}}}}}};
    made.sets.push_back(
        {.name = "s", .key = {KeyType::kAddress4, KeyType::kProtocol, KeyType::kPort}, .size = 16, .timeouts = true});
    made.sets.push_back({.name = "d", .key = {KeyType::kAddress4}, .kind = SetKind::kInterval});
    return made;
  }();
  ListingReader reader(table);
  reader.Feed({data, size});
  const Listing found = reader.Take();
  if (Difference(Plan(table), found).empty() && !found.exists) std::abort();
  std::vector<HeldElement> held;
  ReadElements({data, size}, table, "s", &held);
  for (const HeldElement& element : held)
    if (element.key.bytes().size() > Key::kMaxBytes) std::abort();
  std::vector<ChainName> names;
  ReadChainNames({data, size}, &names);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kNetlink, data, size, most, seed);
}
