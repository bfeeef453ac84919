"""`sluice lint`: a policy that earns each remark and one that nearly does; ignores, severities, folders."""
import datetime
import json
import re

import cli

SOON = (datetime.date.today() + datetime.timedelta(days=3)).isoformat()
LATER = (datetime.date.today() + datetime.timedelta(days=60)).isoformat()
GET = "allow: GET a.test/v1/**"
DOMAINS = "version: 1\nnetwork_policies:\n  api:\n    endpoints:\n      - host: a.test\n        port: 443\n        protocol: rest\n{}    binaries: [{{ path: {} }}]\n"
OPENSHELL = DOMAINS.format("        access: read-only\n", "/usr/bin/curl")
NOTHING = "version: 1\nnetwork_policies:\n  api:\n    endpoints: []\n    binaries: [{ path: /usr/bin/curl }]\n"


def rules(*entries, more=""):
    return "version: 1\nrules:\n" + "".join("  - " + entry.replace("\n", "\n    ") + "\n" for entry in entries) + more


def credential(to, rule):
    return rules(rule, more="credentials:\n  k: { from: env TOKEN, send: bearer, to: [\"" + to + "\"] }\n")


def preset(use):
    return f"version: 1\npresets:\n  - {use}\n"


# Code: what earns it, what nearly does.
CASES = {
    "always-broken": (rules(GET, more="assert:\n  - always: GET a.test/v2\n"), rules(GET, more="assert:\n  - always: GET a.test/v1/x\n")),
    "any-request": (rules("allow: http a.test"), rules("allow: http a.test/v1/**")),
    "bad-ignore": (rules(GET + "  # sluice:ignore cleartxt because"), rules("allow: GET http://a.test  # sluice:ignore cleartext because")),
    "broad-credential": (credential("**.a.test", "allow: GET *.a.test/x\nwith: k"), credential("b.a.test", "allow: GET b.a.test/x\nwith: k")),
    "broad-host": (rules("allow: GET *.co.uk/x"), rules("allow: GET *.example.co.uk/x")),
    "cleartext": (rules("allow: GET http://a.test"), rules("allow: GET a.test:80")),
    "credential-by": (credential("b.a.test", "allow: GET b.a.test/x\nwith: k\nby: [/usr/bin/node]"), credential("b.a.test", "allow: GET b.a.test/x\nwith: k")),
    "deny-by-body": (rules("allow: POST a.test", "deny: graphql mutation a.test"),
                     rules("allow: POST a.test", "deny: graphql mutation a.test/graphql")),
    "does-not-load": ("version: 1\nrules:\n  - allow: gti a\n", rules("allow: git fetch-pack a.test/x")),
    "duplicate": (rules(GET, GET), rules(GET, "allow: POST a.test/v1/**")),
    "everything": (rules("allow: GET **"), rules("allow: GET **.a.test")),
    "expired": (rules(GET + "\nuntil: 2020-01-01"), rules(GET + f"\nuntil: {LATER}")),
    "expires-soon": (rules(GET + f"\nuntil: {SOON}"), rules(GET + f"\nuntil: {LATER}")),
    "half-working": (rules("allow: git fetch-pack a.test/x", "deny: POST a.test"), rules("allow: git fetch-pack a.test/x", "deny: PUT a.test")),
    "idle-deny": (rules(GET, "deny: GET b.test"), rules(GET, "deny: GET a.test/v1/x")),
    "import-narrower": (OPENSHELL, rules("allow: GET a.test/**")),
    "import-note": (OPENSHELL, rules(GET)),
    "import-nothing": (NOTHING, OPENSHELL),
    "import-wider": (OPENSHELL, rules("allow: tcp a.test:443")),
    "mcp-session": (rules("allow: mcp tools/call a.test/mcp"), rules("allow: mcp tools/call a.test/mcp", "allow: mcp initialize a.test/mcp")),
    "missing-by": (rules(GET + "\nby: [/usr/bin/node]", "allow: POST a.test"), rules(GET + "\nby: [/usr/bin/node]", "allow: POST b.test")),
    "moot": (rules("allow: tls a.test", GET), rules("allow: tls a.test:8443", GET)),
    "never-broken": (rules(GET, more="assert:\n  - never: GET a.test\n"), rules(GET, more="assert:\n  - never: POST a.test\n")),
    "no-allow": (rules("deny: GET a.test"), "version: 1\nmode: audit\n"),
    "not-compared": (None, rules(GET)),
    "older-preset": (preset("git-write@1: { host: github.com, owner: octo, repo: x }"), preset("git-read@1: { host: github.com, owner: octo }")),
    "opaque-allow-meets-deny": (rules("allow: tls a.test", "deny: POST a.test"), rules("allow: tls a.test", "deny: POST http://a.test")),
    "port-53": (rules("allow: udp a.test:53"), rules("allow: udp a.test:54")),
    "prover-fault": (None, rules(GET)),
    "push": (rules("allow: git receive-pack a.test/x"), rules("allow: git fetch-pack a.test/x")),
    "redundant": (rules(GET, "allow: GET a.test/v1/x/**"), rules(GET, "allow: GET a.test/v2/x/**")),
    "shadowed": (rules(GET, "deny: GET a.test"), rules(GET, "deny: GET a.test/v1/x")),
    "unknown": (None, rules(GET, more="assert:\n  - never: POST a.test\n")),
    "unknown-method": (rules("allow: FOO a.test"), rules("allow: MERGE a.test")),
    "unused-ignore": (rules(GET + "  # sluice:ignore cleartext because"), rules("allow: GET http://a.test  # sluice:ignore cleartext because")),
    "wider-than-comment": ("version: 1\nrules:\n  # for api.example.com only\n  - allow: GET *.example.com/x\n",
                           "version: 1\nrules:\n  # for api.example.com only\n  - allow: GET api.example.com/x\n"),
}


