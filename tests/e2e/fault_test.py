#!/usr/bin/python3
"""Every system call of the decision path fails once, for a while and for good: nothing that the policy forbids leaves, nothing hangs,
and the operator is told. Needs a build with fault injection (base/fault.h), as `dev` is."""
import concurrent.futures
import itertools
import os
import pathlib
import re
import shutil

import fault_points
import harness
import lab as lab_module
from fault_points import RUNNING, START

NUMBERS = itertools.count(1)
# The last has programs told apart by their digests.
RULES = ["allow GET a.test/pub/**", "allow tcp db.test:5432", ("deny tcp db.test:1", {"by": f"[\"sha256:{'0' * 64}\"]"})]
# What is allowed may fail here, and says so; what is not must fail. It always ends.
WORKLOAD = r"""
import os, socket, ssl, struct, sys, threading
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
def much(host, port, size=1 << 20):
    try:
        with socket.create_connection((host, port), 3) as s:
            s.settimeout(3)
            writer = threading.Thread(target=lambda: s.sendall(b"x" * size), daemon=True); writer.start()
            while size > 0:
                got = s.recv(1 << 16)
                if not got: return False
                size -= len(got)
            return True
    except OSError: return False
SERVER = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))
QUERY = struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + b"\1a\4test\0" + struct.pack("!2H", 1, 1)
def ask_udp():
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); s.sendto(QUERY, (SERVER, 53))
        return s.recv(512)[3] & 15 == 0
    except OSError: return False
def ask_tcp():
    try:
        with socket.create_connection((SERVER, 53), 3) as s:
            s.settimeout(3); s.sendall(struct.pack("!H", len(QUERY)) + QUERY)
            return s.recv(512)[5] & 15 == 0
    except (OSError, IndexError): return False
def udp():
    try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"escaped", ("151.101.1.40", 7007)); return True
    except OSError: return False
for _ in range(int(sys.argv[2])):
    say("allowed", get("a.test", "/pub/x"))
    say("allowed", connect("db.test", 5432))
    say("allowed", much("db.test", 5432))
    say("allowed", ask_udp())
    say("allowed", ask_tcp())
    say("denied", get("a.test", "/private"))
    say("denied", connect("151.101.1.40", 443))
    say("denied", connect("telemetry.example", 443))
    say("denied", unix(sys.argv[1]))
    say("denied", udp())
print("end", flush=True)
"""
# Where what failed is asked again, left to others or done in another way, so that nobody is the poorer: nothing need be said.
# The errno of a connect of the caller's own socket is the caller's, as it is without a supervisor.
ABSORBED = {("notify.receive", "EINTR"), ("notify.reply", "EINTR"), ("gate.accept", "EAGAIN"), ("socket.connect", "ENOBUFS"), ("socket.connect", "EACCES")}
# After which everything is refused, or over.
ENDS_ALL = ("audit.", "launch.")
ALLOWED, DENIED = 5, 5  # of a round
# After which the workload hears nothing, and waits until it asks for the next thing.
LONG = ("reactor.wait:EINVAL", "gate.accept:", "socket.name:", "dns.")
# Those that are met more than once before the command runs: each of their calls fails by itself as well.
SEVERAL = ("descriptors.send", "file.open", "file.read", "file.write", "handshake.receive", "handshake.send", "handshake.wait", "landlock.rule", "launch.above",
           "mount.attach", "mount.tree", "nft.answer")


