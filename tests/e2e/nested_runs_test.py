#!/usr/bin/python3
"""Runs in the sandbox of another, whose policy, whose standing still and whose rations hold for them too, however many there are."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import control
import harness
import lab

WIDE = {"encoded-slash": "true", "path-params": "true"}
# Proofs of the slow policy take long, beside what is exchanged here.
OUTER = [("allow GET a.test/**", WIDE), "allow GET b.test/**", "allow tcp db.test:5432"]
SLOW_RULES = [(f"allow GET a.test/**/a{i}/**/b{i}/**", WIDE) for i in range(400)] + [f"deny GET a.test/**/d{i}/**/e{i}/**/f{i}/**" for i in range(30)]
# One exchange after the other on one connection; when the last of them succeeded.
EXCHANGE = r"""
import socket, sys, time
said = open("said-" + sys.argv[1], "w", buffering=1)
s = socket.create_connection(("db.test", 5432))
while True:
    s.sendall(b"x")
    assert s.recv(1)
    said.write("%.4f\n" % time.time())
    time.sleep(0.005)
"""
NAMES = r"""
import socket, sys
for name in sys.argv[1:]:
    try: socket.getaddrinfo(name, 443, socket.AF_INET); print("resolved", flush=True)
    except OSError: print("not", flush=True)
