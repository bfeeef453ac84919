#include <gmock/gmock.h>

#include <random>

#include "tests/policy/support.h"

namespace sluice::policy {
namespace {

using ::testing::HasSubstr;

Advice AdviceOn(const SnapshotPtr& s, Request request) {
  const Decision denied = s->DecideRequest(request.Get());
  EXPECT_FALSE(denied.allowed);
  return s->AdviseRequest(request.Get(), denied);
}

bool SuggestionAllows(const std::string& suggest, Request request) {
  LoadOptions options;
  options.extra_allows = {suggest};
  const auto s = LoadRules(options);
  EXPECT_TRUE(s) << suggest << ": " << s.error().message;
  return s && (*s)->DecideRequest(request.Get()).allowed;
}

TEST(Advice, NamesTheNearestRuleAndTheSmallestThatWouldDo) {
  const auto s = Loaded("version: 1\nrules:\n  - allow: GET other.test\n  - allow: GET api.github.com/repos/**\n");
  const Advice advice = AdviceOn(s, {"POST", To("api.github.com", 443), "/repos/a?b=c"});
  EXPECT_EQ(advice.nearest, RuleRef{1});
  EXPECT_EQ(advice.suggest, "POST api.github.com/repos/a");
  EXPECT_EQ(advice.explanation,
            "no rule allows POST to api.github.com; nearest: GET api.github.com/repos/** (p.yaml:4), for another method");
  const Advice nothing = AdviceOn(s, {"GET", To("x.test", 8443), "/y"});
  EXPECT_EQ(nothing.nearest, RuleRef::kNone);
  EXPECT_EQ(nothing.suggest, "GET x.test:8443/y");
  EXPECT_EQ(nothing.explanation, "no rule allows GET to x.test");
}

TEST(Advice, SuggestsNothingAgainstADenyOrTheGuard) {
  const auto s = Loaded(WithRules("  - allow: http a.test\n  - deny: POST a.test/admin\n"));
  const Advice deny = AdviceOn(s, {"POST", To("a.test", 443), "/admin"});
  EXPECT_EQ(deny.suggest, "");
  EXPECT_EQ(deny.explanation, "POST to a.test is refused by deny: POST a.test/admin (p.yaml:4)");
  const Advice guard = AdviceOn(s, {"GET", To("a.test", 443, "10.1.2.3"), "/"});
  EXPECT_EQ(guard.suggest, "");
  EXPECT_THAT(guard.explanation, HasSubstr("special (private); a rule would need ip: [10.1.2.3]"));
  EXPECT_EQ(AdviceOn(s, {"TRACE", To("a.test", 443), "/"}).suggest, "");
  EXPECT_THAT(AdviceOn(s, {"GET", To("a.test", 443), "/x;y"}).explanation,
              HasSubstr("it would need the key `path-params: true`"));
}

TEST(Advice, SaysAllThatTheNearestRuleLacks) {
  const auto s = Loaded(WithRules(
      "  - allow: GET a.test/x\n    by: [/bin/a]\n    query: { k: [v] }\n  - allow: GET old.test/x\n    until: 2020-01-01\n"));
  const auto ends = [&](Request request, std::string_view end) {
    const std::string text = AdviceOn(s, std::move(request)).explanation;
    return text.ends_with(end) ? std::string("as expected") : text;
  };
  EXPECT_EQ(ends({"GET", To("a.test", 443), "/x?k=v"}, "), for another program"), "as expected");
  EXPECT_EQ(ends({"GET", To("a.test", 443), "/x"}, "), for another program and query"), "as expected");
  EXPECT_EQ(ends({"PUT", To("a.test", 8443), "/y"}, "), for another program, port, method, path and query"), "as expected");
  EXPECT_EQ(ends({"GET", To("old.test", 443), "/x"}, "), which has expired"), "as expected");
  EXPECT_EQ(ends({"PUT", To("old.test", 443), "/x"}, "), for another method, and expired"), "as expected");
}

TEST(Advice, BlamesTheGuardOnlyWhereNoRuleOpensTheAddress) {
  const auto s = Loaded(WithRules("  - allow: tcp 10.1.0.0/16:5432\n  - allow: GET http://10.2.3.4/a\n"));
  const ConnectQuery query = To("", 22, "10.1.2.3");
  const Advice port = s->AdviseConnect(query, s->DecideConnect(query));
  EXPECT_THAT(port.explanation, HasSubstr("no rule allows a connection to 10.1.2.3:22; nearest: tcp 10.1.0.0/16:5432"));
  EXPECT_EQ(port.suggest, "") << "a special address is the author's to write";
  const Advice path = AdviceOn(s, {"GET", To("", 80, "10.2.3.4"), "/b", Scheme::kHttp});
  EXPECT_THAT(path.explanation, HasSubstr("(p.yaml:4), for another path"));
  EXPECT_EQ(path.suggest, "");
}

TEST(Reasons, AreOfRulesThatAreAboutTheSameThing) {
  const auto s = Loaded(WithRules("  - allow: tcp 10.0.0.0/8:5432\n  - allow: git fetch-pack github.com/octo/*\n"));
  EXPECT_EQ(s->DecideConnect(To("a.test", 22)).decision.reason, Reason::kNoRule) << "a rule by address is none for this name";
  EXPECT_EQ(s->AdviseConnect(To("a.test", 22), s->DecideConnect(To("a.test", 22))).nearest, RuleRef::kNone);
  EXPECT_EQ(s->DecideConnect(To("", 22, "10.0.0.1")).decision.reason, Reason::kPort);
  EXPECT_EQ(s->DecideRequest(Request("GET", To("github.com", 443), "/octo/hello").Get()).reason, Reason::kNoRule)
      << "a page is not git with another path";
}

TEST(Advice, SuggestsNoRuleThatWouldNotLoad) {
  const auto s = Loaded("version: 1\n");
  EXPECT_EQ(AdviceOn(s, {"GTE", To("a.test", 443), "/"}).suggest, "");
  EXPECT_EQ(AdviceOn(s, {"frob", To("a.test", 443), "/"}).suggest, "");
  EXPECT_EQ(AdviceOn(s, {"FROBNICATE", To("a.test", 443), "/"}).suggest, "FROBNICATE a.test/");
  EXPECT_EQ(AdviceOn(s, {"GET", To("a.test", 443), "/" + std::string(2000, 'a')}).suggest, "");
  EXPECT_EQ(AdviceOn(s, {"GET", To("", 8080, "2606:4700::1"), "/x"}).suggest, "GET [2606:4700::1]:8080/x");
}

TEST(Advice, SpeaksGit) {
  const auto s = Loaded(WithRules("  - allow: git fetch-pack github.com/octo/*\n"));
  Request push("GET", To("github.com", 443), "/octo/hello.git/info/refs?service=git-receive-pack");
  EXPECT_EQ(s->DecideRequest(push.Get()).reason, Reason::kMethod);
  EXPECT_EQ(s->DecideRequest(Request("POST", To("github.com", 443), "/octo/hello/git-receive-pack").Get()).reason,
            Reason::kMethod);
  const Advice advice = AdviceOn(s, push);
  EXPECT_EQ(advice.suggest, "git receive-pack github.com/octo/hello");
  EXPECT_THAT(advice.explanation, HasSubstr("no rule allows git receive-pack of github.com/octo/hello.git"));
  EXPECT_TRUE(SuggestionAllows(advice.suggest, push));
}

TEST(Advice, ForConnectionsAndNames) {
  const auto s = Loaded(WithRules("  - allow: GET a.test\n"));
  const auto connect = [&](ConnectQuery query) { return s->AdviseConnect(query, s->DecideConnect(query)); };
  EXPECT_EQ(connect(To("a.test", 8080)).suggest, "tcp a.test:8080");
  EXPECT_EQ(connect(To("a.test", 8080)).nearest, RuleRef{0});
  EXPECT_EQ(connect(To("b.test", 443)).suggest, "GET b.test");
  EXPECT_EQ(connect(To("", 80, "1.1.1.1")).suggest, "GET http://1.1.1.1");
  EXPECT_EQ(connect(To("", 9, "2606:4700::1")).suggest, "tcp [2606:4700::1]:9");
  EXPECT_EQ(connect(To("", 9, "127.0.0.1")).suggest, "");
  EXPECT_EQ(connect(To("", 80, "169.254.169.254")).suggest, "");
  const NameQuery name{nullptr, "b.test", 1, kNow};
  const Advice lookup = s->AdviseName(name, s->DecideName(name));
  EXPECT_EQ(lookup.suggest, "GET b.test");
  EXPECT_THAT(lookup.explanation, HasSubstr("a rule for what will be done there allows the lookup too"));
  const NameQuery mx{nullptr, "b.test", 15, kNow};
  EXPECT_EQ(s->AdviseName(mx, s->DecideName(mx)).suggest, "");
}

// A suggestion is pasted between single quotes, and must grant what was asked and nothing that a star would add.
TEST(Advice, SuggestionsAreShellSafeAndSufficient) {
  std::mt19937 random(9);
  const std::string_view pieces[] = {"/", "a",  "*", "**",  "'", "$(x)", "`y`", "%27", "%2A", "!", "&",      "(",  "[",
                                     "{", "\"", "|", "%20", "~", "@",    ":",   "=",   ",",   "+", "%C3%BC", "%25"};
  const auto empty = Loaded("version: 1\n");
  for (int i = 0; i < 4000; ++i) {
    std::string path = "/";
    for (size_t n = random() % 8; n > 0; --n) path += pieces[random() % std::size(pieces)];
    const bool cleartext = random() % 4 == 0;
    const Request request(random() % 2 == 0 ? "POST" : "GET", To("a.test", random() % 3 == 0 ? 8080 : 443), path,
                          cleartext ? Scheme::kHttp : Scheme::kHttps);
    const Advice advice = AdviceOn(empty, request);
    ASSERT_FALSE(advice.suggest.empty()) << path;
    for (const char c : advice.suggest)
      ASSERT_TRUE(isalnum(static_cast<unsigned char>(c)) || std::string_view(" -._~/:@%+,=").contains(c)) << advice.suggest;
    ASSERT_TRUE(SuggestionAllows(advice.suggest, request)) << path << " by " << advice.suggest;
    ASSERT_EQ(advice.suggest.find('*'), std::string::npos);
  }
}

// The request with a body of one item in each reading.
Advice AdviceOnBody(const SnapshotPtr& s, Request request, const RequestBody& body) {
  request.query.body = &body;
  return AdviceOn(s, std::move(request));
}

TEST(Advice, SpeaksOfTheItemThatNoRuleAllows) {
  const auto post = [](std::string_view path, std::string_view type = "application/json") {
    Request request("POST", To("a.test", 443), path);
    request.With("content-type", type);
    return request;
  };
  const auto s =
      Loaded(WithRules("  - allow: graphql query a.test/q\n  - allow: mcp tools/list a.test/m\n  - allow: POST a.test/j\n"
                       "    json: { /a: [x] }\n  - allow: git receive-pack a.test/o/r\n    refs: [refs/heads/agent/*]\n"));
  RequestBody body;
  body.graphql = BodyReading<GraphqlItem>{{{GraphqlKind::kQuery, "", "viewer"}, {GraphqlKind::kMutation, "", "deleteRepo"}}, ""};
  Advice advice = AdviceOnBody(s, post("/q"), body);
  EXPECT_EQ(advice.suggest, "graphql mutation a.test/q");
  EXPECT_EQ(advice.explanation,
            "no rule allows graphql mutation deleteRepo at a.test/q; nearest: graphql query a.test/q (p.yaml:3), for another "
            "operation; "
            "a rule that has `fields: [deleteRepo]` beside it allows no more than that");
  body.rpc = BodyReading<RpcItem>{{{"tools/call", "x", {}}}, ""};
  advice = AdviceOnBody(s, post("/m"), body);
  EXPECT_EQ(advice.suggest, "mcp tools/call a.test/m");
  EXPECT_THAT(advice.explanation, HasSubstr("`tool: [x]`"));
  body.rpc->items = {{"notifications/initialized", {}, {}}};
  EXPECT_EQ(AdviceOnBody(s, post("/m"), body).suggest, "mcp initialize a.test/m");
  body.push = BodyReading<RefUpdate>{{{"refs/heads/main", kRefDelete}}, ""};
  advice = AdviceOnBody(s, post("/o/r.git/git-receive-pack", "application/x-git-receive-pack-request"), body);
  EXPECT_EQ(advice.suggest, "git receive-pack a.test/o/r");
  EXPECT_THAT(advice.explanation, HasSubstr("a push that would delete refs/heads/main"));
  EXPECT_THAT(advice.explanation, HasSubstr("`refs: [refs/heads/main]` and `ref-changes: [delete]`"));
  body.json = BodyReading<JsonLeaf>{{}, "a key stands twice"};
  advice = AdviceOnBody(s, post("/j"), body);
  EXPECT_EQ(advice.suggest, "");
  EXPECT_THAT(advice.explanation, HasSubstr("its body cannot be judged (a key stands twice)"));
}

TEST(Advice, SuggestsUpgradesAndCallsByTheirOwnVerbs) {
  const auto s = Loaded(WithRules("  - allow: GET a.test\n"));
  Request upgrade("GET", To("a.test", 443), "/s");
  upgrade.query.upgrade = Upgrade::kWebSocket;
  EXPECT_EQ(AdviceOn(s, upgrade).suggest, "ws a.test/s");
  Request call("POST", To("g.test", 443), "/p.S/M");
  call.With("content-type", "application/grpc");
  EXPECT_EQ(AdviceOn(s, call).suggest, "grpc g.test p.S/M");
}

}  // namespace
}  // namespace sluice::policy