class Codes(cli.Case):
    def codes(self, text):
        self.write("p.yaml", text)
        report = json.loads(self.sluice("lint", "--format", "json", "p.yaml").out)["files"][0]
        return {"does-not-load"} if not report["loads"] else {finding["code"] for finding in report["findings"]}

    def test_each_code_is_earned_and_nearly_earned(self):
        for code, (earns, nearly) in CASES.items():
            with self.subTest(code):
                if earns is not None:
                    self.assertIn(code, self.codes(earns))
                self.assertNotIn(code, self.codes(nearly))

    def test_no_documented_code_is_left_out(self):
        text = (cli.ROOT / "docs/lint.md").read_text().split("\n## ")[0]
        self.assertEqual(set(re.findall(r"^\| `([a-z0-9-]+)` \|", text, re.M)), set(CASES))

    def test_what_two_checks_find_is_said_once(self):
        self.write("p.yaml", CASES["shadowed"][0])
        self.assertEqual(self.sluice("lint", "p.yaml").out.count("[shadowed]"), 1)

    def test_what_an_import_says(self):
        self.write("domains.txt", "github.com\n")
        got = self.sluice("import", "--from", "gh-aw-firewall", "--format", "json", "domains.txt").json()
        self.assertTrue(all(remark["code"] in CASES for remark in got["remarks"]), got)
        self.assertTrue(got["remarks"])

    def test_a_policy_too_large_to_compare_says_so(self):
        many = [f"allow: GET a{i}.test/v1" for i in range(720)] + [f"deny: GET b{i}.test/v1" for i in range(720)]
        self.assertIn("not-compared", self.codes(rules(*many)))

    def test_an_assertion_is_an_error_with_its_witness(self):
        self.write("p.yaml", CASES["never-broken"][0])
        outcome = self.expect(self.sluice("lint", "p.yaml"), 1)
        self.assertIn("p.yaml:5:12: error: `never: GET a.test` does not hold: `allow: GET a.test/v1/**` lets it out [never-broken]\n"
                      "    witness  GET https://a.test/v1/\n    rule at p.yaml:3:12\n", outcome.out)
        finding = self.sluice("lint", "--format", "json", "p.yaml").json()["files"][0]["findings"][0]
        self.assertEqual((finding["code"], finding["severity"], finding["line"], finding["other"]["line"], finding["details"]["witness"]),
                         ("never-broken", "error", 5, 3, "GET https://a.test/v1/"))

    def test_an_includes_assertion_binds_the_whole(self):
        self.write("common.yaml", "version: 1\nassert:\n  - never: GET a.test\n")
        self.write("p.yaml", rules(GET, more="include: [common.yaml]\n"))
        self.assertIn("common.yaml:3:12: error: `never: GET a.test` does not hold", self.expect(self.sluice("lint", "p.yaml"), 1).out)
        self.expect(self.sluice("lint", "common.yaml"), 0)

    def test_a_presets_rule_names_both_places(self):
        self.write("p.yaml", "version: 1\npresets:\n  - npm@1: { host: registry.corp.example }\nrules:\n  - deny: GET registry.corp.example\n")
        out = self.sluice("lint", "p.yaml").out
        self.assertRegex(out, r"p.yaml:3:5: warning: .*\(npm@1:\d+, from p.yaml:3\) \[shadowed\]")
        self.write("p.yaml", "version: 1\npresets:\n  - npm@1: { host: registry.corp.example }\nrules:\n  - allow: GET registry.corp.example/x\n")
        self.assertRegex(self.sluice("lint", "p.yaml").out, r"adds nothing to `allow: .*` at npm@1:\d+, from p.yaml:3 \[redundant\]")


