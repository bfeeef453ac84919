// A PROXY header: a verdict on some bytes stays what it is when more arrive, and the bounds hold.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proxy/proxy_protocol.h"
#include "tests/fuzz/shape.h"

using namespace sluice::proxy;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  const ProxyHeader whole = ParseProxyHeader(in);
  if (whole.status == ProxyHeaderStatus::kNeedMore && size >= kMaxProxyHeader) std::abort();
  if (whole.status == ProxyHeaderStatus::kComplete && (whole.consumed > size || whole.consumed > kMaxProxyHeader)) std::abort();
  if (whole.status != ProxyHeaderStatus::kComplete && whole.source) std::abort();
  for (size_t n = 0; n < std::min<size_t>(size, 300); ++n) {
    const ProxyHeader part = ParseProxyHeader(in.substr(0, n));
    if (part.status == ProxyHeaderStatus::kNeedMore) continue;
    if (part.status != whole.status || part.consumed != whole.consumed || part.source != whole.source) std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kProxyHeader, data, size, most, seed);
}
