#!/usr/bin/python3
"""A run that is killed at any moment, stopped, starved of memory, or flooded: nothing that the policy forbids leaves, and all ends."""
import os
import pathlib
import random
import signal
import subprocess
import time
import unittest

import harness

RULES = ["allow GET a.test/pub/**", "allow tcp db.test:5432"]
FORBIDDEN = "151.101.1.40"
# Tries, for as long as it lives, what is forbidden; says once that it runs.
TRIES = f"""
import os, socket, sys
print(os.readlink("/proc/self/ns/net"), flush=True)
while True:
    for host, port in (("{FORBIDDEN}", 443), ("b.test", 80)):
        try:
            with socket.create_connection((host, port), 1) as s: s.sendall(b"escaped"); print("ESCAPED", flush=True)
        except OSError: pass
    try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"escaped", ("{FORBIDDEN}", 7007))
    except OSError: pass
"""


def children(pid):
    try:
        return [int(p) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for p in (task / "children").read_text().split()]
    except OSError:
        return []


def below(pid):
    found = []
    for child in children(pid):
        found += [child, *below(child)]
    return found


def in_namespace(namespace):
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "ns/net") == namespace and (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append(int(entry.name))
        except OSError:
            pass
    return found


class Killed(harness.SluiceTest):
    def test_each_process_at_each_moment_of_a_start(self):
        # From before the first namespace to well after the command began.
        self.policy.write_text(harness.policy_text(RULES))
        random.seed(6)
        for attempt in range(24):
            process = self.lab.popen(self.command(None, (harness.PYTHON, "-c", TRIES), ("--policy", self.policy)), cwd=self.work,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            time.sleep(attempt * 0.008)
            all_of_them = [process.pid, *below(process.pid)]
            victim = all_of_them[attempt % len(all_of_them)] if attempt % 2 else process.pid
            namespaces = set()
            for pid in all_of_them:
                try:
                    namespaces.add(os.readlink(f"/proc/{pid}/ns/net"))
                except OSError:
                    pass
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass
            try:
                # Whoever was killed: all of it ends, or (a helper of the start that had done its work) the command runs, held.
                out, _ = process.communicate(timeout=(20 if victim == process.pid else 3) * harness.SLOW)
                self.assertNotEqual(process.returncode, 0)
            except subprocess.TimeoutExpired:
                self.assertNotEqual(victim, process.pid)
                process.kill()
                out, _ = process.communicate()
            self.assertNotIn("ESCAPED", out)
            # One that was only just begun stands where this test does.
            namespaces -= {os.readlink("/proc/self/ns/net"), os.readlink(f"/proc/{self.lab.host.pid}/ns/net")}
            for namespace in namespaces:
                self.assertEventually(lambda ns=namespace: not in_namespace(ns), f"attempt {attempt}: nothing is left", 5)
        self.assertEqual(self.served(), [])
        self.assertNotIn("b.test", self.asked())

    def test_the_sandboxs_first_process(self):
        with self.running(RULES, harness.PYTHON, "-c", TRIES) as process:
            namespace = process.stdout.readline().strip()
            inside = in_namespace(namespace)
            first = next(pid for pid in below(process.pid) if pid in inside)
            os.kill(first, signal.SIGKILL)
            process.communicate(timeout=10 * harness.SLOW)
            self.assertNotEqual(process.returncode, 0)
            self.assertEqual(in_namespace(namespace), [])


class Stopped(harness.SluiceTest):
    def test_a_stopped_supervisor_lets_nothing_out_and_goes_on_where_it_was(self):
        script = """
import socket, sys, urllib.request
print("up", flush=True)
sys.stdin.readline()
try: socket.create_connection(("151.101.1.40", 443), 20).sendall(b"escaped"); print("ESCAPED")
except OSError as error: print("refused")
print(urllib.request.urlopen("https://a.test/pub/x").status, flush=True)
"""
        with self.running(RULES, harness.PYTHON, "-c", script) as process:
            self.assertEqual(process.stdout.readline(), "up\n")
            process.send_signal(signal.SIGSTOP)
            process.stdin.write("go\n")
            process.stdin.flush()
            time.sleep(0.7)
            self.assertEqual(self.served(), [])
            process.send_signal(signal.SIGCONT)
            out, err = process.communicate(timeout=30 * harness.SLOW)
            self.assertEqual(out, "refused\n200\n", err)

    def test_killed_while_it_is_stopped_it_takes_all_with_it(self):
        with self.running(RULES, harness.PYTHON, "-c", TRIES) as process:
            namespace = process.stdout.readline().strip()
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=10 * harness.SLOW)
            self.assertEventually(lambda: not in_namespace(namespace), "the workload is gone", 5)
        self.assertEqual(self.served(), [])


class Memory(harness.SluiceTest):
    """A cgroup of its own, whose memory the command eats."""

    def group(self):
        for root, limit, value in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "300M"), ("/sys/fs/cgroup", "memory.max", "300M")):
            folder = pathlib.Path(root) / f"sluice-test-{os.getpid()}"
            if not os.access(root, os.W_OK):
                continue
            folder.mkdir()
            if not (folder / limit).exists():
                folder.rmdir()
                continue
            (folder / limit).write_text(value)
            for swap in ("memory.swap.max", "memory.swappiness"):
                if (folder / swap).exists():
                    (folder / swap).write_text("0")
            return folder
        self.fail("no memory controller here may be used: a cgroup's limit cannot be tested")

    @unittest.skipUnless(harness.os.geteuid() == 0, "cgroups are root's here")
    def test_without_a_timer_for_each_thread_nothing_starts(self):
        """The user's limit on pending signals, which timers count against."""
        for limit in range(8):
            command = self.command(RULES, ["echo", "started"])
            done = self.lab.run(["prlimit", f"--sigpending={limit}", *command], cwd=self.work)
            self.assertEqual((done.stdout, done.returncode), ("", 5), f"{limit} {done.stderr}")
            self.assertIn("cannot make a timer", done.stderr)

    def test_out_of_memory_in_the_cgroup(self):
        group = self.group()
        try:
            eater = TRIES.replace("while True:", "kept = []\nwhile True:\n    kept.append(bytearray(os.urandom(1) * (8 << 20)))", 1)
            self.policy.write_text(harness.policy_text(RULES))
            command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *self.lab.enter(cwd=self.work),
                       *map(str, self.command(None, (harness.PYTHON, "-c", eater), ("--policy", self.policy, "--timeout", "40s")))]
            done = subprocess.run(command, env=self.lab.environment(), capture_output=True, text=True, timeout=60 * harness.SLOW)
            # The command, which has most of it, is killed; where it was the supervisor, the command went with it.
            self.assertIn(done.returncode, (137, -signal.SIGKILL), done.stderr)
            if done.returncode == 137:
                self.assertIn("killed by signal 9", done.stderr)
            self.assertNotIn("ESCAPED", done.stdout)
            self.assertEqual(self.served(), [])
            self.assertEventually(lambda: (group / "cgroup.procs").read_text() == "", "nothing is left", 5)
        finally:
            group.rmdir()


