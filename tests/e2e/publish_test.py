#!/usr/bin/python3
"""Ports of a sandbox that are led to from outside, and ports of the machine's own loopback that a rule opens."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import harness
import lab as lab_module

NOTHING = ["allow GET nothing.test"]

ECHO = """
import socket, sys, threading
family, address, port = (socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET), sys.argv[1], int(sys.argv[2])
server = socket.socket(family); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); server.bind((address, port)); server.listen(64)
def serve(c):
    data = b""
    while piece := c.recv(65536): data += piece
    c.sendall(data[::-1]); c.close()
print("listening", server.getsockname()[1], flush=True)
while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
# Sends so many octets to each target, ends its side, and compares what comes back.
ASK = """
import os, socket, sys, threading
def ask(host, port, size):
    try:
        c = socket.create_connection((host, int(port)), timeout=20)
        data, failed = os.urandom(int(size)), []
        def send():
            try: c.sendall(data); c.shutdown(socket.SHUT_WR)
            except OSError as error: failed.append(type(error).__name__)  # whoever is told first takes the socket's error
        out = threading.Thread(target=send); out.start()
        back = b""
        while piece := c.recv(65536): back += piece
        out.join(); return failed[0] if failed else "same" if back == data[::-1] else "different"
    except OSError as error: return type(error).__name__
threads, said = [], []
for _ in range(int(sys.argv[4])):
    threads.append(threading.Thread(target=lambda: said.append(ask(*sys.argv[1:4])))); threads[-1].start()
for t in threads: t.join()
print(*sorted(set(said)))
"""


