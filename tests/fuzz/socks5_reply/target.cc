// Replies of a SOCKS5 proxy: the first octet chooses which one is awaited. A verdict on some octets stays what it is when more
// arrive, and no reply takes more than its format can hold.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proxy/socks5_client.h"

using namespace sluice::proxy;

namespace {

SocksAnswer Parse(unsigned which, std::string_view bytes) {
  switch (which % 4) {
    case 0:
      return ParseSocksMethod(bytes, SocksLoginUse::kNever);
    case 1:
      return ParseSocksMethod(bytes, SocksLoginUse::kOffered);
    case 2:
      return ParseSocksLoginAnswer(bytes);
    default:
      return ParseSocksConnectAnswer(bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view in(reinterpret_cast<const char*>(data) + 1, size - 1);
  const SocksAnswer whole = Parse(data[0], in);
  if (whole.status == SocksAnswer::Status::kNeedMore && in.size() >= kMaxSocksAnswer) std::abort();
  if (whole.status == SocksAnswer::Status::kDone && (whole.consumed > in.size() || whole.consumed > kMaxSocksAnswer))
    std::abort();
  if ((whole.status == SocksAnswer::Status::kRefused || whole.status == SocksAnswer::Status::kMalformed) && whole.why.empty())
    std::abort();
  for (size_t cut = 0; cut < in.size() && cut < kMaxSocksAnswer; ++cut) {
    const SocksAnswer part = Parse(data[0], in.substr(0, cut));
    if (part.status == SocksAnswer::Status::kNeedMore) continue;
    if (part.status != whole.status || part.consumed != whole.consumed || part.why != whole.why) std::abort();
  }
  return 0;
}
