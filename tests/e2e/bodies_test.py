#!/usr/bin/python3
"""What a body asks for decides: GraphQL, JSON-RPC and MCP, JSON values, by real programs. Pushes and LFS: bodies_git_test.py."""
import gzip
import hashlib
import json

import harness

GRAPHQL = [("allow graphql query a.test/graphql", {"fields": "[viewer, repo*]"}), ("allow graphql mutation a.test/graphql", {"fields": "[addStar]"})]
MCP = ["allow mcp initialize a.test/mcp", "allow mcp tools/list a.test/mcp", ("allow mcp tools/call a.test/mcp", {"tool": "[read]"})]
JSON_TYPE = ["-H", "Content-Type: application/json"]


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

    def test_a_body_is_one_whatever_the_method_and_without_a_type(self):
        rules = ["allow http a.test", ("deny DELETE a.test/j", {"json": "{ /force: ['true'] }"}), "deny graphql mutation a.test/g", "deny jsonrpc kill a.test/r"]
        curl = ["curl", "-sS", "-i", "-m", "30"]
        for method, path in (("DELETE", "j"), ("DELETE", "g"), ("GET", "g"), ("OPTIONS", "r")):
            for arguments in ([], ["-H", "Transfer-Encoding: chunked"], ["--http2"]):
                result = self.sluice(rules, *curl, "-X", method, "-H", "Content-Type:", "--data-binary", '{"force": true}', *arguments, f"https://a.test/{path}")
                self.assertRegex(result.out, r"HTTP/\S+ 403", f"{method} {path} {arguments}: {result}")
            result = self.sluice(rules, *curl, "-X", method, f"https://a.test/{path}")
            self.assertNotRegex(result.out, r"HTTP/\S+ 403", f"{method} {path}: {result}")
        self.assertEqual(len(self.served()), 4)

    def test_json_values_of_a_plain_post(self):
        rules = [("allow POST a.test/graphql", {"json": "{ /model: [small-*] }"})]
        result, data = self.post(rules, "https://a.test/graphql", {"model": "small-1", "input": "x" * 100_000})
        self.assertServed(result, data)
        before = len(self.served())
        for body in ({"model": "large"}, {"Model": "small-1"}, '{"model":"small-1","model":"large"}'):
            self.assertRegex(self.post(rules, "https://a.test/graphql", body)[0].out, r"HTTP/1\.1 403 ")
        self.assertEqual(len(self.served()), before)


if __name__ == "__main__":
    harness.main()
