#!/usr/bin/python3
"""Runs in the sandbox of another, whose policy and whose standing still hold for them too, however many there are."""
import os
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


class NestedRuns(harness.SluiceTest):
    def setUp(self):
        super().setUp()
        shutil.copy(lab.sluice_binary(), self.work / "sluice")
        self.socket = self.folder / "control.sock"
        (self.work / "exchange.py").write_text(EXCHANGE)
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
        inner = "./sluice run --quiet --policy slow.yaml -- sh -c 'while :; do echo x >> ticks; sleep 0.01; done'"
        words = self.command(OUTER, ["sh", "-c", f"for i in 1 2 3 4 5 6; do {inner} & done; sleep 1000"],
                             ["--allow-nested", "--lifeline", str(keep), "--on-disconnect", "freeze"])
        process = self.lab.popen(words, cwd=self.work, pass_fds=[keep], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(keep)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        self.assertEventually(lambda: self.ticks() > 0, "the first of them", 60)
        os.close(give)
        time.sleep(0.5 * harness.SLOW)
        before = self.ticks()
        time.sleep(4)
        self.assertEqual(self.ticks(), before)
        process.send_signal(signal.SIGCONT)
        self.assertEventually(lambda: self.ticks() > before, "those that waited, once it goes on", 60)


if __name__ == "__main__":
    harness.main()
