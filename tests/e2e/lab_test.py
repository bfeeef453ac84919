#!/usr/bin/python3
"""The lab itself: what it promises the other test files."""
import os
import signal
import subprocess
import time
import unittest

import lab as lab_module


class LabTest(unittest.TestCase):
    def test_two_labs_run_side_by_side_and_leave_nothing(self):
        before = os.readlink("/proc/self/ns/net")
        with lab_module.Lab() as first, lab_module.Lab() as second:
            for lab in (first, second):
                self.assertIn("hello", lab.run(["curl", "-sS", "https://a.test/pub"]).stdout)
                self.assertEqual(len(lab.asked("a.test")), 2)
            folders = [first.folder, second.folder]
        self.assertEqual(os.readlink("/proc/self/ns/net"), before)
        self.assertFalse([f for f in folders if f.exists()])
        self.assertEqual(lab_module.descendants(), [])

    def test_a_killed_lab_takes_its_namespaces_along(self):
        # Still forking when it is killed: a process that the lab overlooks is orphaned, and then it is ours to see.
        lab_module.adopt_orphans()
        process = subprocess.Popen([lab_module.PYTHON, lab_module.__file__, "shell", "--", "sh", "-c",
                                    "echo up; for n in $(seq 300); do sleep 77 & done; wait"],
                                   stdout=subprocess.PIPE, text=True)
        self.assertIn("up", process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        deadline = time.monotonic() + 10
        while (left := lab_module.descendants()) and time.monotonic() < deadline:
            time.sleep(0.05)
        # An orphan holds the pipe that this test writes to, and whoever reads it would wait for the orphan.
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, [])
        process.stdout.close()

    def test_what_the_lab_says_about_names(self):
        with lab_module.Lab() as lab:
            self.assertIn("127.0.0.1", lab.run(["getent", "ahostsv4", "rebind.test"]).stdout)
            self.assertEqual(lab.run(["getent", "hosts", "nowhere.test"]).returncode, 2)
            self.assertIn("HTTP/1.1 200", lab.run(["curl", "-sSI", "-6", "https://v6only.test/pub"]).stdout)
            self.assertEqual(lab.run(["curl", "-sS", "https://wrongname.test/"]).returncode, 60)


if __name__ == "__main__":
    lab_module.become_root_in_a_user_namespace()
    unittest.main(verbosity=2)
