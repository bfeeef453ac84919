// The chunked coding: the same bytes in two kinds of pieces decode alike, and what was decoded encodes to itself.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "proxy/chunked.h"
#include "tests/fuzz/shape.h"

using namespace sluice::proxy;

namespace {

struct Outcome {
  std::string body;
  std::string trailers;
  size_t used = 0;
  bool done = false;
  bool fault = false;
  bool operator==(const Outcome&) const = default;
};

Outcome Decode(std::string_view in, size_t piece) {
  ChunkedDecoder decoder;
  Outcome out;
  while (out.used < in.size() && !decoder.done()) {
    const auto step = decoder.Next(in.substr(out.used, piece));
    if (!step) {
      out.fault = true;
      out.body.clear();
      out.used = 0;
      return out;
    }
    if (step->consumed == 0) std::abort();
    out.body += step->data;
    out.used += step->consumed;
  }
  out.done = decoder.done();
  if (out.done) out.trailers = decoder.trailers();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  const Outcome whole = Decode(in, size);
  if (Decode(in, 1) != whole || Decode(in, 3) != whole) std::abort();
  if (!whole.done) return 0;
  Buffer coded;
  AppendChunk(&coded, whole.body);
  std::string trailers = whole.trailers;
  AppendLastChunk(&coded, trailers, "x-sum, grpc-status");
  const Outcome again = Decode(coded.view(), coded.size());
  if (!again.done || again.body != whole.body || again.used != coded.size()) std::abort();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kChunks, data, size, most, seed);
}
