#include "app/own_authority.h"

#include <fmt/format.h>

#include "app/file.h"
#include "base/log.h"

namespace sluice::app {
namespace {

constexpr size_t kLargestPem = 1u << 20;

}  // namespace

Result<proxy::FileStamp> FindAuthorityKey(const std::string& file, const proxy::SeenTrees& trees) {
  auto stamp = proxy::StampFile(Absolute(file), trees);
  if (!stamp) return Fail(Code::kInvalid, fmt::format("--ca-key: {}", stamp.error().message));
  return stamp;
}

Result<std::unique_ptr<proxy::TlsAuthority>> MakeAuthority(const std::string& certificate, const std::string& key,
                                                           const proxy::SeenTrees& trees) {
  if (certificate.empty()) return proxy::TlsAuthority::Create();
  auto certificates = ReadFile(certificate, kLargestPem);
  if (!certificates) return Fail(Code::kInvalid, fmt::format("--ca-cert: {}", certificates.error().message));
  const auto stamp = FindAuthorityKey(key, trees);
  if (!stamp) return std::unexpected(stamp.error());
  std::string warning;
  const auto secret = proxy::ReadSecretFile(*stamp, &warning);
  if (!secret) return Fail(Code::kInvalid, fmt::format("--ca-key: {}", secret.error().message));
  if (!warning.empty()) LogWarn("--ca-key: {}", warning);
  std::vector<std::string> warnings;
  auto authority = proxy::TlsAuthority::FromPem(*certificates, (*secret)->Reveal(), &warnings);
  if (!authority) return Fail(Code::kInvalid, fmt::format("--ca-cert {}: {}", certificate, authority.error().message));
  for (const std::string& text : warnings) LogWarn("--ca-cert {}: {}", certificate, text);
  return authority;
}

}  // namespace sluice::app
