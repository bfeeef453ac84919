#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/policy/support.h"

namespace sluice::policy {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct BadPolicy {
  const char* text;
  const char* error;
};

class BadPolicies : public ::testing::TestWithParam<BadPolicy> {};

TEST_P(BadPolicies, AreRefusedWithPlaceAndWords) { EXPECT_THAT(LoadMessage(GetParam().text), StartsWith(GetParam().error)); }

#define RULE "version: 1\nrules:\n  - allow: "

INSTANTIATE_TEST_SUITE_P(
    Yaml, BadPolicies,
    ::testing::Values(
        BadPolicy{"", "p.yaml:1:1: error: `version: 1` is missing"},
        BadPolicy{"# only a comment\n", "p.yaml:1:1: error: `version: 1` is missing"},
        BadPolicy{"version: 2\n", "p.yaml:1:10: error: this version reads `version: 1`"},
        BadPolicy{"version: \"1\"\n", "p.yaml:1:10: error: this version reads"},
        BadPolicy{"- a\n", "p.yaml:1:1: error: a policy is a map"},
        BadPolicy{"version: 1\nrules: [a\n", "p.yaml:3:1: error: not valid YAML: flow sequence without a closing bracket"},
        BadPolicy{"version: 1\nversion: 1\n", "p.yaml:2:1: error: `version` is already set on line 1"},
        BadPolicy{RULE "GET a.test\n    by: [/x]\n    note: n\n    by: [/y]\n",
                  "p.yaml:6:5: error: `by` is already set on line 4"},
        BadPolicy{RULE "GET a.test\n    query: { k: a, \"k\": b }\n", "p.yaml:4:20: error: `k` is already set on line 4"},
        BadPolicy{"version: 1\nrules:\n\t- allow: GET a.test\n", "p.yaml:3:1: error: a tab"},
        BadPolicy{"version: 1 #\tx\n", "p.yaml:1:13: error: a tab"},
        BadPolicy{"version: 1\nrules:\n  - &x allow: GET a.test\n", "p.yaml:3:5: error: an anchor"},
        BadPolicy{"version: 1\nrules: &a\n  - *a\n", "p.yaml:2:8: error: an anchor"},
        BadPolicy{"version: 1\nrules: *a\n", "p.yaml:2:8: error: an alias"},
        BadPolicy{"version: !!int 1\n", "p.yaml:1:10: error: a YAML tag"},
        BadPolicy{RULE "GET a.test\n    <<: {by: [/x]}\n", "p.yaml:4:5: error: a merge key"},
        BadPolicy{RULE "GET\n      a.test\n", "p.yaml:3:12: error: a plain value over several lines"},
        BadPolicy{RULE "'GET\n      a.test'\n", "p.yaml:3:12: error: a quoted value over several lines"},
        BadPolicy{RULE ">\n      GET a.test\n", "p.yaml:3:5: error: `allow` is written on one line"},
        BadPolicy{RULE "GET a.test #x\n", "p.yaml:3:23: error: ` #` begins a comment"},
        BadPolicy{RULE "GET a.test\n    by: [/a, /b #c\n        ]\n", "p.yaml:4:17: error: ` #` begins a comment"},
        BadPolicy{"%YAML 1.1\n---\nversion: 1\n", "p.yaml:1:1: error: a YAML directive"},
        BadPolicy{"version: 1\n---\nversion: 1\n", "p.yaml:2:1: error: a second document"},
        BadPolicy{"version: 1\nsettings: {\"dns\":synthetic}\n", "p.yaml:2:17: error: a space is needed after `:`"},
        BadPolicy{"version: 1\n? [a]\n: b\n", "p.yaml:2:3: error: a key is one word"},
        BadPolicy{"version: 1\nname: a\xe2\x80\x8b"
                  "b\n",
                  "p.yaml:2:8: error: the invisible character U+200B"},
        BadPolicy{"\xef\xbb\xbfversion: 1\n", "p.yaml:1:1: error: the invisible character U+FEFF"},
        BadPolicy{"version: 1\nname: a\xc2\xa0"
                  "b\n",
                  "p.yaml:2:8: error: the invisible character U+00A0"},
        BadPolicy{"version: 1\nname: a\xe2\x80\xa8"
                  "b\n",
                  "p.yaml:2:8: error: the invisible character U+2028"},
        BadPolicy{"version: 1\nname: \"a\\u202eb\"\n", "p.yaml:2:8: error: an escape that stands for an invisible character"},
        BadPolicy{"version: 1\nname: \"a\\/b\"\n", "p.yaml:2:9: error: the escapes of a policy are"},
        BadPolicy{"version: 1\nname: a\xff\n", "p.yaml:2:8: error: this byte is not UTF-8"},
        BadPolicy{"version: 1\rname: x\n", "p.yaml:1:11: error: the invisible character U+000D"},
        BadPolicy{"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "p.yaml:1:17: error: nested too deeply"}));

INSTANTIATE_TEST_SUITE_P(
    Texts, BadPolicies,
    ::testing::Values(
        BadPolicy{RULE "GET a.test\n    note: yes\n",
                  "p.yaml:4:11: error: `yes` is not a text to every YAML reader; write 'yes' in quotes"},
        BadPolicy{RULE "GET a.test\n    id: 007\n", "p.yaml:4:9: error: `007` is not a text"},
        BadPolicy{RULE "GET a.test\n    note: ~\n", "p.yaml:4:11: error: `~` is not a text"},
        BadPolicy{RULE "GET a.test\n    note: 12:30:00\n", "p.yaml:4:11: error: `12:30:00` is not a text"},
        BadPolicy{RULE "GET a.test\n    note: 2026-01-01\n", "p.yaml:4:11: error: `2026-01-01` is not a text"},
        BadPolicy{RULE "GET a.test\n    query: { v: 1.0 }\n", "p.yaml:4:17: error: `1.0` is not a text"},
        BadPolicy{RULE "GET a.test\n    query: { v: [a, 1e3] }\n", "p.yaml:4:21: error: `1e3` is not a text"},
        BadPolicy{RULE "GET a.test\n    query: { y: a }\n", "p.yaml:4:14: error: `y` is not a text"},
        BadPolicy{RULE "GET a.test\n    by:\n", "p.yaml:4:5: error: `by` has no value"},
        BadPolicy{RULE "GET a.test\n    by: {a: b}\n", "p.yaml:4:9: error: `by` is a value or a list"},
        BadPolicy{RULE "GET a.test\n    by: []\n", "p.yaml:4:9: error: `by` is an empty list"},
        BadPolicy{RULE "GET a.test\n    query: []\n", "p.yaml:4:12: error: `query` is a map"},
        BadPolicy{RULE "GET a.test\n    note: [a]\n", "p.yaml:4:11: error: a text is expected for `note`, not a list"},
        BadPolicy{RULE "GET a.test\n    encoded-slash: yes\n", "p.yaml:4:20: error: `encoded-slash` is true or false"},
        BadPolicy{"version: 1\nname: 1\n", "p.yaml:2:7: error: `1` is not a text"},
        BadPolicy{"version: 1\nmode: Enforce\n",
                  "p.yaml:2:7: error: `mode` is `enforce` or `audit`, not `Enforce`; did you mean `enforce`?"},
        BadPolicy{"version: 1\nsettings: {deny-errno: EPERM}\n",
                  "p.yaml:2:24: error: `deny-errno` is `EACCES` or `ECONNREFUSED`"},
        BadPolicy{"version: 1\nsettings: {dsn: real}\n", "p.yaml:2:12: error: unknown setting `dsn`; did you mean `dns`?"}));

INSTANTIATE_TEST_SUITE_P(
    Rules, BadPolicies,
    ::testing::Values(
        BadPolicy{RULE "gti fetch-pack github.com/x\n", "p.yaml:3:12: error: unknown verb `gti`; did you mean `git`?"},
        BadPolicy{
            RULE "git push github.com/x\n",
            "p.yaml:3:12: error: after `git` stands fetch-pack or receive-pack, not `push`; did you mean `git receive-pack`?"},
        BadPolicy{RULE "get a.test\n", "p.yaml:3:12: error: unknown verb `get`; methods are upper-case: `GET`"},
        BadPolicy{RULE "TCP a.test:1\n", "p.yaml:3:12: error: unknown verb `TCP`; verbs are lower-case: `tcp`"},
        BadPolicy{RULE "frob a.test\n",
                  "p.yaml:3:12: error: unknown verb `frob`; a verb is http, git, ws, grpc, graphql, jsonrpc, mcp, tls, tcp, udp, "
                  "dns, unix, or an "
                  "HTTP method such as GET or GET,POST"},
        BadPolicy{RULE "ANY a.test\n", "p.yaml:3:12: error: unknown verb `ANY`; every method is the verb `http`"},
        BadPolicy{RULE "all a.test\n", "p.yaml:3:12: error: unknown verb `all`; every method is the verb `http`"},
        BadPolicy{RULE "psot a.test\n", "p.yaml:3:12: error: unknown verb `psot`; did you mean `POST`?"},
        BadPolicy{RULE "GET,PSOT a.test\n", "p.yaml:3:16: error: unknown verb `PSOT`; did you mean `POST`?"},
        BadPolicy{RULE "GET,GET a.test\n", "p.yaml:3:16: error: GET is listed twice"},
        BadPolicy{RULE "GET, POST a.test\n", "p.yaml:3:16: error: an empty method"},
        BadPolicy{RULE "CONNECT a.test\n", "p.yaml:3:12: error: CONNECT is never forwarded"},
        BadPolicy{RULE "a.test\n", "p.yaml:3:12: error: a rule is `VERB TARGET`"},
        BadPolicy{RULE "GET\n", "p.yaml:3:12: error: a rule is `VERB TARGET`"},
        BadPolicy{RULE "GET a.test b\n", "p.yaml:3:22: error: one target a rule"},
        BadPolicy{RULE "GET a.test/x?y=1\n", "p.yaml:3:24: error: `?` is not part of a path; use the key `query:`"},
        BadPolicy{RULE "'GET a.test/x[1]'\n", "p.yaml:3:25: error: only `*` and `**` are wildcards"},
        BadPolicy{RULE "GET a.test/x/**y\n", "p.yaml:3:25: error: `**` stands alone between slashes"},
        BadPolicy{RULE "GET a.test/a/../b\n", "p.yaml:3:22: error: write the path without"},
        BadPolicy{RULE "GET a.test/a%2Fb\n",
                  "p.yaml:3:12: error: an encoded slash matches only with the key `encoded-slash: true`"},
        BadPolicy{RULE "GET a.test/a;b\n", "p.yaml:3:12: error: `;` in a path matches only with the key `path-params: true`"},
        BadPolicy{RULE "GET ws://a.test\n", "p.yaml:3:16: error: the scheme `ws` belongs to the verb `ws`"},
        BadPolicy{RULE "git fetch-pack https://a.test/x\n", "p.yaml:3:27: error: `git fetch-pack` takes no scheme"},
        BadPolicy{RULE "git fetch-pack a.test/\n", "p.yaml:3:33: error: name a repository"},
        BadPolicy{RULE "GET a.test:0\n", "p.yaml:3:23: error: `0` is not a port"},
        BadPolicy{RULE "GET a.test:443,99999\n", "p.yaml:3:27: error: `99999` is not a port"},
        BadPolicy{RULE "GET a.test:90-80\n", "p.yaml:3:23: error: the range `90-80` ends before it begins"},
        BadPolicy{RULE "GET u@a.test\n", "p.yaml:3:17: error: `@` cannot stand in a host"},
        BadPolicy{RULE "GET a.**.test\n", "p.yaml:3:18: error: `**` in a host is only the whole first label"},
        BadPolicy{RULE "GET 127.1\n", "p.yaml:3:16: error: `127.1` would be read as an address"},
        BadPolicy{RULE "GET http://10.0.0.0/8\n", "p.yaml:3:31: error: a prefix is a target of `tcp` and `udp`"},
        BadPolicy{RULE "tls 10.0.0.0/8\n", "p.yaml:3:24: error: `tls` takes no path"},
        BadPolicy{RULE "tcp db\n", "p.yaml:3:16: error: `tcp` needs ports, as in `tcp db.internal:5432`"},
        BadPolicy{RULE "tcp 10.0.0.1/8:5432\n", "p.yaml:3:16: error: `10.0.0.1/8` is not a prefix"},
        BadPolicy{RULE "tcp fd00::1:5432\n", "p.yaml:3:16: error: write an IPv6 address in brackets"},
        BadPolicy{RULE "tls a.test/x\n", "p.yaml:3:22: error: `tls` takes no path"},
        BadPolicy{RULE "dns a.test:53\n", "p.yaml:3:23: error: `dns` takes no port"},
        BadPolicy{RULE "dns 1.2.3.4\n", "p.yaml:3:16: error: `dns` takes a name"},
        BadPolicy{RULE "unix run/x\n", "p.yaml:3:17: error: a socket is an absolute path"},
        BadPolicy{RULE "unix /run/../x\n", "p.yaml:3:22: error: write the path without"},
        BadPolicy{"version: 1\nrules:\n  - alow: GET a.test\n",
                  "p.yaml:3:5: error: unknown key `alow` in a rule; did you mean `allow`?"},
        BadPolicy{"version: 1\nrules:\n  - by: [/x]\n", "p.yaml:3:5: error: a rule needs `allow` or `deny`"},
        BadPolicy{RULE "GET a.test\n    deny: GET b.test\n", "p.yaml:4:5: error: a rule is one `allow` or one `deny`"},
        BadPolicy{"version: 1\nrule: []\n", "p.yaml:2:1: error: unknown key `rule`; did you mean `rules`?"},
        BadPolicy{"version: 1\nrules: {}\n", "p.yaml:2:8: error: `rules` is a list"},
        BadPolicy{"version: 1\nrules: [x]\n", "p.yaml:2:9: error: a rule is `allow: VERB TARGET`"}));

INSTANTIATE_TEST_SUITE_P(
    Keys, BadPolicies,
    ::testing::Values(
        BadPolicy{RULE "tcp a.test:1\n    query: {a: b}\n", "p.yaml:4:5: error: `query` does not apply to `tcp`"},
        BadPolicy{RULE "dns a.test\n    ip: [1.1.1.1]\n", "p.yaml:4:5: error: `ip` does not apply to `dns`"},
        BadPolicy{RULE "GET a.test\n    types: [A]\n", "p.yaml:4:5: error: `types` does not apply to `http`"},
        BadPolicy{RULE "dns a.test\n    types: [a]\n", "p.yaml:4:13: error: unknown record type `a`"},
        BadPolicy{RULE "GET a.test\n    ip: [10.0.0.1/8]\n", "p.yaml:4:10: error: `10.0.0.1/8` is not an address or a prefix"},
        BadPolicy{RULE "GET a.test\n    by: [usr/bin/x]\n", "p.yaml:4:10: error: an executable is an absolute path"},
        BadPolicy{RULE "GET a.test\n    by: [/usr//x]\n", "p.yaml:4:15: error: write the path without"},
        BadPolicy{RULE "GET a.test\n    by: ['sha256:12']\n", "p.yaml:4:18: error: after `sha256:` stand 64 hexadecimal digits"},
        BadPolicy{RULE "GET a.test\n    headers: {'a b': c}\n", "p.yaml:4:15: error: `a b` is not a header name"},
        BadPolicy{RULE "GET a.test\n    headers: {A: c, a: d}\n", "p.yaml:4:21: error: the header `a` is listed twice"},
        BadPolicy{RULE "GET a.test\n    until: 2027-13-31\n", "p.yaml:4:12: error: `2027-13-31` is neither a date"},
        BadPolicy{RULE "GET a.test\n    until: 2027-12-31T10:00:00\n",
                  "p.yaml:4:12: error: `2027-12-31T10:00:00` is neither a date"},
        BadPolicy{"version: 1\nrules:\n  - deny: GET a.test\n    until: 2027-12-31\n", "p.yaml:4:5: error: `until` in a deny"},
        BadPolicy{"version: 1\nrules:\n  - deny: GET a.test\n    under: [/x]\n", "p.yaml:4:5: error: `under` in a deny"},
        BadPolicy{"version: 1\nrules:\n  - deny: GET a.test\n    encoded-slash: true\n",
                  "p.yaml:4:5: error: `encoded-slash` opens an allow"},
        BadPolicy{RULE "GET a.test\n    id: x\n  - allow: GET b.test\n    id: x\n",
                  "p.yaml:5:12: error: the id `x` is already that of the rule at p.yaml:3"},
        BadPolicy{"version: 1\nrules:\n  - allow: { host: a.test }\n",
                  "p.yaml:3:12: error: the long form needs `verb` or `methods`"},
        BadPolicy{"version: 1\nrules:\n  - allow: { methods: [GET], hots: a.test }\n",
                  "p.yaml:3:30: error: unknown key `hots` in a target; did you mean `host`?"},
        BadPolicy{"version: 1\ninclude: [/etc/passwd]\n", "p.yaml:2:11: error: an include is a path relative"},
        BadPolicy{"version: 1\ninclude: [other.yaml]\n", "p.yaml:2:11: error: a policy that is not a file cannot include one"}));

INSTANTIATE_TEST_SUITE_P(
    Operations, BadPolicies,
    ::testing::Values(
        BadPolicy{"version: 1\nsettings: { dns: true }\n", "p.yaml:2:18: error: "},
        BadPolicy{"version: 1\nsettings: { dns: genuine }\n", "p.yaml:2:18: error: `dns` is `synthetic` or `real`"},
        BadPolicy{RULE "grpc a.test\n", "p.yaml:3:12: error: `grpc` needs a call after the host"},
        BadPolicy{RULE "grpc a.test /p.S/M\n", "p.yaml:3:24: error: a call of gRPC is `package.Service/Method`"},
        BadPolicy{RULE "grpc a.test p.S\n", "p.yaml:3:24: error: a call of gRPC is"},
        BadPolicy{RULE "grpc a.test p.S/M x\n", "p.yaml:3:24: error: a call of gRPC is"},
        BadPolicy{
            RULE "graphql querry a.test/q\n",
            "p.yaml:3:12: error: after `graphql` stands query, mutation or subscription, not `querry`; did you mean `query`?"},
        BadPolicy{RULE "graphql a.test/q\n", "p.yaml:3:12: error: "},
        BadPolicy{RULE "mcp tools/[ab] a.test/q\n", "p.yaml:3:12: error: after `mcp` stands a method"},
        BadPolicy{RULE "GET wss://a.test/q\n", "p.yaml:3:16: error: the scheme `wss` belongs to the verb `ws`"},
        BadPolicy{RULE "ws ftp://a.test/q\n", "p.yaml:3:15: error: unknown scheme `ftp`"},
        BadPolicy{RULE "git fetch-pack a.test/r\n    refs: [refs/heads/a]\n",
                  "p.yaml:4:5: error: `refs` does not apply to `git fetch-pack`"},
        BadPolicy{RULE "git receive-pack a.test/r\n    refs: [main]\n",
                  "p.yaml:4:12: error: a ref is written in full: `refs/heads/main`"},
        BadPolicy{RULE "git receive-pack a.test/r\n    ref-changes: [force]\n",
                  "p.yaml:4:19: error: `force` cannot be told from `update`"},
        BadPolicy{RULE "git receive-pack a.test/r\n    ref-changes: [creat]\n", "p.yaml:4:19: error: `ref-changes` lists create"},
        BadPolicy{RULE "mcp tools/list a.test/m\n    tool: [x]\n", "p.yaml:4:5: error: `tool` belongs to `mcp tools/call`"},
        BadPolicy{RULE "jsonrpc m a.test/m\n    tool: [x]\n", "p.yaml:4:5: error: `tool` does not apply to `jsonrpc`"},
        BadPolicy{RULE "POST a.test/m\n    fields: [x]\n", "p.yaml:4:5: error: `fields` does not apply to `http`"},
        BadPolicy{RULE "POST a.test/m\n    json: { name: x }\n", "p.yaml:4:13: error: `name` is not a JSON pointer"},
        BadPolicy{RULE "POST a.test/m\n    json: { /a~2: x }\n", "p.yaml:4:13: error: `/a~2` is not a JSON pointer"},
        BadPolicy{RULE "POST a.test/m\n    json: { /n: 1 }\n", "p.yaml:4:17: error: `1` is not a text"},
        BadPolicy{RULE "graphql query a.test/q\n    query-keys: [query]\n",
                  "p.yaml:3:12: error: `query` in a URL is a GraphQL request"},
        BadPolicy{RULE "GET a.test\n    pins: [sha256//AAAA]\n", "p.yaml:4:12: error: a pin is `sha256//`"},
        BadPolicy{RULE "GET http://a.test\n    pins: [sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=]\n",
                  "p.yaml:3:12: error: `pins` on a rule of http://"},
        BadPolicy{"version: 1\nrules:\n  - deny: GET a.test\n    with: x\n",
                  "p.yaml:4:5: error: `with` says how what is allowed"},
        BadPolicy{RULE "GET a.test\n    with: x\n",
                  "p.yaml:4:11: error: no credential is called `x`; `credentials` defines them"},
        BadPolicy{RULE "GET a.test\n    via: x\n", "p.yaml:4:10: error: no proxy is called `x`"},
        BadPolicy{"version: 1\nsettings: { via: x }\n", "p.yaml:2:18: error: no proxy is called `x`"},
        BadPolicy{RULE "GET a.test\n    ip: [10.0.0.1]\n    via: x\n", "p.yaml:3:12: error: `via` with `ip`"},
        BadPolicy{RULE "udp a.test:1\n    via: x\n", "p.yaml:4:5: error: `via` does not apply to `udp`"}));

INSTANTIATE_TEST_SUITE_P(
    Credentials, BadPolicies,
    ::testing::Values(
        BadPolicy{"version: 1\ncredentials: { a: ghp_0123456789 }\n", "p.yaml:2:19: error: a credential is a map"},
        BadPolicy{"version: 1\ncredentials: { a: { from: ghp_0123456789abcdef, send: bearer, to: a.test } }\n",
                  "p.yaml:2:27: error: a policy holds no secret; write where it is: `env NAME`"},
        BadPolicy{"version: 1\ncredentials: { a: { value: x } }\n", "p.yaml:2:21: error: a policy holds no secret"},
        BadPolicy{"version: 1\ncredentials: { a: { from: env X, to: a.test } }\n", "p.yaml:2:19: error: `a` needs `send`"},
        BadPolicy{"version: 1\ncredentials: { a: { from: env X, send: bearer } }\n", "p.yaml:2:19: error: `a` needs `to`"},
        BadPolicy{"version: 1\ncredentials: { a: { from: env 1X, send: bearer, to: a.test } }\n",
                  "p.yaml:2:31: error: after `env` stands the name of a variable"},
        BadPolicy{"version: 1\ncredentials: { a: { from: file x, send: bearer, to: a.test } }\n",
                  "p.yaml:2:32: error: after `file` stands an absolute path"},
        BadPolicy{"version: 1\ncredentials: { a: { from: evn X, send: bearer, to: a.test } }\n",
                  "p.yaml:2:27: error: unknown source; did you mean `env`?"},
        BadPolicy{"version: 1\ncredentials: { a: { from: env X, send: baerer, to: a.test } }\n",
                  "p.yaml:2:40: error: `send` is bearer, basic, header NAME, query NAME, placeholder VARIABLE, sigv4 or "
                  "client-certificate, not `baerer`; did you mean `bearer`?"},
        BadPolicy{"version: 1\ncredentials: { a: { from: env X, send: header Host, to: a.test } }\n",
                  "p.yaml:2:47: error: the header `Host` carries no credential"},
        BadPolicy{"version: 1\ncredentials: { a: { from: env X, send: 'basic u:p', to: a.test } }\n",
                  "p.yaml:2:47: error: after `basic` stands a user name alone"},
        BadPolicy{"version: 1\ncredentials: { a: { from: env X, send: bearer, to: 'http://a.test' } }\n",
                  "p.yaml:2:53: error: a credential is never sent in the clear"},
        BadPolicy{"version: 1\ncredentials: { a: { from: env X, send: bearer, to: '**' } }\n",
                  "p.yaml:2:53: error: a credential is bound to hosts"},
        BadPolicy{"version: 1\ncredentials: { a: { from: oauth, send: bearer, to: a.test } }\n",
                  "p.yaml:2:19: error: `a`: `oauth` needs `token-url`, `client-id` and `client-secret: env NAME`"},
        BadPolicy{"version: 1\ncredentials: { a: { from: env X, send: bearer, to: a.test, region: r } }\n",
                  "p.yaml:2:19: error: `a`: `region` belongs to `send: sigv4`"},
        BadPolicy{"version: 1\nproxies: { p: { url: 'http://u:p@h:1' } }\n",
                  "p.yaml:2:30: error: the user and password do not stand in the URL: write `basic: env NAME`"},
        BadPolicy{"version: 1\nproxies: { p: { url: 'http://h' } }\n", "p.yaml:2:30: error: write the proxy's port"},
        BadPolicy{"version: 1\nproxies: { p: { url: 'ftp://h:1' } }\n", "p.yaml:2:23: error: `url` is http://HOST:PORT"},
        BadPolicy{"version: 1\nproxies: { p: { url: 'socks5://h:1', bearer: env X } }\n",
                  "p.yaml:2:15: error: `p`: SOCKS5 takes `basic`"},
        BadPolicy{"version: 1\nproxies: { p: {} }\n", "p.yaml:2:15: error: `p` needs `url`"}));

#define CREDENTIALS                                                                    \
  "version: 1\ncredentials:\n  c: { from: env C, send: bearer, to: [a.test/v1/**] }\n" \
  "  d: { from: env D, send: bearer, to: ['*.test'] }\n"                               \
  "proxies:\n  p: { url: 'http://p.test:1' }\n  q: { url: 'http://q.test:1' }\nrules:\n"

INSTANTIATE_TEST_SUITE_P(
    Routes, BadPolicies,
    ::testing::Values(
        BadPolicy{CREDENTIALS "  - allow: GET a.test/v2/x\n    with: c\n",
                  "p.yaml:10:11: error: `allow: GET a.test/v2/x` covers more than `c` may go to ([a.test/v1/**])"},
        BadPolicy{CREDENTIALS "  - allow: GET a.test:8443/v1/x\n    with: c\n",
                  "p.yaml:10:11: error: `allow: GET a.test:8443/v1/x` covers"},
        BadPolicy{CREDENTIALS "  - allow: GET b.a.test\n    with: d\n",
                  "p.yaml:10:11: error: `allow: GET b.a.test` covers more than"},
        BadPolicy{CREDENTIALS "  - allow: GET a.test/v1/**\n    with: c\n  - allow: GET,POST a.test/v1/x*\n    with: d\n",
                  "p.yaml:12:11: error: `allow: GET,POST a.test/v1/x*` and `allow: GET a.test/v1/**` at p.yaml:9 both cover `GET "
                  "a.test/v1/x`, with `with: c` and `with: d`"},
        BadPolicy{
            CREDENTIALS "  - allow: GET a.test/v1/**\n    with: c\n  - allow: tls a.test\n",
            "p.yaml:10:11: error: `allow: GET a.test/v1/**` sends `c`, but `allow: tls a.test` at p.yaml:11 passes the same"},
        BadPolicy{CREDENTIALS "  - allow: GET a.test/v1/**\n    with: c\n  - allow: tcp 93.184.0.0/16:443\n",
                  "p.yaml:10:11: error: `allow: GET a.test/v1/**` sends `c`, but `allow: tcp 93.184.0.0/16:443`"},
        BadPolicy{CREDENTIALS "  - allow: GET a.test/**\n    via: p\n  - allow: http a.test/x\n    via: q\n",
                  "p.yaml:12:10: error: `allow: http a.test/x` and `allow: GET a.test/**` at p.yaml:9 both cover `GET a.test/x`"},
        BadPolicy{CREDENTIALS
                  "  - allow: git fetch-pack a.test/v1/**\n    with: c\n  - allow: GET a.test/V1/R/info/refs\n    with: d\n",
                  "p.yaml:12:11: error: `allow: GET a.test/V1/R/info/refs` and `allow: git fetch-pack a.test/v1/**`"},
        BadPolicy{CREDENTIALS "  - allow: tcp a.test:1\n    via: p\n  - allow: tcp *.test:1-9\n    via: q\n",
                  "p.yaml:12:10: error: `allow: tcp *.test:1-9` and `allow: tcp a.test:1` at p.yaml:9 both cover a connection"}));

TEST(Load, TakesCompactAndLongFormsAlike) {
  const auto a = Loaded(WithRules(
      "  - allow: GET,POST a.test:8443/x/**\n  - allow: git upload-pack a.test/o/R.git\n  - allow: tcp 10.0.0.0/8:1-5,9\n"));
  const auto b =
      Loaded(WithRules("  - allow: { verb: tcp, host: 10.0.0.0/8, ports: [1, 2-5, 9] }\n"
                       "  - allow: { verb: git fetch-pack, host: A.test, repo: /o/r }\n"
                       "  - allow: { methods: [POST, GET], host: a.test, ports: 8443, path: /x/** }\n"));
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->digest(), b->digest());
  EXPECT_EQ(a->digest().size(), 64u);
  EXPECT_EQ(a->rules()[1].text, "git fetch-pack a.test/o/r");
  EXPECT_EQ(a->rules()[2].text, "tcp 10.0.0.0/8:1-5,9");
}

TEST(Load, DigestIsAboutMeaningAlone) {
  const std::string base = Loaded(WithRules("  - allow: GET a.test\n"))->digest();
  EXPECT_EQ(Loaded(WithRules("  - allow: 'GET A.test:443'\n    note: why\n    id: x\n"))->digest(), base);
  for (const char* other : {"  - deny: GET a.test\n", "  - allow: GET a.test/\n", "  - allow: GET http://a.test\n",
                            "  - allow: GET a.test:444\n", "  - allow: GET a.test\n    by: /x\n",
                            "  - allow: GET a.test\n    under: /x\n", "  - allow: GET a.test\n    ip: 1.1.1.1\n",
                            "  - allow: GET a.test\n    query: { a: b }\n", "  - allow: GET a.test\n    headers: { a: b }\n",
                            "  - allow: GET a.test\n    query-keys: a\n", "  - allow: GET a.test\n    until: 2027-01-01\n",
                            "  - allow: GET a.test\n    encoded-slash: true\n", "  - allow: GET a.test\n    path-params: true\n",
                            "  - allow: GET a.test\n    method-override: true\n", "  - allow: http a.test\n"})
    EXPECT_NE(Loaded(WithRules(other))->digest(), base) << other;
}

TEST(Load, TakesCommentsQuotesAndCrlf) {
  const auto s = Loaded(
      "version: 1 # one\r\nrules: # two\r\n  - allow: 'GET a.test/it''s' # three\r\n    note: |\r\n      two\r\n      lines\r\n");
  ASSERT_NE(s, nullptr);
  EXPECT_EQ(s->rules()[0].text, "GET a.test/it's");
}

TEST(Load, DecodesTheEscapesOfPolicies) {
  EXPECT_EQ(Loaded("version: 1\nname: \"a\\x41\\u00fc\\\"\\\\\"\n")->name(), "aA\xc3\xbc\"\\");
  EXPECT_EQ(Loaded("version: 1\nname: 'it''s'\n")->name(), "it's");
}

TEST(Load, AllowTextsStandBesideOrInsteadOfAFile) {
  LoadOptions options;
  options.extra_allows = {"GET api.github.com", "git fetch-pack github.com/octo/*"};
  const auto s = LoadRules(options);
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ((*s)->rules()[1].id, "--allow:2");
  options.extra_allows.push_back("GTE x");
  const auto bad = LoadRules(options);
  ASSERT_FALSE(bad);
  EXPECT_EQ(RenderError(bad.error(), false), "--allow:3:1: error: unknown verb `GTE`; did you mean `GET`? (in 'GTE x')");
}

class LoadFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "policy-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = std::filesystem::canonical(pattern).string();
    std::filesystem::create_directory(folder_ + "/top");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string Message(const std::string& path, const LoadOptions& options = {}) {
    const auto s = LoadFile(path, options);
    return s ? "loaded" : s.error().message;
  }
  std::string folder_;
};

TEST_F(LoadFiles, IncludesAreAUnion) {
  const auto top = Write("top/p.yaml", "version: 1\nname: top\ninclude: [a/x.yaml, b.yaml]\nrules:\n  - allow: GET p.test\n");
  Write("top/a/x.yaml", "version: 1\ninclude: [../b.yaml]\nrules:\n  - allow: GET x.test\n");
  Write("top/b.yaml", "version: 1\nrules:\n  - deny: GET b.test\n");
  const auto s = LoadFile(top);
  ASSERT_TRUE(s) << RenderError(s.error(), false);
  ASSERT_EQ((*s)->rules().size(), 3u);  // b.yaml counts once
  EXPECT_EQ((*s)->files().size(), 3u);
  EXPECT_EQ((*s)->files()[0], top);
  EXPECT_EQ((*s)->rules()[1].id, "a/x.yaml:4");
}

TEST_F(LoadFiles, RefuseCyclesEscapesAndMissingFiles) {
  Write("out.yaml", "version: 1\n");
  Write("top/self.yaml", "version: 1\ninclude: [two.yaml]\n");
  Write("top/two.yaml", "version: 1\ninclude: [self.yaml]\n");
  Write("top/esc.yaml", "version: 1\ninclude: [../out.yaml]\n");
  Write("top/link.yaml", "version: 1\ninclude: [l.yaml]\n");
  Write("top/mode.yaml", "version: 1\ninclude: [m.yaml]\n");
  Write("top/m.yaml", "version: 1\nmode: audit\n");
  Write("top/missing.yaml", "version: 1\ninclude: [no.yaml]\n");
  std::filesystem::create_symlink(folder_ + "/out.yaml", folder_ + "/top/l.yaml");
  EXPECT_THAT(Message(folder_ + "/top/self.yaml"), HasSubstr("leads back to itself"));
  EXPECT_THAT(Message(folder_ + "/top/esc.yaml"), HasSubstr("leads out of the policy's folder"));
  EXPECT_THAT(Message(folder_ + "/top/link.yaml"), HasSubstr("leads out of the policy's folder"));
  EXPECT_THAT(Message(folder_ + "/top/mode.yaml"), HasSubstr("`mode` is set in the top file only"));
  EXPECT_THAT(Message(folder_ + "/top/missing.yaml"), HasSubstr("No such file"));
  EXPECT_THAT(Message(folder_ + "/none.yaml"), HasSubstr("No such file"));
  EXPECT_THAT(Message(folder_), HasSubstr("not a regular file"));
}

TEST_F(LoadFiles, KeepTheirBounds) {
  EXPECT_THAT(Message(Write("big.yaml", "version: 1\n#" + std::string(1024 * 1024, ' ') + "\n")), HasSubstr("larger than 1 MiB"));
  std::string includes = "version: 1\ninclude:\n";
  for (int i = 0; i < 64; ++i) {
    Write("top/i" + std::to_string(i) + ".yaml", "version: 1\n");
    includes += "  - i" + std::to_string(i) + ".yaml\n";
  }
  EXPECT_THAT(Message(Write("top/many.yaml", includes)), HasSubstr("more than 64 files"));
  LoadOptions options;
  options.extra_allows.assign(100'001, "GET a.test");
  const auto s = LoadRules(options);
  ASSERT_FALSE(s);
  EXPECT_THAT(s.error().message, HasSubstr("more than 100000 rules"));
}

TEST_F(LoadFiles, NameTheRealExecutable) {
  const auto script = Write("tool", "#! /bin/sh -e\nexit 0\n");
  const auto binary = Write("binary",
                            "\x7f"
                            "ELF");
  std::filesystem::create_symlink(binary, folder_ + "/link");
  const auto policy = [&](const std::string& exe) {
    return Write("p.yaml", WithRules("  - allow: GET a.test\n    by: [" + exe + "]\n"));
  };
  EXPECT_EQ(Message(policy(binary)), "loaded");
  EXPECT_EQ(Message(policy(folder_ + "/none")), "loaded");
  EXPECT_EQ(Message(policy(folder_ + "/li*")), "loaded");
  EXPECT_THAT(Message(policy(folder_ + "/link")), HasSubstr("write the real file `" + binary + "`"));
  EXPECT_THAT(Message(policy(script)), HasSubstr("is a script; the process that runs it is its interpreter (`/bin/sh -e`)"));
  LoadOptions elsewhere;
  elsewhere.check_executables = false;
  EXPECT_EQ(Message(policy(script), elsewhere), "loaded");
}

TEST_F(LoadFiles, ErrorsShowTheLineAndACaret) {
  const auto path = Write("p.yaml", "version: 1\nrules:\n  - allow: gti fetch-pack b\xc3\xbc.test/x # \n");
  const auto s = LoadFile(path);
  ASSERT_FALSE(s);
  EXPECT_EQ(RenderError(s.error(), false), path +
                                               ":3:12: error: unknown verb `gti`; did you mean `git`?\n"
                                               " 3 |   - allow: gti fetch-pack b\xc3\xbc.test/x # \n"
                                               "   |            ^^^");
  EXPECT_THAT(RenderError(s.error(), true), HasSubstr("\x1b[31m^^^"));
}

}  // namespace
}  // namespace sluice::policy
