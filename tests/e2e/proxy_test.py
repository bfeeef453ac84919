#!/usr/bin/python3
"""`sluice proxy`: CONNECT and SOCKS5 by real clients and by raw bytes; who a client is; what it is told."""
import json
import os
import re
import signal
import stat
import subprocess
import time

import harness
import proxy_harness
import zone
from proxy_harness import TOKEN

READ = ["allow GET a.test/pub/**"]
SOCKS_NONE = b"\x05\x01\x00"


def socks_request(host, port, command=1):
    return bytes([5, command, 0, 3, len(host)]) + host.encode() + port.to_bytes(2, "big")


class Connect(proxy_harness.ProxyTest):
    def test_a_get_that_a_rule_allows_is_answered_through_the_tunnel(self):
        with self.proxy(READ) as proxy:
            result = self.curl(proxy, "https://a.test/pub/x")
            self.assertExit(result, 0)
            self.assertIn("hello from the lab", result.out)

    def test_a_denial_where_a_rule_inspects_is_told_inside_with_its_body(self):
        with self.proxy(READ) as proxy:
            result = self.curl(proxy, "-i", "-d", "{}", "https://a.test/pub/x")
            self.assertExit(result, 0)
            self.assertIn("200 Connection established", result.out)
            self.assertRegex(result.out, r'HTTP/1\.1 403 Egress denied: needs "POST a\.test/pub/x" \(d-\d+\)')
            self.assertEqual(json.loads(result.out.rsplit("\n\n", 1)[1])["method"], "POST")
            self.assertEqual([e for e in self.served() if e.get("method") == "POST"], [])
            self.assertEventually(lambda: proxy.denials(method="POST"), "its record")

    def test_a_host_that_no_rule_mentions_is_refused_at_the_connect(self):
        with self.proxy(READ) as proxy:
            result = self.curl(proxy, "https://b.test/pub/x")
            self.assertExit(result, 56)
            self.assertIn("response 403", result.err)
            answer = self.connect(proxy, "b.test:443")
            self.assertRegex(answer, r'^HTTP/1\.1 403 Egress denied: needs "[^"]*b\.test[^"]*" \(d-\d+\)\r\n')
            self.assertRegex(answer, r"(?i)proxy-status: sluice; error=http_request_denied")
            body = json.loads(answer.split("\r\n\r\n", 1)[1])
            self.assertEqual((body["method"], body["host"], body["port"], body["code"]), ("CONNECT", "b.test", 443, "no_rule"))
            self.assertNotIn("b.test", self.asked())
            self.assertEventually(lambda: "denied  connect b.test:443" in proxy.errors(), "the line on standard error")
            self.assertEventually(lambda: proxy.denials(host="b.test", port=443), "its record")

    def test_wget_and_urllib_show_the_reason_phrase(self):
        with self.proxy(READ) as proxy:
            wget = self.client_run("wget", "-O-", "https://b.test/x", env=self.environment(proxy))
            self.assertNotEqual(wget.code, 0)
            self.assertIn("Egress denied", wget.err)
            urllib = self.client_run(harness.PYTHON, "-c", "import urllib.request; urllib.request.urlopen('https://b.test/x')", env=self.environment(proxy))
            self.assertIn("Egress denied", urllib.err)

    def test_a_tls_rule_leaves_the_clients_tls_alone(self):
        with self.proxy(["allow tls a.test"]) as proxy:
            result = self.client_run("curl", "-sS", "-x", proxy.url, "--cacert", self.lab.ca, "https://a.test/pub/x")
            self.assertIn("hello from the lab", result.out, str(result))

    def test_a_tcp_rule_carries_any_bytes(self):
        with self.proxy(["allow tcp db.test:5432"]) as proxy:
            answer = self.raw(proxy, "CONNECT db.test:5432 HTTP/1.1\r\nHost: db.test:5432\r\n\r\n", b"\x00ping\xff")
            self.assertTrue(answer.startswith("HTTP/1.1 200 "), answer)
            self.assertIn("\x00ping\xff", answer)

    def test_bytes_sent_ahead_of_the_answer_are_not_lost(self):
        with self.proxy(["allow tcp db.test:5432"]) as proxy:
            head = b"CONNECT db.test:5432 HTTP/1.1\r\nHost: db.test:5432\r\n\r\n"
            self.assertIn("ping", self.raw(proxy, head + b"ping"))
            self.assertIn("ping", self.raw(proxy, SOCKS_NONE + socks_request("db.test", 5432) + b"ping"))

    def test_an_upstream_that_refuses_is_told_at_the_connect_and_in_the_socks_reply(self):
        with self.proxy([f"allow tcp a.test:{zone.PORT_NOBODY}"]) as proxy:
            self.assertRegex(self.connect(proxy, f"a.test:{zone.PORT_NOBODY}"), r"^HTTP/1\.1 502 Bad Gateway: .*refused")
            self.assertIn("\x05\x05\x00\x01", self.raw(proxy, SOCKS_NONE, socks_request("a.test", zone.PORT_NOBODY)))

    def test_a_tunnel_in_the_clear_is_judged_as_http(self):
        with self.proxy(["allow GET http://a.test/pub/**"]) as proxy:
            self.assertIn("hello", self.curl(proxy, "-p", "http://a.test/pub/x").out)
            self.assertIn("403 Egress denied", self.curl(proxy, "-p", "-i", "-X", "DELETE", "http://a.test/pub/x").out)

    def test_what_a_connect_names_wins_over_its_host(self):
        with self.proxy(["allow tcp db.test:5432"]) as proxy:
            self.assertIn(" 200 ", self.connect(proxy, "db.test:5432", [f"Host: 127.0.0.1:{proxy.port}"]))
            self.assertRegex(self.connect(proxy, "b.test:5432", ["Host: db.test:5432"]), r"^HTTP/1\.1 403 ")

    def test_http_1_0_without_a_host_is_served(self):
        with self.proxy(["allow tcp db.test:5432"]) as proxy:
            self.assertIn(" 200 ", self.connect(proxy, "db.test:5432", [], "1.0"))


