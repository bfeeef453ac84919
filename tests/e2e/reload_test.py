#!/usr/bin/python3
"""A policy changed while the workload runs: swapped whole, an invalid one ignored loudly, what it no longer allows is cut."""
import os
import signal
import time

import harness

# Prints "status N" for each GET it makes, one for each line it reads.
ASK = """
import sys, urllib.request, urllib.error
print("ready", flush=True)
for line in sys.stdin:
    try:
        print("status", urllib.request.urlopen(line.strip(), timeout=10).status, flush=True)
    except urllib.error.HTTPError as e:
        print("status", e.code, flush=True)
    except OSError as e:
        print("failed", e, flush=True)
"""
# Holds a stream open; prints when its last byte came.
HOLD = """
import sys, time, urllib.request, socket
url = sys.argv[1]
try:
    if url.startswith("tcp:"):
        s = socket.create_connection(("db.test", 5432)); s.sendall(b"x"); s.recv(1)
        print("open", flush=True)
        s.settimeout(20)
        while s.recv(100): pass
    else:
        answer = urllib.request.urlopen(url, timeout=20); answer.readline()
        print("open", flush=True)
        while answer.readline(): pass
except Exception as error:
    print("cut by", error, flush=True)
print("cut", time.time(), flush=True)
"""
# Looks a name up, waits for a line, and only then connects to what it was told: without blocking, and with.
LATE = r"""
import errno, select, socket, sys
family, kind, _, _, address = socket.getaddrinfo("private.test", 80, type=socket.SOCK_STREAM)[0]
print("ready", flush=True)
sys.stdin.readline()
s = socket.socket(family, kind); s.setblocking(False)
print("connect", errno.errorcode.get(s.connect_ex(address)), flush=True)
select.select([], [s], [], 10)
print("error", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), flush=True)
s.settimeout(10)
try:
    s.sendall(b"GET /pub HTTP/1.1\r\nHost: private.test\r\nConnection: close\r\n\r\n")
    data = b""
    while block := s.recv(65536): data += block
    print(data.decode().replace("\r\n", "|"), flush=True)
except OSError as error:
    print("failed", errno.errorcode.get(error.errno), flush=True)
s = socket.socket(family, kind)
print("blocking", errno.errorcode.get(s.connect_ex(address), "connected"), flush=True)
"""
PUB, ECHO = ["allow GET a.test/pub"], ["allow GET a.test/pub", "allow GET a.test/echo"]


class Reload(harness.SluiceTest):
    def replace(self, rules):
        """As an editor saves: a new file moved over the old one."""
        fresh = self.folder / "fresh.yaml"
        fresh.write_text(rules if isinstance(rules, str) else harness.policy_text(rules))
        os.replace(fresh, self.policy)

    def ask(self, process, url):
        process.stdin.write(url + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    def until(self, process, url, expected):
        self.assertEventually(lambda: self.ask(process, url) == expected, f"{url} is {expected}", 10)

    def test_a_hangup_signal_loads_the_new_policy(self):
        with self.running(PUB, harness.PYTHON, "-c", ASK) as process:
            self.assertEqual(process.stdout.readline().strip(), "ready")
            self.assertEqual(self.ask(process, "https://a.test/echo"), "status 403")
            self.replace(ECHO)
            process.send_signal(signal.SIGHUP)
            self.until(process, "https://a.test/echo", "status 200")

    def test_a_changed_file_is_loaded_without_a_signal(self):
        with self.running(PUB, harness.PYTHON, "-c", ASK) as process:
            self.assertEqual(process.stdout.readline().strip(), "ready")
            self.assertEqual(self.ask(process, "https://a.test/echo"), "status 403")
            self.replace(ECHO)
            self.until(process, "https://a.test/echo", "status 200")
            self.replace(PUB)
            self.until(process, "https://a.test/echo", "status 403")

    def test_a_folder_above_the_file_is_replaced(self):
        for name, rules in (("etc", PUB), ("etc.new", ECHO)):
            (self.folder / name).mkdir()
            (self.folder / name / "policy.yaml").write_text(harness.policy_text(rules))
        self.policy = self.folder / "etc/policy.yaml"
        with self.running(PUB, harness.PYTHON, "-c", ASK) as process:
            self.assertEqual(process.stdout.readline().strip(), "ready")
            self.assertEqual(self.ask(process, "https://a.test/echo"), "status 403")
            os.rename(self.folder / "etc", self.folder / "etc.old")
            os.rename(self.folder / "etc.new", self.folder / "etc")
            self.until(process, "https://a.test/echo", "status 200")

    def test_an_address_is_judged_again_when_it_is_dialled(self):
        # The name was answered while a rule opened its address; by the time of the connect none does, as after a rebinding.
        opened = [("allow GET http://private.test", {"ip": "[10.0.0.5]"})]
        for rules, expected in ((opened, "hello"), (["allow GET http://private.test"], "private_ip")):
            with self.running(opened, harness.PYTHON, "-c", LATE) as process:
                self.assertEqual(process.stdout.readline().strip(), "ready")
                self.replace(rules)
                process.send_signal(signal.SIGHUP)
                line = ""
                while "policy reloaded" not in line:
                    line = process.stderr.readline()
                    self.assertTrue(line, "the policy was not reloaded")
                out, _ = process.communicate("go\n", timeout=30)
            self.assertIn(expected, out)
            self.assertIn("blocking connected" if expected == "hello" else "blocking EACCES", out)
            self.assertEqual("HTTP/1.1 403" in out, expected != "hello", out)

    def test_an_invalid_policy_is_ignored_loudly(self):
        with self.running(PUB, harness.PYTHON, "-c", ASK) as process:
            self.assertEqual(process.stdout.readline().strip(), "ready")
            self.replace("version: 1\nname: lab\nrules:\n  - alow: GET a.test\n")
            process.send_signal(signal.SIGHUP)
            time.sleep(1)
            self.assertEqual(self.ask(process, "https://a.test/pub"), "status 200")
            self.assertEqual(self.ask(process, "https://a.test/echo"), "status 403")
            _, err = process.communicate(timeout=20 * harness.SLOW)
            self.assertRegex(err, r"policy\.yaml:4:\d+: ")

    def cut_after(self, url, before, after):
        with self.running(before, harness.PYTHON, "-c", HOLD, url) as process:
            self.assertEqual(process.stdout.readline().strip(), "open")
            self.replace(after)
            begin = time.time()
            process.send_signal(signal.SIGHUP)
            lines = [process.stdout.readline()]
            if not lines[0][4:5].isdigit():
                lines.append(process.stdout.readline())
            ended = [line for line in lines if line.startswith("cut ")][-1]
            return float(ended.rsplit(" ", 1)[1]) - begin

    def test_an_exchange_no_longer_allowed_is_cut_within_100_ms(self):
        self.assertSoon(lambda: self.cut_after("https://a.test/drip", ["allow GET a.test/drip"], PUB), 0.1)

    def test_an_opaque_connection_no_longer_allowed_is_cut_within_100_ms(self):
        self.assertSoon(lambda: self.cut_after("tcp:", ["allow tcp db.test:5432"], PUB), 0.1)

    def test_a_connection_still_allowed_survives(self):
        with self.running(["allow tcp db.test:5432"], harness.PYTHON, "-c", HOLD, "tcp:") as process:
            self.assertEqual(process.stdout.readline().strip(), "open")
            self.replace(["allow tcp db.test:5432", "allow GET a.test/pub"])
            process.send_signal(signal.SIGHUP)
            time.sleep(1)
            self.assertIsNone(process.poll())


if __name__ == "__main__":
    harness.main()
