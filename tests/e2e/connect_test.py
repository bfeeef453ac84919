#!/usr/bin/python3
"""What connect() says: refusals at once and with the right errno, opaque rules, and addresses nobody may be tricked into dialling."""
import harness

DIAL = """
import errno, signal, socket, sys, time
for spelling in sys.argv[1:]:
    host, port = spelling.rsplit(":", 1)
    begin = time.monotonic()
    signal.alarm(20)
    try:
        # No timeout: Python would connect without blocking, and a blocking caller is told more.
        s = socket.create_connection((host, int(port)))
        said = "connected"
    except socket.gaierror as e:
        said = "unknown-name"
    except OSError as e:
        said = errno.errorcode.get(e.errno, str(e).replace(" ", "-"))
    print(spelling, said, "soon" if time.monotonic() - begin < 1 else "late")
"""

ECHO = """
import socket, ssl, sys
host, port, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
s = socket.create_connection((host, port), timeout=10)
if kind == "tls":
    s = ssl.create_default_context(cafile=sys.argv[4]).wrap_socket(s, server_hostname=sys.argv[5] if len(sys.argv) > 5 else host)
    print("issuer", dict(x[0] for x in s.getpeercert()["issuer"])["commonName"])
s.sendall(b"ping" * 50000)
got = b""
while len(got) < 200000:
    block = s.recv(65536)
    if not block: break
    got += block
print("echoed", len(got), got[:4].decode())
"""


# Many blocking connects to a listener of its own whose backlog is full, each shut down while it waits, beside others that go out.
SHUT = """
import os, socket, threading, time
host = (socket.gethostbyname("db.test"), 5432)
full = socket.socket(); full.bind(("127.0.0.1", 0)); full.listen(0)
kept = [socket.socket() for _ in range(3)]
for s in kept:
    s.setblocking(False); s.connect_ex(full.getsockname())
worst = 0
for burst in range(4):
    hung = [socket.socket() for _ in range(150)]
    for s in hung: threading.Thread(target=lambda s=s: s.connect_ex(full.getsockname()), daemon=True).start()
    time.sleep(1)
    for s in hung:
        try: s.shutdown(socket.SHUT_RDWR)
        except OSError: pass
    end = time.monotonic() + 1
    while time.monotonic() < end:
        begin = time.monotonic()
        s = socket.socket(); s.connect(host); s.close()
        worst = max(worst, time.monotonic() - begin)
print(worst, flush=True)
os._exit(0)
"""


class Refusals(harness.SluiceTest):
    def dial(self, rules, *spellings):
        result = self.python(rules, DIAL, *spellings)
        answers = {line.split(" ")[0]: tuple(line.split(" ")[1:]) for line in result.out.splitlines()}
        self.assertEqual(len(answers), len(spellings), str(result))
        return answers, result

    def test_a_raw_connect_is_eacces_at_once(self):
        answers, result = self.dial(["allow GET a.test"], "140.82.121.4:22", "151.101.1.10:443", "8.8.8.8:853")
        self.assertEqual(set(answers.values()), {("EACCES", "soon")}, str(result))
        self.assertDenialLine(result, "140.82.121.4", "22")
        self.assertEqual(self.served(), [])

    def test_an_allowed_name_on_another_port_is_refused(self):
        answers, result = self.dial(["allow GET a.test"], "a.test:22", "a.test:80", "a.test:8443")
        self.assertEqual(set(answers.values()), {("EACCES", "soon")}, str(result))

    def test_deny_errno_is_a_setting(self):
        text = harness.policy_text(["allow GET a.test"], "settings: { deny-errno: ECONNREFUSED }")
        answers, result = self.dial(text, "140.82.121.4:22")
        self.assertEqual(answers["140.82.121.4:22"], ("ECONNREFUSED", "soon"), str(result))

    def test_odd_spellings_of_an_address_are_addresses(self):
        spellings = ["2346809604:443", "0x8c.0x52.0x79.4:443", "0214.82.121.4:443", "140.82.30980:443", "::ffff:140.82.121.4:443", "127.1:5432", "0:5432"]
        answers, result = self.dial(["allow GET github.com", "allow GET a.test"], *spellings)
        self.assertNotIn("connected", {said for said, _ in answers.values()}, str(result))
        self.assertEqual(self.served(), [])

    def test_metadata_loopback_private_and_own_addresses_are_refused_by_literal(self):
        result = self.python("version: 1\nname: lab\nrules:\n  - allow: tcp 0.0.0.0/0:80\n", DIAL,
                             "169.254.169.254:80", "10.0.0.5:80", "192.168.1.1:80", "100.64.0.1:80", "172.16.0.1:80", "93.184.216.34:80", "224.0.0.1:80")
        said = [line.split(" ")[1] for line in result.out.splitlines()]
        self.assertEqual(said, ["EACCES"] * 7, str(result))
        self.assertEqual(self.served(), [])

    def test_a_name_that_resolves_to_a_refused_address_is_not_dialled(self):
        names = ["rebind.test", "metadata.test", "private.test", "self.test", "mapped.test", "rebind6.test"]
        answers, result = self.dial([f"allow tcp {n}:80" for n in names], *[f"{n}:80" for n in names])
        self.assertEqual(set(answers.values()), {("unknown-name", "soon")}, str(result))
        self.assertEqual(self.served(), [])

    def test_a_private_address_opens_by_ip_alone(self):
        answers, result = self.dial([("allow tcp private.test:80", {"ip": "[10.0.0.0/8]"})], "private.test:80")
        self.assertEqual(answers["private.test:80"], ("connected", "soon"), str(result))
        answers, result = self.dial([("allow tcp private.test:80", {"ip": "[10.1.0.0/16]"})], "private.test:80")
        self.assertNotIn("connected", answers["private.test:80"], str(result))