class Attacks(proxy_harness.ProxyTest):
    def test_targets_that_two_readers_could_understand_differently_are_refused(self):
        with self.proxy(["allow tcp **:1-65535", "allow http a.test"]) as proxy:
            for target, fields in (
                ("a.test", ["Host: a.test"]), ("a.test:0", ["Host: a.test"]), ("u@a.test:443", ["Host: a.test"]), ("http://a.test:443/", ["Host: a.test"]),
                ("/a.test:443", ["Host: a.test"]), ("a.test:443", ["Host: u@a.test"]), ("a.test:443", ["Host: a.test:x"]), ("127.1:443", ["Host: a.test"]),
                ("2130706433:443", ["Host: a.test"]), ("0x7f.0.0.1:443", ["Host: a.test"]), ("0177.0.0.1:80", ["Host: a.test"]), ("a%2etest:443", ["Host: a.test"]),
                ("a.test:443", []), ("a.test:443", ["Host: a.test", "Host: a.test"]), ("a.test:443", ["Host: a.test", "Content-Length: 3"]),
                ("a.test:443", ["Host: a.test", "Transfer-Encoding: chunked"]), ("a.test:443", ["Host : a.test"]), ("a.test:443", [" Host: a.test"]),
            ):
                with self.subTest(target=target, fields=fields):
                    self.assertRegex(self.connect(proxy, target, fields), r"^HTTP/1\.1 400 Bad Request: ")
            self.assertEqual(self.served(), [])

    def test_the_proxy_is_not_reached_through_itself_by_any_name(self):
        rules = [("allow tcp **:3128", {"ip": "[127.0.0.0/8, '::1/128', 0.0.0.0/32, '::/128', 93.184.216.34/32]"})]
        with self.proxy(rules, listen=("0.0.0.0:3128",)[:0] or ("127.0.0.1:3128",)) as proxy:
            for target in ("127.0.0.1:3128", "[::ffff:127.0.0.1]:3128", "0.0.0.0:3128", "[::]:3128", "rebind.test:3128"):
                with self.subTest(target=target):
                    self.assertRegex(self.connect(proxy, target), r"^HTTP/1\.1 403 ")

    def test_a_listener_on_every_address_is_not_reached_by_any_of_them(self):
        rules = [("allow tcp **:3128", {"ip": "[127.0.0.0/8, '::1/128', 0.0.0.0/32, 93.184.216.34/32]"})]
        with self.proxy(rules, "--allow-open", listen=("0.0.0.0:3128",)) as proxy:
            for target in ("127.0.0.1:3128", "127.0.0.2:3128", "93.184.216.34:3128", "0.0.0.0:3128", "self.test:3128", "rebind.test:3128"):
                with self.subTest(target=target):
                    self.assertRegex(self.connect(proxy, target), r"^HTTP/1\.1 403 ")

    def test_special_addresses_are_refused_by_name_and_by_number(self):
        with self.proxy(["allow tcp **:80"]) as proxy:
            for target in ("169.254.169.254:80", "metadata.test:80", "10.0.0.5:80", "private.test:80", "127.0.0.1:80", "[::1]:80", "mapped.test:80"):
                with self.subTest(target=target):
                    self.assertRegex(self.connect(proxy, target), r"^HTTP/1\.1 403 ")

    def test_another_sni_than_the_connects_is_refused_before_anyone_is_asked(self):
        script = """
import socket, ssl, sys
ahead = sys.argv[2] == "ahead"
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(incoming, outgoing, server_hostname="b.test")
try: tls.do_handshake()
except ssl.SSLWantReadError: pass
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20)
head = b"CONNECT a.test:443 HTTP/1.1\\r\\nHost: a.test:443\\r\\n\\r\\n"
got = b""
if ahead: s.sendall(head + outgoing.read())
else: s.sendall(head); got += s.recv(4096); s.sendall(outgoing.read())
s.settimeout(30)
try:
    while piece := s.recv(4096): got += piece
except ConnectionResetError: pass
print(got.hex())
"""
        for rules in (READ, ["allow tls a.test"]):
            with self.proxy(rules) as proxy:
                for when in ("ahead", "after"):
                    result = self.client_run(harness.PYTHON, "-c", script, str(proxy.port), when)
                    self.assertIn("15030300020270", result.out, f"no unrecognized_name alert\n{result}")
                self.assertNotIn("a.test", self.asked())
                self.assertEventually(lambda: [r for r in proxy.denials(host="a.test") if r["reason"] == "authority_mismatch"], "its record")

    def test_a_head_that_trickles_is_read_and_one_that_is_too_large_is_not(self):
        script = """
import socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20)
for b in b"CONNECT db.test:5432 HTTP/1.1\\r\\nHost: db.test:5432\\r\\n\\r\\nping":
    s.sendall(bytes([b])); time.sleep(0.001)
out = b""
while b"ping" not in out:
    piece = s.recv(100)
    if not piece: break
    out += piece
print(out)
"""
        with self.proxy(["allow tcp db.test:5432"]) as proxy:
            self.assertIn("ping", self.client_run(harness.PYTHON, "-c", script, str(proxy.port)).out)
            large = "CONNECT db.test:5432 HTTP/1.1\r\nHost: db.test:5432\r\n" + "x: y\r\n" * 8000 + "\r\n"
            self.assertRegex(self.raw(proxy, large), r"^HTTP/1\.1 431 ")
            self.assertRegex(self.raw(proxy, "CONNECT " + "a" * 20000), r"^HTTP/1\.1 414 ")

    def test_tls_and_socks4_to_the_listener_are_refused_in_their_own_words(self):
        with self.proxy(READ) as proxy:
            self.assertEqual(self.raw(proxy, b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"), "\x15\x03\x03\x00\x02\x02\x0a")
            self.assertEqual(self.raw(proxy, b"\x04\x01\x01\xbb\x00\x00\x00\x01\x00a.test\x00")[:2], "\x00\x5b")
            self.assertEventually(lambda: "SOCKS4" in proxy.errors(), "a line that says so")

    def test_a_file_for_nobody_and_an_open_listener_are_refused_at_start(self):
        for flags, says in ((["--listen", "0.0.0.0:3128"], "--allow-open"), (["--listen", "nonsense"], "ADDRESS:PORT"), ([], "no address"),
                            (["--listen", "127.0.0.1:0", "--proxy-protocol", "required"], "--proxy-protocol-from"),
                            (["--listen", "127.0.0.1:0", "--client-ca", "x"], "--listen-tls-cert"),
                            (["--listen", "127.0.0.1:0", "--tokens", "/nowhere"], "--tokens"),
                            (["--listen", "192.0.2.77:3128", "--allow-open"], "no interface of this machine has that address"),
                            (["--listen", "127.0.0.1:3999", "--listen", "127.0.0.1:3999"], "choose another port"),
                            (["--listen", "127.0.0.1:0", "--allow", "udp a.test:53"], "carries no UDP")):
            result = self.plain_sluice("proxy", "--allow", "GET a.test", *flags)
            self.assertExit(result, 2)
            self.assertIn(says, result.err)


class Socks(proxy_harness.ProxyTest):
    def test_curl_by_socks5_with_remote_names(self):
        with self.proxy(READ) as proxy:
            self.assertIn("hello from the lab", self.curl(proxy, "https://a.test/pub/x", via=proxy.socks).out)
            self.assertIn("403 Egress denied", self.curl(proxy, "-i", "-d", "x", "https://a.test/pub/x", via=proxy.socks).out)

    def test_a_denied_name_is_reply_2_and_a_record(self):
        with self.proxy(READ) as proxy:
            result = self.curl(proxy, "https://b.test/", via=proxy.socks)
            self.assertExit(result, 97)
            self.assertEqual(self.raw(proxy, SOCKS_NONE, socks_request("b.test", 443)), "\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00")
            self.assertEventually(lambda: proxy.denials(host="b.test", port=443), "its record")
            self.assertNotIn("b.test", self.asked())

    def test_other_commands_and_odd_names_are_refused(self):
        with self.proxy(["allow tcp **:443"]) as proxy:
            self.assertEqual(self.raw(proxy, SOCKS_NONE, socks_request("a.test", 443, command=2))[2:4], "\x05\x07")
            self.assertEqual(self.raw(proxy, SOCKS_NONE, socks_request("a.test", 443, command=3))[2:4], "\x05\x07")
            self.assertEqual(self.raw(proxy, SOCKS_NONE, socks_request("127.1", 443))[2:4], "\x05\x01")
            self.assertEqual(self.raw(proxy, SOCKS_NONE, b"\x05\x01\x00\x09x")[2:4], "\x05\x08")
            self.assertEqual(self.raw(proxy, b"\x05\x01\x02"), "\x05\xff")


class Who(proxy_harness.ProxyTest):
    def test_a_token_is_asked_for_and_never_passed_on(self):
        with self.proxy(["allow GET a.test", "allow GET http://a.test"], "--tokens", self.tokens()) as proxy:
            refused = self.curl(proxy, "https://a.test/echo")
            self.assertExit(refused, 56)
            self.assertIn("407", refused.err)
            for arguments in (["-U", f"ci:{TOKEN}"], ["--proxy-header", f"Proxy-Authorization: Bearer {TOKEN}"], ["--proxy-anyauth", "-U", f"ci:{TOKEN}"]):
                result = self.curl(proxy, *arguments, "https://a.test/echo")
                self.assertExit(result, 0)
                self.assertNotIn("proxy", json.dumps(json.loads(result.out)["headers"]).lower())
            self.assertIn("407", self.curl(proxy, "-U", "ci:wrong", "https://a.test/echo").err)
            self.assertIn("407", self.curl(proxy, "-U", f"other:{TOKEN}", "https://a.test/echo").err)
            self.assertExit(self.curl(proxy, "https://a.test/pub/x", via=f"socks5h://ci:{TOKEN}@127.0.0.1:{proxy.port}"), 0)
            self.assertExit(self.curl(proxy, "https://a.test/pub/x", via=f"socks5h://ci:no@127.0.0.1:{proxy.port}"), 97)
            self.assertExit(self.curl(proxy, "https://a.test/pub/x", via=proxy.socks), 97)
            self.assertEventually(lambda: any(r.get("verdict") == "allow" for r in proxy.audit), "a record")
            allowed = [r for r in proxy.audit if r.get("verdict") == "allow"]
            self.assertTrue(allowed and all("ci" in json.dumps(r["process"]) for r in allowed), allowed)
            self.assertNotIn(TOKEN, self.audit.read_text() + proxy.errors())

    def test_a_clients_process_is_known_by_its_loopback_socket(self):
        with self.proxy([("allow GET a.test", {"by": "[/usr/bin/curl]"})]) as proxy:
            self.assertIn("hello", self.curl(proxy, "https://a.test/pub/x").out)
            wget = self.client_run("wget", "-O-", "https://a.test/pub/x", env=self.environment(proxy))
            self.assertNotEqual(wget.code, 0)
            self.assertIn("Egress denied", wget.err)
            self.assertEventually(lambda: re.search(r"denied  connect a\.test:443   wget\[\d+\]", proxy.errors()), "who it was")
            curl = next(r for r in proxy.audit if r.get("verdict") == "allow")["process"]
            self.assertEqual(curl["exe"], os.path.realpath("/usr/bin/curl"))

    def test_what_clients_of_a_unix_socket_send_beside_octets_holds_nobody_up(self):
        path = self.folder / "proxy.sock"
        script = harness.FULL_SOCKET + """
import sys
refused, clients = 0, []
for full in [full_socket() for _ in range(30)]:
    client = socket.socket(socket.AF_UNIX); client.connect(sys.argv[1]); clients.append(client)
    try: socket.send_fds(client, [b"GET "], [full])
    except PermissionError: refused += 1
    let_go(full)
print(refused, flush=True)
sys.stdin.read()
"""
        # The second as on kernels that cannot refuse descriptors.
        for fault, refused in ((None, "30\n"), ("unix.refuse-descriptors:EINVAL", "0\n")):
            with self.proxy(["allow GET a.test"], listen=(f"unix:{path}",), env={"SLUICE_FAULT": fault} if fault else None) as proxy:
                clients = self.lab.popen([harness.PYTHON, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                try:
                    self.assertEqual(clients.stdout.readline(), refused, fault)
                    for _ in range(8):  # for each thread of the proxy's
                        self.assertIn("hello", self.curl(proxy, "-m", "10", "https://a.test/pub/x", via=f"socks5h://localhost{path}").out, fault)
                    self.assertEqual(proxy.stop(), 0)
                finally:
                    clients.kill()
                    clients.communicate()

    def test_a_unix_sockets_peer_is_known(self):
        path = self.folder / "proxy.sock"
        with self.proxy([("allow GET a.test", {"by": "[/usr/bin/curl]"})], listen=(f"unix:{path}",)) as proxy:
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
            result = self.curl(proxy, "https://a.test/pub/x", via=f"socks5h://localhost{path}")
            self.assertIn("hello", result.out, str(result))
            script = """
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
s.sendall(b"CONNECT a.test:443 HTTP/1.1\\r\\nHost: a.test:443\\r\\n\\r\\n"); print(s.recv(4096).decode())
"""
            self.assertIn("403 Egress denied", self.client_run(harness.PYTHON, "-c", script, path).out)
            self.assertEqual(proxy.stop(), 0)
        self.assertFalse(path.exists())

    def test_a_client_certificate_is_asked_for_and_named(self):
        folder = self.folder
        script = f"""cd {folder}
for n in server client; do openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=$n-ca -keyout $n-ca.key -out $n-ca.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=$n -keyout $n.key -out $n.csr
printf 'subjectAltName=IP:127.0.0.1,DNS:%s.corp.test' $n > $n.ext; openssl x509 -req -in $n.csr -CA $n-ca.pem -CAkey $n-ca.key -CAcreateserial -days 2 -extfile $n.ext -out $n.pem; done
chmod a+r *"""
        subprocess.run(["sh", "-ec", script], check=True, capture_output=True)
        flags = ["--listen-tls-cert", folder / "server.pem", "--listen-tls-key", folder / "server.key", "--client-ca", folder / "client-ca.pem"]
        with self.proxy(READ, *flags) as proxy:
            self.assertIn("https://127.0.0.1:", proxy.ready)
            url = f"https://127.0.0.1:{proxy.port}"
            mine = ["--proxy-cacert", folder / "server-ca.pem"]
            self.assertNotEqual(self.curl(proxy, *mine, "https://a.test/pub/x", via=url).code, 0)
            mine += ["--proxy-cert", folder / "client.pem", "--proxy-key", folder / "client.key"]
            result = self.curl(proxy, *mine, "https://a.test/pub/x", via=url)
            self.assertIn("hello from the lab", result.out, str(result))
            self.assertIn("403 Egress denied", self.curl(proxy, *mine, "-i", "-d", "x", "https://a.test/pub/x", via=url).out)
            self.assertIn("response 403", self.curl(proxy, *mine, "https://b.test/", via=url).err)
            big = self.curl(proxy, *mine, "-o", "/dev/null", "-w", "%{size_download}", "https://a.test/pub/../pub/x", via=url)
            self.assertExit(big, 0)
            self.assertEventually(lambda: any(r.get("verdict") == "allow" for r in proxy.audit), "a record")
            allowed = [r for r in proxy.audit if r.get("verdict") == "allow"]
            self.assertTrue(allowed and all(r["process"]["client"] == "client.corp.test" for r in allowed), allowed)

    def test_a_rule_about_processes_that_nobody_can_see_is_told(self):
        with self.proxy([("allow GET a.test", {"by": "[/usr/bin/curl]"})], "--tokens", self.tokens(), listen=("93.184.216.34:3128",)) as proxy:
            self.assertIn("never allows anything", proxy.errors())


class BehindABalancer(proxy_harness.ProxyTest):
    FROM = ("--proxy-protocol", "required", "--proxy-protocol-from", "127.0.0.1")

    def test_curl_says_where_a_client_is_and_others_are_not_believed(self):
        with self.proxy(READ, *self.FROM) as proxy:
            self.curl(proxy, "--haproxy-protocol", "https://a.test/pub/x", via=proxy.url)
            self.assertNotEqual(self.curl(proxy, "https://a.test/pub/x").code, 0)
            header = b"PROXY TCP4 203.0.113.7 203.0.113.8 5000 3128\r\n"
            answer = self.raw(proxy, header + b"CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n")
            self.assertRegex(answer, r"^HTTP/1\.1 403 ")
            two = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c" + bytes([203, 0, 113, 9, 203, 0, 113, 8, 0x13, 0x88, 0x0c, 0x38])
            self.assertRegex(self.raw(proxy, two + b"CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n"), r"^HTTP/1\.1 403 ")
            for address in ("203.0.113.7", "203.0.113.9"):
                self.assertEventually(lambda: address in json.dumps([r["process"] for r in proxy.denials(host="b.test")]), f"a record of {address}")
        with self.proxy(READ, "--proxy-protocol", "required", "--proxy-protocol-from", "10.0.0.0/8") as proxy:
            self.assertIn("[reset]", self.raw(proxy, header + b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n"))

    def test_haproxy_and_nginx_send_it(self):
        with self.proxy(READ, *self.FROM) as proxy:
            haproxy, nginx = self.folder / "haproxy.cfg", self.folder / "nginx.conf"
            haproxy.write_text(f"defaults\n mode tcp\n timeout connect 5s\n timeout client 30s\n timeout server 30s\nlisten in\n bind 127.0.0.1:3901\n server s 127.0.0.1:{proxy.port} send-proxy-v2\n")
            module = "/usr/lib/nginx/modules/ngx_stream_module.so"
            load = f"load_module {module};" if os.path.exists(module) else ""
            nginx.write_text(f"{load} daemon off; pid {self.work}/nginx.pid; error_log stderr; events {{}} stream {{ server {{ listen 127.0.0.1:3902; proxy_pass 127.0.0.1:{proxy.port}; proxy_protocol on; }} }}")
            for port, command in ((3901, ["haproxy", "-f", haproxy]), (3902, ["nginx", "-p", self.work, "-c", nginx])):
                process = self.lab.popen(command, cwd=self.work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                try:
                    done = self.client_run("curl", "-sS", "--retry", "20", "--retry-connrefused", "--retry-delay", "1", "-m", "30", "-x", f"http://127.0.0.1:{port}", "--cacert", self.bundle, "https://a.test/pub/x")
                    self.assertIn("hello from the lab", done.out, str(done))
                finally:
                    process.terminate()
                    process.communicate()


class Life(proxy_harness.ProxyTest):
    def test_the_certificate_is_written_and_the_environment_printed(self):
        with self.proxy(READ, "--print-env") as proxy:
            self.assertEqual(stat.S_IMODE(self.ca.stat().st_mode), 0o644)
            self.assertIn("BEGIN CERTIFICATE", self.ca.read_text())
            self.assertNotIn("PRIVATE", self.ca.read_text() + self.bundle.read_text())
            self.assertRegex(proxy.ready, r"sluice: ready  policy [0-9a-f]{12}  1 rule  http://127\.0\.0\.1:\d+")
            lines = [proxy.process.stdout.readline() for _ in range(8)]
            self.assertIn(f"export HTTPS_PROXY='{proxy.url}'\n", lines)
            self.assertIn(f"export NODE_EXTRA_CA_CERTS='{self.ca}'\n", lines)

    def test_a_changed_policy_cuts_what_it_no_longer_allows(self):
        with self.proxy(["allow tcp db.test:5432", "allow GET a.test"]) as proxy:
            script = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30)
s.sendall(b"CONNECT db.test:5432 HTTP/1.1\\r\\nHost: db.test:5432\\r\\n\\r\\n"); print(s.recv(4096), flush=True)
s.settimeout(30)
try: print("ended", s.recv(10), flush=True)
except ConnectionResetError: print("ended by reset", flush=True)
"""
            client = self.lab.popen([harness.PYTHON, "-c", script, str(proxy.port)], cwd=self.work, stdout=subprocess.PIPE, text=True)
            self.assertIn("200", client.stdout.readline())
            self.policy.write_text(harness.policy_text(["allow GET a.test"]))
            self.assertIn("ended", client.communicate(timeout=40 * harness.SLOW)[0])
            self.assertRegex(self.connect(proxy, "db.test:5432"), r"^HTTP/1\.1 403 ")
            self.policy.write_text("version: 1\nrules: [nonsense]\n")
            self.assertEventually(lambda: "policy not reloaded" in proxy.errors(), "the error")
            self.assertExit(self.curl(proxy, "https://a.test/pub/x"), 0)

    def test_tokens_are_read_anew_at_sighup(self):
        tokens = self.tokens()
        with self.proxy(READ, "--tokens", tokens) as proxy:
            self.assertExit(self.curl(proxy, "-U", f"ci:{TOKEN}", "https://a.test/pub/x"), 0)
            tokens.write_text(tokens.read_text().replace("ci ", "renamed "))
            proxy.process.send_signal(signal.SIGHUP)
            self.assertEventually(lambda: "policy reloaded (SIGHUP)" in proxy.errors(), "the reload")
            self.assertExit(self.curl(proxy, "-U", f"renamed:{TOKEN}", "https://a.test/pub/x"), 0)
            self.assertNotEqual(self.curl(proxy, "-U", f"ci:{TOKEN}", "https://a.test/pub/x").code, 0)

    def test_sigterm_lets_a_transfer_end_and_takes_no_more(self):
        with self.proxy(["allow GET a.test"], "--drain", "20s") as proxy:
            slow = self.lab.popen(["curl", "-sS", "-x", proxy.url, "--cacert", self.bundle, "https://a.test/sse/12/0.4"], cwd=self.work, stdout=subprocess.PIPE, text=True)
            self.assertEventually(lambda: any(e.get("target", {}).get("path", "").startswith("/sse") for e in proxy.audit), "the transfer to begin", 20)
            proxy.process.send_signal(signal.SIGTERM)
            self.assertEventually(lambda: "ending: " in proxy.errors(), "the drain to begin")
            self.assertNotEqual(self.curl(proxy, "https://a.test/pub/x").code, 0)
            out, _ = slow.communicate(timeout=60 * harness.SLOW)
            self.assertEqual(slow.returncode, 0)
            self.assertEqual(out.count("data:"), 12, out)
            self.assertEqual(proxy.process.wait(40 * harness.SLOW), 0)

    def test_sigterm_does_not_wait_for_ever(self):
        with self.proxy(["allow tcp db.test:5432"], "--drain", "300ms") as proxy:
            client = self.lab.popen([harness.PYTHON, "-c", f"import socket,time; s=socket.create_connection(('127.0.0.1',{proxy.port})); s.sendall(b'CONNECT db.test:5432 HTTP/1.1\\r\\nHost: db.test:5432\\r\\n\\r\\n'); print(s.recv(99), flush=True); time.sleep(60)"],
                                    cwd=self.work, stdout=subprocess.PIPE, text=True)
            client.stdout.readline()
            began = time.monotonic()
            self.assertEqual(proxy.stop(), 0)
            self.assertLess(time.monotonic() - began, 10 * harness.SLOW)
            client.kill()
            client.communicate()


class Credentials(proxy_harness.ProxyTest):
    HUB, MODEL = "ghp_S3cret/Value+of=the.Supervisor", "sk-ant-api03-Real-Key-of-the-supervisor-0123456789"
    TEXT = harness.policy_text([("allow GET a.test/pub/**", {"with": "hub"}), ("allow http a.test/echo", {"with": "model"}), "allow GET a.test/reflect",
                                "allow http b.test/echo"], """credentials:
  hub: { from: env HUB, send: bearer, to: [a.test] }
  model: { from: env MODEL, send: placeholder MODEL_KEY, to: [a.test] }""")

    ENVIRONMENT = {"HUB": HUB, "MODEL": MODEL}

    def arrived(self):
        return {name.lower(): value for name, value in self.served()[-1]["headers"]}

    def test_are_put_into_requests_inside_a_tunnel(self):
        with self.proxy(self.TEXT, env=self.ENVIRONMENT) as proxy:
            for via in (proxy.url, proxy.socks):
                result = self.curl(proxy, "-H", "Authorization: Bearer mine", "https://a.test/pub/x", via=via)
                self.assertIn("hello from the lab", result.out, str(result))
                self.assertEqual(self.arrived()["authorization"], f"Bearer {self.HUB}")
            self.assertIn("every user who reaches it acts with the policy's credentials", proxy.errors())
            self.assertEqual(proxy.stop(), 0)
            for text in (result.out, proxy.errors(), self.audit.read_text()):
                self.assertNotIn(self.HUB, text)

    def test_clients_are_told_stand_ins(self):
        with self.proxy(self.TEXT, "--print-env", env=self.ENVIRONMENT) as proxy:
            lines = []
            while not lines or not lines[-1].startswith("export npm_config_cafile"):
                lines.append(proxy.process.stdout.readline())
                self.assertTrue(lines[-1], lines)
            [stand_in] = [line.split("'")[1] for line in lines if line.startswith("export MODEL_KEY=")]
            self.assertTrue(stand_in.startswith("sk-ant-api03-"))
            self.assertNotIn(self.MODEL, "".join(lines))
            result = self.curl(proxy, "-H", f"x-api-key: {stand_in}", "-d", f"k={stand_in}", "https://a.test/echo")
            self.assertEqual(self.arrived()["x-api-key"], self.MODEL, str(result))
            self.assertIn(self.MODEL, json.loads(result.out)["body"])
            astray = self.curl(proxy, "-i", "-d", f"k={stand_in}", "https://b.test/echo")
            self.assertIn("stand-in of credential model", astray.out, str(astray))

    def test_a_missing_secret_is_an_error_of_the_start(self):
        self.policy.write_text(self.TEXT)
        done = self.plain_sluice("proxy", "--policy", self.policy, "--listen", "127.0.0.1:0", env={"MODEL": self.MODEL})
        self.assertExit(done, 2)
        self.assertIn("credential hub (env HUB)", done.err)


if __name__ == "__main__":
    harness.main()
