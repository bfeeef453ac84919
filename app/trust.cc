#include "app/trust.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <ranges>
#include <string_view>

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
// Settings that Chromium and Chrome read beside their administrator's, of which the last in the alphabet wins. Only where there
// are any.
struct BrowserSettings {
  const char* folder;
  const char* file;
};
constexpr BrowserSettings kBrowserSettings[] = {{"/etc/chromium", "/etc/chromium/policies/managed/zz-sluice-authority.json"},
                                                {"/etc/opt/chrome", "/etc/opt/chrome/policies/managed/zz-sluice-authority.json"}};
constexpr size_t kLargestBundle = size_t{16} << 20;  // as ReadFile
constexpr const char* kBundleVariables[] = {
    "SSL_CERT_FILE", "CURL_CA_BUNDLE",    "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO",
    "PIP_CERT",      "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",      "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "DENO_CERT"};

bool IsReadableFile(const char* path) {
  struct stat about{};
  return ::stat(path, &about) == 0 && S_ISREG(about.st_mode) && ::access(path, R_OK) == 0;
}

bool IsJavaStore(const std::string& path) {
  return std::ranges::any_of(kJavaStores, [&path](const char* store) { return path == store; });
}

bool IsBrowserSettings(const std::string& path) {
  return std::ranges::any_of(kBrowserSettings, [&path](const BrowserSettings& settings) { return path == settings.file; });
}

bool IsFolder(const char* path) {
  struct stat about{};
  return ::stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

// A certificate in PEM is its DER in Base64 between two lines (RFC 7468).
std::string BrowserSettingsFor(std::string_view authority_pem) {
  std::string base64;
  for (size_t at = 0; at < authority_pem.size();) {
    const size_t end = std::min(authority_pem.find('\n', at), authority_pem.size());
    if (const std::string_view line = authority_pem.substr(at, end - at); !line.starts_with("-----")) base64 += line;
    at = end + 1;
  }
  return fmt::format("{{\"CACertificates\": [\"{}\"]}}\n", base64);
}

// The first there is, and an empty one where there is none.
std::string SystemBundle() {
  const auto first = std::ranges::find_if(kSystemBundles, IsReadableFile);
  return first == std::end(kSystemBundles) ? std::string() : *first;
}

Result<void> Append(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return FailErrno("cannot write a file in memory", errno);
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

// From file to file: bundles are large, and nothing of them matters here.
Result<void> AppendFile(int file, const std::string& path) {
  const UniqueFd from(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!from) return FailErrno(fmt::format("cannot open {}", path), errno);
  for (size_t total = 0; total <= kLargestBundle;) {
    const ssize_t copied = ::sendfile(file, from.get(), nullptr, kLargestBundle);
    if (copied == 0) return {};
    if (copied < 0 && errno != EINTR) return FailErrno(fmt::format("cannot read {}", path), errno);
    if (copied > 0) total += static_cast<size_t>(copied);
  }
  return Fail(Code::kExhausted, fmt::format("{} is larger than {} bytes", path, kLargestBundle));
}

class TrustContents {
 public:
  explicit TrustContents(const std::string& authority_pem) : authority_pem_(authority_pem) {}

  Result<const UniqueFd*> For(const std::string& path) {
    const std::string source = path == kBundlePath ? SystemBundle() : path;
    if (content_ && source == source_) return &content_;  // what the variables name is the system's own bundle, extended
    source_ = source;
    content_ = UniqueFd(::memfd_create("sluice-overlay", MFD_CLOEXEC));
    if (!content_) return FailErrno("cannot make a file in memory", errno);
    if (auto filled = Fill(path); !filled) return std::unexpected(filled.error());
    return &content_;
  }

 private:
  Result<void> Fill(const std::string& path) {
    if (path == kAuthorityPath) return Append(content_.get(), authority_pem_);
    if (IsJavaStore(path)) return FillJavaStore(path);
    if (IsBrowserSettings(path)) return Append(content_.get(), BrowserSettingsFor(authority_pem_));
    if (!source_.empty())
      if (auto copied = AppendFile(content_.get(), source_); !copied) return copied;
    return Append(content_.get(), "\n" + authority_pem_);
  }

  Result<void> FillJavaStore(const std::string& path) {
    auto store = ReadFile(path);
    if (!store) return std::unexpected(store.error());
    const std::string bundle = IsJavaKeystore(*store) ? std::string() : SystemBundle();
    auto roots = bundle.empty() ? Result<std::string>("") : ReadFile(bundle);
    if (!roots) return std::unexpected(roots.error());
    const auto extended = ExtendJavaKeystore(*store, *roots, authority_pem_);
    if (!extended) return std::unexpected(extended.error());
    for (const std::string_view part : {std::string_view(extended->head), extended->kept, std::string_view(extended->tail)})
      if (auto appended = Append(content_.get(), part); !appended) return appended;
    return {};
  }

  const std::string& authority_pem_;
  std::string source_;
  UniqueFd content_;
};

}  // namespace

Trust FindTrust() {
  Trust trust;
  const auto add = [&trust](const char* path) { trust.overlays.push_back({path, {}, supervisor::OverlayContent::kProvided}); };
  // In this order the bundle that comes twice is made once, and a sandbox is not kept waiting for what takes longest.
  for (const char* path : kSystemBundles | std::views::reverse)
    if (IsReadableFile(path)) add(path);
  add(kBundlePath);
  add(kAuthorityPath);
  for (const BrowserSettings& settings : kBrowserSettings)
    if (IsFolder(settings.folder)) trust.overlays.push_back({settings.file, {}, supervisor::OverlayContent::kProvided, true});
  for (const char* path : kJavaStores)
    if (IsReadableFile(path)) add(path);
  for (const char* name : kBundleVariables) trust.environment.emplace_back(name, kBundlePath);
  trust.environment.emplace_back("NODE_EXTRA_CA_CERTS", kAuthorityPath);
  return trust;
}

Result<std::string> ExtendedBundle(const std::string& authority_pem) {
  const std::string system = SystemBundle();
  if (system.empty()) return authority_pem;
  auto roots = ReadFile(system, kLargestBundle);
  if (!roots) return roots;
  return *roots + "\n" + authority_pem;
}

std::span<const char* const> BundleVariables() { return kBundleVariables; }

Result<void> ProvideTrust(const Trust& trust, const std::string& authority_pem, const Provide& provide) {
  TrustContents contents(authority_pem);
  for (const supervisor::FileOverlay& overlay : trust.overlays) {
    const auto content = contents.For(overlay.path);
    if (!content) return std::unexpected(content.error());
    if (auto provided = provide(**content); !provided) return provided;
  }
  return {};
}

}  // namespace sluice::app
