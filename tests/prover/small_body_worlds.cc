// Worlds of what is asked in bodies, and of the verbs that speak of it.

#include <string>
#include <vector>

#include "tests/prover/small_worlds.h"

namespace sluice::prover {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;
const Headers kJsonType{{"content-type", "application/json"}};

policy::JsonLeaves Leaf(const std::string& pointer, const std::string& text, policy::JsonLeaf::Type type) {
  return {{pointer, type, text}};
}

// Nothing, and what some rule could match there.
std::vector<policy::JsonLeaves> LeavesAt(const std::string& pointer) {
  using Type = policy::JsonLeaf::Type;
  std::vector<policy::JsonLeaves> sets{{}};
  for (const char* text : {"1", "b", "bc", "z"}) sets.push_back(Leaf(pointer, text, Type::kString));
  sets.push_back(Leaf(pointer, "1e0", Type::kNumber));
  return sets;
}

}  // namespace

World Graphql() {
  World w{.name = "graphql",
          .pairs = 600,
          .verbs = {"GET", "GET,POST", "http", "POST", "graphql query", "graphql query", "graphql mutation", "graphql mutation",
                    "graphql subscription", "graphql subscription", "tls"},
          .hosts = {"a.t"}};
  w.paths = {"", "/g"};
  w.fields = {"", "", "a", "b", "a*", "ab"};
  w.operation = {"", "", "", "o*"};
  w.json = {"", "", "/x=1|b*"};
  w.query_keys = {"", "", "", "query"};
  w.names = {"a.t"};
  w.methods = {"GET", "POST", "PUT"};
  w.targets = {"/g", "/z", "/g?query={a}", "/g?query={a}&z", "/g?z", "/g?", "/g?variables", "/g?query={a}&variables"};
  w.header_sets = {{}, kJsonType, {{"content-type", "text/plain"}}};
  using Kind = WitnessBody::Kind;
  for (const auto& leaves : LeavesAt("/x")) w.bodies.push_back({.kind = Kind::kJson, .json = leaves});
  for (const auto kind : {policy::GraphqlKind::kQuery, policy::GraphqlKind::kMutation, policy::GraphqlKind::kSubscription})
    for (const char* field : {"a", "b", "ab", "c"})
      for (const char* operation : {"", "o", "p"})
        for (const bool json : {false, true})
          w.bodies.push_back({.kind = Kind::kGraphql,
                              .graphql = {kind, operation, field},
                              .json = json ? std::optional(policy::JsonLeaves{}) : std::nullopt});
  return w;
}

World Calls() {
  World w{.name = "calls",
          .pairs = 600,
          .verbs = {"POST", "GET", "http", "GET,DELETE", "DELETE", "mcp initialize", "mcp tools/call", "mcp tools/call", "mcp *",
                    "mcp ping", "jsonrpc a", "jsonrpc a*", "jsonrpc *"},
          .hosts = {"a.t"}};
  w.paths = {"", "/m"};
  w.tool = {"", "s", "t", "s*"};
  w.json = {"", "", "/x=1", "/x=b*", "/x=1|b"};
  w.names = {"a.t"};
  w.methods = {"GET", "POST", "DELETE"};
  w.targets = {"/m", "/z", "/m?method=a", "/m?Method=a"};
  w.header_sets = {{}, kJsonType, {{"accept", "text/event-stream"}}, {{"mcp-session-id", "a"}}};
  using Kind = WitnessBody::Kind;
  for (const auto& leaves : LeavesAt("/x")) w.bodies.push_back({.kind = Kind::kJson, .json = leaves});
  for (const std::string method : {"", "a", "ab", "ping", "initialize", "notifications/a", "tools/call", "z"}) {
    for (const std::string tool : {"s", "t", "st", "u"}) {
      if (method != "tools/call" && tool != "s") continue;
      for (const auto& leaves : LeavesAt("/x")) {
        WitnessBody body{.kind = Kind::kRpc, .rpc = {method, std::nullopt, leaves}, .json = leaves};
        if (method == "tools/call") body.rpc.tool = tool;
        w.bodies.push_back(body);
        body.batch = true;
        body.json = Leaf("", "", policy::JsonLeaf::Type::kArray);
        w.bodies.push_back(std::move(body));
      }
    }
  }
  return w;
}

