#!/usr/bin/python3
"""The ends of a sidecar, and the next one beside the same workload: what it holds then, what may end by itself, what is not ready."""
import contextlib
import json
import os
import select
import signal
import subprocess
import time

import harness
import lab as lab_module
from sidecar_test import REAL, RULES, WITHOUT_NET_ADMIN, SidecarTest


class LifeTest(SidecarTest):
    def alive(self, flow):
        self.assertIsNone(flow.poll(), "it was cut")
        flow.stdin.write("\n")
        self.assertEqual(flow.stdout.readline(), "alive\n")


class Restart(LifeTest):
    def state(self):
        return ("--state", self.folder / "state")

    def assertKept(self, *names):
        """A crash loses what was told in the last moment before it."""
        kept = self.folder / "state/names"
        self.assertEventually(lambda: kept.exists() and all(f" {name}\n" in kept.read_text() for name in names), f"{names} to be kept")

    def test_what_the_kernel_carries_outlives_a_crash_where_it_is_still_allowed(self):
        rules = ["allow tcp db.test:5432", "allow tcp a.test:5432", "allow GET a.test/echo/**"]
        with contextlib.ExitStack() as stack:
            with self.sidecar(harness.policy_text(rules, REAL), *self.state()) as sidecar:
                db, a = (stack.enter_context(self.held(host, 5432)) for host in ("db.test", "a.test"))
                self.assertKept("db.test", "a.test")
                sidecar.stop(signal.SIGKILL)
                self.alive(db)
            with self.sidecar(None, *self.state()) as sidecar:
                for flow in (db, a):
                    self.alive(flow)
                # Addresses that the workload holds still mean their names, without another lookup.
                self.assertEqual(self.echo("151.101.1.50", 5432).out, "hello\n")
                self.assertExit(self.curl("--resolve", "a.test:443:151.101.1.10", "https://a.test/echo/x"), 0)
                sidecar.stop(signal.SIGKILL)
            with self.sidecar(harness.policy_text(rules[1:], REAL), *self.state()):
                self.assertEqual(db.stdout.readline(), "cut\n")
                self.alive(a)
                self.assertNotEqual(self.echo("151.101.1.50", 5432).code, 0)

    def test_a_synthetic_address_that_is_held_never_means_another_name(self):
        rules = ["allow tcp a.test:5432", "allow tcp db.test:5432"]
        for state in (self.state(), ()):
            with self.sidecar(rules, *state) as sidecar:
                held = self.workload("getent", "ahostsv4", "a.test").out.split()[0]
                if state:
                    self.assertKept("a.test")
                sidecar.stop(signal.SIGKILL)
            # The first name that anybody asks for now is another.
            with self.sidecar(rules[1:], *state):
                other = self.workload("getent", "ahostsv4", "db.test").out.split()[0]
                self.assertNotEqual(other, held)
                refused = self.echo(held, 5432)
                self.assertNotEqual(refused.code, 0)
                self.assertEqual(self.echo(other, 5432).out, "hello\n")
                if state:
                    self.assertEventually(lambda: refused.denials(host="a.test"), "a record that knows whose the address is")
            with self.sidecar(rules, *state):
                if state:
                    self.assertEqual(self.echo(held, 5432).out, "hello\n")
                    self.assertEqual(self.workload("getent", "ahostsv4", "a.test").out.split()[0], held)


    def test_files_of_another_user_are_a_mistake_of_who_names_them(self):
        for name in ("names", "synthetic"):
            state = self.folder / f"state-{name}"
            state.mkdir(mode=0o700)
            (state / name).touch(0o600)
            os.chown(state / name, 1, 1)
            done = self.lab.run(self.sidecar_command(RULES, ("--state", state)), cwd=self.work)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"{state / name}: it is another user's", done.stderr)


