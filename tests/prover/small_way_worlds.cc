// Worlds of how things travel: with which credential, through which upstream proxy, to which keys.

#include <string>
#include <vector>

#include "tests/prover/small_worlds.h"

namespace sluice::prover {

World Travels() {
  World w{.name = "travels",
          .pairs = 6'000,
          .verbs = {"GET", "POST", "http", "http", "http://GET", "tls", "tls", "tcp"},
          .hosts = {"a.t", "b.t", "*.t", "**"}};
  w.paths = {"", "/v", "/v/*"};
  w.ports = {"", "443"};
  w.port_list = {443, 8443};
  w.audit_in = 6;
  w.ways = true;
  w.scopes = {0, 1};
  w.both_schemes = true;
  w.names = {"a.t", "b.t", "c.t", ""};
  w.addresses = {"1.1.1.1", "2.2.2.2"};
  w.methods = {"GET", "POST", "PUT"};
  w.targets = {"/", "/v", "/v/a"};
  return w;
}

// Where a credential may go, by port and by the case of a repository.
World Bound() {
  World w{.name = "bound",
          .pairs = 1'500,
          .verbs = {"GET", "POST", "http", "git fetch-pack", "git fetch-pack", "git fetch-pack", "git receive-pack", "tls"},
          .hosts = {"a.t", "*.t"}};
  w.paths = {"/o/r", "/o/*", "/o/**", "/O/**"};
  w.ports = {"", "443,8443"};
  w.port_list = {443, 8443};
  w.ways = true;
  w.lfs = true;
  w.scopes = {2, 3, 4, 5, 6, 7};
  w.names = {"a.t", "b.t", "c.t"};
  w.methods = {"GET", "POST"};
  w.targets = {};
  for (const std::string repo : {"/o/r", "/O/r", "/o/R.git", "/O/x"})
    for (const std::string end : {"/info/refs?service=git-upload-pack", "/git-upload-pack", "/git-receive-pack",
                                  "/info/lfs/objects/batch", "/info/lfs/objects/ab"})
      w.targets.push_back(repo + end);
  w.header_sets = {{},
                   {{"content-type", "application/x-git-upload-pack-request"}},
                   {{"content-type", "application/x-git-receive-pack-request"}},
                   {{"content-type", "application/vnd.git-lfs+json"}}};
  w.bodies.push_back({.kind = WitnessBody::Kind::kLfs,
                      .lfs = policy::LfsOperation::kDownload,
                      .json = policy::JsonLeaves{{"/operation", policy::JsonLeaf::Type::kString, "download"}}});
  return w;
}

// Names that an upstream proxy looks up, beside rules that speak of addresses.
World Remote() {
  World w{.name = "remote",
          .pairs = 3'000,
          .verbs = {"GET", "http", "tls", "tls", "tcp", "dns", "udp"},
          .hosts = {"a.t", "a.t", "b.t", "*.t", "*.t", "1.1.1.1"}};
  w.paths = {"", "/v"};
  w.ip = {"", "", "1.0.0.0/8", "10.0.0.0/8"};
  w.ports = {"", "443", "8443"};
  w.port_list = {443, 8443};
  w.by = {"", "", "", "/u/c"};
  w.audit_in = 8;
  w.ways = true;
  w.remote = true;
  w.types = true;
  w.names = {"a.t", "b.t", ""};
  w.addresses = {"1.1.1.1", "2.2.2.2", "10.1.1.1"};
  using Kind = WitnessProcess::Kind;
  w.processes = {{Kind::kNamed, "/u/c"}, {Kind::kNamed, "/z"}};
  w.methods = {"GET", "POST"};
  w.targets = {"/", "/v"};
  return w;
}

// Of ancestors that one rule each asks for, all of which a process may have.
World Lineages() {
  World w{.name = "lineages", .pairs = 1'500, .verbs = {"GET", "http", "GET", "tls", "tcp"}, .hosts = {"a.t"}};
  w.ports = {"", "8443", "443,8443"};
  w.port_list = {443, 8443};
  w.by = {"", "/u/c"};
  w.under = {"", "/u/s", "/u/x", "/u/*"};
  w.audit_in = 3;
  w.ways = true;
  w.names = {"a.t"};
  using Kind = WitnessProcess::Kind;
  w.processes = {};
  for (const std::vector<WitnessAncestor>& ancestors :
       std::vector<std::vector<WitnessAncestor>>{{}, {{"/u/s"}}, {{"/u/x"}}, {{"/u/y"}}, {{"/u/s"}, {"/u/x"}}})
    for (const char* exe : {"/u/c", "/u/s", "/u/y", "/z"}) w.processes.push_back({Kind::kNamed, exe, {}, ancestors});
  w.methods = {"GET", "POST"};
  return w;
}

}  // namespace sluice::prover
