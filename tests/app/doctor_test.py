#!/usr/bin/python3
"""`sluice doctor` on this machine, as root and as an ordinary user, and in places that were made poorer for it.

Usage: doctor_test.py SLUICE_BINARY root|rootless
"""
import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import jsonschema

BINARY, MODE = sys.argv[1], sys.argv[2]
SCHEMA = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs/doctor.schema.json").read_text())
NOBODY = 65534
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="sluice-doctor-test-", dir="/var/tmp"))
# Without the one of pyenv and the like, which a sandbox does not see.
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
SLOW = 4 if os.environ.get("SLUICE_SANITIZED") else 1


def setUpModule():
    FOLDER.chmod(0o755)
    shutil.copy(BINARY, FOLDER / "sluice")
    (FOLDER / "sluice").chmod(0o755)


def tearDownModule():
    shutil.rmtree(FOLDER, ignore_errors=True)


def doctor(*arguments, before=(), user=MODE == "rootless", **more):
    become = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all"] if user and os.geteuid() == 0 else []
    command = [*before, *become, str(FOLDER / "sluice"), "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120 * SLOW, env={"PATH": PATH, "LANG": "C.UTF-8"},
                          stdin=subprocess.DEVNULL, **more)


def report(*arguments, **more):
    done = doctor("--format", "json", *arguments, **more)
    try:
        found = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        raise AssertionError(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}") from error
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert found["exit_code"] == done.returncode, (found["exit_code"], done.returncode)
    return found


def checks(found):
    return {check["name"]: check for check in found["checks"]}


# What was there before is not this test's; another that runs beside this one takes its own away.
def leftovers():
    return [p for p in [*pathlib.Path("/var/tmp").glob("sluice-doctor-*"), *pathlib.Path("/tmp").glob("sluice-doctor-*")] if p != FOLDER and p.stat().st_uid in (os.geteuid(), NOBODY)]


BEFORE = set(leftovers())


