#!/usr/bin/python3
"""Every system call of the decision path fails once, for a while and for good: nothing that the policy forbids leaves, nothing hangs,
and the operator is told. Needs a build with fault injection (base/fault.h), as `dev` is."""
import concurrent.futures
import os
import pathlib
import re

import harness
import lab as lab_module

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("base", "dns", "nft", "proxy", "supervisor", "audit", "app")
RULES = ["allow GET a.test/pub/**", "allow tcp db.test:5432"]
# What is allowed may fail here, and says so; what is not must fail. It always ends.
WORKLOAD = r"""
import os, socket, ssl, sys
trust = ssl.create_default_context()
def say(what, ok): print(what, "through" if ok else "refused", flush=True)
def connect(host, port, word=b"hi\n"):
    try:
        with socket.create_connection((host, port), 3) as s:
            s.settimeout(3); s.sendall(word)
            return s.recv(64) != b""
    except OSError: return False
def get(host, path):
    try:
        with socket.create_connection((host, 443), 3) as plain, trust.wrap_socket(plain, server_hostname=host) as s:
            s.settimeout(3); s.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return s.recv(64).startswith(b"HTTP/1.1 200 ")
    except OSError: return False
def unix(path):
    try: socket.socket(socket.AF_UNIX).connect(path); return True
    except OSError: return False
def udp():
    try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"escaped", ("151.101.1.40", 7007)); return True
    except OSError: return False
for _ in range(int(sys.argv[2])):
    say("allowed", get("a.test", "/pub/x"))
    say("allowed", connect("db.test", 5432))
    say("denied", get("a.test", "/private"))
    say("denied", connect("151.101.1.40", 443))
    say("denied", connect("telemetry.example", 443))
    say("denied", unix(sys.argv[1]))
    say("denied", udp())
print("end", flush=True)
"""
# Point: the errors it may meet. Those before the command starts are apart.
START = {
    "capture.unshare": ("EPERM", "ENOMEM"),
    "capture.cookie": ("EINVAL",),
    "capture.route": ("ENOBUFS", "EPERM"),
    "capture.socket": ("EMFILE",),
    "capture.bind": ("EACCES",),
    "nft.send": ("ENOBUFS",),
    "nft.answer": ("ENOBUFS", "ENOENT"),
    "audit.open": ("EMFILE", "ENOSPC"),
}
RUNNING = {
    "notify.receive": ("EINTR", "EIO"),
    "notify.reply": ("EINTR", "EIO"),
    "notify.id-valid": ("EIO",),
    "pidfd.open": ("EMFILE", "EPERM"),
    "pidfd.getfd": ("EMFILE", "EPERM", "ESRCH"),
    "caller.memory": ("EPERM", "EINVAL"),
    "proc.folder": ("EMFILE", "ENOENT"),
    "proc.open": ("EMFILE", "EACCES"),
    "proc.read": ("EIO", "ESRCH"),
    "proc.link": ("EACCES",),
    "unix.root": ("EMFILE",),
    "unix.path": ("EMFILE", "EACCES"),
    "socket.option": ("EINVAL",),
    "socket.flags": ("EINVAL",),
    "socket.peer": ("EINVAL",),
    "socket.name": ("ENOBUFS",),
    "socket.connect": ("ENOBUFS", "EACCES"),
    "gate.accept": ("EMFILE", "EAGAIN"),
    "diag.ask": ("ENOBUFS",),
    "diag.answer": ("ENOBUFS",),
    "dial.socket": ("EMFILE", "ENOBUFS"),
    "dial.connect": ("ENETUNREACH", "ENOBUFS"),
    "dial.outcome": ("EINVAL",),
    "dns.receive": ("ENOMEM",),
    "dns.reply": ("ENOBUFS",),
    "dns.upstream.socket": ("EMFILE",),
    "dns.upstream.connect": ("ENETUNREACH",),
    "dns.upstream.send": ("ENOBUFS", "EPERM"),
    "audit.write": ("ENOSPC", "EIO"),
    "audit.stat": ("EIO",),
}
# Where what failed is asked again or left to others, so that nobody is the poorer: nothing need be said.
ABSORBED = {("notify.receive", "EINTR"), ("notify.reply", "EINTR"), ("gate.accept", "EAGAIN")}


def points_of_the_code():
    text = "\n".join(p.read_text() for room in ROOMS for p in (ROOT / room).rglob("*.cc"))
    return re.findall(r'Faulty\(\s*"([a-z0-9.-]+)"', text)