class Faults(harness.SluiceTest):
    known = None

    def folder_of(self, number):
        folder = self.folder / f"{number}-{next(NUMBERS)}"
        folder.mkdir()
        if self.lab.uid:
            os.chown(folder, self.lab.uid, self.lab.uid)
        return folder

    def one(self, number, fault, rounds):
        """`number`: odd or even. A lookup is asked anew after a second, where what failed may be over then: the waiting of many is long."""
        folder = self.folder_of(number)
        audit = folder / "audit.jsonl"
        audit.write_text("{}\n")  # so that there is a last line to look at
        if self.lab.uid:
            os.chown(audit, self.lab.uid, self.lab.uid)
        command = [lab_module.binary_for_anyone(self.lab.folder), "run", "--policy", self.policy, "--audit", audit, "--upstream-ca", self.lab.ca,
                   "--env", f"RES_OPTIONS=timeout:1 attempts:{rounds}", "--timeout", "40s", "--", harness.PYTHON, "-I", "-c", WORKLOAD, "/var/run/nscd/socket" if number % 2 else "/etc/hosts", str(rounds)]
        done = self.lab.run(command, cwd=folder, env={"SLUICE_FAULT": fault} if fault else None, timeout=60 * harness.SLOW)
        return harness.Result(done.returncode, done.stdout, done.stderr, audit)

    def all(self, faults, rounds=1):
        """As many at a time as make the waiting of one another's pass, those first that wait for long. What fails for good needs one round."""
        self.policy.write_text(harness.policy_text(RULES))
        lab_module.binary_for_anyone(self.lab.folder)  # once, before all copy it at the same time
        faults = sorted(faults, key=lambda fault: not fault.startswith(LONG))
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            return list(zip(faults, pool.map(self.one, range(len(faults)), faults, [rounds] * len(faults)), strict=True))

    def check_nothing_left(self):
        fault_points.check_nothing_left(self)
        self.assertNotIn("telemetry.example", self.asked())

    def usual(self):
        """What is told where nothing fails."""
        if self.known is None:
            result = self.one(0, "", 1)
            self.assertEqual((result.out.count("allowed through"), result.out.count("denied refused")), (ALLOWED, DENIED), str(result))
            Faults.known = fault_points.told(result)
        return self.known

    def check(self, fault, result, rounds=1):
        what = f"{fault}\n{result}"
        self.assertNotIn("denied through", result.out, what)
        # 143 and 137 are the time limit's: something hung.
        ended = "end\n" in result.out
        self.assertTrue(ended or result.code in (2, 4, 5, 137), what)
        self.assertNotIn("timed out", result.err, what)
        self.assertNotIn("did not answer", result.err, what)  # two that waited for one another
        whole = result.out.count("allowed through") == ALLOWED * rounds
        if not whole and tuple(fault.split(":")[:2]) not in ABSORBED:
            self.assertTrue(fault_points.told(result) - self.usual(), f"nobody was told\n{what}")

    def check_start(self, fault, result):
        self.assertEqual(result.out, "", f"{fault}\n{result}")
        # 126: the command itself could not be started.
        self.assertIn(result.code, (2, 4, 5, 126), f"{fault}\n{result}")
        self.assertRegex(result.err, r"(?m)^sluice: (?!enforcing|exit)\S", fault)

    def test_it_is_built_in(self):
        self.policy.write_text(harness.policy_text(RULES))
        result = self.one(0, "nonsense", 1)
        self.assertEqual((result.code, "write POINT:ERRNO" in result.err), (2, True), f"this needs SLUICE_FAULTS=ON\n{result}")

    def test_every_point_of_the_code_has_its_case(self):
        points = fault_points.of_the_code()
        self.assertEqual(len(points), len(set(points)), "a point's name stands once")
        cases = [point for table in fault_points.ALL for point in table]
        self.assertEqual(sorted(points), sorted(cases))

    def test_what_fails_at_the_start_starts_nothing_and_is_named(self):
        results = self.all(fault_points.spelled(START))
        for fault, result in results:
            with self.subTest(fault):
                self.check_start(fault, result)
        self.assertEqual([fault for fault, result in results if not fault_points.met(fault, result.err)], [], "never came to that")
        either = self.all(fault_points.spelled(fault_points.EITHER))
        for fault, result in either:
            if fault_points.met(fault, result.err):
                self.check_start(fault, result)
        self.assertTrue(any(fault_points.met(fault, result.err) for fault, result in either))
        self.check_nothing_left()

    def test_what_fails_in_the_midst_of_the_start_hangs_nobody(self):
        for fault, result in self.all([f"{point}:{START[point][0]}:1:{skip}" for point in SEVERAL for skip in range(1, 7)]):
            with self.subTest(fault):
                if fault_points.met(fault, result.err):
                    self.check(fault, result)
        self.check_nothing_left()

    def test_what_fails_for_good_lets_nothing_out_and_hangs_nobody(self):
        results = self.all(fault_points.spelled(RUNNING))
        for fault, result in results:
            with self.subTest(fault):
                self.check(fault, result)
        self.assertEqual([fault for fault, result in results if not fault_points.met(fault, result.err)], [], "never came to that")
        self.check_nothing_left()

    def test_what_fails_once_is_over_then(self):
        for fault, result in self.all([f"{point}:{errors[0]}:1:3" for point, errors in RUNNING.items()], 2):
            with self.subTest(fault):
                self.check(fault, result, 2)
                # The second round has nothing in its way, where records can still be written.
                if not fault.startswith(ENDS_ALL):
                    self.assertGreaterEqual(result.out.count("allowed through"), ALLOWED, f"{fault}\n{result}")
        self.check_nothing_left()

    def test_a_run_in_the_sandbox_starts_later_or_is_told_why_not(self):
        shutil.copy(lab_module.sluice_binary(), self.work / "sluice")
        script = "./sluice run --allow 'GET a.test/pub/x' -- echo inner; echo code $?"
        for fault, ends in (("nested.accept:EMFILE:3", "inner\ncode 0\n"), ("nested.wait:ENOMEM:64", "inner\ncode 0\n"), ("nested.wait:EINTR:64", "inner\ncode 0\n"),
                            ("nested.pidfd:EMFILE", "code 5\n"), ("nested.spawn:EAGAIN", "code 5\n"), ("nested.records:EAGAIN", "code 5\n"),
                            ("spawner.receive:ENOMEM:3", "inner\ncode 0\n")):
            flags = ["--allow-nested", "--control", self.folder / "control.sock"]
            result = self.sluice(RULES[:2], "sh", "-c", script, flags=flags, env={"SLUICE_FAULT": fault})
            self.assertEqual(result.out, ends, f"{fault}\n{result}")
            self.assertTrue(fault_points.met(fault, result.err), f"{fault}\n{result}")
            self.assertTrue("EINTR" in fault or "spawner" in fault or
                            re.search("cannot (hear of|wait for|watch|start|pass on the records of) (a run|runs) in the sandbox", result.err), f"{fault}\n{result}")

    def test_a_run_in_the_sandbox_that_cannot_be_watched_keeps_no_place(self):
        """Nothing else happens meanwhile that would have its end looked for."""
        shutil.copy(lab_module.sluice_binary(), self.work / "sluice")
        script = "echo up; read go; ./sluice run --allow 'GET a.test/pub/x' -- echo inner; echo code $?; read end"
        with self.running(RULES[:2], "sh", "-c", script, flags=["--allow-nested"], env={"SLUICE_FAULT": "nested.pidfd:EMFILE"}) as process:
            def children():
                return sorted(child for path in pathlib.Path(f"/proc/{process.pid}/task").glob("*/children") for child in path.read_text().split())
            self.assertEqual(process.stdout.readline(), "up\n")
            before = children()
            process.stdin.write("go\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "code 5\n")
            self.assertEventually(lambda: children() == before, "its end", 2)


if __name__ == "__main__":
    harness.main()
