#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/explain.h"
#include "app/import.h"
#include "app/lint.h"
#include "tests/app/command_capture.h"

namespace sluice::app {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class PolicyCommands : public InFolder {
 protected:
  Captured LintOf(std::vector<std::string> files, ReportFormat format = ReportFormat::kText) {
    return Capture([&] {
      LintOptions options;
      options.files = std::move(files);
      options.format = format;
      return RunLint(options);
    });
  }
  Captured Explain(const std::string& question, ExplainOptions options = {}) {
    if (options.file.empty())
      options.file =
          Write("policy.yaml",
                "version: 1\nrules:\n  - allow: GET api.github.com/repos/**\n  - allow: git fetch-pack github.com/octo/*\n"
                "  - allow: tcp db.test:5432\n    ip: [10.0.0.0/8]\n  - allow: GET n.test\n    by: [/usr/bin/node]\n    until: "
                "2026-12-31\n"
                "  - deny: GET api.github.com/repos/secret/**\n  - allow: unix /run/a.sock\n");
    options.question = question;
    return Capture([&] { return RunExplain(options); });
  }
};

TEST_F(PolicyCommands, ExplainTakesOperations) {
  ExplainOptions base;
  base.file =
      Write("o.yaml",
            "version: 1\nrules:\n  - allow: ws a.test/s\n  - allow: grpc g.test p.S/Get\n"
            "  - allow: graphql query a.test/graphql\n  - allow: graphql mutation a.test/graphql\n    fields: [addStar]\n"
            "  - allow: mcp tools/call a.test/mcp\n    tool: [search]\n    json: { /params/arguments/n: ['1'] }\n"
            "  - allow: jsonrpc eth_* a.test/rpc\n  - allow: git receive-pack a.test/o/r\n    refs: [refs/heads/agent/*]\n"
            "  - allow: POST a.test/v1\n    json: { /model: [small] }\n");
  struct Case {
    const char* question;
    AskedBody body;
    std::vector<std::string> json;
    int code;
    const char* out;
  };
  for (const Case& c :
       {Case{"ws a.test/s", {}, {}, 0, "allowed  ws https://a.test/s   inspected"},
        Case{"ws wss://a.test/t", {}, {}, 1, "denied   ws https://a.test/t   path"},
        Case{"grpc g.test p.S/Get", {}, {}, 0, "allowed  grpc https://g.test/p.S/Get"},
        Case{"grpc g.test p.S/Put", {}, {}, 1, "allow it - allow: grpc g.test p.S/Put"},
        Case{"graphql query a.test/graphql", {}, {}, 0, "note     no root field is named"},
        Case{"graphql mutation a.test/graphql",
             {.fields = {"addStar"}},
             {},
             0,
             "allowed  graphql mutation https://a.test/graphql"},
        Case{"graphql mutation a.test/graphql", {.fields = {"addStar", "drop"}}, {}, 1, "no rule allows graphql mutation drop"},
        Case{"mcp tools/call a.test/mcp", {.tool = "search"}, {"/params/arguments/n=1"}, 0, "allowed  mcp tools/call"},
        Case{"mcp tools/call a.test/mcp", {.tool = "search"}, {"/params/arguments/n=2"}, 1, "   operation"},
        Case{"mcp tools/call a.test/mcp", {.tool = "drop"}, {}, 1, "allow it - allow: mcp tools/call a.test/mcp"},
        Case{"jsonrpc eth_call a.test/rpc", {}, {}, 0, "allowed  jsonrpc eth_call"},
        Case{"git receive-pack a.test/o/r", {}, {}, 1, "the answer hangs on the body; ask this with --ref"},
        Case{"git receive-pack a.test/o/r", {.refs = {"refs/heads/agent/x"}}, {}, 0, "allowed  git receive-pack a.test/o/r"},
        Case{"git receive-pack a.test/o/r", {.refs = {"refs/heads/agent/x"}, .ref_change = "delete"}, {}, 1, "   operation"},
        Case{"git receive-pack a.test/o/r", {.refs = {"refs/heads/main"}}, {}, 1, "a push that would update refs/heads/main"},
        Case{"POST a.test/v1", {}, {"/model=small"}, 0, "allowed  POST https://a.test/v1"},
        Case{"POST a.test/v1", {}, {"/model=large"}, 1, "   operation"},
        Case{"graphql querry a.test/q", {}, {}, 2, ""},
        Case{"mcp tools/* a.test/q", {}, {}, 2, ""},
        Case{"ws", {}, {}, 2, ""},
        Case{"POST a.test/v1", {}, {"model"}, 2, ""}}) {
    ExplainOptions options = base;
    options.body = c.body;
    options.json = c.json;
    const Captured o = Explain(c.question, options);
    EXPECT_EQ(o.code, c.code) << c.question << o.out << o.err;
    EXPECT_THAT(o.out, HasSubstr(c.out)) << c.question;
  }
}

TEST_F(PolicyCommands, ExplainTakesHeadersAndAncestors) {
  ExplainOptions base;
  base.file =
      Write("h.yaml",
            "version: 1\nrules:\n  - allow: GET a.test\n    headers: { x-team: [a*] }\n  - allow: mcp initialize a.test/mcp\n"
            "  - deny: POST a.test\n  - allow: http b.test\n    method-override: true\n  - allow: GET c.test\n"
            "    under: [/usr/bin/make]\n");
  struct Case {
    const char* question;
    std::vector<std::string> headers;
    std::vector<std::string> under;
    int code;
    const char* out;
  };
  for (const Case& c : {Case{"GET a.test/x", {}, {}, 1, "   header"},
                        Case{"GET a.test/x", {"X-Team:  ab "}, {}, 0, "allowed  GET https://a.test/x"},
                        Case{"GET a.test/x", {"x-team: b"}, {}, 1, "   header"},
                        Case{"GET a.test/x", {"x-team: a", "x-http-method-override: POST"}, {}, 1, "denied"},
                        Case{"GET b.test/x", {"x-http-method-override: POST"}, {}, 0, "allowed"},
                        Case{"GET a.test/mcp", {"accept: text/event-stream"}, {}, 0, "allowed  GET https://a.test/mcp"},
                        Case{"GET c.test/x", {}, {}, 1, "   binary"}, Case{"GET c.test/x", {}, {"/usr/bin/make"}, 0, "allowed"},
                        Case{"GET c.test/x", {}, {"make"}, 2, ""}, Case{"GET a.test/x", {"x-team"}, {}, 2, ""},
                        Case{"GET a.test/x", {"x team: a"}, {}, 2, ""}}) {
    ExplainOptions options = base;
    options.headers = c.headers;
    options.under = c.under;
    options.by = "/usr/bin/true";
    const Captured o = Explain(c.question, options);
    EXPECT_EQ(o.code, c.code) << c.question << o.out << o.err;
    EXPECT_THAT(o.out, HasSubstr(c.out)) << c.question;
  }
  base.under = {"/usr/bin/make"};
  EXPECT_THAT(Explain("GET c.test/x", base).err, HasSubstr("--under goes with --by"));
}

TEST_F(PolicyCommands, LintSaysOkWithRulesAndDigest) {
  const auto file = Write("p.yaml", "version: 1\nrules:\n  - allow: GET a.test\n");
  const Captured o = LintOf({file});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.out, MatchesRegex(file + ": ok, 1 rule \\(digest [0-9a-f]{4}…\\)\n"));
}

