#include "tests/prover/attack_attempts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice::prover {
namespace {

std::array<uint8_t, 32> Digest(uint8_t byte) {
  std::array<uint8_t, 32> digest{};
  digest.fill(byte);
  return digest;
}

policy::Executable DrawExecutable(Random& r) {
  static const Words kPaths{"/u/c", "/u/d", "/u/e/c", "/v/c", "/c", "/u/c"};
  policy::Executable exe{Any(r, kPaths), !OneIn(r, 6)};
  if (OneIn(r, 2)) exe.sha256 = Digest(OneIn(r, 2) ? 0xbb : 0x11);
  return exe;
}

std::string DrawTarget(Random& r) {
  static const Words kParts{"/",
                            "x",
                            "y",
                            "/x",
                            "/y",
                            "%2F",
                            "%2f",
                            ";",
                            ";z",
                            ".",
                            "..",
                            "a",
                            "/o/r",
                            ".git",
                            "/info/refs",
                            "/git-upload-pack",
                            "/git-receive-pack",
                            "R",
                            ":y",
                            "%3A",
                            "%2C",
                            ",",
                            "%3B",
                            "%25",
                            "/o/R"};
  static const Words kWhole{"/",
                            "/x",
                            "/x/",
                            "/x/y",
                            "/x/q/y",
                            "/y",
                            "/o/r/info/refs",
                            "/o/r.git/info/refs",
                            "/o/R/git-upload-pack",
                            "/o/r/git-upload-pack",
                            "/o/r.git/git-receive-pack",
                            "/o/r/git-receive-pack",
                            "/o/r",
                            "/x:y",
                            "/x%2Cy",
                            "/x%2Fy",
                            "/x;p/y",
                            "/o%2Fr/info/refs",
                            "/x/%2E",
                            "/x%2F..",
                            "/x%2F%2Fy",
                            "/o/r;z/git-upload-pack",
                            "/x/..;/y",
                            "/o/r/.git/info/refs",
                            "/o/r/info/refs/",
                            "/zz"};
  std::string path;
  if (OneIn(r, 2)) {
    path = Any(r, kWhole);
  } else {
    path = "/";
    for (size_t i = Below(r, 5); i > 0; --i) path += Any(r, kParts);
  }
  static const Words kQueries{"",
                              "?",
                              "?service=git-upload-pack",
                              "?service=git-receive-pack",
                              "?service=git-upload-pack&k=a",
                              "?service=x",
                              "?k=a",
                              "?k",
                              "?k=a&k=b",
                              "?k=a&j=1",
                              "?j=1",
                              "?k=ab",
                              "?k=b",
                              "?k=%61",
                              "?k=a;j=1",
                              "?b;k=a",
                              "?service=x;z",
                              "?zz",
                              "?=1",
                              "?k%3B=a",
                              "?&",
                              "?k=c"};
  return path + (OneIn(r, 2) ? "" : Any(r, kQueries));
}

}  // namespace

std::string Attempt::Text() const {
  return fmt::format("kind {} {} {}://{}({}):{}{} headers {} by {} type {} day {}", static_cast<int>(kind), method,
                     scheme == policy::Scheme::kHttp ? "http" : "https", host, address.ToString(), port, raw,
                     fmt::join(headers, ";"),
                     process ? fmt::format("{} trusted {} sha {} parents {}", process->exe.path, process->exe.trusted,
                                           process->exe.sha256.has_value(), process->ancestors.size())
                             : "unknown",
                     type, std::chrono::duration_cast<std::chrono::hours>(now - kStart).count() / 24);
}

Attempt DrawAttempt(Random& r) {
  static const Words kHosts{"a.ex",       "b.ex",  "c.ex",   "xn--a.ex", "xn-a.ex", "xn--b.ex", "q.a.ex", "q.q.a.ex",
                            "xn--a.a.ex", "x1.ex", "b-a.ex", "a",        "z",       "ex",       ""};
  static const Words kAddresses{"1.1.1.1",        "1.1.1.2",         "8.8.8.8",          "10.1.2.3",         "10.1.2.4",
                                "10.9.9.9",       "169.254.169.254", "169.254.1.1",      "100.100.100.200",  "127.0.0.1",
                                "fd00::5",        "fd00:ec2::254",   "2600::1",          "64:ff9b::a01:203", "64:ff9b::a9fe:a9fe",
                                "64:ff9b::101:1", "2002:a01:203::1", "2002:a9fe:a9fe::", "2002:101:101::1",  "::1",
                                "64:ff9b::a9fe:1"};
  static const std::vector<uint16_t> kPorts{443, 443, 443, 80, 80, 22, 1, 79, 81, 442, 444, 8000, 8099, 8100, 65535};
  static const Words kMethods{"GET", "GET", "POST", "HEAD", "PUT", "PROPFIND", "MKCOL"};
  Attempt a;
  a.kind = static_cast<Attempt::Kind>(OneIn(r, 2) ? 4 : Below(r, 6));
  if (!OneIn(r, 8)) {
    a.process.emplace();
    a.process->pid = 1;
    a.process->exe = DrawExecutable(r);
    for (size_t i = Below(r, 3); i > 0; --i) a.process->ancestors.push_back(DrawExecutable(r));
  }
  a.host = Any(r, kHosts);
  a.address = *IpAddress::Parse(OneIn(r, 2) ? "1.1.1.1" : Any(r, kAddresses));
  a.port = kPorts[Below(r, kPorts.size())];
  a.scheme = OneIn(r, 3) ? policy::Scheme::kHttp : policy::Scheme::kHttps;
  a.method = Any(r, kMethods);
  while (true) {
    a.raw = DrawTarget(r);
    auto target = policy::CanonicalizeTarget(a.raw);
    if (!target) continue;
    a.target = std::move(*target);
    break;
  }
  static const std::vector<std::pair<std::string, std::string>> kFields{
      {"x-a", "1"},
      {"x_a", "1"},
      {"x_a", "2"},
      {"x-a", "2"},
      {"x-b", "12"},
      {"x-http-method", "POST"},
      {"x_http_method", "get"},
      {"x-method-override", "PROPFIND"},
      {"content-type", "application/x-git-upload-pack-request"},
      {"content-type", "application/x-git-receive-pack-request"},
      {"content-type", "q"},
      {"x-a", ""}};
  if (OneIn(r, 2))
    for (size_t i = 1 + Below(r, 2); i > 0; --i) a.headers.push_back(kFields[Below(r, kFields.size())]);
  static const std::vector<uint16_t> kTypes{1, 28, 16, 65};
  a.type = kTypes[Below(r, kTypes.size())];
  a.now = kStart + std::chrono::hours{24} * (OneIn(r, 2) ? 0 : Below(r, 60));
  return a;
}

}  // namespace sluice::prover