World Pushes() {
  World w{.name = "pushes",
          .pairs = 600,
          .verbs = {"GET", "POST", "http", "git receive-pack", "git receive-pack", "git receive-pack", "ws", "ws", "grpc", "grpc",
                    "tls"},
          .hosts = {"a.t"}};
  w.paths = {"", "/o/r", "/o/*", "/p.S/m", "/**"};
  w.refs = {"", "r/a", "r/*", "r/b"};
  w.changes = {0, 0, policy::kRefCreate, policy::kRefUpdate | policy::kRefDelete, policy::kRefDelete};
  w.names = {"a.t"};
  w.upgrades = true;
  w.methods = {"GET", "POST", "PUT"};
  w.targets = {
      "/o/r/git-receive-pack", "/o/r/info/refs?service=git-receive-pack", "/o/x/git-receive-pack", "/p.S/m", "/p.S/m?", "/o/r"};
  w.header_sets = {{}, {{"content-type", "application/x-git-receive-pack-request"}}, {{"content-type", "application/grpc"}}};
  for (const char* ref : {"r/a", "r/b", "r/c", "x"})
    for (const auto change : {policy::kRefCreate, policy::kRefUpdate, policy::kRefDelete})
      w.bodies.push_back({.kind = WitnessBody::Kind::kPush, .push = {ref, change}});
  w.bodies.push_back({.kind = WitnessBody::Kind::kPush});
  return w;
}

World Batches() {
  World w{.name = "batches",
          .pairs = 250,
          .verbs = {"GET", "POST", "http", "PUT,POST", "git fetch-pack", "git fetch-pack", "git receive-pack", "git receive-pack",
                    "git receive-pack", "tls"},
          .hosts = {"a.t"}};
  w.lfs = true;
  w.paths = {"", "/o/r", "/o/*", "/**"};
  w.headers = {"", "", "", "content-type=application/vnd.git-lfs*"};
  w.json = {"", "", "", "/x=1|b*"};
  w.names = {"a.t"};
  w.methods = {"GET", "HEAD", "POST", "PUT", "DELETE"};
  w.targets = {};
  for (const std::string repo : {"/o/r", "/o/R.git", "/o/r.git.git", "/x", "/o/r/info/lfs/x"})
    for (const std::string end : {"/info/lfs/objects/batch",
                                  "/info/lfs/objects/batch?",
                                  "/info/lfs/objects/batch/",
                                  "/info/lfs/objects/ab",
                                  "/info/lfs/objects/ab?z",
                                  "/info/lfs/objects/ab/",
                                  "/info/lfs/objects/ab/verify",
                                  "/info/lfs/objects/verify",
                                  "/info/lfs/objects/",
                                  "/info/lfs/objects/info/refs",
                                  "/info/lfs/objects/git-upload-pack",
                                  "/info/lfs/objects/git-receive-pack",
                                  "/info/lfs/verify",
                                  "/info/lfs/locks",
                                  "/info/lfs/locks?z",
                                  "/info/lfs/locks/",
                                  "/info/lfs/locks/1/unlock",
                                  "/info/lfs/locks/info/refs",
                                  "/info/lfs/x",
                                  "/info/lfs/",
                                  "/info/lfs/info/lfs/objects/ab",
                                  "/info/lfs/x/info/lfs/",
                                  "/info/lfs/x/info/lfs",
                                  "/info/lfs/x/info/refs?service=git-upload-pack",
                                  "/info/refs?service=git-upload-pack",
                                  "/info/refs?service=git-receive-pack",
                                  "/git-upload-pack",
                                  "/git-receive-pack",
                                  "/info/lfs/git-receive-pack"})
      w.targets.push_back(repo + end);
  w.header_sets = {{},
                   {{"content-type", "application/vnd.git-lfs+json"}},
                   {{"content-type", "application/json"}},
                   {{"content-type", "application/x-git-receive-pack-request"}},
                   {{"content-length", "0"}},
                   {{"content-length", "1"}}};
  using Kind = WitnessBody::Kind;
  for (const auto& leaves : LeavesAt("/x")) w.bodies.push_back({.kind = Kind::kJson, .json = leaves});
  for (const auto operation : {policy::LfsOperation::kDownload, policy::LfsOperation::kUpload}) {
    for (auto leaves : LeavesAt("/x")) {
      const char* text = operation == policy::LfsOperation::kDownload ? "download" : "upload";
      leaves.insert(leaves.begin(), {"/operation", policy::JsonLeaf::Type::kString, text});
      w.bodies.push_back({.kind = Kind::kLfs, .lfs = operation, .json = std::move(leaves)});
    }
  }
  return w;
}

