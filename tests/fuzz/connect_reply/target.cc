// The reply to a CONNECT: never a secret in what is repeated, nothing but visible ASCII, and a tunnel only for 2xx.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "proxy/connect_reply.h"

using namespace sluice::proxy;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string in(reinterpret_cast<const char*>(data), size);
  size_t resume = 0;
  const auto end = FindHeadEnd(in, &resume);
  if (!end || *end == 0) return 0;
  static constexpr std::string_view kSecrets[] = {"hunter2", "", "dXNlcjpodW50ZXIy"};
  const auto reply = ParseConnectReply({in.data(), *end}, kSecrets);
  if (!reply) {
    if (reply.error().status != 502) std::abort();
    return 0;
  }
  const bool success = reply->status >= 200 && reply->status < 300;
  if ((reply->kind == ConnectReply::Kind::kOpen) != success) std::abort();
  if ((reply->kind == ConnectReply::Kind::kInterim) != (reply->status < 200)) std::abort();
  if (reply->text.size() > 4 + kMaxProxyReason + 32 + 2 * kMaxProxyReason) std::abort();
  for (const char c : reply->text)
    if (c < 0x20 || c > 0x7e) std::abort();
  for (const std::string_view secret : kSecrets)
    if (!secret.empty() && reply->text.find(secret) != std::string::npos) std::abort();
  return 0;
}
