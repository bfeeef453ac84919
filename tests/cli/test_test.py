"""`sluice test`: unit tests of policies pass or fail with their reasons, say what no test decided, and point at what they cannot read."""
import cli

POLICY = ("allow: GET api.github.com/repos/**\nid: read", "allow: GET,POST n.test/**\nby: [/usr/bin/node]\nuntil: 2027-01-31\nid: node",
          "allow: tcp db.test:5432\nip: [10.0.0.0/8]", "deny: GET api.github.com/repos/secret/**\nid: secret")


class PolicyTests(cli.Case):
    def setUp(self):
        super().setUp()
        self.policy("net/p.yaml", *POLICY)

    def run_tests(self, tests, *flags, head="version: 1\npolicy: p.yaml\n"):
        self.write("net/p.test.yaml", head + "tests:\n" + tests)
        return self.sluice("test", *flags, "net/p.test.yaml")

    def test_all_pass(self):
        outcome = self.expect(self.run_tests("""
  - allow: GET https://api.github.com/repos/octo/hello
    rule: read
  - deny:
      - POST https://api.github.com/repos/octo/hello
      - DELETE https://api.github.com/repos/octo/hello
    reason: method
  - deny: GET https://api.github.com/repos/secret/x
    rule: secret
    reason: deny_rule
    note: never
  - allow: POST n.test/x
    by: /usr/bin/node
    at: 2027-01-01T00:00:00Z
  - deny: POST n.test/x
    by: /usr/bin/node
    at: 2027-02-01T00:00:00Z
    reason: expired
  - deny: POST n.test/x
    by: /usr/bin/curl
  - allow: connect db.test:5432
    ip: 10.1.2.3
  - deny: GET https://api.github.com/repos/octo/hello
    header: { X-HTTP-Method-Override: POST }
    reason: header
"""), 0)
        self.assertEqual(outcome.out, "net/p.test.yaml: 9 passed, 0 failed; 4 of 4 rules decided a test\n")

    def test_what_fails_says_what_it_got(self):
        outcome = self.expect(self.run_tests("""
  - deny: GET https://api.github.com/repos/a
  - allow: POST https://api.github.com/repos/a
  - deny: POST https://api.github.com/repos/a
    reason: path
  - allow: GET https://api.github.com/repos/a
    rule: node
"""), 1)
        lines = outcome.out.splitlines()
        self.assertEqual(lines[0], "net/p.test.yaml:5:11: failed deny: GET https://api.github.com/repos/a: was allowed by "
                         "`allow: GET api.github.com/repos/**` at net/p.yaml:3")
        self.assertRegex(lines[1], r"^net/p.test.yaml:6:12: failed allow: POST .*: was denied \(method\); nearest is `allow: GET api.github.com/repos/\*\*` at net/p.yaml:3$")
        self.assertRegex(lines[2], r"^net/p.test.yaml:7:11: failed .* was denied for `method`, not `path`$")
        self.assertRegex(lines[3], r"^net/p.test.yaml:9:12: failed .* was decided by `allow: GET api.github.com/repos/\*\*` at net/p.yaml:3, not `node`$")
        self.assertIn("net/p.test.yaml: 0 passed, 4 failed; 1 of 4 rules decided a test", lines)
        self.assertEqual(sum(line.startswith("  not tested: ") for line in lines), 3)

    def test_coverage(self):
        one = "  - allow: GET https://api.github.com/repos/a\n"
        self.expect(self.run_tests(one, "--min-coverage", "25"), 0)
        outcome = self.expect(self.run_tests(one, "--min-coverage", "26"), 1)
        self.assertIn("net/p.test.yaml: 25 % of the rules decided a test; 26 % are asked for", outcome.err)
        self.expect(self.run_tests(one, "--min-coverage", "101"), 2)

    def test_json(self):
        report = self.expect(self.run_tests("  - allow: GET https://api.github.com/repos/a\n  - allow: POST a.test\n", "--format", "json"), 1).json()
        (file,) = report["files"]
        self.assertEqual((file["file"], file["passed"], file["rules"], file["coverage_percent"]), ("net/p.test.yaml", 1, 4, 25))
        self.assertEqual((file["failures"][0]["line"], file["failures"][0]["column"]), (5, 12))
        self.assertEqual([rule["line"] for rule in file["not_tested"]], [5, 9, 11])

    def test_mode_audit_does_not_make_a_test_pass(self):
        self.policy("net/p.yaml", *POLICY, more="mode: audit\n")
        self.expect(self.run_tests("  - allow: POST https://api.github.com/repos/a\n"), 1)
        self.expect(self.run_tests("  - deny: POST https://api.github.com/repos/a\n"), 0)

    def test_folders(self):
        good = "version: 1\npolicy: p.yaml\ntests:\n  - allow: GET https://api.github.com/repos/a\n"
        self.write("net/a.test.yaml", good)
        self.write("net/deep/b.test.yml", good.replace("p.yaml", "../p.yaml"))
        self.write("net/.hidden/c.test.yaml", "no test")
        outcome = self.expect(self.sluice("test", "net"), 0)
        self.assertEqual(outcome.out.count("1 passed"), 2)
        self.write("net/bad.test.yaml", "version: 1\n")
        self.write("net/fails.test.yaml", good.replace("allow", "deny"))
        outcome = self.expect(self.sluice("test", "net"), 2)
        self.assertEqual((outcome.out.count("1 passed"), outcome.out.count("1 failed")), (2, 1))
        (self.folder / "empty").mkdir()
        self.assertIn("holds no policy test (*.test.yaml)", self.expect(self.sluice("test", "empty"), 2).err)

    def test_bad_files_have_their_place(self):
        head = "version: 1\npolicy: p.yaml\n"
        for text, place, said in (
                ("version: 1\ntests:\n  - allow: GET a.test\n", "1:1", "`policy` is missing"), (head, "1:1", "there is no test in it"),
                (head + "tests: []\n", "1:1", "there is no test in it"), (head + "tests: {}\n", "3:8", "is a list"),
                (head.replace("1", "2") + "tests: []\n", "1:10", "this version reads"), ("policy: p.yaml\ntests:\n  - allow: GET a.test\n", "1:1", "`version: 1`"),
                (head + "test: []\n", "3:1", "did you mean `tests`?"), (head + "tests:\n  - GET a.test\n", "4:5", "a test is"),
                (head + "tests:\n  - by: /usr/bin/x\n", "4:5", "needs `allow` or `deny`"),
                (head + "tests:\n  - allow: GET a.test\n    deny: GET b.test\n", "5:5", "one `allow` or one `deny`"),
                (head + "tests:\n  - allow: GET a.test\n    reason: path\n", "4:5", "`reason` is that of a denial"),
                (head + "tests:\n  - allow: GET a.test\n    bye: /x\n", "5:5", "unknown key `bye` in a test; did you mean `by`?"),
                (head + "tests:\n  - allow: GET a.test\n    by: node\n", "5:9", "absolute path"),
                (head + "tests:\n  - allow: GET a.test\n    under: node\n    by: /x\n", "5:12", "absolute paths"),
                (head + "tests:\n  - allow: GET a.test\n    under: /x\n", "4:5", "`under` needs `by`"),
                (head + "tests:\n  - allow: GET a.test\n    header: x\n", "5:13", "`header` is a map"),
                (head + "tests:\n  - allow: GET a.test\n    header: { 'x y': z }\n", "5:15", "is not NAME: VALUE"),
                (head + "tests:\n  - deny: GET a.test\n    reason: pth\n", "5:13", "did you mean `path`?"),
                (head + "tests:\n  - allow: GET a.test\n    ip: 10.1\n", "5:9", "not an address"),
                (head + "tests:\n  - allow: GET a.test\n    at: soon\n", "5:9", "soon"),
                (head + "tests:\n  - allow: GTE a.test\n", "4:12", "did you mean `GET`?"),
                (head + "tests:\n  - deny: [GET a.test, frob x]\n", "4:24", "unknown verb `frob`")):
            with self.subTest(said, text=text):
                self.write("net/bad.test.yaml", text)
                outcome = self.expect(self.sluice("test", "net/bad.test.yaml"), 2)
                self.assertIn(f"net/bad.test.yaml:{place}: error: ", outcome.err)
                self.assertIn(said, outcome.err)
        self.write("net/bad.test.yaml", "version: 1\npolicy: none.yaml\ntests:\n  - allow: GET a.test\n")
        self.assertIn("net/none.yaml", self.expect(self.sluice("test", "net/bad.test.yaml"), 2).err)


cli.main()
