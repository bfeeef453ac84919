#!/usr/bin/python3
"""`sluice sidecar` with one capability alone, and rules about metadata addresses, UDP and the ports of other resolvers."""
import os
import pathlib

import harness
import zone
from sidecar_test import REAL, SidecarTest

# The sidecar of the manifests: the image's user, with one capability.
NET_ADMIN_ONLY = ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", "--bounding-set=-all,+net_admin", "--inh-caps=-all,+net_admin",
                  "--ambient-caps=-all,+net_admin", "--no-new-privs"]


class NetAdminOnly(SidecarTest):
    def test_is_enough_for_all_of_it(self):
        own = self.folder / "own"
        own.mkdir()
        os.chown(own, 65532, 65532)
        self.ca, self.bundle, self.audit = own / "ca.pem", own / "bundle.pem", own / "audit.jsonl"
        rules = ["allow GET a.test/echo/**", "allow tcp a.test:5432", "allow tcp db.test:5432"]
        for settings in (REAL, "settings: { dns: synthetic }"):
            with self.sidecar(harness.policy_text(rules, settings), as_user=NET_ADMIN_ONLY) as sidecar:
                status = pathlib.Path(f"/proc/{sidecar.process.pid}/status").read_text()
                self.assertIn("CapEff:\t0000000000001000\n", status)
                self.assertIn("Uid:\t65532\t65532\t65532\t65532\n", status)
                self.assertExit(self.curl("https://a.test/echo/x"), 0)
                self.assertIn("403", self.curl("-o", "/dev/null", "-w", "%{http_code}", "https://a.test/private").out)
                with self.held("db.test", 5432) as revoked, self.held("a.test", 5432) as kept:
                    self.policy.write_text(harness.policy_text(rules[:2], settings))
                    self.assertEqual(revoked.stdout.readline(), "cut\n", settings)
                    kept.stdin.write("\n")
                    self.assertEqual(kept.stdout.readline(), "alive\n", settings)
                self.assertNotEqual(self.echo("db.test", 5432).code, 0)
                sidecar.process.kill()
                sidecar.process.wait()
                self.assertNotEqual(self.echo("a.test", 5432).code, 0, "after kill -9")
            with self.sidecar(harness.policy_text(rules, settings), as_user=NET_ADMIN_ONLY):
                self.assertEqual(self.echo("db.test", 5432).out, "hello\n", "after another start")


class Metadata(SidecarTest):
    def test_no_wildcard_leads_to_it(self):
        # It answers on the lab's internet; neither a name nor a pattern that covers it is enough.
        with self.sidecar(harness.policy_text([f"allow tcp *.test:{zone.PORT_TCP_ECHO}", f"allow tcp 0.0.0.0/0:{zone.PORT_TCP_ECHO}"], REAL)):
            filtered = self.workload("dig", "metadata.test", "A").out
            self.assertIn("NOERROR", filtered)
            self.assertIn("ANSWER: 0", filtered)
            self.assertIn("EDE: 17", filtered)
            self.assertNotEqual(self.echo("169.254.169.254", zone.PORT_TCP_ECHO).code, 0)
            self.assertEqual(self.echo("151.101.1.10", zone.PORT_TCP_ECHO).out, "hello\n")


class Udp(SidecarTest):
    UDP = r"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
try:
    s.connect((sys.argv[1], int(sys.argv[2])))
    s.send(b"ping")
    print(s.recv(100).decode())
except OSError as error:
    print(type(error).__name__, error.errno)
"""

    def test_udp_rules_and_nothing_else(self):
        with self.sidecar(harness.policy_text(["allow udp 151.101.1.50:7007", "allow udp db.test:7007"], REAL)):
            self.assertEqual(self.workload(harness.PYTHON, "-c", self.UDP, "151.101.1.50", "7007").out, "ping\n")
            for address, port in (("151.101.1.10", "7007"), ("151.101.1.50", "443"), ("151.101.1.50", "7008")):
                out = self.workload(harness.PYTHON, "-c", self.UDP, address, port).out
                self.assertRegex(out, r"^(ConnectionRefusedError|PermissionError) ", f"{address}:{port}")

    def test_ports_of_other_resolvers_are_as_the_rules_say(self):
        port = zone.PORT_OTHER_RESOLVERS
        rules = [f"allow tcp db.test:{port}", f"allow udp 151.101.1.50:{port}", f"allow tcp 151.101.1.10:{port}", "allow GET a.test"]
        for settings in (REAL, "settings: { dns: synthetic }"):
            with self.sidecar(harness.policy_text(rules, settings)):
                self.assertEqual(self.echo("db.test", port).out, "hello\n", settings)
                self.assertEqual(self.echo("151.101.1.10", port).out, "hello\n", settings)
                self.assertEqual(self.workload(harness.PYTHON, "-c", self.UDP, "151.101.1.50", str(port)).out, "ping\n", settings)
                refused = self.echo("151.101.1.20", port)
                self.assertNotEqual(refused.code, 0, settings)
                self.assertNotIn("hello", refused.out, settings)
                self.assertRegex(self.workload(harness.PYTHON, "-c", self.UDP, "151.101.1.20", str(port)).out, "^(ConnectionRefusedError|PermissionError) ", settings)
            for table in ("inet sluice", "netdev sluice_egress"):
                self.lab.run(["nft", "delete", "table", *table.split()])

    def test_udp_that_nobody_could_judge_is_an_error(self):
        for rules in ([("allow udp 151.101.1.50:7007", {"by": "/usr/bin/curl"})], ["allow udp 151.101.1.0/24:7007", "deny udp 151.101.1.50:7007"]):
            done = self.lab.run(self.sidecar_command(rules, []), cwd=self.work)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, "UDP (is passed by the kernel|passes in the kernel)")


if __name__ == "__main__":
    harness.main()
