"""Messages to who made a mistake: each names what is wrong, where, and what to do."""
import os
import pty
import subprocess

import cli


class Words(cli.Case):
    def setUp(self):
        super().setUp()
        self.policy("p.yaml", "allow: GET a.test")

    def says(self, words, *command, **more):
        self.assertIn(words, self.expect(self.sluice(*command, **more), 2).err)

    def on_a_terminal(self, **environment):
        reads, writes = pty.openpty()
        self.addCleanup(os.close, reads)
        env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
        subprocess.run([cli.SLUICE, "lint", "bad.yaml", "p.yaml"], cwd=self.folder, env={**env, **environment}, stdout=writes, stderr=writes, timeout=60)
        os.close(writes)
        return os.read(reads, 65536).decode()

    def test_colours_are_for_terminals_that_have_them(self):
        self.write("bad.yaml", "version: 9\n")
        for environment in ({"TERM": "xterm"}, {}, {"TERM": "xterm", "NO_COLOR": ""}):
            self.assertIn("\x1b[", self.on_a_terminal(**environment), environment)
        for environment in ({"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}):
            self.assertNotIn("\x1b", self.on_a_terminal(**environment), environment)

    def test_explain_lists_every_kind_of_question(self):
        text = self.expect(self.sluice("explain", "--help"), 0).out
        for word in ("tcp", "tls", "udp", "unix", "jsonrpc", "ws", "grpc", "graphql", "mcp", "git", "dns", "connect"):
            self.assertRegex(text, rf"\b{word}\b")
        self.assertIn("but fmt", self.expect(self.sluice("import", "--help"), 0).out)

    def test_a_pipe_for_a_policy(self):
        for command in ('"$0" lint <(cat p.yaml)', '"$0" explain <(cat p.yaml) "GET https://a.test"', '"$0" run -p <(cat p.yaml) -- true'):
            done = subprocess.run(["bash", "-c", command, cli.SLUICE], cwd=self.folder, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done)
            self.assertRegex(done.stderr, r"/dev/fd/\d+ is a pipe, and a policy is a file, .* `sluice run --policy-fd N`")

    def test_a_plain_list_of_domains_is_led_to_the_flag(self):
        self.write("domains.txt", "a.test\nb.test\n")
        self.says("`--from KIND` does (openshell, ", "import", "domains.txt")
        self.assertIn("a.test", self.expect(self.sluice("import", "--from", "gh-aw-firewall", "domains.txt"), 0).out)

    def test_presets(self):
        outcome = self.expect(self.sluice("preset", "show", "npn"), 2)
        self.assertEqual(outcome.err, "error: unknown preset `npn`; did you mean `npm`?\n")
        outcome = self.expect(self.sluice("preset", "show", "npm", "--set", "host=a.test", "--set", "host=b.test"), 2)
        self.assertEqual(outcome.err, "error: `host` takes one value, and 2 are given\n")
        self.expect(self.sluice("preset", "show", "npm", "--set", "host=a.test"), 0)

    def test_a_test_of_a_policy_that_is_not_there(self):
        self.write("x.test.yaml", "version: 1\npolicy: none.yaml\ntests:\n  - allow: GET https://a.test/\n")
        self.says("x.test.yaml:2:9: error: cannot open none.yaml: No such file or directory", "test", "x.test.yaml")
        # What is wrong in the policy has its place there.
        self.write("none.yaml", "version: 1\nrules:\n  - allow: gti a\n")
        self.says("none.yaml:3:12: error: unknown verb `gti`", "test", "x.test.yaml")

    def test_an_option_given_twice_or_without_its_value(self):
        self.says("sluice: --policy is given 2 times, and is taken once\n", "run", "-p", "p.yaml", "-p", "p.yaml", "--", "true")
        self.says("sluice: --policy needs a value: FILE\n", "run", "-p")


if __name__ == "__main__":
    cli.main()
