#!/usr/bin/python3
"""The ends of a sidecar: what may end by itself, and what is cut."""
import signal
import time

import harness
from sidecar_test import REAL, RULES, SidecarTest


class LifeTest(SidecarTest):
    def alive(self, flow):
        self.assertIsNone(flow.poll(), "it was cut")
        flow.stdin.write("\n")
        self.assertEqual(flow.stdout.readline(), "alive\n")


class Drain(LifeTest):
    def test_on_sigterm_open_flows_may_end_and_new_ones_are_reset(self):
        with self.sidecar(RULES, "--drain", "6s") as sidecar, self.held("db.test", 5432) as ends, self.held("db.test", 5432) as stays:
            address = self.workload("getent", "ahostsv4", "db.test").out.split()[0]
            begun = time.monotonic()
            sidecar.process.send_signal(signal.SIGTERM)
            self.assertEventually(lambda: self.echo(address, 5432).code != 0, "new connections to be reset")
            for flow in (ends, stays):
                self.alive(flow)
            self.assertIsNone(sidecar.process.poll())
            ends.kill()
            self.alive(stays)
            self.assertEqual(stays.stdout.readline(), "cut\n")
            self.assertEqual(sidecar.process.wait(30 * harness.SLOW), 0)
            self.assertGreater(time.monotonic() - begun, 5.5)
        with self.sidecar(RULES, "--drain", "60s") as sidecar, self.held("db.test", 5432) as flow:
            begun = time.monotonic()
            sidecar.process.send_signal(signal.SIGTERM)
            self.alive(flow)
            flow.kill()
            self.assertEqual(sidecar.process.wait(30 * harness.SLOW), 0)
            self.assertLess(time.monotonic() - begun, 30 * harness.SLOW, "nothing is left to wait for")

    def test_on_sigterm_what_the_kernel_carries_is_cut(self):
        with self.sidecar(harness.policy_text(RULES, REAL)) as sidecar, self.held("db.test", 5432) as flow:
            self.alive(flow)
            self.assertEqual(sidecar.stop(), 0)
            self.assertEqual(flow.stdout.readline(), "cut\n")
            self.assertNotIn("151.101.1.50 . tcp . 5432", self.sets())
            self.assertNotEqual(self.echo("151.101.1.50", 5432).code, 0)


if __name__ == "__main__":
    harness.main()