class FailedStart(LifeTest):
    def assertShut(self):
        self.assertNotIn("151.101.1.50 . tcp . 5432", self.sets())
        self.assertNotIn("redirect to", self.sets())
        self.assertNotEqual(self.echo("151.101.1.50", 5432).code, 0)

    def assertCut(self, flow):
        self.assertTrue(select.select([flow.stdout], [], [], 10 * harness.SLOW)[0], "it goes on")
        self.assertEqual(flow.stdout.readline(), "cut\n")

    def test_a_start_that_fails_lets_nothing_of_before_go_on(self):
        rules = harness.policy_text(RULES, REAL)
        taken = self.lab.popen([harness.PYTHON, "-c", "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        port = taken.stdout.readline().strip()
        missing = self.folder / "none/ca.pem"
        try:
            for flags, ca in ((("--proxy-port", port), self.ca), ((), missing), (("--health", f"127.0.0.1:{port}"), self.ca)):
                with self.subTest(flags=flags, ca=ca):
                    with self.sidecar(rules) as sidecar, self.held("db.test", 5432) as flow:
                        sidecar.stop(signal.SIGKILL)
                        self.alive(flow)
                        self.ca, usual = ca, self.ca
                        done = self.lab.run(self.sidecar_command(None, flags), cwd=self.work)
                        self.ca = usual
                        self.assertNotEqual(done.returncode, 0)
                        self.assertIn(str(missing.parent) if ca == missing else port, done.stderr)
                        self.assertIn("nft delete table inet sluice; nft delete table netdev sluice_egress", done.stderr)
                        self.assertCut(flow)
                        self.assertShut()
        finally:
            taken.kill()
            taken.communicate()

    def test_nor_does_one_that_cannot_begin(self):
        rules, broken = harness.policy_text(RULES, REAL), "version: 1\nrules: ["
        port = ("--proxy-port", "19091", "--dns-port", "19091")
        cases = {"not valid YAML": (broken, ()), "cannot open /none.pem": (None, ("--upstream-ca", "/none.pem")),
                 "cannot make /none/state": (None, ("--state", "/none/state")), "name the same place": (None, port)}
        for said, (policy, flags) in cases.items():
            with self.subTest(said):
                with self.sidecar(rules) as sidecar, self.held("db.test", 5432) as flow:
                    sidecar.stop(signal.SIGKILL)
                    self.alive(flow)
                    # What only asks shuts nothing.
                    asks = self.lab.run(self.sidecar_command(policy, (*flags, "--dry-run")), cwd=self.work)
                    self.assertNotIn("nft delete", asks.stderr)
                    self.alive(flow)
                    done = self.lab.run(self.sidecar_command(policy, flags), cwd=self.work)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(said, done.stderr)
                    self.assertIn("nft delete table inet sluice; nft delete table netdev sluice_egress", done.stderr)
                    self.assertCut(flow)
                    self.assertShut()

    def test_nor_what_was_open_before_there_was_a_fence(self):
        with self.held("151.101.1.50", 5432) as flow:
            self.alive(flow)
            # Where a file can be made and nothing written to it: that is seen only once the tables stand.
            full = self.folder / "full"
            full.mkdir()
            self.ca = full / "ca.pem"
            within = f'mount -t tmpfs -o size=4k none "{full}"; head -c 4096 /dev/zero > "{full}/filler"; exec "$@"'
            command = self.sidecar_command(harness.policy_text(["allow tcp 151.101.1.0/24:5432"], REAL), ())
            done = self.lab.run(["unshare", "--mount", "sh", "-c", within, "sh", *command], cwd=self.work)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("No space left", done.stderr)
            self.assertIn("nft delete table inet sluice; nft delete table netdev sluice_egress", done.stderr)
            with contextlib.suppress(BrokenPipeError):  # where it has ended by itself
                flow.stdin.write("\n")
            self.assertCut(flow)
            self.assertShut()


    def test_that_lo_is_down_is_seen_before(self):
        command = [*map(str, self.sidecar_command(RULES, ())), "2>&1; echo exit $?; nft list tables"]
        for more, tables in (("", ""), ("nft add table inet sluice; ", "table inet sluice")):
            done = self.lab.run(["unshare", "--net", "sh", "-c", more + " ".join(command)], cwd=self.work)
            self.assertIn("`lo` is down in this network namespace", done.stdout)
            self.assertIn("`ip link set lo up`", done.stdout)
            self.assertIn("\nexit 2\n" + tables, done.stdout)
            self.assertEqual("nft delete" in done.stdout, bool(tables))

    def test_that_a_file_is_mounted_by_itself_is_seen_before(self):
        within = 'touch "$1"; mount --bind "$1" "$1"; shift; exec "$@"'
        for path in (self.ca, self.bundle):
            command = self.sidecar_command(RULES, ())
            done = self.lab.run(["unshare", "--mount", "sh", "-c", within, "sh", path, *command], cwd=self.work)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"cannot write {path}: it is mounted by itself", done.stderr)
            self.assertNotIn("nft delete", done.stderr)

    def test_what_can_be_seen_before_shuts_nothing(self):
        taken = self.lab.popen([harness.PYTHON, "-c", "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        port = taken.stdout.readline().strip()
        nowhere = self.folder / "none"
        (self.folder / "file").write_text("of somebody else")
        before = sorted(path.name for path in self.folder.iterdir())
        cases = {("--health", f"127.0.0.1:{port}"): "--health: cannot listen on",
                 ("--proxy-port", port): "--proxy-port: cannot listen on",
                 ("--dns-port", port): "--dns-port: cannot listen on",
                 ("--ca-out", nowhere / "ca.pem"): f"{nowhere}/ca.pem",
                 ("--bundle-out", nowhere / "bundle.pem"): f"{nowhere}/bundle.pem",
                 ("--audit", nowhere / "audit.jsonl"): f"{nowhere}/audit.jsonl",
                 ("--admin", f"unix:{nowhere}/admin.sock"): f"{nowhere}/admin.sock",
                 ("--admin", f"unix:{self.folder}/file"): f"{self.folder}/file",
                 ("--health", "127.0.0.1:19091", "--proxy-port", "19091"): "name the same place"}
        try:
            for flags, said in cases.items():
                with self.subTest(flags=flags):
                    command = self.sidecar_command(RULES, ())
                    for flag, value in zip(flags[::2], flags[1::2]):
                        if flag in command:
                            command[command.index(flag) + 1] = value
                        else:
                            command += [flag, value]
                    done = self.lab.run(command, cwd=self.work)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(said, done.stderr)
                    self.assertNotIn("nft delete", done.stderr)
                    self.assertEqual(self.lab.run(["nft", "list", "tables"]).stdout, "")
                    self.assertEqual(self.echo("151.101.1.50", 5432).out, "hello\n")
        finally:
            taken.kill()
            taken.communicate()
        new = {path.name for path in self.folder.iterdir()} - set(before)
        self.assertLessEqual(new, {self.policy.name, self.audit.name}, "it left something behind")


class Drain(LifeTest):
    def test_on_sigterm_open_flows_may_end_and_new_ones_are_reset(self):
        drain = 8 * harness.SLOW
        with self.sidecar(RULES, "--drain", f"{drain}s") as sidecar, self.held("db.test", 5432) as ends, self.held("db.test", 5432) as stays:
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
            self.assertGreater(time.monotonic() - begun, drain - 0.5)
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


class Readiness(LifeTest):
    def test_readiness_tells_of_weaknesses_and_of_a_workload_that_could_use_one(self):
        binary = lab_module.binary_for_anyone(self.lab.folder)

        def ready():
            done = self.lab.run(["curl", "-sS", "http://127.0.0.1:19090/readyz"])
            answer = json.loads(done.stdout)
            return answer["ready"], {check["name"]: check.get("detail", "") for check in answer["checks"]}

        own = self.sidecar_command
        # As in a pod: no CAP_NET_RAW, so that no queue of AF_XDP is guarded.
        self.sidecar_command = lambda rules, flags: ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-all", *own(rules, flags)]
        with self.sidecar(RULES, "--health", "127.0.0.1:19090"):
            is_ready, checks = ready()
            self.assertTrue(is_ready, checks)
            self.assertIn("AF_XDP", checks["weakness"])
            # Another container, root in it and with what containers have.
            other = self.lab.popen(["unshare", "--mount", *WITHOUT_NET_ADMIN, "sleep", "60"], cwd=self.work)
            try:
                self.assertEventually(lambda: not ready()[0], "readiness to end", 30)
                self.assertIn("CAP_NET_RAW", ready()[1]["workload"])
                told = self.lab.run([binary, "health", "127.0.0.1:19090"])
                self.assertEqual(told.returncode, 1)
                self.assertIn(f"process {other.pid} (sleep) holds CAP_NET_RAW", told.stdout)
            finally:
                other.kill()
                other.wait()
            self.assertEventually(lambda: ready()[0], "readiness to come back", 30)


if __name__ == "__main__":
    harness.main()
