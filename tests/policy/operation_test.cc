// Requests that are judged by what they are for: WebSocket, gRPC, GraphQL, JSON-RPC, MCP, pushes, LFS, JSON bodies.
#include "policy/compiled.h"
#include "tests/policy/support.h"

namespace sluice::policy {
namespace {

constexpr std::string_view kJsonType = "application/json";

Request Post(std::string_view host, std::string_view path, std::string_view type = kJsonType) {
  Request request("POST", To(host, 443), path);
  request.With("content-type", type);
  return request;
}

// "allow", "deny REASON", or "needs KINDS".
std::string Said(const SnapshotPtr& policy, Request request, const RequestBody* body = nullptr) {
  request.query.body = body;
  const Decision d = policy->DecideRequest(request.Get());
  if (d.body_needed != 0) return "needs " + std::to_string(d.body_needed);
  return d.allowed ? "allow" : "deny " + std::string(ReasonText(d.reason));
}

RequestBody Graphql(std::vector<GraphqlItem> items) {
  RequestBody body;
  body.graphql = BodyReading<GraphqlItem>{std::move(items), ""};
  return body;
}
RequestBody Rpc(std::vector<RpcItem> items) {
  RequestBody body;
  body.rpc = BodyReading<RpcItem>{std::move(items), ""};
  return body;
}
RequestBody Push(std::vector<RefUpdate> items) {
  RequestBody body;
  body.push = BodyReading<RefUpdate>{std::move(items), ""};
  return body;
}
RequestBody Lfs(LfsOperation operation) {
  RequestBody body;
  body.lfs = BodyReading<LfsOperation>{{operation}, ""};
  return body;
}
RequestBody Json(JsonLeaves leaves) {
  leaves.insert(leaves.begin(), {"", JsonLeaf::Type::kObject, ""});
  RequestBody body;
  body.json = BodyReading<JsonLeaf>{std::move(leaves), ""};
  return body;
}
RequestBody Unreadable() {
  RequestBody body;
  body.json = BodyReading<JsonLeaf>{{}, "no JSON"};
  body.graphql = BodyReading<GraphqlItem>{{}, "no JSON"};
  body.rpc = BodyReading<RpcItem>{{}, "no JSON"};
  body.push = BodyReading<RefUpdate>{{}, "no pkt-line"};
  body.lfs = BodyReading<LfsOperation>{{}, "no JSON"};
  return body;
}

constexpr auto kQuery = GraphqlKind::kQuery;
constexpr auto kMutation = GraphqlKind::kMutation;

TEST(WebSocket, IsGrantedByItsOwnVerbAloneAndCutByDeniesOfGet) {
  const auto upgrade = [](std::string_view path, Scheme scheme = Scheme::kHttps) {
    Request request("GET", To("a.test", scheme == Scheme::kHttp ? 80 : 443), path, scheme);
    request.query.upgrade = Upgrade::kWebSocket;
    return request;
  };
  const auto ws = Loaded(WithRules("  - allow: ws a.test/s\n"));
  EXPECT_EQ(Said(ws, upgrade("/s")), "allow");
  EXPECT_EQ(Said(ws, upgrade("/t")), "deny path");
  EXPECT_EQ(Said(ws, upgrade("/s", Scheme::kHttp)), "deny port");
  EXPECT_EQ(Said(ws, Request("GET", To("a.test", 443), "/s")), "deny method");
  EXPECT_EQ(Said(Loaded(WithRules("  - allow: ws ws://a.test/s\n")), upgrade("/s", Scheme::kHttp)), "allow");
  EXPECT_EQ(Said(Loaded(WithRules("  - allow: http a.test/s\n")), upgrade("/s")), "deny method");
  for (const char* deny : {"GET a.test/s", "http a.test", "ws a.test", "tls a.test"})
    EXPECT_EQ(Said(Loaded(WithRules("  - allow: ws a.test/s\n  - deny: " + std::string(deny) + "\n")), upgrade("/s")),
              "deny deny_rule")
        << deny;
  EXPECT_EQ(Said(Loaded(WithRules("  - allow: ws a.test/s\n  - deny: POST a.test\n")), upgrade("/s")), "allow");
}

TEST(Grpc, IsOneCallByPathAndContentType) {
  const auto policy = Loaded(WithRules("  - allow: grpc g.test pkg.Svc/Get*\n"));
  for (const char* type : {"application/grpc", "application/grpc+proto", "application/grpc; x=y"})
    EXPECT_EQ(Said(policy, Post("g.test", "/pkg.Svc/GetOne", type)), "allow") << type;
  for (const char* type : {"application/grpc-web", "application/json", "application/grpcx", ""})
    EXPECT_EQ(Said(policy, Post("g.test", "/pkg.Svc/GetOne", type)), "deny header") << type;
  EXPECT_EQ(Said(policy, Post("g.test", "/pkg.Svc/Put", "application/grpc")), "deny path");
  EXPECT_EQ(Said(policy, Post("g.test", "/pkg.Svc/GetOne?x", "application/grpc")), "deny query");
  const auto denied = Loaded(WithRules("  - allow: http g.test\n  - deny: grpc g.test pkg.Svc/*\n"));
  EXPECT_EQ(Said(denied, Post("g.test", "/pkg.Svc/Put", "text/plain")), "deny deny_rule");
  EXPECT_EQ(Said(denied, Post("g.test", "/pkg.Other/Put", "application/grpc")), "allow");
}

TEST(GraphqlRules, AreJudgedFieldByField) {
  const auto policy =
      Loaded(WithRules("  - allow: graphql query a.test/graphql\n    fields: [viewer, repo*]\n"
                       "  - allow: graphql mutation a.test/graphql\n    operation: [AddStar]\n"));
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql")), "needs 2");
  struct Case {
    std::vector<GraphqlItem> items;
    const char* said;
  };
  for (const Case& c :
       {Case{{{kQuery, "", "viewer"}}, "allow"}, Case{{{kQuery, "", "viewer"}, {kQuery, "", "repository"}}, "allow"},
        Case{{{kQuery, "", "viewer"}, {kQuery, "", "users"}}, "deny operation"},
        Case{{{kMutation, "AddStar", "addStar"}}, "allow"}, Case{{{kMutation, "", "addStar"}}, "deny operation"},
        Case{{{kMutation, "AddStar", "x"}, {kQuery, "", "viewer"}}, "allow"},
        Case{{{GraphqlKind::kSubscription, "", "viewer"}}, "deny operation"}, Case{{}, "deny operation"}}) {
    const RequestBody body = Graphql(c.items);
    EXPECT_EQ(Said(policy, Post("a.test", "/graphql"), &body), c.said) << c.items.size();
  }
  const RequestBody bad = Unreadable();
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql"), &bad), "deny operation");
  const RequestBody absent;
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql"), &absent), "deny operation");
  // What servers may read otherwise than Sluice does is not asked about.
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql", "application/x-www-form-urlencoded")), "deny header");
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql", "application/json; charset=utf-16")), "deny header");
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql", "application/json; charset=utf-8")), "needs 2");
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql?query=mutation%7Bx%7D")), "deny query");
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql?x=1")), "deny query");
  EXPECT_EQ(Said(policy, Request("GET", To("a.test", 443), "/graphql?query=%7Bviewer%7D")), "needs 2");
  EXPECT_EQ(Said(policy, Request("GET", To("a.test", 443), "/graphql?query=%7Bviewer%7D&x=1")), "deny query");
  const RequestBody mutation = Graphql({{kMutation, "AddStar", "addStar"}});
  EXPECT_EQ(Said(policy, Request("GET", To("a.test", 443), "/graphql?query=x"), &mutation), "deny operation");
}

TEST(GraphqlRules, DenyWhatTheyNameAndWhatCannotBeRead) {
  const auto policy =
      Loaded(WithRules("  - allow: POST,GET a.test\n  - deny: graphql mutation a.test/graphql\n    fields: [delete*]\n"));
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql", "text/plain")), "needs 2");
  EXPECT_EQ(Said(policy, Post("a.test", "/other")), "allow");
  EXPECT_EQ(Said(policy, Request("GET", To("a.test", 443), "/graphql")), "allow");
  EXPECT_EQ(Said(policy, Request("GET", To("a.test", 443), "/graphql?QUERY=x")), "needs 2");
  const RequestBody bad = Unreadable();
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql"), &bad), "deny deny_rule");
  const RequestBody add = Graphql({{kMutation, "", "addStar"}});
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql"), &add), "allow");
  const RequestBody gone = Graphql({{kMutation, "", "addStar"}, {kMutation, "", "deleteRepo"}});
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql"), &gone), "deny deny_rule");
  const RequestBody empty = Graphql({});
  EXPECT_EQ(Said(policy, Post("a.test", "/graphql"), &empty), "allow");
}

TEST(McpRules, NameEachMethodAndOneDeniedCallRefusesTheBatch) {
  const auto policy =
      Loaded(WithRules("  - allow: mcp initialize a.test/mcp\n  - allow: mcp tools/list a.test/mcp\n"
                       "  - allow: mcp tools/call a.test/mcp\n    tool: [search_*]\n"
                       "  - deny: mcp tools/call a.test/mcp\n    json: { /params/arguments/repo: [secret] }\n"));
  const auto call = [](std::string tool, JsonLeaves leaves = {}) {
    return RpcItem{"tools/call", std::move(tool), std::move(leaves)};
  };
  struct Case {
    std::vector<RpcItem> items;
    const char* said;
  };
  using Type = JsonLeaf::Type;
  for (const Case& c :
       {Case{{{"initialize"}}, "allow"}, Case{{{"notifications/initialized"}}, "allow"}, Case{{{"ping"}}, "allow"},
        Case{{{""}}, "allow"}, Case{{{"tools/list"}}, "allow"}, Case{{{"resources/list"}}, "deny operation"},
        Case{{call("search_code")}, "allow"}, Case{{call("delete_repo")}, "deny operation"},
        Case{{RpcItem{"tools/call"}}, "deny operation"}, Case{{call("search_code"), call("delete_repo")}, "deny operation"},
        Case{{call("search_code"), {"tools/list"}}, "allow"}, Case{{}, "deny operation"},
        Case{{call("search_code", {{"/params/arguments/repo", Type::kString, "secret"}})}, "deny deny_rule"},
        Case{{call("search_code", {{"/params/arguments/Repo", Type::kString, "secret"}})}, "deny deny_rule"},
        Case{{call("search_code",
                   {{"/params/arguments/repo", Type::kArray, ""}, {"/params/arguments/repo/0", Type::kString, "secret"}})},
             "deny deny_rule"},
        Case{{call("search_code", {{"/params/arguments/repo", Type::kString, "public"}})}, "allow"}}) {
    const RequestBody body = Rpc(c.items);
    EXPECT_EQ(Said(policy, Post("a.test", "/mcp"), &body), c.said) << (c.items.empty() ? "" : c.items[0].method);
  }
  Request stream("GET", To("a.test", 443), "/mcp");
  EXPECT_EQ(Said(policy, stream), "deny header");
  EXPECT_EQ(Said(policy, stream.With("accept", "text/event-stream")), "allow");
  Request end("DELETE", To("a.test", 443), "/mcp");
  EXPECT_EQ(Said(policy, end.With("mcp-session-id", "x")), "allow");
  const auto calls = Loaded(WithRules("  - allow: mcp tools/call a.test/mcp\n"));
  EXPECT_EQ(Said(calls, stream), "deny method");
}

TEST(JsonRpcRules, TakeNoAnswersAndNoSession) {
  const auto policy = Loaded(WithRules("  - allow: jsonrpc eth_* a.test/rpc\n"));
  const RequestBody good = Rpc({{"eth_call"}});
  const RequestBody answer = Rpc({{""}});
  const RequestBody other = Rpc({{"eth_call"}, {"admin_peers"}});
  EXPECT_EQ(Said(policy, Post("a.test", "/rpc")), "needs 4");
  EXPECT_EQ(Said(policy, Post("a.test", "/rpc"), &good), "allow");
  EXPECT_EQ(Said(policy, Post("a.test", "/rpc"), &answer), "deny operation");
  EXPECT_EQ(Said(policy, Post("a.test", "/rpc"), &other), "deny operation");
}

TEST(PushRules, CheckEveryCommand) {
  const auto policy = Loaded(WithRules("  - allow: git receive-pack a.test/octo/hello\n    refs: [refs/heads/agent/*]\n"));
  const auto push = [] { return Post("a.test", "/octo/Hello.git/git-receive-pack", "application/x-git-receive-pack-request"); };
  EXPECT_EQ(Said(policy, Request("GET", To("a.test", 443), "/octo/hello.git/info/refs?service=git-receive-pack")), "allow");
  EXPECT_EQ(Said(policy, push()), "needs 8");
  struct Case {
    std::vector<RefUpdate> commands;
    const char* said;
  };
  for (const Case& c :
       {Case{{{"refs/heads/agent/x", kRefCreate}}, "allow"},
        Case{{{"refs/heads/agent/x", kRefUpdate}, {"refs/heads/agent/y", kRefCreate}}, "allow"},
        Case{{{"refs/heads/agent/x", kRefDelete}}, "deny operation"},
        Case{{{"refs/heads/agent/x", kRefUpdate}, {"refs/heads/main", kRefUpdate}}, "deny operation"}, Case{{}, "allow"}}) {
    const RequestBody body = Push(c.commands);
    EXPECT_EQ(Said(policy, push(), &body), c.said);
  }
  const RequestBody bad = Unreadable();
  EXPECT_EQ(Said(policy, push(), &bad), "deny operation");
  EXPECT_EQ(Said(Loaded(WithRules("  - allow: git receive-pack a.test/octo/hello\n")), push()), "allow");
  const auto deny =
      Loaded(WithRules("  - allow: git receive-pack a.test/octo/*\n"
                       "  - deny: git receive-pack a.test/octo/*\n    refs: [refs/heads/main]\n"));
  EXPECT_EQ(Said(deny, Request("GET", To("a.test", 443), "/octo/hello.git/info/refs?service=git-receive-pack")), "allow");
  const RequestBody main = Push({{"refs/heads/x", kRefUpdate}, {"refs/heads/main", kRefDelete}});
  EXPECT_EQ(Said(deny, push(), &main), "deny deny_rule");
  EXPECT_EQ(Said(deny, push(), &bad), "deny deny_rule");
}

TEST(LfsCalls, AreOptedInto) {
  const auto fetch = Loaded(WithRules("  - allow: git fetch-pack a.test/octo/hello\n    lfs: true\n"));
  const auto push = Loaded(WithRules("  - allow: git receive-pack a.test/octo/hello\n    lfs: true\n    refs: [refs/heads/x]\n"));
  const auto without = Loaded(WithRules("  - allow: git fetch-pack a.test/octo/hello\n"));
  const auto batch = [] {
    return Post("a.test", "/octo/hello.git/info/lfs/objects/batch", "application/vnd.git-lfs+json; charset=utf-8");
  };
  const RequestBody download = Lfs(LfsOperation::kDownload);
  const RequestBody upload = Lfs(LfsOperation::kUpload);
  EXPECT_EQ(Said(fetch, batch()), "needs 16");
  EXPECT_EQ(Said(fetch, batch(), &download), "allow");
  EXPECT_EQ(Said(fetch, batch(), &upload), "deny operation");
  EXPECT_EQ(Said(push, batch(), &upload), "allow");
  EXPECT_EQ(Said(push, batch(), &download), "deny operation");
  EXPECT_EQ(Said(without, batch()), "deny no_rule");
  struct Case {
    const char* method;
    const char* path;
    const char* fetch;
    const char* push;
  };
  for (const Case& c : {Case{"GET", "/octo/hello.git/info/lfs/objects/ab12", "allow", "deny method"},
                        Case{"PUT", "/octo/hello.git/info/lfs/objects/ab12", "deny method", "allow"},
                        Case{"POST", "/octo/hello.git/info/lfs/objects/ab12/verify", "deny method", "allow"},
                        Case{"GET", "/octo/hello.git/info/lfs/objects/objects/batch", "allow", "deny method"},
                        Case{"PUT", "/octo/hello.git/info/lfs/objects/agit-receive-pack", "deny method", "allow"},
                        Case{"GET", "/octo/hello.git/info/lfs/locks?path=x", "deny no_rule", "allow"},
                        Case{"POST", "/octo/hello.git/info/lfs/locks/verify", "deny no_rule", "allow"},
                        Case{"POST", "/octo/other.git/info/lfs/locks/verify", "deny no_rule", "deny path"}}) {
    EXPECT_EQ(Said(fetch, Request(c.method, To("a.test", 443), c.path)), c.fetch) << c.path;
    EXPECT_EQ(Said(push, Request(c.method, To("a.test", 443), c.path)), c.push) << c.path;
  }
}

TEST(JsonKeys, ReadNarrowlyInAnAllowAndWidelyInADeny) {
  using Type = JsonLeaf::Type;
  const auto allow = Loaded(WithRules("  - allow: POST a.test/v1\n    json: { /model: [gpt-*, '1'] }\n"));
  const auto deny = Loaded(WithRules("  - allow: POST a.test\n  - deny: POST a.test/v1\n    json: { /n: ['10'] }\n"));
  struct Case {
    const SnapshotPtr& policy;
    JsonLeaves leaves;
    const char* said;
  };
  for (const Case& c :
       {Case{allow, {{"/model", Type::kString, "gpt-x"}}, "allow"}, Case{allow, {{"/model", Type::kNumber, "1"}}, "allow"},
        Case{allow, {{"/model", Type::kNumber, "1.0"}}, "deny operation"},
        Case{allow, {{"/model", Type::kString, "o"}}, "deny operation"},
        Case{allow, {{"/model", Type::kArray, ""}, {"/model/0", Type::kString, "gpt-x"}}, "deny operation"},
        Case{allow, {{"/Model", Type::kString, "gpt-x"}}, "deny operation"},
        Case{allow, {{"/Model", Type::kString, "o"}, {"/model", Type::kString, "gpt-x"}}, "deny operation"},
        Case{allow, {}, "deny operation"}, Case{deny, {{"/n", Type::kNumber, "10"}}, "deny deny_rule"},
        Case{deny, {{"/n", Type::kNumber, "1e1"}}, "deny deny_rule"},
        Case{deny, {{"/n", Type::kNumber, "10.0"}}, "deny deny_rule"},
        Case{deny, {{"/n", Type::kString, "10"}}, "deny deny_rule"}, Case{deny, {{"/n", Type::kString, "10.0"}}, "allow"},
        Case{deny, {{"/N", Type::kNumber, "10"}}, "deny deny_rule"},
        Case{deny, {{"/n", Type::kObject, ""}, {"/n/x", Type::kNumber, "10"}}, "deny deny_rule"},
        Case{deny, {{"/nn", Type::kNumber, "10"}}, "allow"}}) {
    const RequestBody body = Json(c.leaves);
    EXPECT_EQ(Said(c.policy, Post("a.test", "/v1"), &body), c.said) << (c.leaves.empty() ? "" : c.leaves[0].text);
  }
  const RequestBody bad = Unreadable();
  EXPECT_EQ(Said(allow, Post("a.test", "/v1"), &bad), "deny operation");
  EXPECT_EQ(Said(deny, Post("a.test", "/v1"), &bad), "deny deny_rule");
  EXPECT_EQ(Said(allow, Post("a.test", "/v1", "text/plain")), "deny header");
}

TEST(Bodies, AreAskedForWhereTheyCanChangeTheAnswerAlone) {
  struct Case {
    const char* rules;
    const char* said;
  };
  for (const Case& c :
       {Case{"  - allow: POST a.test/q\n  - allow: graphql query a.test/q\n", "allow"},
        Case{"  - allow: graphql query a.test/q\n  - deny: POST a.test/q\n", "deny deny_rule"},
        Case{"  - allow: graphql query a.test/q\n  - deny: graphql query a.test/q\n", "deny operation"},
        Case{"  - deny: graphql query a.test/q\n", "deny no_rule"},
        Case{"  - allow: graphql query a.test/q\n  - deny: jsonrpc x a.test/q\n", "needs 6"},
        Case{"  - allow: POST a.test/q\n  - deny: jsonrpc x a.test/q\n", "needs 4"}, Case{"  - allow: tls a.test\n", "allow"}})
    EXPECT_EQ(Said(Loaded(WithRules(c.rules)), Post("a.test", "/q")), c.said) << c.rules;
}

TEST(Bodies, AreOnlyLoggedUnderAudit) {
  const auto policy = Loaded("version: 1\nmode: audit\nrules:\n  - allow: graphql query a.test/q\n");
  EXPECT_EQ(Said(policy, Post("a.test", "/q")), "needs 2");
  const RequestBody bad = Unreadable();
  Request request = Post("a.test", "/q");
  request.query.body = &bad;
  const Decision d = policy->DecideRequest(request.Get());
  EXPECT_TRUE(d.allowed && d.audit_only);
  EXPECT_EQ(d.reason, Reason::kOperation);
}

TEST(Bodies, MoreRulesThanThereIsRoomForAreAllHeard) {
  std::string rules;
  for (int i = 0; i < 200; ++i)
    rules += "  - allow: mcp tools/call a.test/mcp\n    tool: [t" + std::to_string(i) +
             "]\n  - deny: mcp tools/call a.test/mcp\n    tool: [d" + std::to_string(i) + "]\n";
  const auto policy = Loaded(WithRules(rules));
  const auto said = [&](const char* tool) {
    const RequestBody body = Rpc({{"tools/call", tool, {}}});
    return Said(policy, Post("a.test", "/mcp"), &body);
  };
  EXPECT_EQ(said("t199"), "allow");
  EXPECT_EQ(said("t200"), "deny operation");
  EXPECT_EQ(said("d199"), "deny deny_rule");
}

constexpr const char* kRouted =
    "version: 1\ncredentials:\n  c: { from: env C, send: bearer, to: [a.test/v1/**, a.test/q, a.test/Octo/**] }\n"
    "  d: { from: env D, send: bearer, to: [a.test] }\nproxies:\n  p: { url: 'http://p.test:3128' }\n"
    "  q: { url: 'socks5://q.test:1080' }\n";

TEST(Routes, SayWhichCredentialAndProxyARequestHas) {
  const auto policy =
      Loaded(std::string(kRouted) +
             "settings: { via: q }\nrules:\n  - allow: GET a.test\n  - allow: GET a.test/v1/**\n    with: c\n    via: p\n"
             "  - allow: graphql query a.test/q\n  - allow: graphql mutation a.test/q\n    with: c\n"
             "  - allow: git fetch-pack a.test/octo/*\n    with: c\n  - allow: GET b.test\n    ip: [10.0.0.1]\n"
             "  - allow: tcp t.test:1\n    via: p\n  - allow: tcp u.test:1\n");
  struct Case {
    Request request;
    uint16_t credential;
    uint16_t via;
  };
  const auto get = [](const char* host, const char* path) { return Request("GET", To(host, 443), path); };
  for (Case& c : std::vector<Case>{{get("a.test", "/x"), kNoIndex16, 1},
                                   {get("a.test", "/v1/x"), 0, 0},
                                   {get("a.test", "/Octo/r/info/refs?service=git-upload-pack"), 0, 1},
                                   {get("a.test", "/octo/r/info/refs?service=git-upload-pack"), kNoIndex16, 1},
                                   {get("b.test", "/"), kNoIndex16, kNoIndex16}}) {
    const Decision d = policy->DecideRequest(c.request.Get());
    EXPECT_TRUE(d.allowed) << c.request.target.path;
    EXPECT_EQ(d.credential, c.credential) << c.request.target.path;
    EXPECT_EQ(d.via, c.via) << c.request.target.path;
  }
  EXPECT_EQ(policy->DecideConnect(To("t.test", 1)).decision.via, 0);
  EXPECT_EQ(policy->DecideConnect(To("u.test", 1)).decision.via, 1);
  const auto credential_of = [&](std::vector<GraphqlItem> items) {
    const RequestBody body = Graphql(std::move(items));
    Request request = Post("a.test", "/q");
    request.query.body = &body;
    return policy->DecideRequest(request.Get()).credential;
  };
  EXPECT_EQ(credential_of({{kMutation, "", "x"}}), 0);
  EXPECT_EQ(credential_of({{kQuery, "", "x"}}), kNoIndex16);
  EXPECT_EQ(credential_of({{kMutation, "", "x"}, {kQuery, "", "x"}}), kNoIndex16);
}

TEST(Routes, BodiesAreReadWhereACredentialHangsOnThem) {
  const auto policy =
      Loaded(std::string(kRouted) + "rules:\n  - allow: POST a.test/q\n  - allow: graphql mutation a.test/q\n    with: c\n");
  EXPECT_EQ(Said(policy, Post("a.test", "/q")), "needs 2");
  const RequestBody bad = Unreadable();
  EXPECT_EQ(Said(policy, Post("a.test", "/q"), &bad), "allow");
}

TEST(Routes, RulesThatCannotMeetMayDiffer) {
  for (const char* rules : {"  - allow: GET a.test/v1/**\n    with: c\n  - allow: GET a.test/v2/**\n    with: d\n",
                            "  - allow: GET a.test/v1/**\n    with: c\n  - allow: POST a.test/v1/**\n    with: d\n",
                            "  - allow: graphql query a.test/q\n    with: c\n  - allow: graphql mutation a.test/q\n    with: d\n",
                            "  - allow: GET a.test/v1/**\n    with: c\n  - allow: tcp a.test:22\n",
                            "  - allow: GET a.test/v1/**\n    with: c\n  - allow: tcp 10.0.0.0/8:443\n",
                            "  - allow: GET a.test/v1/**\n    with: c\n    by: [/bin/a]\n  - allow: http a.test\n    with: d\n"
                            "    by: [/bin/b]\n"})
    EXPECT_EQ(LoadMessage(std::string(kRouted) + "rules:\n" + rules), "loaded") << rules;
}

TEST(Routes, PinsComeFromTheRuleThatHasThem) {
  const auto policy =
      Loaded(WithRules("  - allow: GET a.test\n  - allow: GET a.test/p\n"
                       "    pins: [sha256//AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=]\n"));
  EXPECT_EQ(policy->DecideRequest(Request("GET", To("a.test", 443), "/x").Get()).pinned_by, RuleRef::kNone);
  const Decision d = policy->DecideRequest(Request("GET", To("a.test", 443), "/p").Get());
  EXPECT_EQ(d.rule, RuleRef{0});
  ASSERT_EQ(policy->pins(d.pinned_by).size(), 1u);
  EXPECT_EQ(policy->pins(d.pinned_by)[0][0], 1);
  EXPECT_TRUE(policy->pins(RuleRef::kNone).empty());
}

TEST(Routes, AreInTheDigestAndSecretsAreNot) {
  const auto digest = [](const char* from) {
    return Loaded("version: 1\ncredentials: { c: { from: " + std::string(from) + ", send: bearer, to: a.test } }\n")->digest();
  };
  EXPECT_NE(digest("env A"), digest("env B"));
  EXPECT_NE(digest("env A"), digest("systemd A"));
  EXPECT_EQ(digest("env A"), digest("env A"));
}

TEST(Credentials, AreReadInAllTheirForms) {
  const auto policy = Loaded(
      "version: 1\ncredentials:\n  gh: { from: 'command \"gh auth token\"', send: header X-Token token, to: [a.test, "
      "'b.test:8443/x'] }\n"
      "  idp: { from: oauth, token-url: https://idp.test/t, client-id: me, client-secret: env S, scope: a b, send: bearer, to: "
      "a.test }\n"
      "  aws: { from: env KEY, secret: file /s, send: sigv4, region: eu-west-1, service: s3, to: '*.s3.test' }\n"
      "proxies:\n  corp: { url: https://p.test:3128, basic: env P, ca: /ca.pem, except: [localhost, .corp.test, 10.0.0.0/8, "
      "'db.test:5432'] }\n");
  const auto& list = policy->credentials();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].from.command, (std::vector<std::string>{"gh", "auth", "token"}));
  EXPECT_EQ(list[0].send.text, "x-token");
  EXPECT_EQ(list[0].send.prefix, "token ");
  EXPECT_EQ(list[0].to[1].text, "b.test:8443/x");
  EXPECT_EQ(list[1].from.kind, SecretSource::Kind::kOauth);
  EXPECT_EQ(list[1].from.scope, "a b");
  EXPECT_EQ(list[1].from.secret[0].text, "S");
  EXPECT_EQ(list[2].send.region, "eu-west-1");
  EXPECT_EQ(list[2].from.secret[0].kind, SecretSource::Kind::kFile);
  ASSERT_EQ(policy->proxies().size(), 1u);
  const UpstreamProxy& proxy = policy->proxies()[0];
  EXPECT_EQ(proxy.port, 3128);
  EXPECT_EQ(proxy.except.size(), 4u);
  EXPECT_EQ(proxy.except[1].host->text, "**.corp.test");
  EXPECT_EQ(proxy.except[3].ports[0].first, 5432);
}

}  // namespace
}  // namespace sluice::policy