"""


class NestedRuns(harness.SluiceTest):
    def setUp(self):
        super().setUp()
        shutil.copy(lab.sluice_binary(), self.work / "sluice")
        self.socket = self.folder / "control.sock"
        (self.work / "exchange.py").write_text(EXCHANGE)
        (self.work / "names.py").write_text(NAMES)
        (self.work / "slow.yaml").write_text(harness.policy_text([*SLOW_RULES, "allow tcp db.test:5432"]))

    def exchanges(self, number):
        path = self.work / f"said-{number}"
        return [float(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def exchanging(self, count, policy="slow.yaml"):
        """An outer run with so many in it that exchange."""
        inner = f"./sluice run --quiet --policy {policy} -- {harness.PYTHON} exchange.py"
        script = f"for i in $(seq {count}); do {inner} $i; echo ended $i; done; read end" if count == 1 else \
            f"for i in $(seq {count}); do {{ {inner} $i; echo ended $i; }} & done; read end"
        return self.running(OUTER, "sh", "-c", script, flags=["--allow-nested", "--control", self.socket], stderr=subprocess.DEVNULL)

    def put(self, rules):
        status, answer, _ = control.ask(self.socket, "PUT", "/v1/policy", harness.policy_text(rules))
        self.assertEqual((status, answer["applied"]), (200, True), answer)

    def last_after_narrowing(self, count):
        for path in self.work.glob("said-*"):
            path.unlink()
        with self.exchanging(count) as process:
            for i in range(1, count + 1):
                self.assertEventually(lambda: len(self.exchanges(i)) > 3, f"exchanges of {i}", 60)
            begin = time.time()
            self.put(OUTER[:2])
            ended = {process.stdout.readline() for _ in range(count)}
            self.assertEqual(ended, {f"ended {i}\n" for i in range(1, count + 1)})
            return max(self.exchanges(i)[-1] for i in range(1, count + 1)) - begin

    def test_what_a_narrowed_policy_takes_back_stops_in_all_at_once(self):
        self.assertSoon(lambda: self.last_after_narrowing(5), 0.1)

    def test_one_that_is_within_the_narrowed_policy_goes_on(self):
        with self.exchanging(2) as process:
            for i in (1, 2):
                self.assertEventually(lambda: len(self.exchanges(i)) > 3, "exchanges", 60)
            self.put([OUTER[0], OUTER[2]])
            for i in (1, 2):
                before = len(self.exchanges(i))
                self.assertEventually(lambda: len(self.exchanges(i)) > before + 10, "exchanges after it", 60)
            self.assertIsNone(process.poll())

    def test_a_wider_policy_and_an_equal_one_disturb_nobody(self):
        (self.work / "quick.yaml").write_text(harness.policy_text(["allow tcp db.test:5432"]))
        with self.exchanging(1, "quick.yaml"):
            self.assertEventually(lambda: len(self.exchanges(1)) > 3, "exchanges", 20)
            for rules in (list(reversed(OUTER)), [*OUTER, "allow GET more.test/**"]):
                before = len(self.exchanges(1))
                self.put(rules)
                self.assertEventually(lambda: len(self.exchanges(1)) > before + 20, "exchanges after it", 20)
            times = self.exchanges(1)
            self.assertLess(max(b - a for a, b in zip(times, times[1:])), 0.5 * harness.SLOW)

    def test_none_starts_while_the_outer_run_is_frozen(self):
        keep, give = os.pipe()
        self.assert_none_starts(["--lifeline", str(keep)], keep, lambda process: os.close(give), lambda process: process.send_signal(signal.SIGCONT))

    def test_none_starts_while_nobody_holds_it(self):
        held = []

        def hold(process):
            held.append(control.Lines(self.socket, "/v1/hold"))

        def let_go(process):
            hold(process)
            held[0].drop()

        self.assert_none_starts(["--control", self.socket], None, let_go, hold)

    def assert_none_starts(self, flags, keep, freeze, go_on):
        inner = "./sluice run --quiet --policy slow.yaml -- sh -c 'while :; do echo x >> ticks; sleep 0.01; done'"
        words = self.command(OUTER, ["sh", "-c", f"for i in 1 2 3 4 5 6; do {inner} & done; sleep 1000"],
                             ["--allow-nested", "--on-disconnect", "freeze", *flags])
        process = self.lab.popen(words, cwd=self.work, pass_fds=[keep] if keep else [], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        if keep:
            os.close(keep)
        self.assertEventually(lambda: self.ticks() > 0, "the first of them", 60)
        freeze(process)
        time.sleep(0.5 * harness.SLOW)
        before = self.ticks()
        time.sleep(4)
        self.assertEqual(self.ticks(), before)
        go_on(process)
        self.assertEventually(lambda: self.ticks() > before, "those that waited, once it goes on", 60)

    # -- what is left

    def supervisors(self, process):
        """Of the runs in it."""
        found, left = [], [process.pid]
        while left:
            pid = left.pop()
            for tasks in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                left += map(int, tasks.read_text().split())
            if b"--nested" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
        return found

    def test_one_that_is_killed_leaves_no_control_group(self):
        def left(pid):
            return [name for _, inner, _ in os.walk("/sys/fs/cgroup") for name in inner if name.startswith(f"sluice-{pid}-")]

        (self.work / "quick.yaml").write_text(harness.policy_text(["allow tcp db.test:5432"]))
        inner = "./sluice run --quiet --policy quick.yaml -- sh -c 'echo up; exec sleep 1000'"
        with self.running(OUTER, "sh", "-c", f"{inner}; echo ended $?; read end", flags=["--allow-nested", "--max-processes", "1000"],
                          stderr=subprocess.DEVNULL) as process:
            self.assertEqual(process.stdout.readline(), "up\n")
            (pid,) = self.supervisors(process)
            if not left(pid):
                self.skipTest("no control group can be made here")
            os.kill(pid, signal.SIGKILL)
            self.assertEqual(process.stdout.readline(), "ended 137\n")
            self.assertEventually(lambda: not left(pid), "its control groups to be gone")

    # -- names

    def resolved(self, rules, runs):
        """Of the names of each run one after the other, how many were answered. A run: its names, and its policy."""
        script = ""
        for i, (names, policy) in enumerate(runs):
            (self.work / f"inner-{i}.yaml").write_text(harness.policy_text(policy))
            script += f"./sluice run --quiet --policy inner-{i}.yaml -- {harness.PYTHON} names.py {' '.join(names)}\n"
        begin = time.monotonic()
        result = self.sluice(rules, "sh", "-c", script, flags=["--allow-nested"], timeout=120)
        self.assertEqual(result.out.count("resolved") + result.out.count("not"), sum(len(names) for names, _ in runs), str(result))
        return result.out.count("resolved"), time.monotonic() - begin

    def parts(self):
        return [[f"m{n}.many.test" for n in range(20 * part, 20 * part + 20)] for part in range(5)]

    def test_new_names_under_a_wildcard_are_counted_for_all_runs_together(self):
        wild = ["allow tcp *.many.test:443"]
        resolved, taken = self.resolved(wild, [(names, wild) for names in self.parts()])
        self.assertGreaterEqual(resolved, 60)
        self.assertLessEqual(len({name for name in self.asked() if name.rstrip(".").endswith("many.test")}), 61 + taken)

    def test_what_an_inner_policy_spells_out_is_new_under_the_outer_wildcard(self):
        wild = ["allow tcp *.many.test:443"]
        resolved, taken = self.resolved(wild, [(names, [f"allow tcp {name}:443" for name in names]) for names in self.parts()])
        self.assertGreaterEqual(resolved, 60)
        self.assertLessEqual(len({name for name in self.asked() if name.rstrip(".").endswith("many.test")}), 61 + taken)

    def test_names_that_passed_are_new_to_none(self):
        wild = ["allow tcp *.many.test:443"]
        names = self.parts()[0]
        self.assertEqual(self.resolved(wild, [(names, wild)] * 5)[0], 100)

    def test_what_the_outer_policy_spells_out_is_bounded_for_none(self):
        spelled = [f"allow tcp {name}:443" for names in self.parts() for name in names]
        self.assertEqual(self.resolved(spelled, [(names, [f"allow tcp {name}:443" for name in names]) for names in self.parts()])[0], 100)


if __name__ == "__main__":
    harness.main()
