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

    def test_bad_input_prints_no_json(self):
        for arguments in (["p.yaml", "frob x"], ["none.yaml", "GET a.test"]):
            self.assertEqual(self.expect(self.sluice("explain", "--format", "json", *arguments), 2).out, "")


cli.main()