class Whole(unittest.TestCase):
    """One look at everything: this machine is one that can."""

    @classmethod
    def setUpClass(cls):
        cls.found = report()
        cls.checks = checks(cls.found)

    def test_what_run_needs_is_there_and_its_self_test_holds(self):
        self.assertEqual(self.found["exit_code"], 0, json.dumps(self.found, indent=1))
        self.assertEqual(self.found["asked"], ["run"])
        for name in ("landlock", "notifications.reply", "notifications.continue", "tracing.pidfd-getfd", "user-namespaces", "mounts.proc",
                     "nft-capture.tproxy", "nft-capture.ruleset", "socket-diagnosis", "self-test-run"):
            self.assertEqual(self.checks[name]["finding"], "ok", self.checks[name])

    def test_the_fence_and_the_other_self_tests_hold_where_there_are_rights(self):
        for name in ("nft-fence.fib", "nft-fence.redirect", "nft-fence.flow-mark", "nft-fence.sets", "nft-fence.egress", "nft-fence.ruleset",
                     "conntrack", "self-test-proxy", "self-test-agent"):
            self.assertEqual(self.checks[name]["finding"], "ok", self.checks[name])
        runtimes = self.checks["container-runtimes"]
        self.assertEqual(runtimes["finding"], "ok", runtimes)
        for name in ("runc", "crun"):
            self.assertRegex(runtimes["found"], rf"{name} .*\d\.\d+.* \(hands notifications over\)")
        if MODE == "root":
            self.assertEqual(self.checks["self-test-sidecar"]["finding"], "ok", self.checks["self-test-sidecar"])
            self.assertEqual(self.checks["self-test-rootless"]["finding"], "ok", self.checks["self-test-rootless"])
            self.assertTrue(all(mode["can"] for mode in self.found["modes"]), self.found["modes"])
        else:
            verdict = {mode["mode"]: mode for mode in self.found["modes"]}
            self.assertEqual(verdict["sidecar"]["missing"], ["capabilities"])
            self.assertEqual(self.checks["self-test-sidecar"]["finding"], "not-tried")
            self.assertEqual(self.checks["self-test-rootless"]["finding"], "not-tried")

    def test_the_programs_of_path_were_really_run(self):
        runtimes = {runtime["name"]: runtime for runtime in self.found["runtimes"]}
        for name in ("curl", "wget", "git", "python", "requests", "node", "java"):
            self.assertEqual(runtimes[name]["trusts"], "yes", runtimes[name])

    def test_nothing_is_left(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not set(leftovers()) <= BEFORE:
            time.sleep(0.1)
        self.assertLessEqual(set(leftovers()), BEFORE)


class Poorer(unittest.TestCase):
    """Places that lack something: each says what, and exits with that feature's code."""

    def lacks(self, code, name, *words, before=(), mode="run", more=()):
        found = report("--mode", mode, "--no-live", *more, before=before)
        self.assertEqual(found["exit_code"], code, json.dumps(found["checks"], indent=1))
        check = checks(found)[name]
        self.assertEqual(check["finding"], "missing", check)
        for word in words:
            self.assertIn(word, check["found"] + " " + check.get("advice", ""))
        return found

    def test_few_descriptors(self):
        self.lacks(24, "descriptors", "128", "LimitNOFILE", before=["prlimit", "--nofile=128:128"])

    @unittest.skipUnless(MODE == "root" and os.geteuid() == 0, "rights are taken from root")
    def test_no_right_over_the_network(self):
        self.lacks(22, "capabilities.net-admin", "CAP_NET_ADMIN", before=["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all"], mode="sidecar")

    @unittest.skipUnless(MODE == "root" and os.geteuid() == 0, "a namespace without the right to make others")
    def test_no_user_namespaces_in_a_chroot(self):
        root = FOLDER / "root"
        script = f"""set -e; mkdir -p {root}; mount --bind / {root}; mount -t proc proc {root}/proc; exec chroot {root} "$0" "$@" """
        self.lacks(14, "user-namespaces", "no user namespace may be made", before=["unshare", "--mount", "--pid", "--fork", "sh", "-c", script])
        root.rmdir()

    @unittest.skipUnless(MODE == "root" and os.geteuid() == 0, "the sysctl is that of a user namespace's owner")
    def test_no_more_user_namespaces(self):
        script = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$0" "$@"'
        self.lacks(14, "user-namespaces", "user.max_user_namespaces", before=["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script])

    @unittest.skipUnless(MODE == "root" and os.geteuid() == 0, "needs a mount namespace")
    def test_a_masked_proc(self):
        # As container runtimes mask it.
        script = 'mount -t tmpfs none /proc/bus && exec "$0" "$@"'
        self.lacks(15, "mounts.proc", "/proc", before=["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script])


class Printed(unittest.TestCase):
    def test_a_pipe_gets_no_colours_and_a_table(self):
        done = doctor("--mode", "run", "--no-live")
        self.assertNotIn("\x1b", done.stdout)
        self.assertIn("  yes       sluice run\n", done.stdout)
        self.assertNotIn("nft-fence", done.stdout)

    def test_a_terminal_gets_colours(self):
        master, slave = pty.openpty()
        command = [str(FOLDER / "sluice"), "doctor", "--mode", "proxy", "--no-live"]
        process = subprocess.Popen(command, stdout=slave, stdin=slave, cwd="/", env={"PATH": PATH, "TERM": "xterm"})
        os.close(slave)
        text = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        self.assertEqual(process.wait(), 0)
        os.close(master)
        self.assertIn(b"\x1b[32m", text)

    def test_a_mode_that_there_is_not_is_bad_input(self):
        self.assertEqual(doctor("--mode", "firewall").returncode, 2)

    def test_a_refused_start_points_here(self):
        done = subprocess.run(["unshare", "--user", "--map-root-user", "sh", "-c", f'echo 0 > /proc/sys/user/max_user_namespaces; exec {FOLDER}/sluice run --allow "GET a.test" -- true'],
                              capture_output=True, text=True, cwd="/var/tmp", timeout=60 * SLOW)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("sluice doctor", done.stderr)


if __name__ == "__main__":
    del sys.argv[1:]
    unittest.main(verbosity=2)
