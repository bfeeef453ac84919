#!/usr/bin/python3
"""What a body asks for decides: GraphQL, JSON-RPC and MCP, JSON values, pushes and LFS, by real programs."""
import gzip
import hashlib
import json
import os
import pathlib
import re
import time

import harness

GRAPHQL = [("allow graphql query a.test/graphql", {"fields": "[viewer, repo*]"}), ("allow graphql mutation a.test/graphql", {"fields": "[addStar]"})]
MCP = ["allow mcp initialize a.test/mcp", "allow mcp tools/list a.test/mcp", ("allow mcp tools/call a.test/mcp", {"tool": "[read]"})]
JSON_TYPE = ["-H", "Content-Type: application/json"]


def resident(pid):
    """Bytes of memory a process holds; 0 once it is gone."""
    try:
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) << 10
    except (OSError, TypeError):
        return 0


class Bodies(harness.SluiceTest):
    def post(self, rules, url, body, *arguments):
        data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
        (self.work / "body").write_bytes(data)
        result = self.sluice(rules, "curl", "-sS", "-i", "-m", "30", *JSON_TYPE, "--data-binary", "@body", *arguments, url)
        return result, data

    def assertServed(self, result, data):
        self.assertRegex(result.out, r"HTTP/1\.1 200", str(result))
        self.assertIn(hashlib.sha256(data).hexdigest(), result.out, str(result))

    def assertRefused(self, result, *words, status=403):
        self.assertRegex(result.out, rf"HTTP/1\.1 {status} ", str(result))
        for word in words:
            self.assertIn(word, result.out, str(result))
        self.assertEqual([e for e in self.served() if e["method"] == "POST"], [], str(result))

    def asked(self, result):
        return [r["target"].get("asked") for r in result.audit if r["type"] == "decision" and r.get("layer") == "request"]


