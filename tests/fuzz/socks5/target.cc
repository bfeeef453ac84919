// A SOCKS5 client's three messages: a verdict on some bytes stays what it is when more arrive, no message is longer than what
// came, and a target is one that the policy can be asked about.
#include "policy/target.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proxy/socks5_request.h"
#include "tests/fuzz/shape.h"

using namespace sluice;
using namespace sluice::proxy;

namespace {

void Stable(SocksStatus part, SocksStatus whole) {
  if (part != SocksStatus::kNeedMore && part != whole) std::abort();
}

void CheckRequest(std::string_view in) {
  const SocksRequest whole = ParseSocksRequest(in);
  for (size_t n = 0; n < in.size() && n < 300; ++n) Stable(ParseSocksRequest(in.substr(0, n)).status, whole.status);
  if (whole.status != SocksStatus::kComplete) return;
  if (whole.consumed > in.size() || whole.consumed > 4 + 256 + 2) std::abort();
  if (whole.refusal != SocksReply::kSucceeded) return;
  if (whole.target.port == 0) std::abort();
  if (!whole.target.host.empty() && policy::CanonicalName(whole.target.host) != whole.target.host) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  CheckRequest(in);
  const SocksGreeting greeting = ParseSocksGreeting(in);
  const SocksPassword password = ParseSocksPassword(in);
  for (size_t n = 0; n < in.size() && n < 600; ++n) {
    Stable(ParseSocksGreeting(in.substr(0, n)).status, greeting.status);
    Stable(ParseSocksPassword(in.substr(0, n)).status, password.status);
  }
  if (greeting.consumed > size || password.consumed > size) std::abort();
  if (greeting.status == SocksStatus::kComplete) CheckRequest(in.substr(greeting.consumed));
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kSocks, data, size, most, seed);
}
