#!/usr/bin/python3
"""The examples of libsluice, as they were built against an installation, on real clients: allowed, denied, and narrowed while they run.

SLUICE_INSTALLED is what tests/library/install_test.py left.
"""
import os
import pathlib
import shutil

import harness

INSTALLED = pathlib.Path(os.environ["SLUICE_INSTALLED"])
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/library"
BOTH = "curl -sS -o /dev/null -w 'got %{http_code}\\n' https://a.test/pub; curl -sS -o /dev/null -w 'then %{http_code}\\n' -d x https://a.test/pub"


class Embedded(harness.SluiceTest):
    @classmethod
    def setUpClass(cls):
        # Where an ordinary user may read it: an installation can be moved as a whole.
        cls.root = harness.THE_LAB.folder / "installed"
        if not cls.root.exists():
            shutil.copytree(INSTALLED / "root", cls.root, symlinks=True)
            for name in ("run_under_c", "run_under_cpp", "run_under_v1"):
                shutil.copy(INSTALLED / name, cls.root / name)
            shutil.copy(EXAMPLES / "python/run_under.py", cls.root / "run_under.py")
        cls.library = next(cls.root.rglob("libsluice.so.1"))

    def python(self):
        if os.environ.get("SLUICE_SANITIZED"):
            self.skipTest("an interpreter without the sanitizer's runtime cannot load what calls it")
        return [harness.PYTHON, self.root / "run_under.py", "--library", self.library]

    def embed(self, program, rules, *arguments, command=None):
        self.policy.write_text(rules if isinstance(rules, str) else harness.policy_text(rules))
        script = ["/bin/sh", "-c", BOTH] if command is None else command
        done = self.lab.run([*program, self.policy, "--upstream-ca", self.lab.ca, *arguments, "--", *script], cwd=self.work,
                            env={"LD_LIBRARY_PATH": str(self.library.parent)}, timeout=60 * harness.SLOW)
        return harness.Result(done.returncode, done.stdout, done.stderr, self.audit)

    def assertRan(self, result):
        self.assertIn("got 200", result.out, str(result))
        self.assertIn("then 403", result.out, str(result))
        self.assertRegex(result.out, r"exit 0, \d+ allowed, 1 denied")

    def test_c_with_the_librarys_own_thread(self):
        for program in ("run_under_c", "run_under_v1"):
            result = self.embed([self.root / program], ["allow GET a.test/pub"], "--ask", "POST https://a.test/pub")
            self.assertRan(result)
            self.assertIn("POST https://a.test/pub: denied", result.out)
            self.assertRegex(result.err, r'record \{.*"verdict":"deny".*a\.test')
            self.assertNotIn("sluice: ", result.err, "the supervisor's lines are the caller's to print")

    def test_python_with_an_event_loop(self):
        result = self.embed(self.python(), ["allow GET a.test/pub"], "--explain", "GET https://b.test/")
        self.assertRan(result)
        self.assertIn("explain 200 denied", result.out)
        self.assertRegex(result.out, r"record deny request a\.test")

    def test_cxx_narrows_while_the_command_runs(self):
        narrower = self.folder / "narrower.yaml"
        narrower.write_text("version: 1\n")
        wait = ("curl -sS -o /dev/null -w 'got %{http_code}\\n' https://a.test/pub; "
                "i=0; while [ $i -lt 200 ] && curl -sfS -m 5 -o /dev/null https://a.test/pub; do i=$((i+1)); sleep 0.05; done; echo tries $((i < 200))")
        result = self.embed([self.root / "run_under_cpp"], ["allow GET a.test/pub"], "--then", narrower, command=["/bin/sh", "-c", wait])
        self.assertIn("got 200", result.out, str(result))
        self.assertIn("narrowed, revision 2", result.out, str(result))
        self.assertIn("tries 1", result.out, str(result))
        self.assertIn("policy set by the control socket", result.err)
        wider = self.folder / "wider.yaml"
        wider.write_text(harness.policy_text(["allow GET a.test/**"]))
        result = self.embed([self.root / "run_under_cpp"], ["allow GET a.test/pub"], "--then", wider,
                            command=["/bin/sh", "-c", "curl -sS -o /dev/null https://a.test/pub; sleep 1"])
        self.assertIn("not narrowed: ", result.out, str(result))

    def test_without_a_command_an_example_says_how_it_is_used(self):
        self.policy.write_text(harness.policy_text(["allow GET a.test/pub"]))
        for program in ([self.root / "run_under_c"], [self.root / "run_under_cpp"], [harness.PYTHON, self.root / "run_under.py"]):
            for arguments in ([self.policy, "true"], [self.policy], [], [self.policy, "--"], [self.policy, "--frob", "x", "--", "true"]):
                done = self.lab.run([*program, *arguments], cwd=self.work, env={"LD_LIBRARY_PATH": str(self.library.parent)})
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("usage: ", done.stderr)

    def test_a_policy_that_is_none_is_told_with_its_place(self):
        for program in (lambda: [self.root / "run_under_c"], self.python):
            result = self.embed(program(), "version: 1\nrules:\n  - allow: gti a.test\n")
            self.assertExit(result, 2)
            self.assertIn("policy.yaml:3:", result.err)


if __name__ == "__main__":
    harness.main()
