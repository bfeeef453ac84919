#!/usr/bin/python3
"""What a workload is told of names, whatever asks and in whatever families, and what true addresses mean later: once a lease ran out, under another
SNI or Host, after the policy changed."""
import json
import os
import re
import subprocess
import time

import harness
import zone
from sidecar_test import REAL, RULES, SidecarTest

os.environ["LAB_TTL"] = "1"  # told as 5 s, so a lease has 65 s


class HeldAddresses(SidecarTest):
    def test_a_lease_that_ran_out_goes_through_the_proxy(self):
        element = "151.101.1.50 . tcp . 5432"
        with self.sidecar(harness.policy_text(RULES, REAL)):
            address = self.workload("getent", "ahostsv4", "db.test").out.split()[0]
            self.assertIn(element, self.sets())
            leased = self.echo(address, 5432, "first")
            self.assertEqual(leased.out, "first\n")
            self.assertFalse(self.relayed(leased, address), "the kernel's own")
            time.sleep(self.left_of(element))
            self.assertEventually(lambda: element not in self.sets(), "the lease to run out", 30)
            late = self.echo(address, 5432, "second")
            self.assertEqual(late.out, "second\n")
            self.assertEventually(lambda: self.relayed(late, address), "the record of a connection that the proxy took")
            self.assertNotIn(element, self.sets())

    def left_of(self, element):
        """Seconds that the kernel still keeps it for."""
        expires = re.search(rf"{re.escape(element)} .*?expires (?:(\d+)m)?(?:(\d+)s)?", self.sets())
        return 60 * int(expires[1] or 0) + int(expires[2] or 0)

    @staticmethod
    def relayed(result, address):
        return [r for r in result.audit if r.get("layer") == "connect" and r["verdict"] == "allow" and r["target"].get("address") == address]

    def test_a_name_that_the_address_was_not_told_for_is_refused(self):
        """By SNI and by Host, though some rule allows it elsewhere."""
        rules = [f"allow GET {scheme}{host}/echo/**" for host in ("a.test", "b.test") for scheme in ("", "http://")]
        with self.sidecar(harness.policy_text(rules, REAL)):
            address = self.workload("getent", "ahostsv4", "a.test").out.split()[0]
            for scheme, port in (("https", 443), ("http", 80)):
                right = self.curl("-i", "--resolve", f"a.test:{port}:{address}", f"{scheme}://a.test/echo/x")
                self.assertIn(" 200 ", right.out.splitlines()[0], str(right))
                wrong = self.curl("-i", "--resolve", f"b.test:{port}:{address}", f"{scheme}://b.test/echo/x")
                self.assertNotIn(" 200 ", wrong.out, str(wrong))
        self.assertFalse([entry for entry in self.served() if "b.test" in entry.get("host", "")])

    def test_a_name_that_is_denied_after_it_was_told_is_refused(self):
        rules = [f"allow GET {scheme}{host}/echo/**" for host in ("a.test", "shared.test") for scheme in ("", "http://")]
        with self.sidecar(harness.policy_text(rules, REAL)) as sidecar:
            for host in ("a.test", "shared.test"):
                address = self.workload("getent", "ahostsv4", host).out.split()[0]

            def ask(host, scheme):
                return self.curl("-i", "--resolve", f"{host}:{443 if scheme == 'https' else 80}:{address}", f"{scheme}://{host}/echo/x").out

            for scheme in ("https", "http"):
                self.assertIn(" 200 ", ask("shared.test", scheme))
            self.policy.write_text(harness.policy_text(rules[:2], REAL))
            self.assertEventually(lambda: "policy reloaded" in sidecar.errors(), "the reload")
            for scheme in ("https", "http"):
                self.assertNotIn(" 200 ", ask("shared.test", scheme))
                self.assertIn(" 200 ", ask("a.test", scheme))


