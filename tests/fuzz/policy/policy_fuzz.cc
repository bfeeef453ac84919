// A policy file, through the loader and then through every question: nothing may crash, hang, or answer against itself.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "policy/finding.h"
#include "policy/io/load.h"
#include "policy/target.h"

namespace {

using namespace sluice;
using namespace sluice::policy;

constexpr std::string_view kHosts[] = {"api.github.com", "a.test", "x.a.test", "db", "xn--bcher-kva.example", ""};
constexpr uint16_t kPorts[] = {443, 80, 5432};
constexpr std::string_view kPaths[] = {"/", "/repos/a/b", "/octo/hello.git/info/refs?service=git-upload-pack",
                                       "/a%2Fb;c?x=1&y=%41"};
constexpr std::string_view kAddresses[] = {"1.1.1.1", "10.1.2.3", "169.254.169.254", "fd00::1", "2606:4700::1"};

void Require(bool condition) {
  if (!condition) std::abort();
}

void Ask(const Snapshot& snapshot, ConnectQuery connect) {
  const ConnectDecision decision = snapshot.DecideConnect(connect);
  if (!decision.allowed()) (void)snapshot.AdviseConnect(connect, decision);
  // A rule of the snapshot, or none.
  Require(decision.decision.rule == RuleRef::kNone || snapshot.rule(decision.decision.rule) != nullptr);
  for (const std::string_view path : kPaths) {
    const auto target = CanonicalizeTarget(path);
    Require(target.has_value());
    RequestQuery request{connect, Scheme::kHttps, "POST", &*target, {}};
    const Decision answer = snapshot.DecideRequest(request);
    if (!answer.allowed) (void)snapshot.AdviseRequest(request, answer);
    // What the connection refuses, no request inside it is granted.
    if (!decision.allowed()) Require(!answer.allowed);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto loaded = LoadText({reinterpret_cast<const char*>(data), size}, "fuzz.yaml");
  if (!loaded) {
    Require(!loaded.error().message.empty() && loaded.error().span.has_value());
    return 0;
  }
  const Snapshot& snapshot = **loaded;
  for (const std::string_view host : kHosts) {
    const NameQuery name{nullptr, host, 1, WallTime{}};
    (void)snapshot.AdviseName(name, snapshot.DecideName(name));
    for (const uint16_t port : kPorts) {
      ConnectQuery connect;
      connect.host = host;
      connect.port = port;
      if (!host.empty()) Ask(snapshot, connect);
      for (const std::string_view address : kAddresses) {
        connect.address = IpAddress::Parse(address);
        Ask(snapshot, connect);
      }
    }
  }
  (void)snapshot.DecideUnix({nullptr, "/run/x.sock", WallTime{}});
  (void)Lint(snapshot, WallTime{});
  return 0;
}
