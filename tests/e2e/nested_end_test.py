#!/usr/bin/python3
"""The end of runs in the sandbox of another: with it, whatever they and those who ask for them do."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import control
import harness
import lab

OUTER = [("allow GET a.test/**", {"encoded-slash": "true", "path-params": "true"}), "allow GET b.test/**", "allow tcp db.test:5432"]
IGNORES_CHILDREN = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


class NestedEnds(harness.SluiceTest):
    def setUp(self):
        super().setUp()
        shutil.copy(lab.sluice_binary(), self.work / "sluice")

    def test_one_is_told_of_where_whoever_started_the_outer_one_ignores_the_end_of_children(self):
        words = self.command(OUTER, ["sh", "-c", "./sluice run --allow 'GET b.test/x' -- sh -c 'exit 7'; echo $?"], ["--allow-nested"])
        done = self.lab.run([harness.PYTHON, "-c", IGNORES_CHILDREN, *words], cwd=self.work, timeout=20 * harness.SLOW)
        self.assertEqual(done.stdout, "7\n", done.stderr)


if __name__ == "__main__":
    harness.main()
