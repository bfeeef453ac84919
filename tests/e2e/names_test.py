#!/usr/bin/python3
"""Lookups by the resolvers that programs really use: what is answered, what is refused, and that a refusal never leaves."""
import subprocess

import harness
import zone

NAMES = ["allow GET a.test", "allow GET *.wild.test", "allow GET v6only.test", "allow GET alias.test"]
HTTP = ["allow GET http://a.test"]
# Where the names lead that no rule may follow without `ip:`.
TRAPS = {"rebind.test": "127.0.0.1", "metadata.test": "169.254.169.254", "private.test": "10.0.0.5", "mapped.test": "127.0.0.1",
         "rebind6.test": "::1", "self.test": zone.HOST_V4}


class Dig(harness.SluiceTest):
    def dig(self, *arguments, rules=NAMES):
        return self.sluice(rules, "dig", "+tries=1", "+time=5", *arguments)

    def test_an_allowed_name_is_answered_over_udp_and_tcp(self):
        for transport in ("+notcp", "+tcp"):
            result = self.dig(transport, "a.test")
            self.assertIn("status: NOERROR", result.out)
            self.assertRegex(result.out, r"a\.test\.\s+\d+\s+IN\s+A\s+198\.1[89]\.")

    def test_aaaa_is_answered(self):
        self.assertRegex(self.dig("AAAA", "a.test").out, r"IN\s+AAAA\s+[0-9a-f:]+")
        self.assertRegex(self.dig("AAAA", "v6only.test").out, r"IN\s+AAAA\s+[0-9a-f:]+")

    def test_an_https_record_carries_no_hint_and_no_ech(self):
        granted = [*NAMES, ("allow dns a.test", {"types": "[A, AAAA, HTTPS]"})]
        result = self.dig("HTTPS", "a.test", rules=granted)
        self.assertRegex(result.out, r'IN\s+HTTPS\s+1 \. alpn="h2,http/1.1"')
        self.assertNotRegex(result.out, r"ech=|ipv4hint=|ipv6hint=")
        self.assertIn("ANSWER: 0", self.dig("HTTPS", "a.test").out)  # no rule grants the type

    def test_any_server_address_is_answered_by_the_policy_resolver(self):
        self.assertRegex(self.dig("@8.8.8.8", "a.test").out, r"IN\s+A\s+198\.1[89]\.")
        self.assertIn("NXDOMAIN", self.dig("@8.8.8.8", "b.test").out)

    def test_a_denied_name_is_nxdomain_with_an_explanation_and_never_leaves(self):
        for arguments in (["b.test"], ["+tcp", "b.test"], ["AAAA", "b.test"], ["TXT", "b.test"], ["HTTPS", "b.test"],
                          ["secret-bytes.b.test"], ["MX", "exfil.example"]):
            result = self.dig(*arguments)
            self.assertIn("status: NXDOMAIN", result.out, str(arguments))
            self.assertRegex(result.out, r"EDE: 15", str(arguments))
        self.assertFalse({n for n in self.asked() if "b.test" in n or "exfil" in n})

    def test_the_parent_of_an_allowed_name_is_nodata(self):
        result = self.dig("wild.test")
        self.assertIn("status: NOERROR", result.out)
        self.assertIn("ANSWER: 0", result.out)

    def test_a_wildcard_is_one_label(self):
        self.assertIn("status: NOERROR", self.dig("x.wild.test").out)
        self.assertIn("status: NXDOMAIN", self.dig("y.x.wild.test").out)

    def test_an_alias_resolves_and_the_canonical_name_needs_no_rule(self):
        self.assertRegex(self.dig("alias.test", rules=["allow GET alias.test"]).out, r"IN\s+A\s+198\.1[89]\.")

    def test_an_allowed_name_that_does_not_exist_is_nxdomain(self):
        self.assertIn("NXDOMAIN", self.dig("nothing.wild.test").out)

    def test_a_name_that_leads_only_to_refused_addresses_is_filtered_and_says_where_it_leads(self):
        for name, where in TRAPS.items():
            for kind in ("A", "AAAA"):
                result = self.dig(kind, name, rules=[f"allow GET {name}", f"allow tcp {name}:80"])
                self.assertIn("status: NOERROR", result.out, f"{kind} {name}")
                self.assertIn("ANSWER: 0", result.out, f"{kind} {name}")
                self.assertRegex(result.out, rf"EDE: 17 \(Filtered\).*{name} leads to {where}", f"{kind} {name}")
                self.assertIn(name, self.asked())
                denials = result.denials(host=name)
                self.assertEqual([(r["reason"], r["target"]["address"]) for r in denials], [("private_ip", where)], str(denials))
                self.assertDenialLine(result, f"lookup of {name}", "private ip")
                self.assertRegex(result.err, rf"{name} leads to {where}, which is special \([^)]+\); a rule would need ip: \[{where}\]; nearest: GET {name} \(policy.yaml:4\)")

    def test_of_mixed_addresses_the_public_ones_are_used(self):
        for kind in ("A", "AAAA"):
            self.assertIn("ANSWER: 1", self.dig(kind, "mixed.test", rules=["allow GET http://mixed.test"]).out)
        result = self.sluice(["allow GET http://mixed.test"], "curl", "-sS", "http://mixed.test/pub")
        self.assertIn("hello from the lab", result.out, str(result))

    def test_ip_opens_a_private_address_for_lookups_too(self):
        opened = [("allow tcp private.test:80", {"ip": "[10.0.0.0/8]"})]
        self.assertRegex(self.dig("private.test", rules=opened).out, r"IN\s+A\s+198\.1[89]\.")
        by_address = ["allow dns private.test", "allow tcp 10.0.0.0/24:80"]
        self.assertRegex(self.dig("private.test", rules=by_address).out, r"IN\s+A\s+198\.1[89]\.")
        self.assertIn("ANSWER: 0", self.dig("private.test", rules=["allow dns private.test"]).out)

    def test_nslookup_shows_the_same(self):
        allowed = self.sluice(NAMES, "nslookup", "a.test")
        self.assertRegex(allowed.out, r"Address: 198\.1[89]\.", str(allowed))
        denied = self.sluice(NAMES, "nslookup", "b.test")
        self.assertRegex(denied.out, r"can't find b\.test: NXDOMAIN")
        self.assertNotIn("b.test", self.asked())

    def test_a_long_label_under_a_wildcard_is_refused_and_never_leaves(self):
        label = "c2VjcmV0LWJ5dGVz" * 3 + "0123456"
        result = self.dig(f"{label}.wild.test")
        self.assertNotIn("status: NOERROR", result.out)
        self.assertFalse({n for n in self.asked() if label.lower() in n.lower()})
        self.assertIn("status: NOERROR", self.dig("x.wild.test").out)