// Batch calls of git LFS that are GraphQL requests and calls besides.
World Joined() {
  World w{.name = "joined",
          .pairs = 200,
          .verbs = {"POST", "http", "git fetch-pack", "git receive-pack", "git receive-pack", "graphql query", "graphql mutation",
                    "jsonrpc a", "jsonrpc *", "mcp tools/call", "tls"},
          .hosts = {"a.t"}};
  w.lfs = true;
  w.paths = {"", "/o/r", "/o/*", "/**"};
  w.tool = {"", "s"};
  w.json = {"", "", "/operation=download", "/operation=up*", "/x=1"};
  w.names = {"a.t"};
  w.methods = {"GET", "POST"};
  w.targets = {"/o/r/info/lfs/objects/batch", "/o/x/info/lfs/objects/batch?", "/o/r", "/o/r/git-receive-pack"};
  w.header_sets = {{}, {{"content-type", "application/vnd.git-lfs+json"}}, {{"content-type", "application/json"}}};
  using Kind = WitnessBody::Kind;
  const auto leaves_of = [](const char* operation) {
    std::vector<policy::JsonLeaves> sets{{}, Leaf("/x", "1", policy::JsonLeaf::Type::kString)};
    for (auto& leaves : sets)
      if (*operation != '\0') leaves.push_back({"/operation", policy::JsonLeaf::Type::kString, operation});
    return sets;
  };
  const auto each = [&](auto f) {
    for (const char* operation : {"", "upward", "z"})
      for (const auto& leaves : leaves_of(operation)) f(std::optional<policy::LfsOperation>(), leaves);
    for (const auto& leaves : leaves_of("download")) f(std::optional(policy::LfsOperation::kDownload), leaves);
    for (const auto& leaves : leaves_of("upload")) f(std::optional(policy::LfsOperation::kUpload), leaves);
    // Without objects it is no batch call.
    for (const auto& leaves : leaves_of("download")) f(std::optional<policy::LfsOperation>(), leaves);
  };
  each([&](const auto& lfs, const auto& leaves) {
    w.bodies.push_back({.kind = lfs ? Kind::kLfs : Kind::kJson, .lfs = lfs, .json = leaves});
    for (const auto kind : {policy::GraphqlKind::kQuery, policy::GraphqlKind::kMutation})
      w.bodies.push_back({.kind = Kind::kGraphql, .graphql = {kind, "", "a"}, .lfs = lfs, .json = leaves});
    for (const std::string method : {"a", "b", "tools/call"}) {
      WitnessBody body{.kind = Kind::kRpc, .rpc = {method, std::nullopt, leaves}, .lfs = lfs, .json = leaves};
      if (method == "tools/call") body.rpc.tool = "s";
      w.bodies.push_back(std::move(body));
    }
  });
  return w;
}