class Graphql(Bodies):
    URL = "https://a.test/graphql"

    def ask(self, query, *arguments, **more):
        return self.post(GRAPHQL, self.URL, {"query": query, **more}, *arguments)

    def test_an_allowed_query_reaches_the_server_byte_for_byte(self):
        for query in ("{ viewer { login } }", "query Q { a: repository(name: \"x\") { id } ...F } fragment F on Query { viewer { id } }",
                      "mutation { addStar(id: 1) { id } }"):
            result, data = self.ask(query)
            self.assertServed(result, data)

    def test_a_denied_field_says_what_it_was_and_never_arrives(self):
        for query in ("mutation { deleteRepo(id: 1) { id } }", "{ viewer { id } secrets }", "{ viewer: secrets { id } }",
                      "{ viewer { id } ...F } fragment F on Query { secrets }", "mutation { addStar deleteRepo }"):
            result, _ = self.ask(query)
            self.assertRefused(result, '"code":"operation"')
        self.assertIn("graphql mutation deleteRepo", json.dumps(self.asked(self.ask("mutation { deleteRepo }")[0])))

    def test_a_denial_names_the_field_and_the_rule_that_would_allow_it(self):
        result, _ = self.ask("mutation { deleteRepo }")
        self.assertRefused(result, "deleteRepo", "graphql mutation a.test/graphql")

    def test_batches_are_judged_request_by_request(self):
        good = [{"query": "{ viewer { id } }"}, {"query": "mutation { addStar }"}]
        result, data = self.post(GRAPHQL, self.URL, good)
        self.assertServed(result, data)
        self.assertEqual(self.asked(result), [["graphql query viewer", "graphql mutation addStar"]])
        self.assertRefusedAfter(good + [{"query": "{ secrets }"}])

    def assertRefusedAfter(self, body):
        before = len([e for e in self.served() if e["method"] == "POST"])
        result, _ = self.post(GRAPHQL, self.URL, body)
        self.assertRegex(result.out, r"HTTP/1\.1 403 ")
        self.assertEqual(len([e for e in self.served() if e["method"] == "POST"]), before)

    def test_what_two_servers_could_read_differently_is_refused(self):
        for body in ('{"query":"{viewer}","query":"{secrets}"}', '{"query":"{viewer}","Query":"{secrets}"}',
                     '{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"ab"}}}', "{}", "not json", '{"query":"{viewer"}'):
            result, _ = self.post(GRAPHQL, self.URL, body)
            self.assertRefused(result)
        for arguments in (["-H", "Content-Type: application/x-www-form-urlencoded"], ["-H", "Content-Encoding: br"]):
            result, _ = self.post(GRAPHQL, self.URL, {"query": "{viewer}"}, *arguments)
            self.assertRefused(result)
        result, _ = self.post(GRAPHQL, self.URL + "?query={secrets}", {"query": "{viewer}"}, "-g")
        self.assertRefused(result)

    def test_compressed_chunked_and_expecting_bodies(self):
        data = gzip.compress(json.dumps({"query": "{ viewer { id } }"}).encode())
        result, _ = self.post(GRAPHQL, self.URL, data, "-H", "Content-Encoding: gzip")
        self.assertServed(result, data)
        result, data = self.ask("{ viewer { id } }", "-H", "Transfer-Encoding: chunked")
        self.assertServed(result, data)
        result, data = self.ask("{ viewer { id } }", "-H", "Expect: 100-continue", "--expect100-timeout", "20")
        self.assertServed(result, data)
        self.assertIn("HTTP/1.1 100 Continue", result.out)
        bad = gzip.compress(json.dumps({"query": "{ secrets }"}).encode())
        before = len(self.served())
        result, _ = self.post(GRAPHQL, self.URL, bad, "-H", "Content-Encoding: gzip", "-H", "Transfer-Encoding: chunked")
        self.assertRegex(result.out, r"HTTP/1\.1 403 ")
        self.assertEqual(len(self.served()), before)

    def test_a_large_body_is_judged_and_streamed_and_one_too_large_is_413(self):
        result, data = self.ask("{ viewer { id } }", variables={"x": "y" * 6_000_000})
        self.assertServed(result, data)
        for arguments in ([], ["-H", "Transfer-Encoding: chunked"]):
            result, _ = self.ask("{ viewer { id } }", *arguments, variables={"x": "y" * 9_000_000})
            self.assertRegex(result.out, r"HTTP/1\.1 413 ")
            self.assertIn("too large", result.out)
        self.assertEqual(len([e for e in self.served() if e["method"] == "POST"]), 1)

    def test_the_get_form(self):
        ok = self.sluice(GRAPHQL, "curl", "-sS", "-i", "-g", self.URL + "?query={viewer{id}}")
        self.assertRegex(ok.out, r"HTTP/1\.1 200 ", str(ok))
        for query in ("query={secrets}", "query={viewer}&query={secrets}", "extensions={%22persistedQuery%22:{}}"):
            denied = self.sluice(GRAPHQL, "curl", "-sS", "-i", "-g", f"{self.URL}?{query}")
            self.assertRegex(denied.out, r"HTTP/1\.1 403 ", query)
        self.assertEqual(len(self.served()), 1)

    def test_a_connection_lives_on_after_a_refused_body(self):
        script = """
import http.client, json, ssl, sys
c = http.client.HTTPSConnection("a.test", context=ssl.create_default_context())
for query in ("{viewer}", "{secrets}", "{viewer}", "{secrets}", "{viewer}"):
    c.request("POST", "/graphql", json.dumps({"query": query}), {"Content-Type": "application/json"})
    r = c.getresponse(); r.read(); print(r.status, c.sock is not None)
"""
        result = self.python(GRAPHQL, script)
        self.assertEqual(result.out.split(), ["200", "True", "403", "True"] * 2 + ["200", "True"], str(result))

    def test_node(self):
        script = """
for (const query of ["{ viewer { id } }", "{ secrets }"]) {
  const r = await fetch("https://a.test/graphql", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ query }) });
  console.log(r.status, await r.text());
}"""
        result = self.sluice(GRAPHQL, "/usr/bin/node", "--input-type=module", "-e", script)
        self.assertRegex(result.out, r"(?s)^200 .*served.*403 .*secrets", str(result))


