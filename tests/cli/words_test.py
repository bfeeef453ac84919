"""Messages to who made a mistake: each names what is wrong, where, and what to do."""
import json
import os
import pty
import socket
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

    def test_one_whose_shape_does_tell_is_not(self):
        self.write("acl.yaml", "version: v1\nservices: []\nbroken: 1\n")
        for file in ("acl.yaml", "p.yaml"):
            outcome = self.expect(self.sluice("import", file), 2)
            self.assertNotIn("--from", outcome.err)

    def test_what_is_missing_is_named_as_help_names_it(self):
        for words, command in (("FILE is missing: Policy files, or folders of them\nTry: sluice lint --help", ["lint"]),
                               ("REQUEST is missing: What is asked: ", ["explain", "p.yaml"]),
                               ("SHELL is missing: bash, zsh or fish\n", ["completion"]),
                               ("ADDRESS:PORT|unix:/PATH is missing: ", ["health"]),
                               ("NAME[@V] is missing: npm for the newest version, or npm@1\nTry: sluice preset show --help", ["preset", "show"]),
                               ("unknown option `--sett`; did you mean `--set`?\nTry: sluice preset show --help", ["preset", "show", "npm", "--sett", "a"]),
                               ("unknown command `shwo`; did you mean `show`?\nTry: sluice preset --help", ["preset", "shwo"])):
            self.says(words, *command)

    def test_numbers_are_what_they_look_like(self):
        for number in ("-1", "99999999999999999999", "010", "0x10", "1e3", "+1"):
            for flag, command in (("--limit", ["prove", "p.yaml", "p.yaml"]), ("--min-coverage", ["test", "."]),
                                  ("--proxy-port", ["sidecar", "--dry-run", "-p", "p.yaml"]), ("--peer", ["agent"]),
                                  ("--policy-fd", ["run"]), ("--log-fd", ["run"]), ("--lifeline", ["run"])):
                self.says(f"{flag}: `{number}` is no number, or not one that it takes", *command, f"{flag}={number}")
        self.says("--limit: an answer takes one step at least", "prove", "--limit", "0", "p.yaml", "p.yaml")

    def test_no_name_of_a_file_is_more_than_that(self):
        odd = "a\n::error::\x1b[31m.yaml"
        self.write("acl.yaml", "version: v1\nservices:\n  - {name: a, project: p, action: open}\n")
        self.write(odd, "version: 1\nrules: [{allow: GET b.test}]\n")
        self.write("x.test.yaml", f"version: 1\npolicy: {json.dumps(odd)}\ntests:\n  - deny: GET https://a.test/\n")
        for name in (".a\n::error::.yaml", "t\n::error::\x1b[31m.test.yaml", "i\n::error::\x1b[31m.yaml"):
            (self.folder / name).write_bytes((self.folder / ("acl.yaml" if name.startswith("i") else "x.test.yaml")).read_bytes())
        for command in (["lint", "."], ["lint", odd], ["fmt", "--check", odd], ["prove", "p.yaml", odd], ["test", "."],
                        ["test", "--min-coverage", "100", "."], ["import", "-v", "i\n::error::\x1b[31m.yaml"]):
            outcome = self.sluice(*command)
            self.assertIn("::error::", outcome.out + outcome.err, command)
            for text in (outcome.out, outcome.err):
                self.assertNotIn("\x1b", text, command)
                self.assertNotRegex(text, r"(?m)^::error::", command)

    def test_what_answers_the_probe_may_say_anything(self):
        for body, said in (('{"checks":[{"ok":"no","name":7,"detail":[]},{"ok":false,"name":"a","detail":"b\\n::c"},{"ok":true},{}]}', "?: does not hold\na: b?::c\n"),
                           ("[]", ""), ("", ""), ('{"checks":{}}', "")):
            self.assertEqual(self.probed("503 x", body), (1, "not ready (503)\n" + said, ""))
        self.assertRegex(self.probed("401 x", "")[1], r"^unix:/.*: HTTP status 401: the admin API asks for a token; ask where --health listens")
        self.assertRegex(self.probed("404 x", "{}")[1], r"^unix:/.*: HTTP status 404: no sidecar answers so\n$")

    def probed(self, status, body):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path := f"{self.folder}/health")
            server.listen()
            ask = subprocess.Popen([cli.SLUICE, "health", f"unix:{path}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            with server.accept()[0] as client:
                client.recv(4096)
                client.sendall(f"HTTP/1.1 {status}\r\n\r\n{body}".encode())
            out, err = ask.communicate(timeout=60)
        os.unlink(path)
        return ask.returncode, out, err

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
