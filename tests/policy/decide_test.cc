#include "tests/policy/support.h"

namespace sluice::policy {
namespace {

const std::string kExample = R"(version: 1
name: docs-bot
rules:
  - allow: GET api.github.com/repos/**
  - allow: git fetch-pack github.com/octo/*
  - allow: GET,POST api.example.com/v1/**
    by: [/usr/bin/node]
    query: { tag: [v1*, v2*] }
    until: 2027-01-31
    note: release notes job
  - allow: tcp db.internal:5432
    ip: [10.1.0.0/16]
  - deny: GET api.github.com/repos/*/*/actions/secrets/**
)";

Decision Ask(const SnapshotPtr& s, Request r) { return s->DecideRequest(r.Get()); }

TEST(Decide, FollowsTheExampleOfTheLanguage) {
  const auto s = Loaded(kExample);
  ASSERT_NE(s, nullptr);
  EXPECT_EQ(s->name(), "docs-bot");
  ASSERT_EQ(s->rules().size(), 5u);
  EXPECT_EQ(s->rules()[0].id, "p.yaml:4");
  EXPECT_EQ(s->rules()[0].text, "GET api.github.com/repos/**");
  EXPECT_EQ(s->DecideConnect(To("api.github.com", 443)).verdict, ConnectVerdict::kInspect);
  EXPECT_EQ(s->DecideConnect(To("api.github.com", 80)).decision.reason, Reason::kPort);
  EXPECT_EQ(s->DecideConnect(To("evil.test", 443)).decision.reason, Reason::kNoRule);
  EXPECT_TRUE(Ask(s, {"GET", To("api.github.com", 443), "/repos/a/b"}).allowed);
  EXPECT_TRUE(Ask(s, {"HEAD", To("api.github.com", 443), "/repos/a/b"}).allowed);
  EXPECT_EQ(Ask(s, {"POST", To("api.github.com", 443), "/repos/a/b"}).reason, Reason::kMethod);
  EXPECT_EQ(Ask(s, {"GET", To("api.github.com", 443), "/repos"}).reason, Reason::kPath);
  EXPECT_EQ(Ask(s, {"GET", To("api.github.com", 443), "/repos/a/b/actions/secrets/x"}).reason, Reason::kDenyRule);
  EXPECT_EQ(s->DecideConnect(To("db.internal", 5432, "10.1.2.3")).verdict, ConnectVerdict::kOpaqueTcp);
  EXPECT_EQ(s->DecideConnect(To("db.internal", 5432)).verdict, ConnectVerdict::kOpaqueTcp);
  EXPECT_EQ(s->DecideConnect(To("db.internal", 5432, "10.2.2.3")).decision.reason, Reason::kPrivateAddress);
}

TEST(Decide, GrantsExactlyTheRequestsOfAFetch) {
  const auto s = Loaded(kExample);
  const auto to = To("github.com", 443);
  EXPECT_TRUE(Ask(s, {"GET", to, "/octo/hello/info/refs?service=git-upload-pack"}).allowed);
  EXPECT_TRUE(Ask(s, {"GET", to, "/Octo/hello.git/info/refs?service=git-upload-pack"}).allowed);
  EXPECT_TRUE(
      Ask(s, Request("POST", to, "/octo/hello.git/git-upload-pack").With("content-type", "application/x-git-upload-pack-request"))
          .allowed);
  EXPECT_FALSE(Ask(s, {"POST", to, "/octo/hello.git/git-upload-pack"}).allowed);
  EXPECT_FALSE(Ask(s, {"GET", to, "/octo/hello/info/refs?service=git-receive-pack"}).allowed);
  EXPECT_FALSE(Ask(s, {"GET", to, "/octo/hello/info/refs"}).allowed);
  EXPECT_FALSE(Ask(s, {"GET", to, "/octo/a/b/info/refs?service=git-upload-pack"}).allowed);
  Request push("GET", to, "/octo/hello.git/info/refs?service=git-receive-pack");
  EXPECT_EQ(s->AdviseRequest(push.Get(), Ask(s, push)).suggest, "git receive-pack github.com/octo/hello");
}

TEST(Decide, NamesAreKnownByTheRulesThatNeedThem) {
  const auto s = Loaded(kExample);
  const auto verdict = [&](std::string_view name, uint16_t type) { return s->DecideName({nullptr, name, type, kNow}).verdict; };
  EXPECT_EQ(verdict("api.github.com", 1), NameVerdict::kAllow);
  EXPECT_EQ(verdict("api.github.com", 28), NameVerdict::kAllow);
  EXPECT_EQ(verdict("api.github.com", 16), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("com", 1), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("internal", 1), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("b.github.com", 1), NameVerdict::kDeny);
  EXPECT_EQ(verdict("api.example.com", 1), NameVerdict::kDeny);  // its rule is for node alone
}

Process Exe(std::string path, bool trusted = true) {
  Process process;
  process.pid = 7;
  process.exe = {std::move(path), trusted, {}};
  return process;
}

ConnectQuery By(const Process& process, ConnectQuery query) {
  query.process = &process;
  return query;
}

// Exact point 2.
TEST(Layers, ADenyClosesEverythingThatItsLayerCarries) {
  const std::string allows =
      "  - allow: GET a.test\n  - allow: GET http://a.test\n  - allow: tls a.test:8443\n  - allow: tcp a.test:9000\n";
  const auto verdict = [&](const std::string& deny, uint16_t port) {
    return Loaded(WithRules(allows + deny))->DecideConnect(To("a.test", port)).verdict;
  };
  EXPECT_EQ(verdict("", 443), ConnectVerdict::kInspect);
  EXPECT_EQ(verdict("", 8443), ConnectVerdict::kOpaqueTls);
  EXPECT_EQ(verdict("", 9000), ConnectVerdict::kOpaqueTcp);
  for (const uint16_t port : {uint16_t{80}, uint16_t{443}, uint16_t{8443}, uint16_t{9000}}) {
    EXPECT_EQ(verdict("  - deny: dns a.test\n", port), ConnectVerdict::kDeny);
    EXPECT_EQ(verdict("  - deny: dns **\n", port), ConnectVerdict::kDeny);
    EXPECT_EQ(verdict("  - deny: tcp a.test\n", port), ConnectVerdict::kDeny);
    EXPECT_NE(verdict("  - deny: udp a.test\n", port), ConnectVerdict::kDeny);
  }
  EXPECT_EQ(verdict("  - deny: tls a.test\n", 443), ConnectVerdict::kDeny);
  EXPECT_EQ(verdict("  - deny: tls a.test\n", 8443), ConnectVerdict::kDeny);
  EXPECT_EQ(verdict("  - deny: tls a.test\n", 80), ConnectVerdict::kInspect);
  EXPECT_EQ(verdict("  - deny: tls a.test\n", 9000), ConnectVerdict::kOpaqueTcp);  // without a port it counts as 80 and 443 there
  EXPECT_EQ(verdict("  - deny: tls a.test:9000\n", 9000), ConnectVerdict::kDeny);
}

TEST(Layers, ADenyOfOneLookupTypeClosesItsFamily) {
  const auto s = Loaded(WithRules("  - allow: GET a.test\n  - deny: dns a.test\n    types: [AAAA]\n"));
  EXPECT_EQ(s->DecideConnect(To("a.test", 443, "1.1.1.1")).verdict, ConnectVerdict::kInspect);
  EXPECT_EQ(s->DecideConnect(To("a.test", 443, "2606:4700::1")).verdict, ConnectVerdict::kDeny);
  EXPECT_EQ(s->DecideConnect(To("a.test", 443)).verdict, ConnectVerdict::kInspect);
  EXPECT_EQ(s->DecideName({nullptr, "a.test", 1, kNow}).verdict, NameVerdict::kAllow);
  EXPECT_FALSE(s->DecideName({nullptr, "a.test", 28, kNow}).decision.allowed);
}

// Exact points 3 and 4.
TEST(Opaque, GrantsNothingWhereAnInnerDenyLooksInside) {
  const auto verdict = [](const std::string& rules, uint16_t port) {
    return Loaded(WithRules(rules))->DecideConnect(To("a.test", port));
  };
  const std::string tls = "  - allow: tls a.test:443,8443\n";
  EXPECT_EQ(verdict(tls + "  - deny: POST a.test/admin\n", 443).verdict, ConnectVerdict::kDeny);
  EXPECT_EQ(verdict(tls + "  - deny: POST a.test/admin\n", 443).decision.reason, Reason::kDenyRule);
  EXPECT_EQ(verdict(tls + "  - deny: POST a.test/admin\n", 8443).verdict, ConnectVerdict::kOpaqueTls);
  EXPECT_EQ(verdict(tls + "  - deny: POST a.test:8443/admin\n", 8443).verdict, ConnectVerdict::kDeny);
  EXPECT_EQ(verdict(tls + "  - deny: POST http://a.test/admin\n", 443).verdict, ConnectVerdict::kOpaqueTls);
  EXPECT_EQ(verdict("  - allow: tcp a.test:80\n  - deny: POST http://a.test/admin\n", 80).verdict, ConnectVerdict::kDeny);
  // Inspection takes over where some inner allow is there.
  const std::string both = tls + "  - allow: GET a.test\n  - deny: POST a.test/admin\n";
  EXPECT_EQ(verdict(both, 443).verdict, ConnectVerdict::kInspect);
  // An opaque allow is not narrowed by an inner allow beside it.
  EXPECT_EQ(verdict(tls + "  - allow: GET a.test\n", 443).verdict, ConnectVerdict::kOpaqueTls);
}

TEST(Opaque, CoversTheRequestsInsideIt) {
  const auto s = Loaded(WithRules("  - allow: tls a.test\n  - allow: tcp b.test:80\n"));
  EXPECT_TRUE(Ask(s, {"POST", To("a.test", 443), "/x"}).allowed);
  EXPECT_FALSE(Ask(s, {"POST", To("a.test", 443), "/x", Scheme::kHttp}).allowed);
  EXPECT_TRUE(Ask(s, {"POST", To("b.test", 80), "/x", Scheme::kHttp}).allowed);
}

// Exact point 6.
TEST(Requests, AreNeverForwardedByTheseMethodsOrUpgrades) {
  const auto s = Loaded(WithRules("  - allow: http a.test\n"));
  const auto reason = [&](const char* method) { return Ask(s, {method, To("a.test", 443), "/"}).reason; };
  EXPECT_EQ(reason("PROPFIND"), Reason::kAllowed);
  for (const char* method : {"CONNECT", "TRACE", "connect", "post", "Get", "", "G ET"})
    EXPECT_EQ(reason(method), Reason::kProtocol) << method;
  EXPECT_EQ(Ask(s, Request("GET", To("a.test", 443), "/").With("upgrade", "websocket")).reason, Reason::kUnsupported);
  for (const char* name :
       {"x-http-method-override", "x-http-method", "x-method-override", "x_http_method_override", "x-http_method"})
    EXPECT_EQ(Ask(s, Request("GET", To("a.test", 443), "/").With(name, "PUT")).reason, Reason::kHeader);
}

TEST(Requests, OverrideHeadersNeedTheKeyAndMeetDeniesOfEitherMethod) {
  const auto s = Loaded(WithRules("  - allow: POST a.test\n    method-override: true\n  - deny: DELETE a.test\n"));
  EXPECT_TRUE(Ask(s, Request("POST", To("a.test", 443), "/").With("x-http-method-override", "PATCH")).allowed);
  EXPECT_EQ(Ask(s, Request("POST", To("a.test", 443), "/").With("x-http-method-override", "delete")).reason, Reason::kDenyRule);
}

// Exact points 1 and 16.
TEST(Processes, UnknownMatchesNoAllowAndEveryDeny) {
  const auto s = Loaded(WithRules(
      "  - allow: GET a.test\n    by: [/usr/bin/node]\n  - allow: GET b.test\n  - deny: GET b.test\n    by: [/usr/bin/curl]\n"
      "  - allow: GET c.test\n    under: [/usr/bin/make]\n"));
  const Process node = Exe("/usr/bin/node");
  const Process gone = Exe("/usr/bin/node (deleted)", false);
  Process child = Exe("/usr/bin/sh");
  child.ancestors = {{"/usr/bin/npm", true, {}}, {"/usr/bin/make", true, {}}};
  const auto allowed = [&](ConnectQuery query) {
    return s->DecideConnect(query).allowed() && Ask(s, {"GET", query, "/"}).allowed;
  };
  EXPECT_TRUE(allowed(By(node, To("a.test", 443))));
  EXPECT_FALSE(allowed(By(gone, To("a.test", 443))));
  EXPECT_FALSE(allowed(To("a.test", 443)));
  EXPECT_EQ(s->DecideConnect(To("a.test", 443)).decision.reason, Reason::kBinary);
  EXPECT_TRUE(allowed(By(node, To("b.test", 443))));
  EXPECT_FALSE(allowed(By(gone, To("b.test", 443))));
  EXPECT_FALSE(allowed(To("b.test", 443)));
  EXPECT_FALSE(allowed(By(node, To("c.test", 443))));
  EXPECT_TRUE(allowed(By(child, To("c.test", 443))));
  child.ancestors[1].trusted = false;
  EXPECT_FALSE(allowed(By(child, To("c.test", 443))));
}

TEST(Processes, AreKnownByDigest) {
  const std::string zeros(64, '0');
  const auto s = Loaded(WithRules("  - allow: GET a.test\n    by: ['sha256:" + zeros +
                                  "']\n  - allow: GET b.test\n  - deny: GET b.test\n    by: ['sha256:" + zeros + "']\n"));
  EXPECT_TRUE(s->NeedsDigests());
  Process process = Exe("/usr/bin/x");
  EXPECT_FALSE(s->DecideConnect(By(process, To("a.test", 443))).allowed());
  EXPECT_FALSE(Ask(s, {"GET", By(process, To("b.test", 443)), "/"}).allowed);
  process.exe.sha256.emplace();
  EXPECT_TRUE(s->DecideConnect(By(process, To("a.test", 443))).allowed());
  EXPECT_FALSE(Ask(s, {"GET", By(process, To("b.test", 443)), "/"}).allowed);
  process.exe.sha256->fill(1);
  EXPECT_FALSE(s->DecideConnect(By(process, To("a.test", 443))).allowed());
  EXPECT_TRUE(Ask(s, {"GET", By(process, To("b.test", 443)), "/"}).allowed);
}

// Exact point 11.
TEST(AddressGuard, RefusesSpecialRangesThatNoRuleWritesOut) {
  struct Case {
    const char* ip;  ///< of the rule; empty: none
    const char* address;
    bool allowed;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"", "1.1.1.1", true},
           {"", "10.0.0.1", false},
           {"", "127.0.0.1", false},
           {"", "::1", false},
           {"", "169.254.169.254", false},
           {"", "64:ff9b::10.0.0.1", false},
           {"", "::ffff:10.0.0.1", false},
           {"0.0.0.0/0", "1.1.1.1", true},
           {"0.0.0.0/0", "10.0.0.1", false},
           {"0.0.0.0/0", "2606:4700::1", false},
           {"'::/0'", "1.1.1.1", false},
           {"10.0.0.0/8", "10.0.0.1", true},
           {"10.0.0.0/7", "10.0.0.1", false},
           {"10.0.0.0/8", "1.1.1.1", false},
           {"10.0.0.0/8", "::ffff:10.0.0.1", true},
           {"10.0.0.0/8", "64:ff9b::10.0.0.1", false},
           {"'64:ff9b::a00:0/104'", "64:ff9b::10.0.0.1", true},
           {"169.254.0.0/16", "169.254.1.1", true},
           {"169.254.0.0/16", "169.254.169.254", false},
           {"169.254.169.254/32", "169.254.169.254", true},
           {"'fc00::/7'", "fd00:ec2::254", false},
           {"'fd00:ec2::254'", "fd00:ec2::254", true},
       }) {
    const std::string ip = *c.ip == '\0' ? "" : std::string("    ip: [") + c.ip + "]\n";
    const auto s = Loaded(WithRules("  - allow: GET a.test\n" + ip));
    ASSERT_NE(s, nullptr);
    const auto d = s->DecideConnect(To("a.test", 443, c.address));
    EXPECT_EQ(d.allowed(), c.allowed) << c.ip << " " << c.address;
    if (!c.allowed) EXPECT_EQ(d.decision.reason, Reason::kPrivateAddress) << c.ip << " " << c.address;
    EXPECT_EQ(Ask(s, {"GET", To("a.test", 443, c.address), "/"}).allowed, c.allowed) << c.ip << " " << c.address;
  }
}

TEST(AddressGuard, TreatsTheHostsOwnAddressesAsSpecial) {
  const IpAddress own[] = {*IpAddress::Parse("1.1.1.1")};
  auto query = To("a.test", 443, "1.1.1.1");
  query.host_addresses = own;
  EXPECT_EQ(Loaded(WithRules("  - allow: GET a.test\n"))->DecideConnect(query).decision.reason, Reason::kPrivateAddress);
  EXPECT_FALSE(Loaded(WithRules("  - allow: GET a.test\n    ip: [1.1.1.0/24]\n"))->DecideConnect(query).allowed());
  EXPECT_TRUE(Loaded(WithRules("  - allow: GET a.test\n    ip: [1.1.1.1]\n"))->DecideConnect(query).allowed());
}

TEST(Addresses, AsTargetsHoldWithAndWithoutAName) {
  const auto s = Loaded(WithRules(
      "  - allow: tcp 10.0.0.0/8:5432\n  - allow: GET http://10.1.2.3\n  - allow: GET db.test\n  - deny: tcp 10.9.0.0/16\n"));
  EXPECT_EQ(s->DecideConnect(To("", 5432, "10.1.2.3")).verdict, ConnectVerdict::kOpaqueTcp);
  EXPECT_EQ(s->DecideConnect(To("db.test", 5432, "10.1.2.3")).verdict, ConnectVerdict::kOpaqueTcp);
  EXPECT_EQ(s->DecideConnect(To("db.test", 5432)).verdict, ConnectVerdict::kOpaqueTcp);
  EXPECT_EQ(s->DecideConnect(To("db.test", 5432, "10.9.2.3")).decision.reason, Reason::kDenyRule);
  EXPECT_EQ(s->DecideConnect(To("db.test", 5432, "11.1.2.3")).verdict, ConnectVerdict::kDeny);
  EXPECT_EQ(s->DecideConnect(To("", 80, "10.1.2.3")).verdict, ConnectVerdict::kInspect);
  EXPECT_FALSE(s->DecideConnect(To("db.test", 80, "10.1.2.3")).allowed());  // an HTTP target is the host that is asked for
  EXPECT_EQ(s->DecideConnect(To("", 443)).decision.reason, Reason::kInternal);
  EXPECT_EQ(s->DecideConnect(To("db.test", 0)).decision.reason, Reason::kProtocol);
}

// Exact point 9.
TEST(Hosts, WildcardsHoldWhatTheySay) {
  const auto s = Loaded(WithRules(
      "  - allow: tcp **.test:1\n  - allow: tcp **:2\n  - allow: tcp *:3\n  - allow: tcp x*.test:4\n  - deny: tcp x*.test:1\n"));
  const auto ok = [&](const char* host, uint16_t port, const char* address = "1.1.1.1") {
    return s->DecideConnect(To(host, port, address)).allowed();
  };
  EXPECT_TRUE(ok("a.b.test", 1));
  EXPECT_FALSE(ok("test", 1));
  EXPECT_FALSE(ok("", 1));
  EXPECT_TRUE(ok("", 2));
  EXPECT_TRUE(ok("any.thing", 2));
  EXPECT_TRUE(ok("db", 3));
  EXPECT_FALSE(ok("a.db", 3));
  EXPECT_TRUE(ok("xa.test", 4));
  EXPECT_FALSE(ok("xn--q.test", 4));
  EXPECT_FALSE(ok("xn--q.test", 1));  // the deny reads it widely
  EXPECT_TRUE(ok("yn--q.test", 1));
}

// Exact point 13.
TEST(Paths, EncodedSlashesAndParamsNeedTheKeysAndMeetDeniesInEveryReading) {
  const auto s =
      Loaded(WithRules("  - allow: GET a.test/**\n  - allow: GET b.test/**\n    encoded-slash: true\n    path-params: true\n"
                       "  - deny: GET b.test/admin/**\n  - deny: GET b.test/secret\n"));
  const auto reason = [&](const char* host, const char* path) { return Ask(s, {"GET", To(host, 443), path}).reason; };
  EXPECT_EQ(reason("a.test", "/x%2Fy"), Reason::kPath);
  EXPECT_EQ(reason("a.test", "/x;y"), Reason::kPath);
  EXPECT_EQ(reason("a.test", "/x%3By"), Reason::kAllowed);
  EXPECT_EQ(reason("b.test", "/x%2Fy"), Reason::kAllowed);
  EXPECT_EQ(reason("b.test", "/x;y"), Reason::kAllowed);
  EXPECT_EQ(reason("b.test", "/admin%2Fx"), Reason::kDenyRule);
  EXPECT_EQ(reason("b.test", "/x%2F..%2Fadmin/y"), Reason::kDenyRule);
  EXPECT_EQ(reason("b.test", "/x/..;/secret;a=1"), Reason::kDenyRule);
  EXPECT_EQ(reason("b.test", "/Secret"), Reason::kAllowed);
  EXPECT_EQ(reason("b.test", "/secret/"), Reason::kAllowed);
}

TEST(Paths, CompareWithSubDelimitersDecodedOnBothSides) {
  const auto s = Loaded(WithRules("  - allow: GET a.test/a@b/%3a*\n  - deny: GET a.test/a@b/:x\n"));
  const auto allowed = [&](const char* path) { return Ask(s, {"GET", To("a.test", 443), path}).allowed; };
  EXPECT_TRUE(allowed("/a%40b/:y"));
  EXPECT_TRUE(allowed("/a@b/%3Ay"));
  EXPECT_FALSE(allowed("/a%40b/%3Ax"));
  EXPECT_FALSE(allowed("/a%2540b/:y"));
}

// Exact point 15.
TEST(Queries, AreMultimapsOfDecodedValues) {
  const auto s =
      Loaded(WithRules("  - allow: GET a.test\n    query: { tag: [v1*, 'v 2'], e: '' }\n    query-keys: [x]\n"
                       "  - allow: GET b.test\n  - deny: GET b.test\n    query: { force: 'true' }\n"));
  const auto ok = [&](const char* host, const char* path) { return Ask(s, {"GET", To(host, 443), path}).allowed; };
  EXPECT_TRUE(ok("a.test", "/?tag=v1.5&e"));
  EXPECT_TRUE(ok("a.test", "/?e=&tag=v+2&x=9&tag=%761"));
  EXPECT_TRUE(ok("a.test", "/?&tag=v%202&&e&"));
  EXPECT_FALSE(ok("a.test", "/?tag=v1"));
  EXPECT_FALSE(ok("a.test", "/?tag=v1&e=1"));
  EXPECT_FALSE(ok("a.test", "/?tag=v1&e&tag=w"));
  EXPECT_FALSE(ok("a.test", "/?tag=v1&e&y=1"));
  EXPECT_FALSE(ok("a.test", "/"));
  EXPECT_TRUE(ok("b.test", "/"));
  EXPECT_TRUE(ok("b.test", "/?force=false"));
  EXPECT_FALSE(ok("b.test", "/?force=false&force=true"));
  EXPECT_FALSE(ok("b.test", "/?%66orce=tru%65"));
  EXPECT_EQ(Ask(s, {"GET", To("a.test", 443), "/"}).reason, Reason::kQuery);
}

// Some servers end a pair at ';' too: to an allow that speaks of pairs the query is not one text, and a deny reads it both ways.
TEST(Queries, WithASemicolonMatchNoAllowOfPairsAndDeniesBothWays) {
  const auto s =
      Loaded(WithRules("  - allow: GET a.test\n    query: { tag: [v1*] }\n    query-keys: [x]\n"
                       "  - allow: http b.test\n  - deny: GET b.test\n    query: { force: 'true' }\n"
                       "  - deny: git receive-pack b.test/o/r\n"));
  const auto ok = [&](const char* host, const char* path) { return Ask(s, {"GET", To(host, 443), path}).allowed; };
  EXPECT_TRUE(ok("a.test", "/?tag=v1%3Bx=1"));
  EXPECT_FALSE(ok("a.test", "/?tag=v1;x=1"));
  EXPECT_FALSE(ok("a.test", "/?tag=v1;"));
  EXPECT_FALSE(ok("a.test", "/?tag=v1;tag=w"));
  EXPECT_FALSE(ok("a.test", "/?tag=v1;y=1"));
  EXPECT_FALSE(ok("a.test", "/?x=1;tag=v1"));
  EXPECT_TRUE(ok("b.test", "/?force=false;x=1"));
  EXPECT_FALSE(ok("b.test", "/?x=1;force=true"));
  EXPECT_FALSE(ok("b.test", "/?force=true;x=1"));
  EXPECT_FALSE(ok("b.test", "/o/r/info/refs?x=1;service=git-receive-pack"));
}

TEST(Paths, WithADotSegmentToSomeServersMatchNoAllow) {
  const auto s = Loaded(WithRules("  - allow: GET a.test/x/**\n    encoded-slash: true\n    path-params: true\n"));
  for (const char* good : {"/x/a%2Fb", "/x/a;b/c", "/x/..a%2Fb", "/x/a..;b"})
    EXPECT_TRUE(Ask(s, {"GET", To("a.test", 443), good}).allowed) << good;
  for (const char* bad : {"/x/..%2f..%2fsecret", "/x/%2e%2e%2Fsecret", "/x/..;/..;/secret", "/x/..;a=b/secret", "/x/.;/y",
                          "/x/a%2F..", "/x/a%2F..;b/c"})
    EXPECT_FALSE(Ask(s, {"GET", To("a.test", 443), bad}).allowed) << bad;
  Request hidden("GET", To("a.test", 443), "/x/..%2fsecret");
  EXPECT_EQ(s->AdviseRequest(hidden.Get(), s->DecideRequest(hidden.Get())).suggest, "");
}

TEST(Headers, AreTheSameToADenyWithUnderscores) {
  const auto s = Loaded(WithRules("  - allow: GET b.test\n  - deny: GET b.test\n    headers: { x-team: [a*] }\n"));
  EXPECT_FALSE(Ask(s, Request("GET", To("b.test", 443), "/").With("x_team", "a1")).allowed);
  EXPECT_TRUE(Ask(s, Request("GET", To("b.test", 443), "/").With("xxteam", "a1")).allowed);
}

TEST(Headers, NarrowAllowsByAllValuesAndDeniesByAny) {
  const auto s =
      Loaded(WithRules("  - allow: GET a.test\n    headers: { X-Team: [a*] }\n  - allow: GET b.test\n  - deny: GET b.test\n    "
                       "headers: { x-team: [a*] }\n"));
  const auto ask = [&](const char* host, std::vector<const char*> values) {
    Request request("GET", To(host, 443), "/");
    for (const char* value : values) request.With("x-team", value);
    return Ask(s, request).allowed;
  };
  EXPECT_TRUE(ask("a.test", {"a1"}));
  EXPECT_FALSE(ask("a.test", {}));
  EXPECT_FALSE(ask("a.test", {"a1", "b"}));
  EXPECT_TRUE(ask("b.test", {}));
  EXPECT_TRUE(ask("b.test", {"b"}));
  EXPECT_FALSE(ask("b.test", {"b", "a1"}));
}

// Exact point 14, and what a server tries beyond it.
TEST(Git, DeniesReadRepositoriesWidely) {
  const auto s =
      Loaded(WithRules("  - allow: http g.test\n  - deny: git receive-pack g.test/o/r\n  - deny: git fetch-pack g.test/o/f\n"));
  const auto ok = [&](const char* method, const char* path) { return Ask(s, {method, To("g.test", 443), path}).allowed; };
  for (const char* repo : {"/o/r", "/o/r.git", "/O/R.GIT", "/o/r.git.git", "/o/r/.git", "/o/r.git/.git"}) {
    EXPECT_FALSE(ok("POST", (std::string(repo) + "/git-receive-pack").c_str())) << repo;
    EXPECT_FALSE(ok("POST", (std::string(repo) + "/git-receive-pack/").c_str())) << repo;
    EXPECT_FALSE(ok("GET", (std::string(repo) + "/info/refs?service=git-receive-pack").c_str())) << repo;
    EXPECT_TRUE(ok("POST", (std::string(repo) + "/git-upload-pack").c_str())) << repo;
  }
  EXPECT_FALSE(ok("GET", "/o/r/info/refs?service=git-upload-pack&service=git-receive-pack"));
  EXPECT_FALSE(ok("GET", "/o/f/info/refs"));
  EXPECT_FALSE(ok("GET", "/o/f/info/refs?service=git-upload-pack"));
  EXPECT_TRUE(ok("GET", "/o/f/info/refs?service=git-receive-pack"));
  EXPECT_TRUE(ok("POST", "/o/rr/git-receive-pack"));
}

TEST(Git, AllowsNothingButTheTwoRequests) {
  const auto s = Loaded(WithRules("  - allow: git receive-pack g.test/o/*\n"));
  const auto to = To("g.test", 443);
  EXPECT_TRUE(Ask(s, {"GET", to, "/o/r/info/refs?service=git-receive-pack"}).allowed);
  EXPECT_FALSE(Ask(s, {"HEAD", to, "/o/r/info/refs?service=git-receive-pack"}).allowed);
  EXPECT_FALSE(Ask(s, {"GET", to, "/o/r/info/refs?service=git-receive-pack&x"}).allowed);
  EXPECT_FALSE(Ask(s, {"GET", to, "/info/refs?service=git-receive-pack"}).allowed);
  EXPECT_FALSE(Ask(s, {"GET", to, "/o/r/HEAD"}).allowed);
  const char* type = "application/x-git-receive-pack-request";
  EXPECT_TRUE(Ask(s, Request("POST", to, "/o/r/git-receive-pack").With("content-type", type)).allowed);
  EXPECT_FALSE(
      Ask(s, Request("POST", to, "/o/r/git-receive-pack").With("content-type", type).With("content-type", type)).allowed);
  EXPECT_FALSE(Ask(s, Request("POST", to, "/o/r/git-receive-pack?").With("content-type", type)).allowed);
  EXPECT_FALSE(Ask(s, Request("POST", to, "/o/r/git-receive-pack").With("content-type", "text/plain")).allowed);
  EXPECT_FALSE(Ask(s, Request("POST", to, "/o/rgit-receive-pack").With("content-type", type)).allowed);
  EXPECT_FALSE(Ask(s, Request("PUT", to, "/o/r/git-receive-pack").With("content-type", type)).allowed);
}

// Exact point 17.
TEST(Until, NarrowsFromItsInstantOn) {
  const auto s = Loaded(
      WithRules("  - allow: GET a.test\n    until: 2026-11-29\n  - allow: GET b.test\n    until: 2026-11-29T01:00:00+02:00\n"));
  const auto reason = [&](const char* host, std::chrono::microseconds after) {
    auto query = To(host, 443);
    query.now += after;
    return s->DecideConnect(query).decision.reason;
  };
  using namespace std::chrono_literals;
  EXPECT_EQ(reason("a.test", 24h - 1us), Reason::kAllowed);
  EXPECT_EQ(reason("a.test", 24h), Reason::kExpired);
  EXPECT_EQ(reason("b.test", -1h - 1us), Reason::kAllowed);
  EXPECT_EQ(reason("b.test", -1h), Reason::kExpired);
}

// Exact point 19.
TEST(Audit, ForwardsAllButTheGuardAndFaults) {
  const auto s = Loaded(
      "version: 1\nmode: audit\nrules:\n  - allow: GET a.test\n  - deny: GET d.test\n  - allow: tcp p.test:1\n    ip: "
      "[10.0.0.0/8]\n");
  EXPECT_EQ(s->mode(), Mode::kAudit);
  const auto other = s->DecideConnect(To("b.test", 443, "1.1.1.1"));
  EXPECT_TRUE(other.allowed() && other.decision.audit_only);
  EXPECT_EQ(other.decision.reason, Reason::kNoRule);
  EXPECT_EQ(s->DecideConnect(To("b.test", 9, "1.1.1.1")).verdict, ConnectVerdict::kOpaqueTcp);
  EXPECT_FALSE(s->DecideConnect(To("a.test", 443, "1.1.1.1")).decision.audit_only);
  EXPECT_EQ(s->DecideConnect(To("a.test", 443, "10.0.0.1")).decision.reason, Reason::kPrivateAddress);
  EXPECT_FALSE(s->DecideConnect(To("b.test", 443, "169.254.169.254")).allowed());
  EXPECT_TRUE(s->DecideConnect(To("p.test", 1, "10.0.0.1")).allowed());
  const auto post = Ask(s, {"POST", To("a.test", 443, "1.1.1.1"), "/"});
  EXPECT_TRUE(post.allowed && post.audit_only);
  EXPECT_TRUE(Ask(s, {"GET", To("d.test", 443, "1.1.1.1"), "/"}).audit_only);
  EXPECT_FALSE(Ask(s, {"TRACE", To("a.test", 443), "/"}).allowed);
  EXPECT_FALSE(Ask(s, Request("GET", To("a.test", 443), "/").With("upgrade", "websocket")).allowed);
  EXPECT_EQ(s->DecideName({nullptr, "b.test", 1, kNow}).verdict, NameVerdict::kAllow);
}

TEST(Names, AncestorsAndOtherTypesAreNotDeniedBelow) {
  const auto s =
      Loaded(WithRules("  - allow: GET **.deep.x.test\n  - allow: GET a*.b.test\n  - allow: dns t.test\n    types: [TXT]\n"
                       "  - deny: dns q.deep.x.test\n  - deny: GET z.no.test\n  - allow: tcp 10.0.0.0/8:1\n"));
  const auto verdict = [&](std::string_view name, uint16_t type = 1) {
    return s->DecideName({nullptr, name, type, kNow}).verdict;
  };
  EXPECT_EQ(verdict(""), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("test"), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("x.test"), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("deep.x.test"), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("p.deep.x.test"), NameVerdict::kAllow);
  EXPECT_EQ(verdict("q.deep.x.test"), NameVerdict::kAncestor);  // p.q.deep.x.test is allowed
  EXPECT_EQ(verdict("p.q.deep.x.test"), NameVerdict::kAllow);
  EXPECT_EQ(verdict("b.test"), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("c.b.test"), NameVerdict::kDeny);
  EXPECT_EQ(verdict("t.test", 16), NameVerdict::kAllow);
  EXPECT_EQ(verdict("t.test", 1), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("no.test"), NameVerdict::kDeny);
  EXPECT_EQ(verdict("other"), NameVerdict::kDeny);
}

TEST(Sockets, AreDeniedUnlessARuleNamesThem) {
  const auto s = Loaded(WithRules(
      "  - allow: unix /run/app/*.sock\n  - deny: unix /run/app/root.sock\n  - allow: unix /run/**\n    by: [/usr/bin/x]\n"));
  const auto reason = [&](std::string_view path) { return s->DecideUnix({nullptr, path, kNow}).reason; };
  EXPECT_EQ(reason("/run/app/a.sock"), Reason::kAllowed);
  EXPECT_EQ(reason("/run/app/root.sock"), Reason::kDenyRule);
  EXPECT_EQ(reason("/run/docker.sock"), Reason::kBinary);
  EXPECT_EQ(reason("/var/run/docker.sock"), Reason::kNoRule);
  EXPECT_EQ(s->UnixPaths(), (std::vector<std::string>{"/run/app/*.sock", "/run/**"}));
}

TEST(Udp, IsGrantedByItsOwnVerbAlone) {
  const auto s = Loaded(WithRules("  - allow: udp a.test:53\n  - allow: tcp a.test:54\n"));
  auto query = To("a.test", 53);
  EXPECT_FALSE(s->DecideConnect(query).allowed());
  query.transport = Transport::kUdp;
  EXPECT_TRUE(s->DecideConnect(query).allowed());
  query.port = 54;
  EXPECT_FALSE(s->DecideConnect(query).allowed());
  EXPECT_EQ(s->UdpRules().size(), 1u);
}

}  // namespace
}  // namespace sluice::policy
