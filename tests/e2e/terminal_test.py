#!/usr/bin/python3
"""`sluice run` from a terminal: the command has it whole, colours are for terminals alone, and lines stay lines while it is raw."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import harness

READ = ["allow GET a.test/pub/**"]


class Terminal:
    """sluice on a terminal of its own, as a shell would start it."""

    def __init__(self, test, command, flags=(), rows=33, columns=97, **environment):
        test.policy.write_text(harness.policy_text(READ))
        self.test, (self.fd, slave) = test, pty.openpty()
        self.resize(rows, columns)
        words = [str(w) for w in test.lab.enter(cwd=test.work) + test.command(READ, command, flags)]
        self.process = subprocess.Popen(["setsid", "--ctty", *words], stdin=slave, stdout=slave, stderr=slave,
                                        env=test.lab.environment({"TERM": "xterm", **environment}))
        os.close(slave)
        self.seen = ""
        test.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.fd)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        self.seen = ""
        os.write(self.fd, text.encode())

    def expect(self, pattern, seconds=15):
        deadline = time.monotonic() + seconds * harness.SLOW
        while not re.search(pattern, self.seen):
            left = deadline - time.monotonic()
            self.test.assertGreater(left, 0, f"no {pattern!r} in {self.seen!r}")
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.seen += os.read(self.fd, 1 << 16).decode()
                except OSError:  # the other side is closed
                    self.test.assertRegex(self.seen, pattern)
        return self.seen

    def code(self):
        return self.process.wait(20 * harness.SLOW)


class Terminals(harness.SluiceTest):
    def test_the_command_has_a_terminal_of_the_users_size(self):
        terminal = Terminal(self, ["sh", "-c", "test -t 0 && test -t 1 && test -t 2 && stty size"])
        terminal.expect(r"33 97\r\n")
        self.assertEqual(terminal.code(), 0)

    def test_a_changed_size_reaches_the_command(self):
        # os.write, as print() is not reentrant.
        script = ("import signal, os, time\n"
                  "signal.signal(signal.SIGWINCH, lambda *_: (os.write(1, b'%d %d\\n' % os.get_terminal_size()), os._exit(0)))\n"
                  "os.write(1, b'go\\n'); time.sleep(30)")
        terminal = Terminal(self, [harness.PYTHON, "-c", script])
        terminal.expect("go\r\n")
        terminal.resize(50, 120)
        terminal.expect(r"120 50")
        self.assertEqual(terminal.code(), 0)

    def test_the_keys_that_interrupt_and_quit_end_the_command(self):
        for key, number in (("\x03", signal.SIGINT), ("\x1c", signal.SIGQUIT)):
            terminal = Terminal(self, ["sh", "-c", "echo started; exec sleep 60"])
            terminal.expect("started")
            terminal.type(key)
            terminal.expect("killed by signal")
            self.assertEqual(terminal.code(), 128 + number)

    def test_an_interrupt_ends_no_command_that_handles_it(self):
        terminal = Terminal(self, ["bash", "--norc", "-i"])
        terminal.expect(r"[#$] ")  # what Sluice says at the start may come after it
        terminal.type("sh -c 'echo started; exec sleep 50'\n")
        terminal.expect(r"[\r\n]started\r\n")
        terminal.type("\x03")
        terminal.expect(r"[#$] $")
        terminal.type("exit 7\n")
        self.assertEqual(terminal.code(), 7)

    def test_job_control_works(self):
        terminal = Terminal(self, ["bash", "--norc", "-i"])
        terminal.expect(r"[#$] ")  # what Sluice says at the start may come after it
        terminal.type("sh -c 'echo started; exec sleep 100'\n")
        terminal.expect(r"[\r\n]started\r\n")
        terminal.type("\x1a")
        terminal.expect(r"Stopped +sh -c")
        terminal.type("bg; kill %1; wait; echo no$((1+1))more\n")
        terminal.expect("no2more")
        terminal.type("exit\n")
        self.assertEqual(terminal.code(), 0)

    def test_end_of_input_reaches_the_command(self):
        terminal = Terminal(self, ["cat"])
        terminal.type("word\n")
        terminal.expect(r"word\r\nword\r\n")
        terminal.type("\x04")
        self.assertEqual(terminal.code(), 0)

    def test_denials_have_colour_and_whole_lines_while_the_terminal_is_raw(self):
        terminal = Terminal(self, ["sh", "-c", "getent hosts b.test; stty size; exit 4"])
        seen = terminal.expect("exit 4")
        self.assertEqual(terminal.code(), 4)
        self.assertIn("\x1b[31mdenied\x1b[0m", seen)
        self.assertNotRegex(seen, r"[^\r]\n")

    def test_no_color_and_what_is_no_terminal_get_no_colour(self):
        terminal = Terminal(self, ["getent", "hosts", "b.test"], NO_COLOR="1")
        seen = terminal.expect(r"sluice: exit")
        self.assertIn("denied", seen)
        self.assertNotIn("\x1b[31m", seen)
        self.assertNotIn("\x1b", self.sluice(READ, "getent", "hosts", "b.test").err)


if __name__ == "__main__":
    harness.main()
