#!/usr/bin/python3
"""What bash offers, by packaging/completions/sluice.bash: words from outside (names of branches, presets, files) are offered as they are and
never expanded, and a value after `=` is completed as one after a space.

Usage: completions_test.py SOURCE_FOLDER
"""
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(sys.argv[1]).resolve() / "packaging/completions/sluice.bash"
MARK = "ran"
# `$(...)` and backquotes that leave a file in the work folder, in a name that git takes.
EVIL = ("x$(touch${IFS}ran)", "y`touch${IFS}ran`", "z${a-$(touch${IFS}ran)}")


class Completions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="completions-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.work = self.folder / "work"
        self.work.mkdir()
        (self.folder / "bin").mkdir()
        self.stub("#!/bin/sh\nprintf '%s\\n' 'npm@1   packages' 'pypi@2  more' 'pypi@1  more' 'w$(touch${IFS}ran)@1 bad'\n")
        self.env = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1", "TERM": "dumb"}

    def stub(self, text):
        (self.folder / "bin/sluice").write_text(text)
        (self.folder / "bin/sluice").chmod(0o755)

    def offers(self, *words):
        """What bash offers for the last of these words, as readline splits them."""
        script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sluice; '
                  'if ((${#COMPREPLY[@]})); then printf "%s\\n" "${COMPREPLY[@]}"; fi')
        done = subprocess.run(["bash", "-c", script, "-", SCRIPT, "sluice", *words], cwd=self.work, env=self.env, capture_output=True, text=True, timeout=30)
        self.assertEqual(done.stderr, "", words)
        self.assertFalse((self.work / MARK).exists(), f"{words}: something was run")
        return done.stdout.splitlines()

    def quoted(self, *words):
        return sorted(subprocess.run(["bash", "-c", 'printf "%q\\n" "$@"', "-", *words], capture_output=True, text=True, check=True).stdout.splitlines())

    def evil_branches(self):
        git = ["git", "-c", "user.name=n", "-c", "user.email=e@a.test"]
        subprocess.run([*git, "init", "-q", "-b", "main", "."], cwd=self.work, env=self.env, check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "m"], cwd=self.work, env=self.env, check=True)
        for name in EVIL:
            subprocess.run(["git", "update-ref", f"refs/heads/{name}", "HEAD"], cwd=self.work, env=self.env, check=True)

    def test_names_of_branches_are_not_expanded(self):
        self.evil_branches()
        self.assertEqual(sorted(self.offers("prove", "--base-git", "")), self.quoted("main", *EVIL))
        self.assertEqual(self.offers("prove", "--base-git", "x"), self.quoted(EVIL[0]))
        self.assertEqual(self.offers("prove", "--base-git", r"x\$\("), self.quoted(EVIL[0]))
        self.assertEqual(self.offers("prove", "--base-git", "=", "m"), ["main"])
        self.assertEqual(self.offers("prove", "--base-git", "$(touch${IFS}ran)"), [])

    def test_what_is_inserted_is_quoted(self):
        self.evil_branches()
        self.stub("#!/bin/sh\nprintf '%s\\n' \"$@\" >\"$HOME/arguments\"\n")
        shell, terminal = pty.openpty()
        with subprocess.Popen(["bash", "--norc", "--noprofile", "-i"], cwd=self.work, env=self.env, stdin=terminal, stdout=terminal, stderr=terminal,
                              start_new_session=True) as bash:
            os.close(terminal)
            os.write(shell, f"source '{SCRIPT}'\nsluice prove --base-git x\t\nexit\n".encode())
            shown = b""
            try:
                while part := os.read(shell, 4096):
                    shown += part
            except OSError:
                pass  # the terminal is gone with the shell
            bash.wait(timeout=30)
        os.close(shell)
        self.assertFalse((self.work / MARK).exists(), shown)
        self.assertEqual((self.folder / "arguments").read_text().split("\n")[:3], ["prove", "--base-git", EVIL[0]], shown)

    def test_names_of_files_and_presets_are_not_expanded(self):
        for name in EVIL:
            (self.work / name).write_text("")
        self.assertEqual(sorted(self.offers("lint", "")), sorted(EVIL))
        self.assertEqual(self.offers("run", "--policy", "x"), [EVIL[0]])
        self.assertEqual(self.offers("preset", "show", ""), ["npm", "pypi", *self.quoted("w$(touch${IFS}ran)")])
        self.assertEqual(self.offers("run", "--preset", "p"), ["pypi"])

    def test_a_value_after_an_equals_sign(self):
        (self.work / "policy.yaml").write_text("")
        self.assertEqual(self.offers("run", "--policy", "=", "pol"), ["policy.yaml"])
        self.assertEqual(self.offers("run", "--policy", "="), ["policy.yaml"])
        self.assertEqual(self.offers("lint", "--fail-on", "="), ["note", "warning", "error", "never"])
        self.assertEqual(self.offers("lint", "--fail-on", "=", "w"), ["warning"])
        self.assertEqual(self.offers("run", "--preset", "=", "n"), ["npm"])
        # No option stands before this one.
        self.assertEqual(self.offers("preset", "show", "npm", "--set", "host", "=", ""), ["--set", "--format", "--help"])

    def test_preset(self):
        self.assertEqual(self.offers("preset", "s"), ["show"])
        self.assertIn("list", self.offers("preset", ""))
        self.assertEqual(self.offers("preset", "show", "n"), ["npm"])
        self.assertEqual(self.offers("preset", "list", ""), ["--set", "--format", "--help"])
        self.assertIn("--set", self.offers("preset", "show", "--"))


del sys.argv[1]
unittest.main()