TEST_F(PolicyCommands, LintExitsByTheWorstThatItFound) {
  const auto warned = Write("w.yaml", "version: 1\nrules:\n  - allow: GET http://a.test\n");
  const auto wrong = Write("e.yaml", "version: 1\nrules:\n  - allow: tls a.test\n  - deny: POST a.test\n");
  const auto broken = Write("b.yaml", "version: 1\nrules:\n  - allow: gti a\n");
  EXPECT_EQ(LintOf({warned}).code, 0);
  EXPECT_THAT(LintOf({warned}).out, HasSubstr("w.yaml:3:12: warning: "));
  EXPECT_EQ(LintOf({warned, wrong}).code, 1);
  EXPECT_THAT(LintOf({wrong}).out, HasSubstr("[opaque-allow-meets-deny]"));
  const Captured o = LintOf({wrong, broken, warned});
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(
      o.err,
      HasSubstr("b.yaml:3:12: error: unknown verb `gti`; did you mean `git`?\n 3 |   - allow: gti a\n   |            ^^^\n"));
  EXPECT_EQ(LintOf({folder_ + "/none.yaml"}).code, 2);
}

TEST_F(PolicyCommands, LintSpeaksJson) {
  const auto wrong = Write("e.yaml", "version: 1\nrules:\n  - allow: tls a.test\n  - deny: POST a.test\n");
  const auto broken = Write("b.yaml", "version: 2\n");
  const auto json = nlohmann::json::parse(LintOf({wrong, broken}, ReportFormat::kJson).out);
  EXPECT_EQ(json["files"][0]["findings"][0]["code"], "opaque-allow-meets-deny");
  EXPECT_EQ(json["files"][0]["findings"][0]["other"]["line"], 4);
  EXPECT_EQ(json["files"][1]["loads"], false);
  EXPECT_EQ(json["files"][1]["error"]["column"], 10);
}

