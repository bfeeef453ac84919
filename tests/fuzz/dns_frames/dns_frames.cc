// Any bytes as a stream of messages behind their lengths. However it is cut, the same messages come out, and no more is held than
// one that is not yet whole; what is cut out is what was framed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "dns/chain.h"
#include "dns/frame.h"
#include "dns/message.h"

using namespace sluice::dns;  // NOLINT: a fuzz target is one function

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = data[0] + size_t{1};
  const std::span<const uint8_t> stream(data + 1, size - 1);
  FrameReader whole;
  whole.Feed(stream);
  FrameReader cut;
  size_t at = 0;
  size_t used = 0;
  while (const auto message = whole.Next()) {
    used += message->size() + 2;
    auto same = cut.Next();
    while (!same) {
      if (at >= stream.size()) std::abort();
      cut.Feed(stream.subspan(at, std::min(piece, stream.size() - at)));
      at = std::min(at + piece, stream.size());
      same = cut.Next();
    }
    if (*same != *message) std::abort();
    const auto frame = Framed(*message);
    if (!std::ranges::equal(frame, stream.subspan(used - frame.size(), frame.size()))) std::abort();
    if (const auto decoded = Decode(*message); decoded && decoded->questions.size() == 1)
      if (MatchResponse(*decoded, decoded->header.id, decoded->questions[0]) == Match::kOtherCase) std::abort();
  }
  if (whole.pending() != stream.size() - used || whole.pending() > kMaxMessageOctets + 1) std::abort();
  return 0;
}