class Faults(harness.SluiceTest):
    def folder_of(self, number):
        folder = self.folder / str(number)
        folder.mkdir()
        if self.lab.uid:
            os.chown(folder, self.lab.uid, self.lab.uid)
        return folder

    def one(self, number, fault, rounds):
        """A lookup is asked anew after a second, where what failed may be over then: the waiting of many is long."""
        folder = self.folder_of(number)
        audit = folder / "audit.jsonl"
        command = [lab_module.binary_for_anyone(self.lab.folder), "run", "--policy", self.policy, "--audit", audit, "--upstream-ca", self.lab.ca,
                   "--env", f"RES_OPTIONS=timeout:1 attempts:{rounds}", "--timeout", "40s", "--", harness.PYTHON, "-I", "-c", WORKLOAD, "/var/run/nscd/socket" if number % 2 else "/etc/hosts", str(rounds)]
        done = self.lab.run(command, cwd=folder, env={"SLUICE_FAULT": fault}, timeout=60 * harness.SLOW)
        return harness.Result(done.returncode, done.stdout, done.stderr, audit)

    def all(self, faults, rounds=1):
        """As many at a time as make the waiting of one another's pass. What fails for good needs one round."""
        self.policy.write_text(harness.policy_text(RULES))
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            return list(zip(faults, pool.map(self.one, range(len(faults)), faults, [rounds] * len(faults)), strict=True))

    def check_nothing_left(self):
        for entry in self.served():
            if entry["scheme"] == "tcp":
                self.assertEqual(entry["port"], 5432)
            else:
                self.assertEqual((entry["host"], entry["target"]), ("a.test", "/pub/x"), entry)
        self.assertNotIn("telemetry.example", self.asked())

    def check(self, fault, result, rounds=1):
        what = f"{fault}\n{result}"
        self.assertNotIn("denied through", result.out, what)
        # 143 and 137 are the time limit's: something hung.
        ended = "end\n" in result.out
        self.assertTrue(ended or result.code in (2, 4, 5, 137), what)
        self.assertNotIn("timed out", result.err, what)
        point, error = fault.split(":")[:2]
        whole = result.out.count("allowed through") == 2 * rounds
        if not whole and (point, error) not in ABSORBED:
            told = [r for r in result.audit if r.get("verdict") == "deny" or r.get("error") or r.get("status", 0) >= 400]
            self.assertTrue(told or re.search(r"sluice: (?!enforcing|exit)", result.err), f"nobody was told\n{what}")

    def test_it_is_built_in(self):
        self.policy.write_text(harness.policy_text(RULES))
        result = self.one(0, "nonsense", 1)
        self.assertEqual((result.code, "write POINT:ERRNO" in result.err), (2, True), f"this needs SLUICE_FAULTS=ON\n{result}")

    def test_every_point_of_the_code_has_its_case_here(self):
        points = points_of_the_code()
        self.assertEqual(len(points), len(set(points)), "a point's name stands once")
        self.assertEqual(set(points), set(START) | set(RUNNING))

    def test_what_fails_at_the_start_starts_nothing_and_is_named(self):
        faults = [f"{point}:{error}" for point, errors in START.items() for error in errors]
        for fault, result in self.all(faults):
            self.assertEqual(result.out, "", f"{fault}\n{result}")
            self.assertIn(result.code, (2, 4, 5), f"{fault}\n{result}")
            self.assertRegex(result.err, r"sluice: \S", fault)
        self.check_nothing_left()

    def test_what_fails_for_good_lets_nothing_out_and_hangs_nobody(self):
        # A call that is interrupted is made again, and no kernel interrupts it for ever.
        faults = [f"{point}:{error}{':64' if error == 'EINTR' else ''}" for point, errors in RUNNING.items() for error in errors]
        for fault, result in self.all(faults):
            self.check(fault, result)
        self.check_nothing_left()

    def test_what_fails_once_is_over_then(self):
        faults = [f"{point}:{errors[0]}:1:3" for point, errors in RUNNING.items()]
        for fault, result in self.all(faults, 2):
            self.check(fault, result, 2)
            # The second round has nothing in its way, where records can still be written.
            point = fault.split(":")[0]
            if not point.startswith("audit."):
                self.assertGreaterEqual(result.out.count("allowed through"), 2, f"{fault}\n{result}")
        self.check_nothing_left()


if __name__ == "__main__":
    harness.main()