TEST_F(PolicyCommands, ExplainNamesTheDecidingRule) {
  const Captured allowed = Explain("GET https://api.github.com/repos/a/b");
  EXPECT_EQ(allowed.code, 0);
  EXPECT_THAT(
      allowed.out,
      StartsWith("allowed  GET https://api.github.com/repos/a/b   inspected\n  by       allow: GET api.github.com/repos/**   "));
  EXPECT_THAT(allowed.out, HasSubstr("policy.yaml:3\n"));
  EXPECT_EQ(Explain("api.github.com/repos/a").code, 0);
  const Captured denied = Explain("GET https://api.github.com/repos/secret/x");
  EXPECT_EQ(denied.code, 1);
  EXPECT_THAT(denied.out, HasSubstr("deny_rule"));
  EXPECT_THAT(denied.out, HasSubstr("deny: GET api.github.com/repos/secret/**"));
}

TEST_F(PolicyCommands, ExplainSaysWhatIsMissing) {
  const Captured o = Explain("POST https://api.github.com/x");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.out, HasSubstr("no rule allows POST to api.github.com; nearest: GET api.github.com/repos/** (policy.yaml:3)"));
  EXPECT_THAT(o.out, HasSubstr("allow it - allow: POST api.github.com/x\n"));
  ExplainOptions json;
  json.format = OutputFormat::kJson;
  const auto parsed = nlohmann::json::parse(Explain("POST https://api.github.com/x", json).out);
  EXPECT_EQ(parsed["allowed"], false);
  EXPECT_EQ(parsed["code"], "no_rule");
  EXPECT_EQ(parsed["suggest"], "POST api.github.com/x");
  EXPECT_EQ(parsed["nearest_rule"]["line"], 3);
}

TEST_F(PolicyCommands, ExplainTakesEveryKindOfQuestion) {
  EXPECT_EQ(Explain("git fetch-pack github.com/octo/hello").code, 0);
  EXPECT_EQ(Explain("git upload-pack github.com/octo/hello.git").code, 0);
  const Captured push = Explain("git receive-pack github.com/octo/hello");
  EXPECT_EQ(push.code, 1);
  EXPECT_THAT(push.out, HasSubstr("allow it - allow: git receive-pack github.com/octo/hello\n"));
  EXPECT_EQ(Explain("tcp db.test:5432").code, 0);
  EXPECT_EQ(Explain("connect db.test:5433").code, 1);
  EXPECT_EQ(Explain("dns api.github.com").code, 0);
  EXPECT_EQ(Explain("dns api.github.com TXT").code, 1);
  EXPECT_EQ(Explain("dns other.test").code, 1);
  EXPECT_EQ(Explain("unix /run/a.sock").code, 0);
  EXPECT_EQ(Explain("unix /run/b.sock").code, 1);
  for (const char* bad : {"", "GET", "tcp db.test", "dns 1.2.3.4", "git push github.com/x", "git fetch-pack github.com",
                          "GET ftp://a.test/", "GET https://a.test/\\", "GET https://a b", "unix run/x", "dns a.test XX"})
    EXPECT_EQ(Explain(bad).code, 2) << bad;
}

// A question may be pasted from what a workload has asked for.
TEST_F(PolicyCommands, NothingPrintedMovesTheCursor) {
  const std::string hostile = "\x1b[2Ja\nforged\xe2\x80\xae\xc2\x9b\xff";
  ExplainOptions json;
  json.format = OutputFormat::kJson;
  for (const std::string start : {"unix /run/", "GET https://api.github.com/", "GET ", "connect ", "git fetch-pack ", "dns ", ""})
    for (const ExplainOptions& options : {ExplainOptions{}, json}) {
      const Captured o = Explain(start + hostile, options);
      const std::string text = o.out + o.err;
      EXPECT_EQ(text.find("\nforged"), std::string::npos) << text;
      for (const char* bad : {"\x1b", "\xe2\x80\xae", "\xc2\x9b", "\xff"}) EXPECT_EQ(text.find(bad), std::string::npos) << text;
    }
}

