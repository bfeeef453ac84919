"""What the end-to-end test files share: one lab per file, a way to run sluice in it, and assertions on what came of it.

A test file ends with harness.main(); its first argument says how sluice is started: `root`, or `rootless` (as an ordinary user).
"""
import contextlib
import itertools
import os
import pathlib
import re
import select
import shutil
import statistics
import subprocess
import sys
import time
import unittest

import lab as lab_module

CLIENTS = pathlib.Path(__file__).resolve().parent / "clients"
PYTHON = "/usr/bin/python3"
MODE = "root"
THE_LAB = None
NUMBERS = itertools.count(1)
# full_socket(): a connection whose peer does not read, and whose last close waits for that; let_go() closes it, and waits little.
FULL_SOCKET = """
import os, signal, socket, struct
KEPT = []
signal.signal(signal.SIGALRM, lambda *_: None)

def full_socket():
    server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096); server.bind(("127.0.0.1", 0)); server.listen()
    server.settimeout(5)
    client = socket.create_connection(server.getsockname()); KEPT.extend((server, server.accept()[0]))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 300)); client.setblocking(False)
    try:
        while True: client.send(b"x" * 65536)
    except BlockingIOError: pass
    return client.detach()

def let_go(fd):
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    os.close(fd)
    signal.setitimer(signal.ITIMER_REAL, 0)
"""
# Writes `ticks` in the work folder from a session of its own, for as long as it is neither frozen nor dead.
TICKING = "echo ready; (setsid sh -c 'while :; do echo x >> ticks; sleep 0.01; done' &) ; while :; do sleep 0.01; done"
SLOW = 4 if os.environ.get("SLUICE_SANITIZED") else 1  # sanitizers stretch every time bound


class Result:
    def __init__(self, code, out, err, audit_path):
        self.code, self.out, self.err, self.audit_path = code, out, err, audit_path

    @property
    def audit(self):
        return lab_module.records(self.audit_path)

    def denials(self, **target):
        """Denials whose target has these members."""
        return [r for r in self.audit if r.get("verdict") == "deny" and target.items() <= r["target"].items()]

    def __str__(self):
        return f"exit {self.code}\n--- stdout\n{self.out[-3000:]}\n--- stderr\n{self.err[-3000:]}"


def policy_text(rules, extra=""):
    """Rules as `allow …`/`deny …` strings, or (string, {key: value}) pairs, as a policy file."""
    lines = ["version: 1", "name: lab"] + ([extra] if extra else []) + ["rules:"]
    for rule in rules:
        text, keys = rule if isinstance(rule, tuple) else (rule, {})
        kind, _, target = text.partition(" ")
        lines.append(f"  - {kind}: {target}")
        lines += [f"    {key}: {value}" for key, value in keys.items()]
    if not rules:
        lines[-1] = "rules: []"
    return "\n".join(lines) + "\n"


