#!/usr/bin/python3
"""Requests that two readers could read differently, one after the other through the real binary, in the clear and inside TLS:
what each is answered, and what of it the origin saw."""
import json

import harness

# Reads a list of [name, scheme, bytes] and prints {scheme name: [status lines]}. Each has a connection of its own.
MANY = r"""
import json, re, socket, ssl, sys
context = ssl.create_default_context()
def answers(scheme, data):
    s = socket.create_connection(("a.test", 443 if scheme == "https" else 80), timeout=10)
    if scheme == "https": s = context.wrap_socket(s, server_hostname="a.test")
    s.settimeout(5)
    try:
        s.sendall(data)
    except OSError:
        pass
    got = b""
    try:
        while block := s.recv(65536): got += block
    except TimeoutError:
        return ["timeout"]
    except OSError:
        pass
    return [m.decode() for m in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)]
print(json.dumps({f"{scheme} {name}": answers(scheme, data.encode("latin-1")) for name, scheme, data in json.load(open(sys.argv[1]))}))
"""
RULES = ["allow http a.test/pub/**", "allow http a.test/echo", "allow http http://a.test/pub/**", "allow http http://a.test/echo"]
END = "GET /pub/end HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"


def post(fields, body="", target="/echo"):
    return f"POST {target} HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n{body}"


def line(text, fields=""):
    return f"{text}\r\nHost: a.test\r\n{fields}\r\n"