// What may stand beside the verb of an operation, and the schemes.
World Besides() {
  World w{.name = "besides",
          .pairs = 600,
          .verbs = {"GET", "POST", "http", "graphql query", "graphql mutation", "graphql subscription", "jsonrpc a",
                    "mcp initialize", "mcp tools/call", "grpc", "ws", "git fetch-pack", "git receive-pack"},
          .hosts = {"a.t"}};
  w.paths = {"", "/m", "/m/*", "/p.S/m"};
  w.query = {"", "", "", "k=a", "k=a*|b"};
  w.query_keys = {"", "", "", "k"};
  w.headers = {"", "", "", "x-a=a*"};
  w.opening_paths = true;
  w.opening_methods = true;
  w.names = {"a.t"};
  w.upgrades = true;
  w.methods = {"GET", "POST", "DELETE"};
  w.targets = {"/m",
               "/m?k=a",
               "/m?k=b",
               "/m?k=a&z",
               "/m?z",
               "/m?query={a}",
               "/m;x",
               "/m/x%2Fx",
               "/p.S/m",
               "/p.S/m;x",
               "/p.S/m%2Fx",
               "/m/git-upload-pack",
               "/m/git-receive-pack",
               "/m;x/git-upload-pack",
               "/m;x/git-receive-pack",
               "/m%2Fx/git-upload-pack",
               "/m%2Fx/git-receive-pack",
               "/m?query={a}&k=a"};
  const std::pair<std::string, std::string> other{"x-http-method-override", "PUT"};
  w.header_sets = {{}, {{"x-a", "a"}}, {{"x-a", "b"}}, {other}};
  for (const std::string type : {"application/json", "application/grpc", "application/x-git-upload-pack-request",
                                 "application/x-git-receive-pack-request"}) {
    w.header_sets.push_back({{"content-type", type}});
    w.header_sets.push_back({{"content-type", type}, {"x-a", "a"}});
    w.header_sets.push_back({{"content-type", type}, {"x-a", "b"}});
    w.header_sets.push_back({{"content-type", type}, other});
  }
  w.header_sets.push_back({{"accept", "text/event-stream"}});
  w.header_sets.push_back({{"mcp-session-id", "a"}, other});
  using Kind = WitnessBody::Kind;
  for (const auto kind : {policy::GraphqlKind::kQuery, policy::GraphqlKind::kMutation, policy::GraphqlKind::kSubscription})
    w.bodies.push_back({.kind = Kind::kGraphql, .graphql = {kind, "", "a"}});
  for (const std::string method : {"a", "initialize"})
    w.bodies.push_back({.kind = Kind::kRpc, .rpc = {method, std::nullopt, {}}});
  w.bodies.push_back({.kind = Kind::kRpc, .rpc = {"tools/call", "s", {}}});
  return w;
}

// Cleartext and TLS, of requests and of what they turn into.
World Schemes() {
  World w{.name = "schemes",
          .pairs = 2'500,
          .verbs = {"GET",
                    "http://GET",
                    "https://GET",
                    "http",
                    "ws",
                    "ws",
                    "ws://ws",
                    "ws://ws",
                    "wss://ws",
                    "grpc",
                    "http://grpc",
                    "https://grpc",
                    "graphql query",
                    "http://graphql query",
                    "http://graphql mutation",
                    "https://graphql mutation",
                    "http://graphql subscription",
                    "http://jsonrpc a",
                    "https://jsonrpc *",
                    "http://mcp initialize",
                    "tls",
                    "tcp"},
          .hosts = {"a.t"}};
  w.ports = {"", "", "443", "80,443"};
  w.paths = {"", "/s", "/p.S/m"};
  w.audit_in = 12;
  w.both_schemes = true;
  w.upgrades = true;
  w.names = {"a.t"};
  w.port_list = {443, 80};
  w.methods = {"GET", "POST", "DELETE"};
  w.targets = {"/s", "/p.S/m", "/s?query={a}"};
  w.header_sets = {{}, kJsonType, {{"content-type", "application/grpc"}}, {{"accept", "text/event-stream"}}};
  using Kind = WitnessBody::Kind;
  for (const auto kind : {policy::GraphqlKind::kQuery, policy::GraphqlKind::kMutation, policy::GraphqlKind::kSubscription})
    w.bodies.push_back({.kind = Kind::kGraphql, .graphql = {kind, "", "a"}});
  for (const std::string method : {"a", "initialize"})
    w.bodies.push_back({.kind = Kind::kRpc, .rpc = {method, std::nullopt, {}}});
  return w;
}

}  // namespace sluice::prover