TEST_F(PolicyCommands, AnUnusualMethodIsRemarkedOn) {
  const auto odd =
      Write("odd.yaml", "version: 1\nrules:\n  - allow: GET,FOO a.test\n  - deny: QUUX a.test\n  - allow: MERGE a.test\n");
  const Captured o = LintOf({odd});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.out,
              HasSubstr("odd.yaml:3:12: warning: `allow: FOO,GET a.test` is about the method FOO, which is not a usual one; "
                        "methods are matched to the letter [unknown-method]\n"));
  EXPECT_THAT(o.out, HasSubstr("odd.yaml:4:11: warning: `deny: QUUX a.test` is about the method QUUX"));
  EXPECT_THAT(o.out, Not(HasSubstr("MERGE,")));
  EXPECT_THAT(Explain("FOO https://api.github.com/repos/a").out, HasSubstr("note     FOO is not a usual method"));
  EXPECT_THAT(Explain("GET https://api.github.com/repos/a").out, Not(HasSubstr("note")));
}

TEST_F(PolicyCommands, ExplainSaysWhatIsWrongWithAQuestion) {
  const auto said = [&](const std::string& question) {
    const Captured o = Explain(question);
    EXPECT_EQ(o.code, 2) << question;
    EXPECT_EQ(o.out, "") << question;
    return o.err;
  };
  EXPECT_THAT(said("frob x"), HasSubstr("unknown verb `frob`; a verb is http, git, ws, grpc, graphql, jsonrpc, mcp, tls, tcp, "
                                        "udp, dns, unix, or an HTTP method"));
  EXPECT_THAT(said("PSOT a.test"), HasSubstr("did you mean `POST`?"));
  EXPECT_THAT(said("get a.test"), HasSubstr("methods are upper-case: `GET`"));
  EXPECT_THAT(said("conect a.test:1"), HasSubstr("did you mean `connect`?"));
  EXPECT_THAT(said("http a.test"), HasSubstr("every method; ask about one"));
  EXPECT_THAT(said("dns"), HasSubstr("`dns` of what?"));
  EXPECT_THAT(said("git push github.com/octo/hello"), HasSubstr("did you mean `git receive-pack`?"));
  EXPECT_THAT(said("git clone github.com/octo/hello"), HasSubstr("did you mean `git fetch-pack`?"));
  EXPECT_THAT(said("connect a.test"), HasSubstr("needs a port, as in `connect a.test:443`"));
  EXPECT_THAT(said("connect 8.8.8.8:53"), HasSubstr("port 53 always belongs to the policy's resolver"));
  EXPECT_THAT(said(""), HasSubstr("an empty question; ask `METHOD URL`"));
}

TEST_F(PolicyCommands, ExplainKnowsThatAConnectionByNameBeginsWithALookup) {
  const auto file = Write("cidr.yaml", "version: 1\nrules:\n  - allow: tcp 10.0.0.0/8:5432\n  - allow: dns db.test\n");
  ExplainOptions options;
  options.file = file;
  const Captured known = Explain("connect db.test:5432", options);
  EXPECT_EQ(known.code, 0);
  EXPECT_THAT(known.out, HasSubstr("--ip ADDRESS asks about one"));
  const Captured unknown = Explain("connect other.test:5432", options);
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.out, HasSubstr("denied   connect other.test:5432   dns\n"));
  EXPECT_THAT(unknown.out, HasSubstr("no rule allows a lookup of other.test"));
  options.ip = "10.0.0.1";
  EXPECT_THAT(Explain("connect db.test:5432", options).out, Not(HasSubstr("note")));
}

TEST_F(PolicyCommands, ExplainTakesProcessTimeAndAddress) {
  ExplainOptions node;
  node.by = "/usr/bin/node";
  node.at = "2026-12-01";
  EXPECT_EQ(Explain("GET n.test", node).code, 0);
  EXPECT_THAT(Explain("GET n.test").out, HasSubstr("without --by"));
  EXPECT_THAT(Explain("GET https://api.github.com/repos/a").out, Not(HasSubstr("without --by")));
  node.at = "2027-01-01";
  const Captured late = Explain("GET n.test", node);
  EXPECT_EQ(late.code, 1);
  EXPECT_THAT(late.out, HasSubstr("expired"));
  ExplainOptions inside;
  inside.ip = "10.1.2.3";
  EXPECT_EQ(Explain("tcp db.test:5432", inside).code, 0);
  const Captured guarded = Explain("GET https://api.github.com/repos/a", inside);
  EXPECT_EQ(guarded.code, 1);
  EXPECT_THAT(guarded.out, HasSubstr("private_ip"));
  inside.ip = "10.1";
  EXPECT_EQ(Explain("tcp db.test:5432", inside).code, 2);
  node.at = "soon";
  EXPECT_EQ(Explain("GET n.test", node).code, 2);
}

