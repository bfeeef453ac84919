// A ClientHello: a verdict on some bytes stays what it is when more arrive, and the bounds hold.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proxy/client_hello.h"

using namespace sluice::proxy;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  const HelloResult whole = ParseClientHello(in);
  if (whole.status == HelloStatus::kNeedMore && size > 2 * kMaxClientHelloBytes) std::abort();
  if (whole.hello.alpn.size() > kMaxAlpnProtocols) std::abort();
  if (whole.hello.sni && (whole.hello.sni->empty() || whole.hello.sni->find('\0') != std::string::npos)) std::abort();
  const HelloResult half = ParseClientHello(in.substr(0, size / 2));
  if (half.status == HelloStatus::kMalformed && whole.status != HelloStatus::kMalformed) std::abort();
  if (half.status == HelloStatus::kComplete && (whole.status != HelloStatus::kComplete || whole.hello.sni != half.hello.sni))
    std::abort();
  return 0;
}
