"""What the tests of the policy commands share: a folder of one's own and the program, run by an ordinary user without a network.

Each test file ends with `cli.main()`, which starts it again in that shape: no test here may need more.
"""
import json
import os
import pathlib
import shutil
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


def copy_for_anyone(folder):
    """What the tests use, where any user may read it: the tree itself may lie in a private folder."""
    folder.chmod(0o755)
    files = [p for p in ROOT.rglob("*.yaml") if not {"build", ".git"} & set(p.relative_to(ROOT).parts)]
    files += [*(ROOT / "tests/cli").glob("*.py"), ROOT / "docs/lint.md"]
    places = {file: folder / "tree" / file.relative_to(ROOT) for file in files}
    for name in ("SLUICE_BINARY", "SLUICE_SARIF_SCHEMA"):
        if pathlib.Path(os.environ.get(name, "")).is_file():
            places[pathlib.Path(os.environ[name])] = folder / name.lower() / pathlib.Path(os.environ[name]).name
            os.environ[name] = str(folder / name.lower() / pathlib.Path(os.environ[name]).name)
    for file, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
        place.chmod(0o755 if os.access(file, os.X_OK) else 0o644)
    return folder / "tree/tests/cli" / pathlib.Path(sys.argv[0]).name


def main():
    if os.environ.get("SLUICE_CLI_INSIDE") == "yes":
        assert os.geteuid() != 0
        unittest.main()
        return
    os.environ["SLUICE_CLI_INSIDE"] = "yes"
    if os.geteuid() != 0:
        start = ["unshare", "--map-current-user", "--net"]
        os.execvp(start[0], [*start, sys.executable, *sys.argv])
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="cli-tree-", dir="/var/tmp") as folder:
        script = copy_for_anyone(pathlib.Path(folder))
        start = ["unshare", "--net", "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
        done = subprocess.run([*start, sys.executable, script, *sys.argv[1:]], cwd="/")
    sys.exit(done.returncode)