class Flooded(harness.SluiceTest):
    def test_a_thousand_threads_that_are_refused_all_the_time_hold_nobody_up(self):
        script = f"""
import os, socket, subprocess, sys, threading, time
threading.stack_size(65536)
stop = time.monotonic() + 3
count = [0] * 1000
def flood(n):
    while time.monotonic() < stop or not count[n]:
        s = socket.socket(); s.settimeout(2)
        try: s.connect(("{FORBIDDEN}", 1000 + n)); print("ESCAPED", flush=True)
        except OSError: count[n] += 1
        s.close()
threads = [threading.Thread(target=flood, args=(n,)) for n in range(1000)]
for t in threads: t.start()
one = "import socket,time; t=time.monotonic(); socket.create_connection(('db.test', 5432), 20).close(); print(time.monotonic()-t)"
print("other", subprocess.run([sys.executable, "-c", one], capture_output=True, text=True).stdout.strip(), flush=True)
for t in threads: t.join()
print("least", min(count), "all", sum(count), flush=True)
"""
        result = self.python(RULES, script, timeout=60)
        self.assertNotIn("ESCAPED", result.out)
        other = float(result.out.split("other ")[1].split()[0])
        self.assertLess(other, 5 * harness.SLOW, str(result))
        self.assertGreater(int(result.out.split("least ")[1].split()[0]), 0, f"no thread starved\n{result}")
        self.assertExit(result, 0)

    def test_a_workload_that_never_reads_holds_nobody_up_and_ends(self):
        # Uploads without end to an echo, whose answers it never takes; then somebody else asks.
        script = """
import socket, sys, urllib.request
kept = []
for _ in range(20):
    s = socket.create_connection(("db.test", 5432), 5); s.setblocking(False); kept.append(s)
    try:
        while True: s.send(b"x" * 65536 + b"\\n")
    except BlockingIOError: pass
print(urllib.request.urlopen("https://a.test/pub/x", timeout=10).status, flush=True)
"""
        begin = time.monotonic()
        result = self.python(RULES, script, timeout=40)
        self.assertEqual(result.out, "200\n", str(result))
        self.assertExit(result, 0)
        self.assertLess(time.monotonic() - begin, 20 * harness.SLOW)


if __name__ == "__main__":
    harness.main()