class Rpc(Bodies):
    URL = "https://a.test/mcp"

    def test_an_mcp_client_gets_its_tools_and_no_other(self):
        result = self.sluice(MCP, "/usr/bin/node", self.client("mcp.mjs"), self.URL, "read", "delete")
        lines = dict(line.split(" ", 1) for line in result.out.splitlines() if " " in line)
        self.assertIn("2025-06-18", lines["initialize"], str(result))
        self.assertIn("inputSchema", lines["list"])
        self.assertIn("called read", lines["read"])
        self.assertRegex(lines["delete"], "^403 .*delete")
        self.assertRegex(lines["batch"], "^403 ")
        self.assertIn(["mcp tools/call read"], self.asked(result))
        self.assertIn(["mcp tools/call delete"], self.asked(result))
        self.assertEqual(len([e for e in self.served() if e["method"] == "POST"]), 4)

    def test_hostile_messages_are_refused(self):
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read"}}
        for body in (json.dumps(call).replace('"name": "read"', '"name": "read", "name": "delete"'),
                     json.dumps(call).replace('"name": "read"', '"name": "read", "Name": "delete"'),
                     json.dumps(call).replace("2.0", "1.0"), json.dumps([call, {**call, "params": {"name": "delete"}}]),
                     json.dumps({**call, "Method": "x"}), json.dumps(call) + json.dumps(call), "[]", "\ufeff" + json.dumps(call)):
            result, _ = self.post(MCP, self.URL, body)
            self.assertRefused(result)

    def test_arguments_decide_where_a_rule_says_so(self):
        rules = [("allow mcp tools/call a.test/mcp", {"tool": "[read]", "json": "{ /params/arguments/owner: [octo] }"})]
        call = lambda owner: {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read", "arguments": {"owner": owner}}}
        self.assertIn("called read", self.post(rules, self.URL, call("octo"))[0].out)
        result, _ = self.post(rules, self.URL, call("mallory"))
        self.assertRegex(result.out, r"HTTP/1\.1 403 ")
        self.assertNotIn("mallory", json.dumps(result.audit), "values never reach a record")

    def test_json_values_of_a_plain_post(self):
        rules = [("allow POST a.test/graphql", {"json": "{ /model: [small-*] }"})]
        result, data = self.post(rules, "https://a.test/graphql", {"model": "small-1", "input": "x" * 100_000})
        self.assertServed(result, data)
        before = len(self.served())
        for body in ({"model": "large"}, {"Model": "small-1"}, '{"model":"small-1","model":"large"}'):
            self.assertRegex(self.post(rules, "https://a.test/graphql", body)[0].out, r"HTTP/1\.1 403 ")
        self.assertEqual(len(self.served()), before)


class Git(Bodies):
    URL = "https://github.com/octo/hello.git"
    WHO = ["-c", "user.name=octo", "-c", "user.email=octo@a.test"]
    RULES = ["allow git fetch-pack github.com/octo/*", ("allow git receive-pack github.com/octo/*", {"refs": "[refs/heads/agent/*]"})]

    def git(self, *arguments, rules=None, **more):
        return self.sluice(rules or self.RULES, "git", *arguments, **more)

class Push(Git):
    def clone(self, url=Git.URL):
        self.assertExit(self.git("clone", "-q", url, "hello"), 0)
        self.assertExit(self.git("-C", "hello", *self.WHO, "commit", "-q", "--allow-empty", "-m", "mine"), 0)

    def refs(self):
        return set(re.findall(r"refs/\S+", self.git("ls-remote", self.URL).out))

    def test_an_agent_pushes_its_own_branches_only(self):
        self.clone()
        result = self.git("-C", "hello", "push", "origin", "HEAD:refs/heads/agent/one")
        self.assertExit(result, 0)
        self.assertIn(["create refs/heads/agent/one"], self.asked(result))
        self.assertIn("refs/heads/agent/one", self.refs())
        denied = self.git("-C", "hello", "push", "origin", "HEAD:main")
        self.assertNotEqual(denied.code, 0)
        self.assertRegex(denied.err, r"remote: sluice: denied POST github\.com/octo/hello\.git/git-receive-pack \(d-\d+\)")
        self.assertRegex(denied.err, r"! \[remote rejected\] HEAD -> main \(denied by policy \(d-\d+\)\)")
        self.assertIn("no rule allows a push that would update refs/heads/main", denied.err)
        self.assertIn(["update refs/heads/main"], self.asked(denied))

    def test_one_refused_ref_refuses_all_and_git_says_which(self):
        self.clone()
        result = self.git("-C", "hello", "push", "origin", "HEAD:refs/heads/agent/two", "HEAD:main")
        self.assertNotEqual(result.code, 0)
        self.assertRegex(result.err, r"! \[remote rejected\] HEAD -> main \(denied by policy")
        self.assertRegex(result.err, r"! \[remote rejected\] HEAD -> agent/two \(not pushed, since another ref is denied")
        self.assertNotIn("refs/heads/agent/two", self.refs())

    def test_deleting_needs_its_own_word(self):
        self.clone()
        self.assertExit(self.git("-C", "hello", "push", "-q", "origin", "HEAD:refs/heads/agent/gone"), 0)
        denied = self.git("-C", "hello", "push", "origin", ":refs/heads/agent/gone")
        self.assertNotEqual(denied.code, 0)
        self.assertIn("denied by policy", denied.err)
        self.assertIn("refs/heads/agent/gone", self.refs())
        rules = [self.RULES[0], ("allow git receive-pack github.com/octo/*", {"refs": "[refs/heads/agent/*]", "ref-changes": "[delete]"})]
        self.assertExit(self.git("-C", "hello", "push", "-q", "origin", ":refs/heads/agent/gone", rules=rules), 0)
        self.assertNotIn("refs/heads/agent/gone", self.refs())

    def test_a_large_push_streams_through_and_a_refused_one_is_told(self):
        self.clone("https://github.com/octo/second.git")
        size = int(os.environ.get("SLUICE_PUSH_OCTETS") or (100_000_000 if harness.MODE == "root" and harness.SLOW == 1 else 20_000_000))
        make = f"head -c {size} /dev/urandom > hello/noise && git -C hello -c core.compression=0 add noise && git -C hello -c user.name=o -c user.email=o@a commit -qm noise"
        self.assertExit(self.sluice(self.RULES, "sh", "-ec", make, timeout=240), 0)
        with self.running(self.RULES, "git", "-C", "hello", "push", "-q", "origin", "HEAD:refs/heads/agent/large") as process:
            peak = 0
            while process.poll() is None:
                peak = max(peak, resident(process.pid))
                time.sleep(0.05)
            self.assertEqual(process.returncode, 0, process.stderr.read())
        self.assertLess(peak, (60 if harness.SLOW == 1 else 600) << 20)
        records = [json.loads(line) for line in self.audit.read_text().splitlines()]
        exchanges = [r for r in records if r["type"] == "exchange" and r["target"].get("asked") == ["create refs/heads/agent/large"]]
        self.assertGreater(exchanges[0]["bytes_up"], size)
        denied = self.git("-C", "hello", "push", "-q", "origin", "HEAD:refs/heads/large", timeout=300)
        self.assertNotEqual(denied.code, 0)
        self.assertIn("denied by policy", denied.err, str(denied))


class Lfs(Git):
    def setUp(self):
        super().setUp()
        self.lfs_environment = {"GIT_LFS_SKIP_SMUDGE": "1", "HOME": str(self.work), "GIT_CONFIG_GLOBAL": str(self.work / "gitconfig")}

    def lfs(self, script, rules):
        return self.sluice(rules, "sh", "-exc", script, env=self.lfs_environment, timeout=120)

    SETUP = """
        git lfs install --skip-repo >/dev/null; git config --global user.name o; git config --global user.email o@a.test
        git clone -q https://github.com/octo/hello.git lfs; cd lfs; git config lfs.locksverify false
        git lfs track '*.bin' >/dev/null; echo large > x.bin; git add .; git commit -qm lfs
        git push origin HEAD:refs/heads/agent/lfs"""

    def test_objects_go_up_and_down_by_the_verb_that_says_so(self):
        up = [self.RULES[0], ("allow git receive-pack github.com/octo/*", {"refs": "[refs/heads/agent/*]", "lfs": "true"})]
        result = self.lfs(self.SETUP, up)
        self.assertExit(result, 0)
        self.assertIn(["lfs upload"], self.asked(result))
        self.assertEqual(len(list((self.lab.folder / "lfs").iterdir())), 1)
        denied = self.lfs("cd lfs; rm -rf .git/lfs/objects; git lfs fetch origin HEAD", up)
        self.assertNotEqual(denied.code, 0)
        self.assertIn(["lfs download"], self.asked(denied))
        down = [("allow git fetch-pack github.com/octo/*", {"lfs": "true"})]
        fetched = self.lfs("cd lfs; git lfs fetch origin HEAD; git lfs checkout; cat x.bin", down)
        self.assertExit(fetched, 0)
        self.assertIn("large", fetched.out)
        self.assertIn(["lfs download"], self.asked(fetched))


if __name__ == "__main__":
    harness.main()