class Libc(harness.SluiceTest):
    def test_getent_answers_the_allowed_and_not_the_denied(self):
        self.assertRegex(self.sluice(NAMES, "getent", "ahosts", "a.test").out, r"STREAM")
        denied = self.sluice(NAMES, "getent", "ahosts", "b.test")
        self.assertExit(denied, 2)
        self.assertDenialLine(denied, "b.test")

    def test_a_name_that_leads_inside_does_not_resolve_and_one_line_says_why(self):
        # curl writes its line in pieces, between which the supervisor's may fall: to another pipe.
        for command, code, said in ((["getent", "ahosts", "private.test"], 2, ""),
                                    (["sh", "-c", "curl -sS http://private.test/ 2>&1"], 6, "Could not resolve host: private.test")):
            result = self.sluice(["allow GET http://private.test"], *command)
            self.assertExit(result, code)
            self.assertIn(said, result.out)
            self.assertEqual(result.err.count("denied  "), 1, str(result))
            self.assertIn("leads to 10.0.0.5, which is special (private); a rule would need ip: [10.0.0.5]", result.err)

    def test_a_static_musl_program_looks_up_and_connects(self):
        program = self.work / "static_fetch"
        subprocess.run(["musl-gcc", "-static", "-O1", "-o", program, harness.CLIENTS / "static_fetch.c"], check=True)
        allowed = self.sluice(HTTP, str(program), "a.test", "/pub")
        self.assertIn("hello from the lab", allowed.out)
        denied = self.sluice(HTTP, str(program), "b.test", "/pub")
        self.assertExit(denied, 2)
        self.assertIn("lookup:", denied.out)
        self.assertNotIn("b.test", self.asked())
        self.assertIn("403 Egress denied", self.sluice(["allow POST http://a.test"], str(program), "a.test", "/pub").out)

    def test_a_resolver_that_never_connects_its_socket_is_answered_and_attributed(self):
        program = self.work / "unconnected_lookup"
        subprocess.run(["gcc", "-O1", "-o", program, harness.CLIENTS / "unconnected_lookup.c"], check=True)
        allowed = self.sluice(HTTP, str(program), "8.8.8.8", "a.test")
        self.assertExit(allowed, 0)
        self.assertIn("id 4200 rcode 0 answers 1", allowed.out)
        denied = self.sluice(HTTP, str(program), "8.8.8.8", "b.test")
        self.assertIn("id 4200 rcode 3", denied.out)
        self.assertIn("id 4201 rcode 3", denied.out)
        self.assertDenialLine(denied, "b.test", "unconnected_lo")


if __name__ == "__main__":
    harness.main()
