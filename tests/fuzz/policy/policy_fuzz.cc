// A policy file, through the loader and then through every question: nothing may crash, hang, or answer against itself.

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "policy/credential.h"
#include "policy/finding.h"
#include "policy/io/load.h"
#include "policy/target.h"

namespace {

using namespace sluice;
using namespace sluice::policy;

constexpr std::string_view kHosts[] = {"api.github.com", "a.test", "x.a.test", "db", "xn--bcher-kva.example", ""};
constexpr uint16_t kPorts[] = {443, 80, 5432};
constexpr std::string_view kPaths[] = {"/",
                                       "/repos/a/b",
                                       "/octo/hello.git/info/refs?service=git-upload-pack",
                                       "/octo/hello.git/git-receive-pack",
                                       "/octo/hello.git/info/lfs/objects/batch",
                                       "/pkg.Svc/Get",
                                       "/a%2Fb;c?x=1&y=%41"};
constexpr HeaderView kTypes[] = {{"content-type", "application/json"},
                                 {"content-type", "application/grpc"},
                                 {"content-type", "application/vnd.git-lfs+json"},
                                 {"content-type", "application/x-git-receive-pack-request"}};
constexpr std::string_view kAddresses[] = {"1.1.1.1", "10.1.2.3", "169.254.169.254", "fd00::1", "2606:4700::1"};

void Require(bool condition) {
  if (!condition) std::abort();
}

// Bodies that differ in every reading.
const std::vector<RequestBody>& Bodies() {
  static const std::vector<RequestBody> bodies = [] {
    std::vector<RequestBody> out(3);
    for (RequestBody& body : out) {
      body.json.emplace().fault = "no";
      body.graphql.emplace().fault = "no";
      body.rpc.emplace().fault = "no";
      body.push.emplace().fault = "no";
      body.lfs.emplace().fault = "no";
    }
    out[1].json = {{{"", JsonLeaf::Type::kObject, ""}, {"/a", JsonLeaf::Type::kNumber, "1"}}, ""};
    out[1].graphql = {{{GraphqlKind::kQuery, "Op", "viewer"}, {GraphqlKind::kMutation, "", "deleteRepo"}}, ""};
    out[1].rpc = {{{"tools/call", "search", {{"/params/name", JsonLeaf::Type::kString, "search"}}}, {"initialize", {}, {}}}, ""};
    out[1].push = {{{"refs/heads/main", kRefUpdate}, {"refs/heads/x", kRefDelete}}, ""};
    out[1].lfs = {{LfsOperation::kUpload}, ""};
    out[2].json = {{{"", JsonLeaf::Type::kNull, "null"}}, ""};
    out[2].graphql = {{{GraphqlKind::kQuery, "", "viewer"}}, ""};
    out[2].rpc = {{{"tools/list", {}, {}}}, ""};
    out[2].push = {{}, ""};
    out[2].lfs = {{LfsOperation::kDownload}, ""};
    return out;
  }();
  return bodies;
}

// What is decided without the body stays so with any; what is not is decided with one.
void AskBodies(const Snapshot& snapshot, RequestQuery request, const Decision& before) {
  for (const RequestBody& body : Bodies()) {
    request.body = &body;
    const Decision after = snapshot.DecideRequest(request);
    Require(after.body_needed == 0);
    if (before.body_needed == 0) Require(after.allowed == before.allowed && after.credential == before.credential);
    if (!after.allowed) (void)snapshot.AdviseRequest(request, after);
    Require(after.credential == kNoIndex16 || after.credential < snapshot.credentials().size());
    Require(after.via == kNoIndex16 || after.via < snapshot.proxies().size());
  }
}

void Ask(const Snapshot& snapshot, ConnectQuery connect) {
  const ConnectDecision decision = snapshot.DecideConnect(connect);
  if (!decision.allowed()) (void)snapshot.AdviseConnect(connect, decision);
  // A rule of the snapshot, or none.
  Require(decision.decision.rule == RuleRef::kNone || snapshot.rule(decision.decision.rule) != nullptr);
  for (const std::string_view path : kPaths) {
    const auto target = CanonicalizeTarget(path);
    Require(target.has_value());
    for (const HeaderView& type : kTypes) {
      RequestQuery request{connect, Scheme::kHttps, "POST", &*target, {&type, 1}};
      const Decision answer = snapshot.DecideRequest(request);
      if (!answer.allowed) (void)snapshot.AdviseRequest(request, answer);
      // What the connection refuses, no request inside it is granted.
      if (!decision.allowed()) Require(!answer.allowed && answer.body_needed == 0);
      AskBodies(snapshot, request, answer);
    }
    RequestQuery upgrade{connect, Scheme::kHttps, "GET", &*target, {}, Upgrade::kWebSocket};
    Require(decision.allowed() || !snapshot.DecideRequest(upgrade).allowed);
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
