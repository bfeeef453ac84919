#!/usr/bin/python3
"""Inside a terminated connection: what is judged, what is streamed, what is refused as ambiguous."""
import hashlib
import json
import re

import harness

EVERYTHING = ["allow http a.test"]
READ = ["allow GET a.test", "allow GET b.test"]

# Sends raw requests over one TLS connection: raw.py HOST SNI REQUEST… ; prints each answer's status line and body.
RAW = r"""
import socket, ssl, sys
host, sni = sys.argv[1:3]
context = ssl.create_default_context(); context.check_hostname = False
try:
    s = context.wrap_socket(socket.create_connection((host, 443), timeout=10), server_hostname=sni or None)
except OSError as error:
    print("no connection:", error); sys.exit()
for text in sys.argv[3:]:
    s.sendall(text.encode("latin-1").decode("unicode_escape").encode("latin-1"))
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            block = s.recv(65536)
            if not block: break
            data += block
        head, _, body = data.partition(b"\r\n\r\n")
        length = [int(l.split(b":")[1]) for l in head.split(b"\r\n") if l.lower().startswith(b"content-length:")]
        while length and len(body) < length[0]:
            block = s.recv(65536)
            if not block: break
            body += block
    except OSError as error:
        print("error", error); break
    print(head.split(b"\r\n")[0].decode() or "closed", "|", body.decode("latin-1").strip())
"""


def get(path, host="a.test", more=""):
    return f"GET {path} HTTP/1.1\\r\\nHost: {host}\\r\\n{more}\\r\\n"


class Names(harness.SluiceTest):
    def raw(self, rules, host, sni, *requests):
        return self.python(rules, RAW, host, sni, *requests)

    def test_an_sni_that_differs_from_the_name_is_refused(self):
        result = self.raw(READ, "a.test", "b.test", get("/pub", "b.test"))
        self.assertNotIn("hello", result.out, str(result))
        self.assertEqual(self.served(), [])
        self.assertTrue(result.denials(), str(result))

    def test_no_sni_is_refused(self):
        result = self.raw(READ, "a.test", "", get("/pub"))
        self.assertNotIn("hello", result.out, str(result))
        self.assertEqual(self.served(), [])

    def test_a_host_that_differs_from_the_name_is_misdirected(self):
        result = self.raw(READ, "a.test", "a.test", get("/pub", "b.test"))
        self.assertRegex(result.out, r"^HTTP/1\.1 421 ", str(result))
        self.assertEqual(self.served(), [])

    def test_an_absolute_form_that_disagrees_is_refused(self):
        result = self.raw(READ, "a.test", "a.test", get("https://b.test/pub", "a.test"))
        self.assertRegex(result.out, r"^HTTP/1\.1 4", str(result))
        self.assertEqual(self.served(), [])

    def test_each_request_of_a_connection_is_judged(self):
        rules = ["allow GET a.test/pub/**", "allow GET a.test/echo"]
        result = self.raw(rules, "a.test", "a.test", get("/pub/1"), get("/private"), get("/echo"))
        lines = result.out.splitlines()
        self.assertRegex(lines[0], "^HTTP/1.1 200 ", str(result))
        self.assertRegex(lines[1], "^HTTP/1.1 403 Egress denied")
        self.assertRegex(lines[2], "^HTTP/1.1 200 ")
        self.assertNotIn("/private", [e.get("target") for e in self.served()])
        requests = [r for r in result.audit if r.get("request")]
        self.assertEqual(len({r["connection"] for r in requests}), 1, str(requests))

    def test_ambiguous_requests_are_refused_and_never_forwarded(self):
        bad = {
            "length with chunked": "POST /echo HTTP/1.1\\r\\nHost: a.test\\r\\nContent-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n",
            "two lengths": "POST /echo HTTP/1.1\\r\\nHost: a.test\\r\\nContent-Length: 4\\r\\nContent-Length: 5\\r\\n\\r\\nabcde",
            "two hosts": "GET /echo HTTP/1.1\\r\\nHost: a.test\\r\\nHost: a.test\\r\\n\\r\\n",
            "folded line": "GET /echo HTTP/1.1\\r\\nHost: a.test\\r\\nX: a\\r\\n b\\r\\n\\r\\n",
            "bare line feed": "GET /echo HTTP/1.1\\nHost: a.test\\n\\n",
            "space before colon": "GET /echo HTTP/1.1\\r\\nHost : a.test\\r\\n\\r\\n",
            "nul": "GET /echo HTTP/1.1\\r\\nHost: a.test\\r\\nX: a\\x00b\\r\\n\\r\\n",
            "no host": "GET /echo HTTP/1.1\\r\\n\\r\\n",
            "unknown coding": "POST /echo HTTP/1.1\\r\\nHost: a.test\\r\\nTransfer-Encoding: xchunked\\r\\n\\r\\n0\\r\\n\\r\\n",
            "connect": "CONNECT a.test:443 HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n",
            "trace": "TRACE /echo HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n",
            "server wide options": "OPTIONS * HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n",
            "encoded slash": get("/echo%2Fx"),
            "encoded nul": get("/echo%00"),
            "above the root": get("/../echo"),
            "method override": "POST /echo HTTP/1.1\\r\\nHost: a.test\\r\\nX-HTTP-Method-Override: DELETE\\r\\nContent-Length: 0\\r\\n\\r\\n",
            "upgrade": get("/echo", more="Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n"),
        }
        for what, request in bad.items():
            with self.subTest(what):
                result = self.raw(EVERYTHING, "a.test", "a.test", request)
                self.assertRegex(result.out, r"^(HTTP/1\.1 [45]|closed|error)", str(result))
                self.assertEqual(self.served(), [])


