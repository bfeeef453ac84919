#include "app/trust.h"

#include "app/file.h"
#include "app/java_keystore.h"

namespace sluice::app {
namespace {

constexpr const char* kAuthorityPath = "/run/sluice/authority.pem";
constexpr const char* kBundlePath = "/run/sluice/ca-bundle.pem";
// Debian and Ubuntu; Fedora; SUSE; Alpine.
constexpr const char* kSystemBundles[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                          "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
constexpr const char* kJavaStores[] = {"/etc/ssl/certs/java/cacerts", "/etc/pki/java/cacerts"};
constexpr const char* kBundleVariables[] = {
    "SSL_CERT_FILE", "CURL_CA_BUNDLE",    "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO",
    "PIP_CERT",      "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",      "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "DENO_CERT"};

}  // namespace

Result<Trust> PrepareTrust(const std::string& authority_pem) {
  Trust trust;
  std::string system_roots;
  for (const char* path : kSystemBundles) {
    auto roots = ReadFile(path);
    if (!roots) continue;
    if (system_roots.empty()) system_roots = *roots;
    trust.overlays.push_back({path, *roots + "\n" + authority_pem});
  }
  for (const char* path : kJavaStores) {
    auto store = ReadFile(path);
    if (!store) continue;
    auto extended = ExtendJavaKeystore(*store, system_roots, authority_pem);
    if (!extended) return std::unexpected(extended.error());
    trust.overlays.push_back({path, *std::move(extended)});
  }
  trust.overlays.push_back({kAuthorityPath, authority_pem});
  trust.overlays.push_back({kBundlePath, system_roots + "\n" + authority_pem});
  for (const char* name : kBundleVariables) trust.environment.emplace_back(name, kBundlePath);
  trust.environment.emplace_back("NODE_EXTRA_CA_CERTS", kAuthorityPath);
  return trust;
}

}  // namespace sluice::app
