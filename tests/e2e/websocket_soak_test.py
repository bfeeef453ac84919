#!/usr/bin/python3
"""WebSockets that stay open for long: one that talks, one that rests, one in the clear, and one whose rule goes away. Twelve seconds of it in
the suite; SLUICE_SOAK_MINUTES says how long (./dev soak websocket 30).

Twice another policy comes into force that keeps the first three, with their rules written otherwise; what it revokes closes with 1008. The
supervisor's memory stays flat.
"""
import os
import pathlib
import subprocess
import threading
import time

import harness
import soak

MINUTES = float(os.environ.get("SLUICE_SOAK_MINUTES", 1 / 5))
ADDRESS, TLS, PLAIN = "151.101.1.10", 9501, 9502  # a.test
KEPT = [f"allow ws a.test:{TLS}/echo", f"allow ws http://a.test:{PLAIN}/echo"]
POLICIES = [[*KEPT, f"allow ws a.test:{TLS}/echo/brief"], [f"allow ws a.test:{TLS}/ech*", f"allow ws http://a.test:{PLAIN}/**"],
            [*KEPT, "allow GET b.test"]]
ALL = """
import subprocess, sys
program, seconds, *urls = sys.argv[1:]
started = [subprocess.Popen([sys.executable, "-u", program, url, seconds, kind], stdout=subprocess.PIPE, text=True)
           for url, kind in zip(urls, ("talk", "rest", "talk", "rest"))]
for number, process in enumerate(started):
    print(number, process.stdout.readline().strip(), flush=True)
for number, process in enumerate(started):
    for line in process.stdout:
        print(number, line.strip(), flush=True)
"""


class Soak(harness.SluiceTest):
    def setUp(self):
        super().setUp()
        inside = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{self.lab.world.pid}/ns/net"]
        self.origin = subprocess.Popen([*inside, harness.PYTHON, str(harness.CLIENTS / "ws_origin.py"), ADDRESS, str(TLS), str(PLAIN),
                                        str(self.lab.folder / "good.pem"), str(self.lab.folder / "good.key")], stdin=subprocess.DEVNULL, cwd="/")
        self.addCleanup(self.origin.wait)
        self.addCleanup(self.origin.kill)
        for port in (TLS, PLAIN):
            probe = f"import socket; socket.create_connection(('{ADDRESS}', {port}), 1).close()"
            self.assertEventually(lambda: subprocess.run([*inside, harness.PYTHON, "-c", probe], stderr=subprocess.DEVNULL).returncode == 0, "the origin", 30)

    def replace(self, rules):
        fresh = self.folder / "fresh.yaml"
        fresh.write_text(harness.policy_text(rules))
        os.replace(fresh, self.policy)

    def test_they_last(self):
        seconds = MINUTES * 60
        urls = [f"wss://a.test:{TLS}/echo", f"wss://a.test:{TLS}/echo", f"ws://a.test:{PLAIN}/echo", f"wss://a.test:{TLS}/echo/brief"]
        err = open(self.folder / "stderr", "w+")
        self.addCleanup(err.close)
        with self.running(POLICIES[0], harness.PYTHON, "-u", "-c", ALL, self.client("ws_soak.py"), str(seconds), *urls, stderr=err) as process:
            lines = [process.stdout.readline().split(maxsplit=1) for _ in urls]
            self.assertEqual([line[1].strip() for line in lines], ["open"] * 4, str(lines))
            begun, sizes = time.monotonic(), []
            heard = []
            reader = threading.Thread(target=lambda: heard.extend(process.stdout))
            reader.start()
            swaps = [(seconds / 3, POLICIES[1]), (seconds * 2 / 3, POLICIES[2])]
            told = begun
            while reader.is_alive():
                spent = time.monotonic() - begun
                if swaps and spent > swaps[0][0]:
                    self.replace(swaps.pop(0)[1])
                sizes.append(soak.resident(process.pid))
                if time.monotonic() - told > 60:
                    told = time.monotonic()
                    print(f"{spent:7.0f} s  resident {sizes[-1] / 2**20:.1f} MiB", flush=True)
                self.assertLess(spent, seconds + 60 * harness.SLOW, "it did not end")
                reader.join(min(1.0, seconds / 50))
            process.wait(30)
            process.stdin.close()
            process.stdout.close()
        told = pathlib.Path(err.name).read_text()
        self.assertEqual(told.count("policy reloaded"), 2, told)
        ends = {number: [line.split(maxsplit=1)[1].strip() for line in heard if line.startswith(f"{number} ") and " at " not in line] for number in range(4)}
        for number in (0, 1, 2):
            self.assertEqual(ends[number][-1:], ["closed 4001 done"], f"{number}: {ends}\n{told}")
        beats = [int(ends[number][0].split()[-1]) for number in (0, 1, 2)]
        self.assertGreater(min(beats[0], beats[2]), seconds * 2 * 0.5 / harness.SLOW, "of two a second")
        self.assertEqual(beats[1], 0)
        self.assertRegex(ends[3][-1], r"^closed early 1008 ", str(ends))
        exchanges = [r for r in harness.Result(0, "", "", self.audit).audit if r["type"] == "exchange" and r.get("status") == 101]
        self.assertEqual(sorted(e.get("close_code") for e in exchanges), [1008, 4001, 4001, 4001], str(exchanges))
        self.assertEqual([e["error"] for e in exchanges if "error" in e and e["close_code"] == 4001], [])
        grown = max(sizes) - sizes[len(sizes) // 10]
        self.assertLess(grown, soak.MAY_GROW)
        print(f"{seconds:.0f} s: {sum(beats)} pings and texts, resident {sizes[-1] / 2**20:.1f} MiB, {grown / 2**20:.1f} MiB more than after a tenth")


if __name__ == "__main__":
    harness.main()