class Published(harness.SluiceTest):
    def ask(self, host, port, size=5, times=1):
        done = self.lab.run([harness.PYTHON, "-c", ASK, host, port, size, times])
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def where(self, process):
        """The published ports, as they are said on standard error, and the server's own word that it listens."""
        lines, ports = [], []
        while not any("published" in line for line in lines):
            lines.append(process.stderr.readline())
            self.assertTrue(lines[-1], lines)
        ports += re.findall(r"published: (\S+):(\d+) leads to port (\d+)", lines[-1])
        self.assertRegex(process.stdout.readline(), "listening")
        return ports[0]

    def test_a_server_inside_is_reached_from_outside(self):
        with self.running(NOTHING, harness.PYTHON, "-c", ECHO, "127.0.0.1", "8080", flags=["--publish", "127.0.0.1:0:8080"]) as process:
            host, port, inside = self.where(process)
            self.assertEqual((host, inside), ("127.0.0.1", "8080"))
            self.assertEqual(self.ask(host, port, 3_000_000), "same")
            self.assertEqual(self.ask(host, port, 20_000, 40), "same")
            process.terminate()
            process.communicate(timeout=20 * harness.SLOW)
        self.assertEqual(self.ask(host, port), "ConnectionRefusedError", "it ends with the run")

    def test_by_ipv6_and_to_a_server_on_ipv6_alone(self):
        with self.running(NOTHING, harness.PYTHON, "-c", ECHO, "::1", "8080", flags=["--publish", "[::1]:0:8080"]) as process:
            host, port, _ = self.where(process)
            self.assertEqual(host, "[::1]")
            self.assertEqual(self.ask("::1", port), "same")

    def test_when_the_process_that_serves_them_is_killed_callers_are_refused_and_the_run_goes_on(self):
        with self.running(NOTHING, harness.PYTHON, "-c", ECHO, "127.0.0.1", "8080", flags=["--publish", "127.0.0.1:0:8080"]) as process:
            host, port, _ = self.where(process)
            self.assertEqual(self.ask(host, port), "same")
            serving = [pid for pid in lab_module.descendants() if pathlib.Path(f"/proc/{pid}/comm").read_text() == "sluice-publish\n"]
            self.assertEqual(len(serving), 1)
            os.kill(serving[0], signal.SIGKILL)
            self.assertEventually(lambda: self.ask(host, port) == "ConnectionRefusedError", "callers to be refused")
            self.assertIn("published ports are served no longer", process.stderr.readline())
            self.assertIsNone(process.poll())
            process.terminate()
            process.communicate(timeout=20 * harness.SLOW)

    def test_where_nobody_listens_inside_it_is_reset(self):
        with self.running(NOTHING, harness.PYTHON, "-c", ECHO, "127.0.0.1", "8081", flags=["--publish", "0:8080"]) as process:
            host, port, _ = self.where(process)
            self.assertIn(self.ask(host, port), ("ConnectionResetError", "BrokenPipeError"))

    def test_each_connection_leaves_a_record(self):
        if self.audit.exists():
            self.audit.unlink()
        with self.running(NOTHING, harness.PYTHON, "-c", ECHO, "127.0.0.1", "8080", flags=["--publish", "127.0.0.1:0:8080", "--publish", "127.0.0.1:0:8090"]) as process:
            host, port, _ = self.where(process)
            other = re.search(r"published: \S+:(\d+) leads", process.stderr.readline()).group(1)
            self.assertEqual(self.ask(host, port, 5000), "same")
            self.assertIn(self.ask(host, other), ("ConnectionResetError", "BrokenPipeError"))
            # One that is still open when the run ends.
            open_one = self.lab.popen([harness.PYTHON, "-c", f"import socket; c = socket.create_connection(('{host}', {port})); c.sendall(b'abc'); "
                                       "print(c.getsockname()[1], flush=True); c.recv(1); import time; time.sleep(100)"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.addCleanup(lambda: (open_one.kill(), open_one.communicate()))
            caller = int(open_one.stdout.readline())
            time.sleep(harness.SLOW)  # until what it sent has arrived inside
            process.terminate()
            process.communicate(timeout=20 * harness.SLOW)
        records = [json.loads(line) for line in self.audit.read_text().splitlines()]
        inward = [r for r in records if r["target"].get("method") == "publish"]
        self.assertEqual([(r["type"], r["process"], r["target"]["address"], r["target"]["path"], r["bytes_down"], r["bytes_up"], r.get("error", "")) for r in inward], [
            ("exchange", None, "127.0.0.1", f"127.0.0.1:{port}:8080", 5000, 5000, ""),
            ("exchange", None, "127.0.0.1", f"127.0.0.1:{other}:8090", 0, 0, "nobody listens there in the sandbox"),
            ("exchange", None, "127.0.0.1", f"127.0.0.1:{port}:8080", 3, 0, "the run ended")])
        self.assertEqual(inward[2]["target"]["port"], caller)

    def test_callers_who_hold_every_descriptor_cost_no_processor(self):
        # Few descriptors, and more callers than they are for.
        words = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *self.command(NOTHING, [harness.PYTHON, "-c", ECHO, "127.0.0.1", "8080"], ["--publish", "127.0.0.1:0:8080"])]
        process = self.lab.popen(words, cwd=self.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        host, port, _ = self.where(process)
        callers = self.lab.popen([harness.PYTHON, "-c", f"import socket, time\nkept = [socket.create_connection(('{host}', {port})) for _ in range(200)]\n"
                                  "print('all', flush=True)\ntime.sleep(100)"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (callers.kill(), callers.communicate()))
        self.assertEqual(callers.stdout.readline(), "all\n")
        child = next(pid for pid in lab_module.descendants() if pathlib.Path(f"/proc/{pid}/comm").read_text() == "sluice-publish\n")

        def ticks():
            return sum(map(int, pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))

        time.sleep(0.3)
        before = ticks()
        time.sleep(1)
        self.assertLess(ticks() - before, 50, "of a hundred in a second")
        callers.kill()
        self.assertEventually(lambda: self.ask(host, port, 100) == "same", "it to serve again")

    def test_what_cannot_be_published_is_told(self):
        taken = self.lab.popen([harness.PYTHON, "-c", ECHO, "127.0.0.1", "0"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (taken.kill(), taken.communicate()))
        port = taken.stdout.readline().split()[1]
        for text, words in (("127.0.0.1:8080:8080/udp", "UDP cannot be published"), (f"127.0.0.1:{port}:80", f"cannot publish 127.0.0.1:{port}"),
                            ("8080:801", "sluice's own"), ("localhost:80:80", "digits")):
            result = self.sluice(NOTHING, "true", flags=["--publish", text])
            self.assertExit(result, 2)
            self.assertIn(words, result.err)

    def test_nothing_of_the_workload_leaves_by_it(self):
        # The port is the sandbox's, so that dialling it from inside is the workload's own loopback; the publisher is out of sight.
        script = ("import os, socket\n"
                  "server = socket.socket(); server.bind(('127.0.0.1', 8080)); server.listen(8)\n"
                  "print(len([p for p in os.listdir('/proc') if p.isdigit()]))\n"
                  "c = socket.create_connection(('127.0.0.1', 8080)); print(server.accept()[1][0])\n")
        result = self.python(NOTHING, script, flags=["--publish", "127.0.0.1:0:8080"])
        self.assertEqual(result.out.split(), ["2", "127.0.0.1"], str(result))


class HostLoopback(harness.SluiceTest):
    """A service on the loopback of the machine, one port at a time."""

    def setUp(self):
        super().setUp()
        self.ports = []
        for address in ("127.0.0.1", "127.0.0.1", "::1"):
            service = self.lab.popen([harness.PYTHON, "-c", ECHO, address, "0"], stdout=subprocess.PIPE, text=True)
            self.addCleanup(lambda service=service: (service.kill(), service.communicate()))
            self.ports.append(service.stdout.readline().split()[1])

    def ask(self, rules, port, host="host.sluice.internal"):
        return self.python(rules, ASK, host, port, "100000", "1")

    def test_a_rule_with_ip_opens_one_port(self):
        rule = [(f"allow tcp host.sluice.internal:{self.ports[0]}", {"ip": "[127.0.0.1]"})]
        result = self.ask(rule, self.ports[0])
        self.assertEqual(result.out.strip(), "same", str(result))
        allowed = [r for r in result.audit if r.get("layer") == "connect" and r["verdict"] == "allow"]
        self.assertEqual([r["target"]["host"] for r in allowed], ["host.sluice.internal"])
        result = self.ask(rule, self.ports[1])
        self.assertEqual(result.out.strip(), "PermissionError", str(result))
        self.assertDenialLine(result, f"host.sluice.internal:{self.ports[1]}")
        self.assertNotIn("host.sluice.internal", self.asked(), "nobody is asked for it")

    def test_without_ip_it_stays_closed(self):
        result = self.ask([f"allow tcp host.sluice.internal:{self.ports[0]}"], self.ports[0])
        self.assertNotIn("same", result.out, str(result))
        self.assertRegex(result.err, "ip:")
        result = self.ask(["allow tcp **:443"], self.ports[0])
        self.assertNotIn("same", result.out, str(result))

    def test_a_name_that_leads_there_does_not_use_the_rule(self):
        rule = [(f"allow tcp host.sluice.internal:{self.ports[0]}", {"ip": "[127.0.0.1]"}), "allow dns rebind.test"]
        self.assertNotIn("same", self.ask(rule, self.ports[0], "rebind.test").out)
        self.assertNotIn("same", self.ask(rule, self.ports[0], "127.0.0.1").out, "the workload's own loopback")

    def test_by_ipv6(self):
        result = self.ask([(f"allow tcp host.sluice.internal:{self.ports[2]}", {"ip": "['::1']"})], self.ports[2])
        self.assertEqual(result.out.strip(), "same", str(result))


if __name__ == "__main__":
    harness.main()