class Streams(harness.SluiceTest):
    def curl(self, *arguments, rules=EVERYTHING, **more):
        return self.sluice(rules, "curl", "-sS", "-m", "60", *arguments, **more)

    def test_the_first_event_of_a_stream_arrives_at_once(self):
        gap = harness.SLOW  # seconds: one that is held back comes with the next
        script = """
import sys, time, urllib.request
answer = urllib.request.urlopen("https://a.test/sse/3/" + sys.argv[1])
for line in answer:
    if line.startswith(b"data:"):
        print(line.split()[1].decode(), round(time.time() - float(line.split()[2]), 4))
"""
        result = self.python(EVERYTHING, script, str(gap))
        delays = [float(line.split()[1]) for line in result.out.splitlines()]
        self.assertEqual(len(delays), 3, str(result))
        self.assertLess(max(delays), gap / 2, str(delays))

    def test_a_large_download_arrives_whole(self):
        size = 64 << 20
        block = bytes(range(256)) * 256
        digest = hashlib.sha256()
        for _ in range(size // len(block)):
            digest.update(block)
        result = self.sluice(EVERYTHING, "sh", "-c", f"curl -sS https://a.test/bytes/{size} | sha256sum")
        self.assertIn(digest.hexdigest(), result.out, str(result))

    def test_a_chunked_download_arrives_whole(self):
        result = self.sluice(EVERYTHING, "sh", "-c", "curl -sS https://a.test/chunked/5000000 | wc -c")
        self.assertEqual(result.out.strip(), "5000000", str(result))

    def test_a_large_upload_arrives_whole_by_length_and_chunked(self):
        data = bytes(i * 7 & 255 for i in range(1 << 16)) * 256
        (self.work / "data").write_bytes(data)
        (self.work / "data").chmod(0o644)
        for framing in ([], ["-H", "Transfer-Encoding: chunked"]):
            result = self.curl("-T", "data", *framing, "https://a.test/upload")
            self.assertEqual(json.loads(result.out), {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()}, str(result))

    def test_expect_continue_is_answered_and_a_refused_expectation_sends_no_body(self):
        (self.work / "data").write_bytes(b"x" * 2000000)
        (self.work / "data").chmod(0o644)
        allowed = self.curl("-v", "-H", "Expect: 100-continue", "-T", "data", "https://a.test/upload")
        self.assertIn("100 Continue", allowed.err)
        self.assertIn('"length": 2000000', allowed.out)
        refused = self.curl("-v", "-H", "Expect: 100-continue", "-T", "data", "https://a.test/refuse")
        self.assertIn("417", refused.err)
        denied = self.curl("-v", "-H", "Expect: 100-continue", "-T", "data", "https://a.test/upload", rules=["allow GET a.test"])
        self.assertIn("HTTP/1.1 403 Egress denied", denied.err)  # Sluice's own line may stand behind curl's sign
        self.assertNotIn("100 Continue", denied.err)

    def test_head_and_bodiless_statuses_and_trailers_and_hints_pass(self):
        head = self.curl("-I", "https://a.test/bytes/12345")
        self.assertRegex(head.out, r"(?i)content-length: 12345")
        for status in ("204", "304", "500", "404"):
            self.assertEqual(self.curl("-o", "/dev/null", "-w", "%{http_code}", f"https://a.test/status/{status}").out, status)
        trailers = self.curl("-i", "https://a.test/trailers")
        self.assertRegex(trailers.out, r"(?i)x-checksum: abc123")
        self.assertIn("103 Early Hints", self.curl("-v", "https://a.test/hints").err)
        self.assertIn("until the end", self.curl("https://a.test/close").out)

    def test_keep_alive_uses_one_connection_of_the_client(self):
        urls = [f"https://a.test/echo?{n}" for n in range(8)]
        result = self.curl("-v", *urls)
        self.assertEqual(result.out.count('"method": "GET"'), 8)
        self.assertEqual(len(re.findall(r"Re-using existing connection", result.err)), 7, result.err)

    def test_get_covers_head_and_not_post(self):
        rules = ["allow GET a.test/echo"]
        self.assertRegex(self.curl("-I", "https://a.test/echo", rules=rules).out, "^HTTP/1.1 200 ")
        self.assertIn("403", self.curl("-o", "/dev/null", "-w", "%{http_code}", "-d", "x", "https://a.test/echo", rules=rules).out)

    def test_a_query_rule_is_judged(self):
        rules = [("allow GET a.test/echo", {"query": "{ tag: [v1*] }"})]
        self.assertIn('"target": "/echo?tag=v1.2"', self.curl("https://a.test/echo?tag=v1.2", rules=rules).out)
        for query in ("tag=x1", "tag=v1&tag=x", "other=v1", ""):
            self.assertEqual(self.curl("-o", "/dev/null", "-w", "%{http_code}", f"https://a.test/echo?{query}", rules=rules).out, "403", query)


if __name__ == "__main__":
    harness.main()