class Ignores(cli.Case):
    def test_on_the_rule_above_it_and_for_one_code_only(self):
        for text in ("  - allow: GET http://a.test  # sluice:ignore cleartext lab\n",
                     "  # sluice:ignore cleartext lab\n  - allow: GET http://a.test\n",
                     "  # A lab.\n  # sluice:ignore cleartext lab\n  # Ask dana.\n  - allow: GET http://a.test\n"):
            self.write("p.yaml", "version: 1\nrules:\n" + text)
            self.assertRegex(self.expect(self.sluice("lint", "--fail-on", "note", "p.yaml"), 0).out, r"^p.yaml: ok, 1 rule ")
        self.write("p.yaml", rules("allow: http http://a.test  # sluice:ignore cleartext lab"))
        out = self.sluice("lint", "p.yaml").out
        self.assertIn("[any-request]", out)
        self.assertNotIn("[cleartext]", out)

    def test_without_a_reason_or_code_it_says_so_and_ignores_nothing(self):
        self.write("p.yaml", rules("allow: GET http://a.test  # sluice:ignore cleartext"))
        out = self.sluice("lint", "p.yaml").out
        self.assertIn("[cleartext]", out)
        self.assertIn("`sluice:ignore cleartext` gives no reason; write one after the code [bad-ignore]", out)

    def test_it_does_not_reach_the_next_rule(self):
        self.write("p.yaml", rules("allow: GET http://a.test  # sluice:ignore cleartext lab", "allow: GET http://b.test"))
        self.assertEqual(self.sluice("lint", "p.yaml").out.count("[cleartext]"), 1)

    def test_it_stands_in_no_block_text(self):
        self.write("p.yaml", "version: 1\nrules:\n  - allow: GET http://a.test\n    note: |\n      # sluice:ignore cleartext lab\n")
        self.assertIn("[cleartext]", self.sluice("lint", "p.yaml").out)


class Runs(cli.Case):
    def test_fail_on(self):
        self.write("error.yaml", rules("allow: tls a.test", "deny: POST a.test"))
        self.write("warning.yaml", rules("allow: GET http://a.test"))
        self.write("note.yaml", rules("allow: http a.test"))
        self.write("clean.yaml", rules(GET))
        ranks = ("clean", "note", "warning", "error")
        for at, severity in enumerate(("note", "warning", "error", "never")):
            for rank, name in enumerate(ranks):
                with self.subTest(severity=severity, name=name):
                    self.expect(self.sluice("lint", "--fail-on", severity, f"{name}.yaml"), 1 if rank > at else 0)
        self.expect(self.sluice("lint", "error.yaml"), 1)
        self.expect(self.sluice("lint", "warning.yaml"), 0)
        self.expect(self.sluice("lint", "--fail-on", "loud", "clean.yaml"), 2)

    def test_a_policy_that_allows_nothing_is_remarked_on(self):
        for name, text, remarked in (("none", "version: 1\n", True), ("denies", rules("deny: GET a.test"), True),
                                     ("allows", rules("allow: GET a.test/x"), False), ("audit", "version: 1\nmode: audit\n", False)):
            self.write(f"{name}.yaml", text)
            outcome = self.expect(self.sluice("lint", f"{name}.yaml"), 0)
            self.assertEqual("no rule allows anything, so the policy refuses everything [no-allow]" in outcome.out, remarked, outcome.out)
            self.assertIn(f"{name}.yaml: ok, ", outcome.out)

    def test_folders_and_the_worst_exit_code(self):
        self.write("net/a.yaml", rules("allow: GET http://a.test"))
        self.write("net/deep/b.yml", rules("allow: tls a.test", "deny: POST a.test"))
        self.write("net/a.test.yaml", "version: 1\n")
        self.write("net/.hidden/c.yaml", "no policy")
        outcome = self.expect(self.sluice("lint", "net"), 1)
        self.assertIn("net/a.yaml:3:12: warning: ", outcome.out)
        self.assertIn("net/deep/b.yml:3:12: error: ", outcome.out)
        self.assertNotIn("c.yaml", outcome.out + outcome.err)
        self.write("net/broken.yaml", "version: 2\n")
        outcome = self.expect(self.sluice("lint", "net", "nowhere.yaml"), 2)
        self.assertIn("net/broken.yaml:1:10: error: ", outcome.err)
        self.assertIn("nowhere.yaml", outcome.err)
        (self.folder / "empty").mkdir()
        self.assertIn("holds no policy", self.expect(self.sluice("lint", "empty"), 2).err)

    def test_markdown_counts(self):
        self.write("p.yaml", rules("allow: GET http://a.test"))
        out = self.sluice("lint", "--format", "markdown", "p.yaml").out
        self.assertIn("### Policy lint\n\n0 errors, 1 warning, 0 notes in 1 file\n", out)


cli.main()
