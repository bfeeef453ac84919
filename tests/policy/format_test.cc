#include "policy/format.h"

#include <gtest/gtest.h>

#include "policy/document.h"
#include "policy/io/load.h"
#include "policy/io/yaml.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

std::string Format(const std::string& text) {
  const auto root = ParseYaml(text, "p.yaml");
  if (!root) return "not YAML: " + root.error().message;
  auto result = FormatPolicy(text, *root);
  return result ? *result : "no policy: " + result.error().message;
}

struct Case {
  const char* name;
  const char* before;
  const char* after;
};

constexpr Case kCases[] = {
    {"what is canonical stays", "version: 1\nrules:\n  - allow: GET a.test/x\n    by: [/usr/bin/node]\n",
     "version: 1\nrules:\n  - allow: GET a.test/x\n    by: [/usr/bin/node]\n"},
    {"keys come in one order", "rules:\n- by: /usr/bin/node\n  note: why\n  allow: GET a.test\nmode: audit\nversion: 1\n",
     "version: 1\nmode: audit\nrules:\n  - allow: GET a.test\n    by: [/usr/bin/node]\n    note: why\n"},
    {"the long form becomes the compact one",
     "version: 1\nrules:\n  - allow: { methods: [POST, GET], host: A.Test, ports: '8443', path: /v1/** }\n",
     "version: 1\nrules:\n  - allow: GET,POST a.test:8443/v1/**\n"},
    {"a rule of two paths stays long", "version: 1\nrules:\n  - allow: {methods: [GET], host: a.test, path: [/x, /y]}\n",
     "version: 1\nrules:\n  - allow: { methods: [GET], host: a.test, path: [/x, /y] }\n"},
    {"default ports and schemes go", "version: 1\nrules:\n  - allow: GET https://a.test:443/x\n",
     "version: 1\nrules:\n  - allow: GET a.test/x\n"},
    {"comments stay with what they speak of",
     "# the bot\nversion: 1   # one\n\n\nrules:  # all\n\n  # reads\n  - by: [/usr/bin/node]  # node\n    # why\n    allow: GET "
     "a.test  # get\n"
     "  # - allow: POST a.test\n# the end\n",
     "# the bot\nversion: 1  # one\n\nrules:  # all\n\n  # reads\n  # why\n  - allow: GET a.test  # get\n    by: [/usr/bin/node] "
     " # node\n"
     "  # - allow: POST a.test\n# the end\n"},
    {"a list with comments is broken up",
     "version: 1\nrules:\n  - allow: GET a.test\n    by: [/usr/bin/node,  # first\n         /usr/bin/curl]\n",
     "version: 1\nrules:\n  - allow: GET a.test\n    by:\n      - /usr/bin/node  # first\n      - /usr/bin/curl\n"},
    {"a short list comes onto one line",
     "version: 1\nrules:\n  - allow: GET a.test\n    by:\n    - /usr/bin/node\n    - '/usr/bin/curl'\n",
     "version: 1\nrules:\n  - allow: GET a.test\n    by: [/usr/bin/node, /usr/bin/curl]\n"},
    {"what begins with a star stays quoted", "version: 1\nrules:\n  - allow: GET a.test\n    query: { tag: ['*x', v1*] }\n",
     "version: 1\nrules:\n  - allow: GET a.test\n    query: { tag: ['*x', v1*] }\n"},
    {"needless quotes go", "version: 1\nrules:\n  - allow: \"GET a.test/x\"\n    note: \"it's: so\"\n",
     "version: 1\nrules:\n  - allow: GET a.test/x\n    note: 'it''s: so'\n"},
    {"a note over lines stays",
     "version: 1\nrules:\n  - allow: GET a.test\n    note: |\n      one\n        # no comment\n\n      two\n    id: a\n",
     "version: 1\nrules:\n  - allow: GET a.test\n    note: |\n      one\n        # no comment\n\n      two\n    id: a\n"},
    {"a name in its own script stays", "version: 1\nrules:\n  - allow: GET bücher.test\n",
     "version: 1\nrules:\n  - allow: GET bücher.test\n"},
    {"a flow rule becomes a block", "version: 1\nrules:\n  - { allow: GET a.test, id: x }  # why\n",
     "version: 1\nrules:\n  - allow: GET a.test  # why\n    id: x\n"},
    {"CRLF becomes LF", "version: 1\r\nrules:\r\n  - allow: GET a.test\r\n", "version: 1\nrules:\n  - allow: GET a.test\n"},
    {"a commented rule at the end of the rules stays there",
     "version: 1\nrules:\n  - allow: GET a.test\n  # - allow: GET b.test\ninclude: [x.yaml]\n",
     "version: 1\ninclude: [x.yaml]\nrules:\n  - allow: GET a.test\n  # - allow: GET b.test\n"},
    {"addresses stay as they are",
     "version: 1\nrules:\n  - allow: tcp db.test:5432\n    ip: [10.0.0.1, fd00::/8]\n    until: 2027-01-31\n",
     "version: 1\nrules:\n  - allow: tcp db.test:5432\n    ip: [10.0.0.1, 'fd00::/8']\n    until: 2027-01-31\n"},
    {"operations, compact and with their keys in order",
     "version: 1\nrules:\n  - fields: x  # root\n    allow: { verb: graphql mutation, host: A.test, path: /q }\n    operation: "
     "Op\n"
     "  - allow: { verb: grpc, host: g.test, rpc: p.S/M, ports: '443' }\n  - ref-changes: create\n    allow: git receive-pack "
     "a.test/r\n"
     "    refs: refs/heads/*\n  - allow: ws wss://a.test/s\n  - allow: mcp tools/call a.test/m\n    json: {/a: ['1']}\n    tool: "
     "t\n",
     "version: 1\nrules:\n  - allow: graphql mutation a.test/q\n    operation: [Op]\n    fields: [x]  # root\n"
     "  - allow: grpc g.test p.S/M\n  - allow: git receive-pack a.test/r\n    refs: [refs/heads/*]\n    ref-changes: [create]\n"
     "  - allow: ws a.test/s\n  - allow: mcp tools/call a.test/m\n    tool: [t]\n    json: { /a: ['1'] }\n"},
    {"credentials and proxies, one a line",
     "version: 1\nrules:\n  - with: c  # why\n    allow: GET a.test\nproxies: {p: {url: 'http://p.test:1'}}\ncredentials:\n"
     "  # the bot's\n  c: { from: \"command \\\"gh auth token\\\"\", send: bearer, to: [a.test] }  # gh\n",
     "version: 1\ncredentials:\n  # the bot's\n  c: { from: command \"gh auth token\", send: bearer, to: [a.test] }  # gh\n"
     "proxies:\n  p: { url: 'http://p.test:1' }\nrules:\n  - allow: GET a.test\n    with: c  # why\n"},
};

