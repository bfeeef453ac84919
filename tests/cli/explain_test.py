"""`sluice explain --format json`: the answer as programs read it."""
import cli


class Explain(cli.Case):
    def ask(self, question, code, *flags):
        self.policy("p.yaml", "allow: GET api.github.com/repos/**\nid: read", "deny: GET api.github.com/repos/secret/**",
                    more="presets:\n  - npm@1: { host: registry.corp.example }\n")
        return self.expect(self.sluice("explain", "--format", "json", "p.yaml", question, *flags), code).json()

    def test_allowed(self):
        answer = self.ask("GET https://api.github.com/repos/a", 0)
        self.assertEqual((answer["allowed"], answer["question"], answer["carried"], answer["audit_only"]),
                         (True, "GET https://api.github.com/repos/a", "inspected", False))
        self.assertEqual(answer["rule"], {"id": "read", "effect": "allow", "text": "GET api.github.com/repos/**", "file": "p.yaml", "line": 3})
        self.assertRegex(answer["policy"], r"^[0-9a-f]{64}$")

    def test_denied_names_what_is_missing(self):
        answer = self.ask("POST https://api.github.com/repos/a", 1)
        self.assertEqual((answer["allowed"], answer["code"], answer["suggest"], answer["nearest_rule"]["line"]),
                         (False, "method", "POST api.github.com/repos/a", 3))
        self.assertNotIn("rule", answer)
        self.assertEqual(self.ask("GET https://api.github.com/repos/secret/a", 1)["rule"]["effect"], "deny")

    def test_a_presets_rule_has_its_origin(self):
        rule = self.ask("GET https://registry.corp.example/a", 0)["rule"]
        self.assertEqual((rule["file"], rule["origin"]["file"]), ("p.yaml", "preset:npm@1"))

    def test_what_the_question_has_none_of_is_an_error(self):
        self.policy("p.yaml", "allow: GET a.test", "allow: git receive-pack a.test/o/r")
        body = "values go with `METHOD URL`"
        for question, flags, why in (("GET https://a.test/", ("--ref", "refs/heads/main"), "a ref is that of `git receive-pack"),
                                     ("git fetch-pack a.test/o/r", ("--ref", "refs/heads/main"), "a ref is that of `git receive-pack"),
                                     ("git receive-pack a.test/o/r", ("--ref-change", "delete"), "which ref changes so"),
                                     ("connect a.test:443", ("--ref-change", "delete"), "a ref is that of `git receive-pack"),
                                     ("POST https://a.test/graphql", ("--field", "x"), "those of `graphql"),
                                     ("mcp tools/list a.test/mcp", ("--operation", "x"), "those of `graphql"),
                                     ("graphql query a.test/graphql", ("--tool", "x"), "a tool is that of `mcp tools/call`"),
                                     ("tls a.test", ("--json", "/a=1"), body), ("dns a.test", ("--json", "/a=1"), body),
                                     ("git receive-pack a.test/o/r", ("--json", "/a=1"), body)):
            with self.subTest(question=question, flags=flags):
                outcome = self.expect(self.sluice("explain", "p.yaml", question, *flags), 2)
                self.assertIn(why, outcome.err)
                self.assertEqual(outcome.out, "")

    WAYS = """credentials:
  hub: { from: env HUB, send: bearer, to: [api.github.com] }
proxies:
  corp: { url: "http://proxy.corp.example:3128", except: [direct.example] }
"""

    def ways(self, question, code, *flags):
        self.policy("p.yaml", "allow: GET api.github.com/repos/**\nwith: hub\nvia: corp", "allow: GET direct.example\nvia: corp",
                    "allow: tls far.example\nvia: corp", "allow: GET near.example\npins: [sha256//" + "A" * 43 + "=]",
                    "deny: GET api.github.com/repos/inner/**\nip: [10.0.0.0/8]", more=self.WAYS)
        return self.expect(self.sluice("explain", "p.yaml", question, *flags), code)

    def test_the_way_of_what_is_allowed(self):
        through = self.ways("GET https://api.github.com/repos/a", 0, "--format", "json").json()
        self.assertEqual((through["via"], through["credential"]), ("corp", "hub"))
        self.assertNotIn("pins", through)
        text = self.ways("GET https://api.github.com/repos/a", 0).out
        self.assertIn("through  the upstream proxy corp, http://proxy.corp.example:3128", text)
        self.assertIn("with     the credential hub", text)
        for question in ("GET https://direct.example/", "GET https://near.example/"):
            self.assertIsNone(self.ways(question, 0, "--format", "json").json()["via"])
        self.assertEqual(self.ways("GET https://near.example/", 0, "--format", "json").json()["pins"], ["sha256//" + "A" * 43 + "="])
        self.assertEqual(self.ways("tls far.example", 0, "--format", "json").json()["via"], "corp")
        self.assertNotIn("via", self.ways("GET https://none.example/", 1, "--format", "json").json())

    def test_behind_a_proxy_no_address_is_known(self):
        # The deny speaks of addresses, and of an address that nobody knows it holds, whatever --ip says.
        for flags in ((), ("--ip", "1.1.1.1")):
            denied = self.ways("GET https://api.github.com/repos/inner/a", 1, *flags).out
            self.assertIn("the upstream proxy looks the name up", denied)

    def test_a_body_is_read_as_it_is_sent(self):
        self.policy("p.yaml", "allow: mcp tools/call mcp.example/mcp\ntool: [search_*]", "allow: git receive-pack github.com/o/r\nrefs: [refs/heads/agent/*]",
                    "allow: graphql query api.example/graphql")
        body = self.folder / "body"

        def asked(text, code, question, *flags):
            body.write_bytes(text)
            return self.expect(self.sluice("explain", "p.yaml", question, "--body", str(body), *flags), code).out

        call = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "%s"}}'
        self.assertIn("allowed", asked(call % b"search_code", 0, "POST https://mcp.example/mcp"))
        self.assertIn("denied", asked(call % b"delete", 1, "POST https://mcp.example/mcp"))
        self.assertIn("denied", asked(call % b"search_code", 1, "POST https://mcp.example/mcp", "--content-type", "text/plain"))
        self.assertIn("allowed", asked(b'{"query": "{a b}"}', 0, "POST https://api.example/graphql"))
        self.assertIn("denied", asked(b'{"query": "{a b"}', 1, "POST https://api.example/graphql"))
        line = b"%s %s refs/heads/%s\0report-status\n"
        for ref, code in ((b"agent/x", 0), (b"main", 1)):
            command = line % (b"0" * 40, b"1" * 40, ref)
            asked(b"%04x%s0000" % (len(command) + 4, command), code, "git receive-pack github.com/o/r")
        self.expect(self.sluice("explain", "p.yaml", "mcp tools/call mcp.example/mcp", "--body", str(body)), 2)
        self.expect(self.sluice("explain", "p.yaml", "POST https://mcp.example/mcp", "--content-type", "text/plain"), 2)
        self.expect(self.sluice("explain", "p.yaml", "POST https://mcp.example/mcp", "--body", str(self.folder / "none")), 2)

    def test_bad_input_prints_no_json(self):
        for arguments in (["p.yaml", "frob x"], ["none.yaml", "GET a.test"]):
            self.assertEqual(self.expect(self.sluice("explain", "--format", "json", *arguments), 2).out, "")


cli.main()