CHUNKED = "Transfer-Encoding: chunked\r\n"
# Refused with that status, nothing after it is read, nothing reaches the origin.
REFUSED = {
    "CL and TE": (400, post("Content-Length: 4\r\n" + CHUNKED, "0\r\n\r\n")),
    "TE and CL": (400, post(CHUNKED + "Content-Length: 4\r\n", "0\r\n\r\n")),
    "two CL": (400, post("Content-Length: 1\r\nContent-Length: 2\r\n", "ab")),
    "equal CL": (400, post("Content-Length: 1\r\nContent-Length: 1\r\n", "a")),
    **{f"CL {value!r}": (400, post(f"Content-Length: {value}\r\n", "ab")) for value in ("+2", "0x2", "-1", "", "2 3", "2,2", "99999999999999999999")},
    **{f"TE {value!r}": (501, post(f"Transfer-Encoding: {value}\r\n", "0\r\n\r\n"))
       for value in ("identity", "gzip, chunked", ", chunked", "chunked, chunked", "xchunked", "chunked;q=1", "chunked\xa0")},
    "TE twice": (400, post(CHUNKED + CHUNKED, "0\r\n\r\n")),
    "TE vertical tab": (400, post("Transfer-Encoding: \vchunked\r\n", "0\r\n\r\n")),
    "TE in 1.0": (400, "POST /echo HTTP/1.0\r\nHost: a.test\r\n" + CHUNKED + "\r\n0\r\n\r\n"),
    "TE with an underscore": (400, post("Transfer_Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n")),
    "CL with an underscore": (400, post("Content_Length: 5\r\n", "")),
    "Host with two spellings": (400, line("GET /echo HTTP/1.1", "HOST: a.test\r\n")),
    "space before colon": (400, post("Content-Length : 4\r\n", "abcd")),
    "fold first": (400, "GET /echo HTTP/1.1\r\n X: y\r\nHost: a.test\r\n\r\n"),
    "fold": (400, line("GET /echo HTTP/1.1", "X: y\r\n\tz\r\n")),
    "bare LF": (400, "GET /echo HTTP/1.1\nHost: a.test\n\n"),
    "bare LF in the middle": (400, "GET /echo HTTP/1.1\r\nHost: a.test\nX: y\r\n\r\n"),
    "bare CR": (400, line("GET /echo HTTP/1.1", "X: y\rz\r\n")),
    "NUL": (400, line("GET /echo HTTP/1.1", "X: y\0z\r\n")),
    "space in name": (400, line("GET /echo HTTP/1.1", "X Y: z\r\n")),
    "8-bit name": (400, line("GET /echo HTTP/1.1", "X\xe9: z\r\n")),
    "no name": (400, line("GET /echo HTTP/1.1", ": z\r\n")),
    "no colon": (400, line("GET /echo HTTP/1.1", "XYZ\r\n")),
    "double space": (400, line("GET  /echo HTTP/1.1")),
    "tab": (400, line("GET\t/echo HTTP/1.1")),
    "HTTP/1.2": (505, line("GET /echo HTTP/1.2")),
    "HTTP/2.0": (505, line("GET /echo HTTP/2.0")),
    "HTTP/0.9": (400, "GET /echo\r\n\r\n"),
    "TRACE": (405, line("TRACE /echo HTTP/1.1")),
    "Max-Forwards": (405, line("OPTIONS /echo HTTP/1.1", "Max-Forwards: 0\r\n")),
    "CONNECT": (400, line("CONNECT a.test:443 HTTP/1.1")),
    "userinfo": (400, line("GET https://u@a.test/echo HTTP/1.1")),
    "other scheme": (400, line("GET ftp://a.test/echo HTTP/1.1")),
    "URI of another host": (400, line("GET https://b.test/echo HTTP/1.1")),
    "authority with a backslash": (400, line("GET https://a.test\\@b.test/echo HTTP/1.1")),
    "percent-encoded host": (400, "GET /echo HTTP/1.1\r\nHost: a%2etest\r\n\r\n"),
    "Host of another name": (421, "GET /echo HTTP/1.1\r\nHost: b.test\r\n\r\n"),
    "Host of a decimal address": (400, "GET /echo HTTP/1.1\r\nHost: 2130706433\r\n\r\n"),
    "Host of an octal address": (400, "GET /echo HTTP/1.1\r\nHost: 0177.0.0.1\r\n\r\n"),
    "Host of a hexadecimal address": (400, "GET /echo HTTP/1.1\r\nHost: 0x7f.1\r\n\r\n"),
    "Host of a short address": (400, "GET /echo HTTP/1.1\r\nHost: 127.1\r\n\r\n"),
    "two Host": (400, line("GET /echo HTTP/1.1", "Host: b.test\r\n")),
    "fragment": (400, line("GET /echo#x HTTP/1.1")),
    "backslash": (400, line("GET /pub\\..\\echo HTTP/1.1")),
    "above the root": (400, line("GET /pub/../../echo HTTP/1.1")),
    "encoded NUL": (400, line("GET /pub/%00 HTTP/1.1")),
    "encoded LF": (400, line("GET /pub/%0a HTTP/1.1")),
    "broken escape": (400, line("GET /pub/%g0 HTTP/1.1")),
    "long URI": (414, line("GET /pub/" + "a" * 20480 + " HTTP/1.1")),
    "many fields": (431, line("GET /echo HTTP/1.1", "".join(f"X{i}: 1\r\n" for i in range(300)))),
    "huge field": (431, line("GET /echo HTTP/1.1", "X: " + "a" * 70000 + "\r\n")),
    "other Expect": (417, post("Expect: x\r\nContent-Length: 1\r\n", "a")),
    "WebSocket without a key": (400, line("GET /echo HTTP/1.1", "Connection: upgrade\r\nUpgrade: websocket\r\n")),
    "WebSocket of an old version": (426, line("GET /echo HTTP/1.1", "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n")),
}
# Refused by the policy; the connection stays and the next request has its own answer.
DENIED = {
    "encoded slash": line("GET /pub/%2e%2e%2fecho HTTP/1.1"),
    "encoded slash in the middle": line("GET /pub/a%2Fb HTTP/1.1"),
    "out of the folder": line("GET /pub/../private HTTP/1.1"),
    "out of the folder, encoded": line("GET /pub/%2e%2E/private HTTP/1.1"),
    "out of the folder, half encoded": line("GET /pub/.%2e/private HTTP/1.1"),
    "parameters": line("GET /pub/..;/private HTTP/1.1"),
    "parameters of a segment before": line("GET /pub/a;p/../../private HTTP/1.1"),
    "WebSocket": line("GET /echo HTTP/1.1", "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"),
    "another case": line("GET /PUB/x HTTP/1.1"),
    "override": line("GET /echo HTTP/1.1", "X-HTTP-Method-Override: DELETE\r\n"),
    "override with underscores": line("GET /echo HTTP/1.1", "X_HTTP_Method_Override: DELETE\r\n"),
    "lower-case method": line("post /echo HTTP/1.1"),
}
# Bodies that break after the head was judged.
BROKEN = {name: post(CHUNKED, body) for name, body in {
    "chunk 0x2": "0x2\r\nab\r\n0\r\n\r\n", "chunk +2": "+2\r\nab\r\n0\r\n\r\n", "chunk 0_2": "0_2\r\nab\r\n0\r\n\r\n",
    "chunk leading space": " 2\r\nab\r\n0\r\n\r\n", "chunk overflow": "10000000000000002\r\nab\r\n0\r\n\r\n",
    "chunk of many zeros": "0" * 64 + "2\r\nab\r\n0\r\n\r\n",
    "LF after size": "2\nab\r\n0\r\n\r\n", "LF in extension": "2;a\nb\r\nab\r\n0\r\n\r\n", "CR in extension": "2;a\rb\r\nab\r\n0\r\n\r\n",
    "chunk too long": "2\r\nabc\r\n0\r\n\r\n", "long extension": "2;" + "a" * 20000 + "\r\nab\r\n0\r\n\r\n",
    "trailer without colon": "0\r\nabc\r\n\r\n", "trailer with LF": "0\r\nX: y\n\r\n"}.items()}
