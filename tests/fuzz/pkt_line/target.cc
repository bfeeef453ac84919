// The commands of a push: pieces of any size give the same commands and end at the same byte; every name is one of a ref.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "proxy/body/push.h"
#include "tests/fuzz/shape.h"

using namespace sluice;
using proxy::PushReader;

namespace {

struct Outcome {
  policy::BodyReading<policy::RefUpdate> reading;
  std::string capabilities;
  size_t used = 0;
};

Outcome Read(std::string_view in, size_t piece) {
  PushReader reader;
  Outcome out;
  while (out.used < in.size() && reader.state() == PushReader::State::kMore) {
    const size_t used = reader.Feed(in.substr(out.used, piece));
    if (used == 0) std::abort();
    out.used += used;
  }
  reader.Finish();
  if (reader.state() == PushReader::State::kMore) std::abort();
  out.capabilities = reader.capabilities();
  out.reading = reader.Take();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  const Outcome whole = Read(in, size);
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{100}}) {
    const Outcome again = Read(in, piece);
    if (again.reading.items != whole.reading.items || again.reading.fault != whole.reading.fault) std::abort();
    if (again.used != whole.used || again.capabilities != whole.capabilities) std::abort();
  }
  if (!whole.reading.readable() && !whole.reading.items.empty()) std::abort();
  for (const auto& item : whole.reading.items)
    if (!proxy::IsRefName(item.ref)) std::abort();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kPkt, data, size, most, seed);
}