class Opaque(harness.SluiceTest):
    def test_tcp_bytes_are_relayed_both_ways(self):
        result = self.python(["allow tcp db.test:5432"], ECHO, "db.test", "5432", "tcp")
        self.assertIn("echoed 200000 ping", result.out, str(result))
        finished = [r for r in result.audit if r.get("bytes_up")]
        self.assertTrue(finished and finished[-1]["bytes_up"] == 200000 == finished[-1]["bytes_down"], str(result.audit))

    def test_tcp_by_address(self):
        result = self.python(["allow tcp 151.101.1.50:5432"], ECHO, "151.101.1.50", "5432", "tcp")
        self.assertIn("echoed 200000 ping", result.out, str(result))
        decisions = [r for r in result.audit if r["type"] == "decision"]
        self.assertEqual([(r["layer"], r["verdict"]) for r in decisions], [("connect", "allow")], "one record for one decision")

    def test_tls_is_passed_through_with_the_servers_own_certificate(self):
        result = self.python(["allow tls pinned.test:9443"], ECHO, "pinned.test", "9443", "tls", "/etc/ssl/certs/ca-certificates.crt")
        self.assertIn("issuer Lab authority", result.out, str(result))
        self.assertIn("echoed 200000 ping", result.out)

    def test_a_tls_rule_refuses_another_sni(self):
        result = self.python(["allow tls pinned.test:9443", "allow dns a.test"], ECHO, "pinned.test", "9443", "tls", "/etc/ssl/certs/ca-certificates.crt", "a.test")
        self.assertNotIn("echoed", result.out)
        self.assertNotIn("issuer", result.out)

    def test_a_tls_rule_refuses_what_is_not_tls(self):
        result = self.python(["allow tls pinned.test:9443"], ECHO, "pinned.test", "9443", "tcp")
        self.assertNotIn("echoed 200000", result.out)

    def test_nobody_listening_upstream_is_told_to_a_blocking_caller(self):
        result = self.python(["allow tcp db.test:5999"], DIAL, "db.test:5999")
        self.assertIn("db.test:5999 ECONNREFUSED soon", result.out, str(result))

    def test_connects_that_hang_again_hold_up_no_others(self):
        result = self.python(["allow tcp db.test:5432"], SHUT)
        self.assertExit(result, 0)
        self.assertLess(float(result.out), 0.5 * harness.SLOW, str(result))

    def test_curl_sees_the_lab_certificate_only_where_tls_is_passed_through(self):
        for rule, issuer in (("allow tls a.test", "Lab authority"), ("allow GET a.test", None)):
            result = self.sluice([rule], "curl", "-sSv", "https://a.test/pub")
            self.assertIn("hello", result.out, str(result))
            (self.assertIn if issuer else self.assertNotIn)("issuer: CN=Lab authority", result.err)


class Udp(harness.SluiceTest):
    def test_udp_is_refused_at_once(self):
        script = """
import errno, socket, time
for connected in (True, False):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3)
    begin = time.monotonic()
    try:
        if connected:
            s.connect(("151.101.1.10", 443)); s.send(b"x")
        else:
            s.sendto(b"x", ("151.101.1.10", 443))
        s.recv(100); print("got")
    except OSError as e:
        print(errno.errorcode.get(e.errno, str(e)), "soon" if time.monotonic() - begin < 1 else "late")
"""
        result = self.python(["allow GET a.test"], script)
        self.assertEqual(len(result.out.split("\n")), 3, str(result))
        self.assertNotIn("got", result.out)
        self.assertIn("EACCES soon", result.out.splitlines()[0])


if __name__ == "__main__":
    harness.main()
