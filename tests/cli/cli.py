"""What the tests of the policy commands share: a folder of one's own and the program, run by an ordinary user without a network.

Each test file ends with `cli.main()`, which starts it again in that shape: no test here may need more.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SLUICE = os.environ["SLUICE_BINARY"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
USER = 61017  # anyone who is not root


class Outcome:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def json(self):
        return json.loads(self.out)


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cli-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    def policy(self, name, *rules, more=""):
        """A policy with these entries: "allow: GET a.test", or several lines of one."""
        entries = "".join("  - " + rule.replace("\n", "\n    ") + "\n" for rule in rules)
        return self.write(name, "version: 1\n" + ("rules:\n" + entries if rules else "") + more)

    def sluice(self, *arguments, cwd=None, env=None, stdin=None):
        done = subprocess.run([SLUICE, *arguments], cwd=cwd or self.folder, capture_output=True, timeout=60, input=stdin,
                              env={**os.environ, **(env or {})})
        # Bytes that are not UTF-8 never belong on a terminal or in a report.
        return Outcome(subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode()))

    def expect(self, outcome, code):
        self.assertEqual(outcome.code, code, f"{outcome.out}\n{outcome.err}")
        return outcome


def main():
    if os.environ.get("SLUICE_CLI_INSIDE") != "yes":
        start = ["unshare", "--net", "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
        if os.geteuid() != 0:
            start = ["unshare", "--map-current-user", "--net"]
        os.environ["SLUICE_CLI_INSIDE"] = "yes"
        os.execvp(start[0], [*start, sys.executable, *sys.argv])
    assert os.geteuid() != 0
    unittest.main()
