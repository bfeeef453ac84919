#!/usr/bin/python3
"""When the supervisor dies: nothing more leaves, and the workload goes with it."""
import os
import pathlib
import signal
import time

import harness

# Downloads for ever and says each tick in a file that outlives it.
LOOP = """
import os, time, urllib.request
answer = urllib.request.urlopen("https://a.test/drip")
print(os.readlink("/proc/self/ns/net"), flush=True)
while True:
    answer.readline()
    try:
        urllib.request.urlopen("https://a.test/pub", timeout=2).read()
    except OSError:
        pass
    with open("ticks", "a") as f: f.write("tick\\n")
"""


def in_namespace(namespace):
    """Processes of this machine inside a network namespace."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(entry / "ns/net") == namespace and (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append(int(entry.name))
        except OSError:
            pass
    return found


class Death(harness.SluiceTest):
    def test_killing_the_supervisor_ends_the_workload_and_all_traffic(self):
        with self.running(["allow GET a.test"], harness.PYTHON, "-c", LOOP) as process:
            namespace = process.stdout.readline().strip()
            self.assertTrue(in_namespace(namespace), "the workload is in a namespace of its own")
            self.assertEventually(lambda: (self.work / "ticks").exists(), "traffic flows")
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.assertEventually(lambda: not in_namespace(namespace), "the workload is gone")
            ticks = (self.work / "ticks").read_text()

            def nothing_comes():
                seen = len(self.served())
                time.sleep(0.7)
                return len(self.served()) == seen

            # What was under way is written down on the other side a moment later.
            self.assertEventually(nothing_comes, "the traffic to end")
            self.assertEqual((self.work / "ticks").read_text(), ticks)

    def test_nothing_is_left_after_a_normal_end(self):
        result = self.python(["allow GET a.test"], "import os; print(os.readlink('/proc/self/ns/net'))")
        self.assertEqual(in_namespace(result.out.strip()), [])

    def test_an_audit_file_that_cannot_be_written_stops_the_start(self):
        result = self.plain_sluice("run", "--allow", "GET a.test", "--audit", "/nonexistent/folder/audit.jsonl", "--", "true")
        self.assertExit(result, 2)
        self.assertIn("/nonexistent/folder/audit.jsonl", result.err)

    def test_a_standard_error_that_nobody_reads_stalls_nothing(self):
        script = """
import socket, urllib.request
for n in range(3000):
    s = socket.socket()
    try: s.connect(("151.101.%d.%d" % (n // 200, n % 200 + 1), 1000 + n))
    except OSError: pass
    s.close()
print(urllib.request.urlopen("https://a.test/pub", timeout=20).status, flush=True)
"""
        with self.running(["allow GET a.test"], harness.PYTHON, "-c", script) as process:
            # A few thousand lines do not fit into the pipe; only standard output is read.
            self.assertEqual(process.stdout.readline().strip(), "200")
            process.communicate(timeout=20 * harness.SLOW)

    def test_an_upstream_that_never_answers_does_not_hold_others(self):
        script = """
import socket, threading, time, urllib.request
def stuck():
    s = socket.socket(); s.settimeout(8)
    try: s.connect(("blackhole.test", 5432))
    except OSError: pass
for _ in range(20): threading.Thread(target=stuck, daemon=True).start()
time.sleep(0.3)
begin = time.monotonic()
urllib.request.urlopen("https://a.test/pub").read()
print("took", time.monotonic() - begin, flush=True)
import os; os._exit(0)
"""
        result = self.python(["allow GET a.test", "allow tcp blackhole.test:5432"], script)
        self.assertIn("took", result.out, str(result))
        self.assertLess(float(result.out.split()[1]), 1.0 * harness.SLOW)


class Descriptors(harness.SluiceTest):
    RULES = ["allow tcp db.test:5432", "allow GET a.test"]

    def limited(self, number, script):
        command = ["prlimit", f"--nofile={number}:{number}", *self.command(self.RULES, (harness.PYTHON, "-c", script), ())]
        done = self.lab.run(command, cwd=self.work, timeout=60 * harness.SLOW)
        return harness.Result(done.returncode, done.stdout, done.stderr, self.audit)

    def test_too_few_are_refused_at_the_start_and_the_number_is_named(self):
        result = self.limited(255, "print('ran')")
        self.assertNotIn("ran", result.out)
        self.assertIn("at most 255 descriptors may be open here, and a run needs 256", result.err)

    def test_when_connections_have_used_them_up_it_says_so_and_recovers(self):
        script = """
import errno, socket, subprocess, sys, time, urllib.request
address = socket.gethostbyname("db.test")
kept = []
try:
    while len(kept) < 240:
        kept.append(socket.create_connection((address, 5432)))
except OSError as e:
    print(errno.errorcode[e.errno])
one = "import socket, errno\\ntry: socket.create_connection(('a.test', 443)); print('connected')\\nexcept OSError as e: print(errno.errorcode[e.errno])"
print(subprocess.run([sys.executable, "-c", one], capture_output=True, text=True).stdout.strip())
for s in kept: s.close()
for _ in range(50):
    try:
        print(urllib.request.urlopen("https://a.test/pub").status)
        break
    except OSError: time.sleep(0.1)
"""
        result = self.limited(256, script)
        self.assertEqual(result.out, "ENOBUFS\nENOBUFS\n200\n", str(result)[:3000])
        self.assertRegex(result.err, r"out of descriptors: \d+ connections open, limit 256")
        self.assertNotIn("cannot be read", result.err)


if __name__ == "__main__":
    harness.main()