constexpr const char* kOpenShell =
    "version: 1\nnetwork_policies:\n  api:\n    endpoints:\n      - host: a.test\n        port: 443\n        protocol: rest\n"
    "        access: read-only\n    binaries: [{ path: /usr/bin/curl }]\n";

TEST_F(PolicyCommands, ImportPrintsAPolicyThatLoads) {
  const auto file = Write("openshell.yaml", kOpenShell);
  const Captured o = Capture([&] { return RunImport({file, "", "", OutputFormat::kText, Verbosity::kVerbose}); });
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.out, HasSubstr("  - allow: tcp a.test:443\n    under: [/usr/bin/curl]\n"));
  EXPECT_THAT(o.out, HasSubstr("# wider: `enforcement` is left out, which means `audit`"));
  EXPECT_THAT(o.err, HasSubstr("openshell.yaml:5:15: `enforcement` is left out"));
  EXPECT_EQ(LintOf({Write("native.yaml", o.out)}).code, 0);
  const Captured quiet = Capture([&] { return RunImport({file, "openshell", "", OutputFormat::kText, Verbosity::kQuiet}); });
  EXPECT_EQ(quiet.out, o.out);
  EXPECT_EQ(quiet.err, "");
}

TEST_F(PolicyCommands, ImportSpeaksJson) {
  const auto file = Write("openshell.yaml", kOpenShell);
  const auto json =
      nlohmann::json::parse(Capture([&] { return RunImport({file, "", "", OutputFormat::kJson, Verbosity::kQuiet}); }).out);
  EXPECT_EQ(json["kind"], "openshell");
  EXPECT_EQ(json["rules"], 1);
  EXPECT_THAT(json["policy"], HasSubstr("tcp a.test:443"));
  bool wider = false;
  for (const auto& remark : json["remarks"]) wider = wider || (remark["code"] == "import-wider" && remark["line"] == 5);
  EXPECT_TRUE(wider);
}

TEST_F(PolicyCommands, ImportRefusesWithThePlaceOrTheKinds) {
  const auto import = [&](const std::string& file, const std::string& from) {
    return Capture([&] { return RunImport({file, from, "", OutputFormat::kText, Verbosity::kQuiet}); });
  };
  const Captured field = import(Write("bad.yaml", "version: 1\nnetwork_polices: {}\nlandlock: {}\n"), "");
  EXPECT_EQ(field.code, 2);
  EXPECT_EQ(field.out, "");
  EXPECT_THAT(field.err, HasSubstr("bad.yaml:2:1: error: unknown field `network_polices`"));
  EXPECT_THAT(field.err, HasSubstr("did you mean `network_policies`?"));
  EXPECT_THAT(import(Write("x.txt", "a.test\n"), "squid").err, HasSubstr("no kind `squid`; there are openshell, "));
  EXPECT_THAT(import(Write("x.txt", "a.test\nb.test\n"), "").err, HasSubstr("x.txt:"));
  EXPECT_EQ(import(Write("x.txt", "a.test\nb.test\n"), "gh-aw-firewall").code, 0);
  EXPECT_THAT(import(Write("own.yaml", "version: 1\nrules:\n  - allow: GET a.test\n"), "").err,
              HasSubstr("own.yaml:1:1: error: this is a native policy already"));
  EXPECT_EQ(import(folder_ + "/none", "").code, 2);
}

TEST_F(PolicyCommands, LintAndExplainTakeThemAsTheyAre) {
  const auto file = Write("openshell.yaml", kOpenShell);
  const Captured lint = LintOf({file});
  EXPECT_EQ(lint.code, 0);
  EXPECT_THAT(lint.out, HasSubstr("openshell.yaml:5:15: warning: `enforcement` is left out"));
  EXPECT_THAT(lint.out, HasSubstr("ok, 1 rule "));
  ExplainOptions options;
  options.file = file;
  options.question = "DELETE https://a.test/x";
  options.by = "/usr/bin/curl";
  const Captured explain = Capture([&] { return RunExplain(options); });
  EXPECT_EQ(explain.code, 0);
  EXPECT_THAT(explain.out, HasSubstr("openshell.yaml:5"));
}

}  // namespace
}  // namespace sluice::app
