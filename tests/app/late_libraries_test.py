#!/usr/bin/python3
"""Libraries that are loaded when they are first called: none of them burdens the start, and one that cannot be had ends the program with its name.

Usage: late_libraries_test.py SLUICE_BINARY SOURCE_FOLDER
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BINARY, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
POLICY = "version: 1\nrules:\n  - allow: GET a.test\n"


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)


class LateLibraries(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sluice-late-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def names(self):
        return re.findall(r"\] *:(\S+)", run("readelf", "-p", ".late_names", BINARY).stdout)

    def test_the_start_needs_none_of_them(self):
        needed = set(re.findall(r"NEEDED.*\[(.+)\]", run("readelf", "-d", BINARY).stdout))
        self.assertTrue(self.names())
        # One that is back is called by a name that app/late_calls.txt lacks.
        self.assertEqual(needed & set(self.names()), set())
        self.assertLessEqual(needed, {"libc.so.6", "libm.so.6", "libmnl.so.0", "ld-linux-x86-64.so.2"})

    def test_a_command_that_calls_none_loads_none(self):
        (self.folder / "policy.yaml").write_text(POLICY)
        for command in (["--version"], ["explain", self.folder / "policy.yaml", "GET https://a.test/"]):
            opened = run("strace", "-f", "-e", "trace=open,openat", BINARY, *command)
            self.assertEqual(opened.returncode, 0, opened.stderr)
            for name in self.names():
                self.assertNotIn(name, opened.stderr)

    def test_the_first_call_loads_its_library_alone(self):
        (self.folder / "policy.yaml").write_text(POLICY.replace("a.test", "bücher.test"))
        opened = run("strace", "-f", "-e", "trace=open,openat", BINARY, "explain", self.folder / "policy.yaml", "GET https://xn--bcher-kva.test/")
        self.assertEqual(opened.returncode, 0, opened.stderr + opened.stdout)
        self.assertIn("libidn2.so", opened.stderr)
        self.assertNotIn("libcrypto.so", opened.stderr)

    def test_one_that_cannot_be_loaded_is_named(self):
        for name in self.names():
            (self.folder / name).write_text("not a library\n")
            self.addCleanup(lambda path=self.folder / name: path.unlink(missing_ok=True))
            environment = {**os.environ, "LD_LIBRARY_PATH": str(self.folder)}
            for command in (["run", "--allow", "GET a.test", "--", "touch", self.folder / "ran"], ["proxy", "--listen", "127.0.0.1:0", "--allow", "GET a.test"]):
                done = run(BINARY, *command, env=environment, cwd=self.folder, timeout=60)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertRegex(done.stderr, rf"cannot load .*{re.escape(name.split('.so')[0])}")
                self.assertFalse((self.folder / "ran").exists())
            (self.folder / name).unlink()


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