# Forwarded: the request line the origin sees.
FORWARDED = {
    "dot segments": (line("GET /pub/./a/../b HTTP/1.1"), "GET /pub/b"),
    "double slash": (line("GET //pub//a HTTP/1.1"), "GET /pub/a"),
    "unreserved escapes": (line("GET /%70ub/%7e HTTP/1.1"), "GET /pub/~"),
    "escapes not decoded twice": (line("GET /pub/%252e%252e/private HTTP/1.1"), "GET /pub/%252e%252e/private"),
    "an escaped escape of a slash": (line("GET /pub/a%252fb HTTP/1.1"), "GET /pub/a%252fb"),
    "upper-case Host with a dot": ("GET /pub/h HTTP/1.1\r\nHost: A.TEST.\r\n\r\n", "GET /pub/h"),
    "h2c": (line("GET /pub/h2c HTTP/1.1", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"), "GET /pub/h2c"),
    "named by Connection": (line("GET /pub/named HTTP/1.1", "Connection: x-secret, host, content-length\r\nX-Secret: 1\r\n"), "GET /pub/named"),
    "a query as it is": (line("GET /pub/?q=a+b%26&q HTTP/1.1"), "GET /pub/?q=a+b%26&q"),
    "extension and trailer": (post(CHUNKED + "Trailer: X-A\r\n", "2;x=y\r\nab\r\n0\r\nX-A: 1\r\nContent-Length: 9\r\n\r\n", "/pub/t"), "POST /pub/t"),
    "GET with a body that looks like a request": (line("GET /pub/body HTTP/1.1", f"Content-Length: {len(line('GET /pub/inner HTTP/1.1'))}\r\n")
                                                  + line("GET /pub/inner HTTP/1.1"), "GET /pub/body"),
}


class Smuggling(harness.SluiceTest):
    def answers(self, cases):
        """{scheme name: status codes}, and the request lines that the origin saw."""
        listed = self.work / "cases.json"
        listed.write_text(json.dumps([[name, scheme, data] for name, data in cases.items() for scheme in ("https", "http")]))
        result = self.python(RULES, MANY, str(listed), timeout=120)
        self.assertExit(result, 0)
        for record in result.audit:
            self.assertIn(record["type"], ("decision", "exchange"))
        return json.loads(result.out), [f"{e['method']} {e['target']}" for e in self.served()]

    def test_what_is_refused_ends_the_connection_and_reaches_nobody(self):
        got, served = self.answers({name: data + END for name, (_, data) in REFUSED.items()})
        wrong = {key: codes for key, codes in got.items() if codes != [str(REFUSED[key.split(" ", 1)[1]][0])]}
        self.assertEqual(wrong, {})
        self.assertEqual(served, [])

    def test_what_is_denied_does_not_disturb_the_next_request(self):
        got, served = self.answers({name: data + END for name, data in DENIED.items()})
        self.assertEqual({key: codes for key, codes in got.items() if codes != ["403", "200"]}, {})
        self.assertEqual(served, ["GET /pub/end"] * len(got))

    def test_a_body_that_breaks_is_400_and_what_follows_is_no_request(self):
        got, served = self.answers({name: data + END for name, data in BROKEN.items()})
        self.assertEqual({key: codes for key, codes in got.items() if codes != ["400"]}, {})
        self.assertNotIn("GET /pub/end", served)

    def test_what_is_forwarded_is_what_was_judged(self):
        for name, (data, request) in FORWARDED.items():
            with self.subTest(name):
                self.http_before = len(self.lab.http_log())
                got, served = self.answers({name: data + END})
                self.assertEqual(got, {f"{scheme} {name}": ["200", "200"] for scheme in ("https", "http")})
                self.assertEqual(served, [request, "GET /pub/end"] * 2)
                for entry in self.served():
                    names = [field.lower() for field, _ in entry["headers"]]
                    self.assertEqual(names.count("host"), 1, str(entry))
                    self.assertFalse({"connection", "upgrade", "http2-settings", "x-secret"} & set(names), str(entry))

    def test_an_upload_that_is_denied_does_not_become_a_request(self):
        inner = line("GET /pub/inner HTTP/1.1")
        got, served = self.answers({"length": post(f"Content-Length: {len(inner)}\r\n", inner, "/private") + END,
                                    "chunks": post(CHUNKED, f"{len(inner):x}\r\n{inner}\r\n0\r\n\r\n", "/private") + END})
        self.assertEqual(set(map(tuple, got.values())), {("403",)})
        self.assertEqual(served, [])


if __name__ == "__main__":
    harness.main()