class Families(SidecarTest):
    """Pods with one family or both, asked by glibc, musl and dig."""

    def tearDown(self):
        self.lab.run(["sh", "-c", f"sysctl -qw net.ipv6.conf.all.disable_ipv6=0; ip addr replace {zone.HOST_V4}/24 dev eth0; ip route replace default via {zone.GATEWAY_V4}; "
                      f"ip -6 addr replace {zone.HOST_V6}/64 dev eth0 nodad; ip -6 route replace default via {zone.GATEWAY_V6}"])
        super().tearDown()

    def programs(self, works, absent):
        """Each program comes where it may go, and finds the family that is absent nowhere."""
        for host, address in works.items():
            self.assertIn(address, self.workload("getent", "ahosts", host).out)
            self.assertEqual(json.loads(self.curl(f"https://{host}/echo/x").out)["target"], "/echo/x")
            self.assertIn("200 OK", self.workload(self.musl, host, "/echo/x").out)
            record = "AAAA" if ":" in address else "A"
            self.assertIn(address, self.workload("dig", "+short", host, record).out)
            self.assertIn(f"Address: {address}", self.workload("nslookup", f"-type={record}", host).out)
            # What would lead past the name, or hide it, is not told (RFC 9460, ECH).
            told = self.workload("dig", "+short", host, "HTTPS").out
            self.assertIn('1 . alpn="h2,http/1.1"', told)
            self.assertNotRegex(told, "ech=|hint=")
            self.assertIn("hello, lookup", self.workload("dig", "+short", host, "TXT").out)
            for other in ("SVCB", "MX"):
                answer = self.workload("dig", host, other).out
                self.assertIn("NOERROR", answer)
                self.assertIn("ANSWER: 0", answer)
        for host, record in absent:
            answer = self.workload("dig", host, record).out
            self.assertIn("NOERROR", answer)
            self.assertIn("ANSWER: 0", answer)
        for record in ("A", "AAAA", "HTTPS", "TXT"):
            self.assertIn("NXDOMAIN", self.workload("dig", "b.test", record).out)
        self.assertIn("NXDOMAIN", self.workload("nslookup", "b.test").out)
        # Data in labels: under a wildcard too it goes nowhere.
        carried = "deadbeef" * 6
        for name in (f"{carried}.wild.test", f"{carried}.b.test"):
            self.assertEqual(self.workload("dig", "+short", name, "A").out, "")
        self.assertFalse([name for name in self.asked() if carried in name])
        self.assertNotIn("b.test", self.asked())
        self.assertNotEqual(self.workload("getent", "ahosts", "b.test").code, 0)
        self.assertIn("lookup:", self.workload(self.musl, "b.test", "/").out)

    def setUp(self):
        super().setUp()
        self.musl = self.work / "static_fetch"
        subprocess.run(["musl-gcc", "-static", "-O1", "-o", self.musl, harness.CLIENTS / "static_fetch.c"], check=True)
        rules = [f"allow GET {scheme}{host}/echo/**" for host in ("a.test", "v6only.test") for scheme in ("", "http://")]
        rules += [(f"allow dns {host}", {"types": "[A, AAAA, HTTPS, TXT]"}) for host in ("a.test", "v6only.test")] + ["allow GET *.wild.test"]
        self.rules = harness.policy_text(rules, REAL)

    def test_both(self):
        with self.sidecar(self.rules):
            self.programs({"a.test": "2a04:4e42::10", "v6only.test": "2a04:4e42::30"}, [("v6only.test", "A")])

    def test_ipv4_alone(self):
        self.lab.run(["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"])
        with self.sidecar(self.rules):
            self.programs({"a.test": "151.101.1.10"}, [("a.test", "AAAA"), ("v6only.test", "AAAA")])

    def test_ipv6_alone(self):
        self.lab.run(["sh", "-ec", f"ip -4 addr flush dev eth0; echo 'nameserver {zone.RESOLVER_V6}' >/etc/resolv.conf"])
        try:
            with self.sidecar(self.rules):
                self.programs({"a.test": "2a04:4e42::10", "v6only.test": "2a04:4e42::30"}, [("v6only.test", "A")])
        finally:
            self.lab.run(["sh", "-c", f"echo 'nameserver {zone.RESOLVER}' >/etc/resolv.conf"])


if __name__ == "__main__":
    harness.main()