class SluiceTest(unittest.TestCase):
    maxDiff = None

    @property
    def lab(self):
        return THE_LAB

    def setUp(self):
        self.folder = self.lab.folder / f"case-{next(NUMBERS)}"
        self.work = self.folder / "work"
        self.work.mkdir(parents=True)
        if self.lab.uid:
            for folder in (self.folder, self.work):
                os.chown(folder, self.lab.uid, self.lab.uid)
        self.policy = self.folder / "policy.yaml"
        self.audit = self.folder / "audit.jsonl"
        self.dns_before, self.http_before = len(self.lab.dns_log()), len(self.lab.http_log())

    # -- running

    def client(self, name):
        """A client program of clients/, where the workload can read it."""
        shutil.copy(CLIENTS / name, self.work / name)
        (self.work / name).chmod(0o755)
        return str(self.work / name)

    def java_client(self, name):
        """What java is told to run a client of clients/. Compiled once in a lab: given the source, java compiles it in each run."""
        classes = self.lab.folder / "classes"
        if not (classes / f"{name}.class").exists():
            subprocess.run(["/usr/bin/javac", "--release", "17", "-d", classes, CLIENTS / f"{name}.java"], check=True)
        shutil.copytree(classes, self.work / "classes", dirs_exist_ok=True)
        return ["-cp", self.work / "classes", name]

    def command(self, rules, command, flags=()):
        if rules is not None:
            self.policy.write_text(rules if isinstance(rules, str) else policy_text(rules))
            flags = ["--policy", self.policy, *flags]
        return [lab_module.binary_for_anyone(self.lab.folder), "run", *flags, "--audit", self.audit, "--upstream-ca", self.lab.ca, "--", *command]

    def sluice(self, rules, *command, flags=(), env=None, timeout=60, **more):
        if self.audit.exists():
            self.audit.unlink()
        done = self.lab.run(self.command(rules, command, flags), cwd=self.work, env=env, timeout=timeout * SLOW, **more)
        return Result(done.returncode, done.stdout, done.stderr, self.audit)

    @contextlib.contextmanager
    def running(self, rules, *command, flags=(), env=None, stderr=subprocess.PIPE):
        """sluice in the background; yields its Popen, with stdin, stdout and (unless given) stderr as text pipes."""
        process = self.lab.popen(self.command(rules, command, flags), cwd=self.work, env=env, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=stderr, text=True, bufsize=1)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def line_of(self, process, seconds=60):
        """The next line of a process's output, none of which was read another way. Where it does not come, what came of it is told, and
        what the process waits for."""
        line, deadline = b"", time.monotonic() + seconds * SLOW
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                waits = sorted(path.read_text() for path in pathlib.Path(f"/proc/{process.pid}/task").glob("*/wchan"))
                self.fail(f"no line within {seconds * SLOW} s, but {line!r}; {len(lab_module.records(self.audit))} records; threads in {waits}")
            byte = os.read(process.stdout.fileno(), 1)
            if not byte:
                break
            line += byte
        return line.decode()

    def python(self, rules, script, *arguments, **more):
        """A Python program as the workload."""
        return self.sluice(rules, PYTHON, "-c", script, *arguments, **more)

    def plain_sluice(self, *arguments, **more):
        done = self.lab.run([lab_module.binary_for_anyone(self.lab.folder), *arguments], cwd=self.work, **more)
        return Result(done.returncode, done.stdout, done.stderr, self.audit)

    def ticks(self):
        """How far TICKING has come."""
        return (self.work / "ticks").stat().st_size if (self.work / "ticks").exists() else 0

    def ticks_stand(self):
        before = self.ticks()
        time.sleep(0.15)
        return self.ticks() == before

    # -- what the internet saw

    def asked(self):
        return {entry["name"] for entry in self.lab.dns_log()[self.dns_before:]}

    def served(self):
        return self.lab.http_log()[self.http_before:]

    @contextlib.contextmanager
    def serving(self, *command):
        """A server in the lab's internet, which says when it is ready."""
        process = subprocess.Popen(["nsenter", f"--net=/proc/{self.lab.world.pid}/ns/net", *map(str, command)], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        try:
            self.assertEqual(process.stdout.readline().strip(), "ready")
            yield
        finally:
            process.kill()
            process.communicate()

    # -- assertions

    def assertExit(self, result, code):
        self.assertEqual(result.code, code, str(result))

    def assertDenialLine(self, result, *words):
        """One stderr line says what was denied. The workload has the same stderr, and may be within a line of its own."""
        lines = [line for line in result.err.splitlines() if re.search(r"sluice: .*denied", line)]
        self.assertTrue(any(all(word in line for word in words) for line in lines), f"no denial line with {words}\n{result}")

    def assertSoon(self, one_try, seconds):
        """What one try gives is less than that. A busy machine is late now and then: after a late one the median of several counts."""
        taken = [one_try()]
        while statistics.median(taken) >= seconds * SLOW and len(taken) < 9:
            taken.append(one_try())
        self.assertLess(statistics.median(taken), seconds * SLOW, taken)

    def assertEventually(self, condition, what, seconds=5):
        deadline = time.monotonic() + seconds * SLOW
        while time.monotonic() < deadline:
            if condition():
                return
            time.sleep(0.02)
        self.fail(f"not within {seconds} s: {what}")


def main():
    global MODE, THE_LAB
    MODE = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1] in ("root", "rootless") else "root"
    already_root = os.geteuid() == 0
    if not already_root:
        sys.argv.insert(1, MODE)
        lab_module.become_root_in_a_user_namespace()
    with lab_module.Lab() as THE_LAB:
        mapped = int(open("/proc/self/uid_map").read().split()[2]) > lab_module.UNPRIVILEGED
        if MODE == "rootless" and mapped:
            THE_LAB.uid = lab_module.UNPRIVILEGED
        # Imported as a module by the test file, which runs as __main__.
        outcome = unittest.main(module="__main__", verbosity=2, exit=False).result
    sys.exit(0 if outcome.wasSuccessful() and outcome.testsRun else 1)
