#!/usr/bin/python3
"""The end of runs in the sandbox of another: with it, whatever they and those who ask for them do."""
import os
import pathlib
import re
import shutil
import subprocess
import time

import control
import harness
import lab

OUTER = [("allow GET a.test/**", {"encoded-slash": "true", "path-params": "true"}), "allow GET b.test/**", "allow tcp db.test:5432"]
# Proofs of it take long.
SLOW_RULES = [(f"allow GET a.test/**/a{i}/**/b{i}/**", OUTER[0][1]) for i in range(700)] + \
    [f"deny GET a.test/**/d{i}/**/e{i}/**/f{i}/**" for i in range(60)] + ["allow tcp db.test:5432"]
# More descriptors in one message than anybody asks for, the last of which lingers, once the user has no room for a timer left.
NO_TIMERS = harness.FULL_SOCKET + """
import ctypes
libc, timers = ctypes.CDLL(None), []
while True:
    timer = ctypes.c_void_p()
    if libc.timer_create(1, None, ctypes.byref(timer)) != 0: break
    timers.append(timer)
print("timers", len(timers), flush=True)
null = os.open("/dev/null", os.O_RDONLY)
for full in [full_socket() for _ in range(20)]:
    outer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); outer.connect(os.environ["SLUICE_NESTED"])
    KEPT.append(outer)
    socket.send_fds(outer, [b"no message"], [null] * 100 + [full])
    let_go(full)
for timer in timers: libc.timer_delete(timer)
print("sent", flush=True)
signal.pause()
"""
# One in the sandbox whose standard error nobody reads, and then as many threads as the user may have.
NO_THREADS = """
import fcntl, os, signal, subprocess, sys, threading
read, write = os.pipe()
os.set_blocking(write, False)
try:
    while True: os.write(write, b"x" * 4096)
except BlockingIOError: os.set_blocking(write, True)
inner = subprocess.Popen(["./sluice", "run", "--quiet", "--allow", "GET b.test/x", "--", sys.executable, "ticks.py"], stdout=subprocess.PIPE, stderr=write)
inner.stdout.readline()
try:
    while True: threading.Thread(target=signal.pause).start()
except RuntimeError: print("all", flush=True)
signal.pause()
"""
TICKS = """
import time
print("up", flush=True)
while True:
    with open("ticks", "a") as file: file.write("x")
    time.sleep(0.01)
"""
IGNORES_CHILDREN = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


class NestedEnds(harness.SluiceTest):
    def setUp(self):
        super().setUp()
        shutil.copy(lab.sluice_binary(), self.work / "sluice")

    def test_one_is_told_of_where_whoever_started_the_outer_one_ignores_the_end_of_children(self):
        words = self.command(OUTER, ["sh", "-c", "./sluice run --allow 'GET b.test/x' -- sh -c 'exit 7'; echo $?"], ["--allow-nested"])
        done = self.lab.run([harness.PYTHON, "-c", IGNORES_CHILDREN, *words], cwd=self.work, timeout=20 * harness.SLOW)
        self.assertEqual(done.stdout, "7\n", done.stderr)

    def test_one_that_stands_still_while_it_is_judged_dies_with_the_outer_one(self):
        (self.work / "slow.yaml").write_text(harness.policy_text(SLOW_RULES))
        socket = self.folder / "control.sock"
        script = "./sluice run --quiet --policy slow.yaml -- sh -c 'echo up; while :; do echo x >> ticks; sleep 0.01; done'"
        with self.running(OUTER, "sh", "-c", script, flags=["--allow-nested", "--control", socket], stderr=subprocess.DEVNULL) as process:
            self.assertEqual(process.stdout.readline(), "up\n")
            inner = [pid for path in pathlib.Path(f"/proc/{process.pid}/task").glob("*/children") for pid in path.read_text().split()
                     if b"--nested" in lab.command_line(pid)]
            self.assertEqual(len(inner), 1)
            status, answer, _ = control.ask(socket, "PUT", "/v1/policy", harness.policy_text([OUTER[0], OUTER[2]]))
            self.assertEqual((status, answer["applied"]), (200, True), answer)
            self.assertEventually(lambda: pathlib.Path(f"/proc/{inner[0]}/stat").read_text().rsplit(") ", 1)[1][0] in "Tt", "it to stand still")
            process.kill()
            process.wait()
        self.assertEventually(lambda: not lab.command_line(inner[0]), "its end", 5)
        self.assertEventually(self.ticks_stand, "the end of what ran in it", 5)

    def test_the_outer_one_does_not_wait_until_all_are_judged(self):
        (self.work / "slow.yaml").write_text(harness.policy_text(SLOW_RULES))
        socket = self.folder / "control.sock"
        one = "./sluice run --quiet --policy slow.yaml -- sh -c 'echo up; exec sleep 1000'"
        script = f"date +%s.%N; {one.replace('exec sleep 1000', 'date +%s.%N')}; for i in 1 2 3 4 5 6; do {one} & done; read end"
        with self.running(OUTER, "sh", "-c", script, flags=["--allow-nested", "--control", socket], stderr=subprocess.DEVNULL) as process:
            begin, up, began = (process.stdout.readline() for _ in range(3))
            self.assertEqual([up, *(process.stdout.readline() for _ in range(6))], ["up\n"] * 7)
            status, answer, _ = control.ask(socket, "PUT", "/v1/policy", harness.policy_text([OUTER[0], OUTER[2]]))
            self.assertEqual((status, answer["applied"]), (200, True), answer)
            asked = time.monotonic()
            process.stdin.close()
            process.wait()
            self.assertLess(time.monotonic() - asked, 2 * (float(began) - float(begin)))

    def test_a_workload_that_takes_all_timers_holds_nobody_up(self):
        (self.work / "timers.py").write_text(NO_TIMERS)
        taken = int(re.search(r"SigQ:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])
        words = self.command(OUTER, ["sh", "-c", f"{harness.PYTHON} timers.py > sent & until grep -q sent sent; do sleep 0.02; done; cat sent; "
                                     "timeout 15 ./sluice run --allow 'GET b.test/x' -- true; echo $?; kill $!"], ["--allow-nested"])
        done = self.lab.run(["prlimit", f"--sigpending={taken + 2000}", *words], cwd=self.work, timeout=60 * harness.SLOW)
        self.assertRegex(done.stdout, r"\Atimers [1-9]\d+\nsent\n0\n\Z", done.stderr)

    def test_one_with_no_thread_to_say_so_does_not_outlive_its_lifeline(self):
        if not self.lab.uid:
            self.skipTest("root has as many threads as it likes")
        (self.work / "ticks.py").write_text(TICKS)
        keep, give = os.pipe()
        words = self.command(OUTER, [harness.PYTHON, "-c", NO_THREADS],
                             ["--quiet", "--allow-nested", "--lifeline", str(keep), "--on-disconnect", "freeze"])
        process = self.lab.popen(["prlimit", "--nproc=300", *words], cwd=self.work, pass_fds=[keep], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True)
        os.close(keep)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        self.assertEqual(process.stdout.readline(), "all\n")
        begin = time.time()
        os.close(give)
        time.sleep(4 * harness.SLOW)
        self.assertTrue(self.ticks_stand())
        self.assertLess((self.work / "ticks").stat().st_mtime - begin, 1.5 * harness.SLOW)


if __name__ == "__main__":
    harness.main()