TEST(Format, GivesTheCanonicalForm) {
  for (const Case& c : kCases) EXPECT_EQ(Format(c.before), c.after) << c.name;
}

TEST(Format, IsDoneOnce) {
  for (const Case& c : kCases) EXPECT_EQ(Format(Format(c.before)), Format(c.before)) << c.name;
}

// Every key that a rule may have, and every verb.
constexpr std::string_view kEvery = R"(
version: 1
credentials:
  c: { to: [a.test], send: header x-key token, from: env A }
  q: { send: query key, from: file /a, to: a.test }
  p: { send: placeholder TOKEN, from: systemd a, to: a.test }
  b: { send: basic bot, from: command "gh auth token", to: a.test }
  t: { send: client-certificate, from: file /a.pem, to: a.test }
  s: { send: sigv4, region: r, service: s, secret: env B, from: env A, to: a.test }
  o: { send: bearer, from: oauth, token-url: 'https://i.test/t', client-id: c, client-secret: env B, scope: x, to: a.test }
proxies:
  up: { except: [localhost, .corp.test, 10.0.0.0/8, 'db.test:5432'], ca: /ca.pem, basic: env A, url: 'https://p.test:3128' }
  other: { bearer: env A, url: 'http://[fd00::1]:3128' }
settings: { via: up, deny-errno: ECONNREFUSED }
rules:
- { id: one, note: why, until: 2027-01-31, pins: sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=, via: other, with: c,
    method-override: true, path-params: true, encoded-slash: true, headers: { X-A: '1' }, query-keys: k, query: { k: ['*'] },
    under: /bin/sh, by: /bin/a, allow: { methods: [POST, GET], host: A.test, path: [/x, /y] } }
- { json: { /m: ['1', b*] }, ip: 10.0.0.0/8, allow: POST http://a.test:8080/j }
- { lfs: true, allow: { verb: git upload-pack, host: g.test, repo: /o/r } }
- { ref-changes: [delete, create], refs: refs/heads/*, deny: git receive-pack g.test/o/r }
- { allow: ws ws://a.test/s }
- { deny: ws wss://a.test/s }
- { allow: { verb: grpc, host: a.test, rpc: p.S/* } }
- { operation: O*, fields: [a, b], allow: graphql query a.test/g }
- { deny: graphql mutation https://a.test/g }
- { allow: graphql subscription http://a.test/g }
- { allow: jsonrpc eth_* a.test/r }
- { tool: s, allow: mcp tools/call a.test/m }
- { allow: 'tls b.test:443,8443' }
- { allow: tcp 10.0.0.0/8:5432 }
- { deny: 'tcp [fd00::/8]' }
- { allow: 'udp t.test:123' }
- { types: TXT, allow: dns d.test }
- { allow: unix /run/a.sock }
)";

TEST(Format, KeepsTheMeaningOfEveryKeyAndVerb) {
  const std::string before(kEvery.substr(1));
  for (const auto keys : {RuleKeys(), TargetKeys()})
    for (const std::string_view key : keys)
      if (key != "scheme" && key != "ports") EXPECT_NE(before.find(std::string(key) + ":"), std::string::npos) << key;
  const std::string after = Format(before);
  const auto meant = LoadText(before, "p.yaml");
  const auto kept = LoadText(after, "p.yaml");
  ASSERT_TRUE(meant) << RenderError(meant.error(), false);
  ASSERT_TRUE(kept) << RenderError(kept.error(), false) << after;
  EXPECT_EQ((*meant)->digest(), (*kept)->digest()) << after;
  EXPECT_EQ(Format(after), after);
}

TEST(Format, RefusesWhatIsNoPolicy) {
  EXPECT_TRUE(Format("version: 1\nrules:\n  - alow: GET a.test\n").starts_with("no policy: "));
}

}  // namespace
}  // namespace sluice::policy
