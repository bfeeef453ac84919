#!/usr/bin/python3
"""Requests that could be read in more than one way, through the real binary to servers that other people wrote: none of them sees a
request that the policy did not judge, nor a body of another length than the one that was relayed.

The corpus is every spelling in smuggle_test.py and what a generator with a fixed seed makes of ordinary requests; and requests of HTTP/2
that would say something else once they are written as HTTP/1.1, which is what these servers are sent.
"""
import collections
import json
import random
import urllib.parse

import harness
import origins
import smuggle_test

MUTANTS = 700
H2_MUTANTS = 300
SECRET = "/pub/secret"

# Reads [[port, bytes]…] and sends each on a connection of its own, a few at a time; prints the status codes of each.
SEND = r"""
import concurrent.futures, json, re, socket, sys
def answers(case):
    port, data = case
    got = b""
    try:
        with socket.create_connection(("a.test", port), timeout=30) as s:
            s.settimeout(20)
            s.sendall(data.encode("latin-1"))
            s.shutdown(socket.SHUT_WR)
            while block := s.recv(65536): got += block
    except TimeoutError:
        return ["timeout"]
    except OSError:
        pass
    return [m.decode() for m in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)]
with concurrent.futures.ThreadPoolExecutor(12) as pool:
    print(json.dumps(list(pool.map(answers, json.load(open(sys.argv[1]))))))
"""
# Reads [[port, [[name, value]…], body]…] and sends each over HTTP/2 in TLS, whatever its fields hold, and then an ordinary request on the same
# connection; prints the status codes, "reset" for a stream that was.
SEND_H2 = r"""
import concurrent.futures, json, os, socket, ssl, struct, sys
import hpack
context = ssl.create_default_context()
context.set_alpn_protocols(["h2"])
def frame(kind, flags, stream, payload): return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
def answers(case):
    port, fields, body = case
    encoder, decoder, codes, kept = hpack.Encoder(), hpack.Decoder(), {1: [], 3: []}, b""
    octets = lambda pairs: [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    ordinary = [(":method", "GET"), (":scheme", "https"), (":authority", f"a.test:{port}"), (":path", "/pub/end")]
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4 if body else 5, 1, encoder.encode(octets(fields)))
    if body: data += frame(0, 1, 1, body.encode("latin-1"))
    data += frame(1, 5, 3, encoder.encode(octets(ordinary)))
    ended = set()
    try:
        with context.wrap_socket(socket.create_connection(("a.test", port), timeout=30), server_hostname="a.test") as s:
            if s.selected_alpn_protocol() != "h2": return ["no h2"]
            s.settimeout(20)
            s.sendall(data)
            while len(ended) < 2 and (block := s.recv(65536)):
                kept += block
                while len(kept) >= 9 and len(kept) >= 9 + (size := int.from_bytes(kept[:3], "big")):
                    kind, flags, stream, payload = kept[3], kept[4], int.from_bytes(kept[5:9], "big"), kept[9:9 + size]
                    kept = kept[9 + size:]
                    if kind == 4 and not flags & 1: s.sendall(frame(4, 1, 0, b""))
                    if kind == 1: codes.get(stream, []).extend(value for name, value in decoder.decode(payload) if name == ":status")
                    if kind == 3: codes.get(stream, []).append("reset")
                    if kind == 7: return codes[1] + codes[3] + ["goaway"]
                    if kind == 3 or kind in (0, 1) and flags & 1: ended.add(stream)
    except TimeoutError:
        return ["timeout"]
    except OSError:
        pass
    return codes[1] + codes[3]
with concurrent.futures.ThreadPoolExecutor(12) as pool:
    print(json.dumps(list(pool.map(answers, json.load(open(sys.argv[1]))))))
"""
SMUGGLED = f"GET {SECRET}/smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n"
PLAIN = [
    "GET /pub/x HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\n\r\n",
    "GET /pub/a/b/c?x=1&y=%2F HTTP/1.1\r\nHost: a.test\r\nUser-Agent: x\r\nCookie: a=b\r\n\r\n",
    "HEAD /pub/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "OPTIONS /pub/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "GET http://a.test/pub/absolute HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "POST /pub/length HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello",
    f"POST /pub/length HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len(SMUGGLED)}\r\n\r\n{SMUGGLED}",
    "POST /pub/chunks HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    f"PUT /pub/chunks HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n{len(SMUGGLED):x};e=1\r\n{SMUGGLED}\r\n0\r\nX-T: 1\r\n\r\n",
    "POST /pub/expect HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
    "DELETE /pub/x HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n",
]
IN_TARGET = ["%2e%2e/", "../", "..%2f", "%2f", "%2F..%2Fsecret", "//", "/./", ";x", ";x/../secret", "%5c", "%5c..%5csecret", "\\", "%00", "%0d%0a", "%20HTTP/1.1%0d%0a",
             "?", "#", "%3f", "%23", "%", "%2", "%u002e", "..;/secret", "/.;/", " ", "\t", "\x80", "\xc0\xae", "%c0%ae%c0%ae/", "%252e%252e/", "@b.test", ":80",
             "/../secret/x", "/%2e%2e/secret/x", "/.%2e/secret", "//secret", "/pub/secret", "%73ecret", "secret/", "http://b.test/", "*", "|", "`", "\"", "<", "^", "{"]
LINES = ["Transfer-Encoding: chunked", "Transfer-Encoding: identity", "Transfer-Encoding:\tchunked", "Transfer-Encoding : chunked", "Transfer-Encoding: chunked ", "Transfer-Encoding: x",
         "transfer-encoding: CHUNKED", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding:\x0bchunked", "Transfer-Encoding: chunked\x00", " Transfer-Encoding: chunked",
         "Transfer_Encoding: chunked", "X: y\r\n Transfer-Encoding: chunked", "TE: chunked, trailers", "Content-Length: 0", "Content-Length: 5", "Content-Length: 05", "Content-Length: +5",
         "Content-Length: 5, 5", "Content-Length: 5\t", "Content-Length: 0x5", "Content-Length:5 ", "Content-Length: 4294967301", "Content-Length: 18446744073709551621", "Content_Length: 0",
         "Content-Length\t: 5", "Host: b.test", "Host: a.test:9999", "Host: a.test/x", "Host:", "HOST: a.test", "Host: a.test, b.test", "Connection: close", "Connection: keep-alive",
         "Connection: host", "Connection: content-length, transfer-encoding", "Connection: close, x", "Upgrade: h2c", "Upgrade: TLS/1.0", "Upgrade: websocket", "Expect: 100-continue",
         "Expect: 100-continue, x", "X-HTTP-Method-Override: DELETE", "X-Method-Override: PUT", "X-Original-URL: /pub/secret/x", "X-Rewrite-URL: /pub/secret/x", "Trailer: Content-Length",
         "Keep-Alive: 5", "Proxy-Connection: close", "Range: bytes=0-1", "Max-Forwards: 0", "X: \x7f", "X: \xff", "\x00: x", ": x", "x", "X:" + "a" * 9000, "HTTP2-Settings: AAMAAABk"]
BYTES = "\r\n\0\t \v\f\x1c\x85\xa0:;,\"/%?#0"
SIZES = ["0x5", "+5", "-5", "05", " 5", "5 ", "5\t", "00000000000000005", "5;", "5;x\n", "5\n", "5\r", "FFFFFFFFFFFFFFFF5", "5,5", "", "g", "5;\"\r\n\"", "4", "6"]


def mutant(rng):
    """An ordinary request with one to three things wrong or odd about it, and a request behind it that the policy denies."""
    text = rng.choice(PLAIN)
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
        head, _, body = text.partition("\r\n\r\n")
        lines = head.split("\r\n")
        kind = rng.randrange(5)
        if kind == 0:
            parts = lines[0].split(" ")
            target = parts[1] if len(parts) > 1 else ""
            at = rng.randint(0, len(target))
            lines[0] = " ".join([parts[0], target[:at] + rng.choice(IN_TARGET) + target[at:], *parts[2:]])
        elif kind == 1:
            lines.insert(rng.randint(1, len(lines)), rng.choice(LINES))
        elif kind == 2:
            line = rng.randrange(len(lines))
            at = rng.randint(0, len(lines[line]))
            lines[line] = lines[line][:at] + rng.choice(BYTES) + lines[line][at + rng.randint(0, 1):]
        elif kind == 3 and len(lines) > 1:
            again = rng.randrange(1, len(lines))
            lines.insert(rng.randint(1, len(lines)), lines[again])
        elif body:
            body = body.replace("5\r\n", rng.choice(SIZES) + "\r\n", 1) if rng.random() < 0.6 else body[: rng.randrange(len(body))] + rng.choice(BYTES) + body
        text = "\r\n".join(lines) + rng.choice(["\r\n\r\n"] * 12 + ["\n\n", "\r\n\n", "\n\r\n"]) + body
    return text + SMUGGLED


H2_PLAIN = [("GET", "/pub/x", [("accept", "*/*")], ""), ("GET", "/pub/a/b/c?x=1&y=%2F", [("cookie", "a=b"), ("cookie", "c=d")], ""),
            ("POST", "/pub/length", [("content-length", "5")], "hello"), ("POST", "/pub/chunks", [("content-type", "text/plain")], SMUGGLED),
            ("PUT", "/pub/chunks", [("te", "trailers")], "0\r\n\r\n" + SMUGGLED)]
# What would end the request or begin another, were it written down as it is.
H2_VALUES = ["x\r\nTransfer-Encoding: chunked", f"x\r\n\r\n{SMUGGLED}", "x\nContent-Length: 0", "x\0y", " x", "x ", "chunked", "0", "5", "4", "6", "18446744073709551621", "5, 5", "+5",
             "b.test", "/pub/x HTTP/1.1\r\nX: y", "close", "100-continue", "h2c", "a.test, b.test", "\x7f", "\xff"]
H2_NAMES = ["transfer-encoding", "content-length", "connection", "host", "upgrade", "proxy-connection", "keep-alive", "te", "expect", "x", "X", "Content-Length", "transfer-encoding ", "a b",
            "x: y\r\nz", "x\r\n\r\nGET /pub/secret HTTP/1.1\r\nx", "content_length", "transfer_encoding", ":path", ":method", ":authority", ":scheme", ":status", ":x", "", "x:", "trailer",
            "x-original-url", "x-http-method-override"]


def h2_mutant(rng, port):
    """The fields and the body of an ordinary HTTP/2 request with one or two things wrong or odd about it."""
    method, path, more, body = rng.choice(H2_PLAIN)
    fields = [[":method", method], [":scheme", "https"], [":authority", f"a.test:{port}"], [":path", path], *map(list, more)]
    for _ in range(rng.choice([1, 1, 2])):
        kind = rng.randrange(6)
        chosen = rng.choice(fields)
        at = rng.randint(0, len(chosen[1]))
        if kind == 0:
            at = rng.randint(0, len(fields[3][1]))
            fields[3][1] = fields[3][1][:at] + rng.choice(IN_TARGET) + fields[3][1][at:]
        elif kind == 1:
            fields.insert(rng.randint(4, len(fields)), [rng.choice(H2_NAMES), rng.choice(H2_VALUES)])
        elif kind == 2:
            chosen[1] = chosen[1][:at] + rng.choice(BYTES) + chosen[1][at + rng.randint(0, 1):]
        elif kind == 3:
            chosen[1] = chosen[1][:at] + rng.choice(H2_VALUES) + chosen[1][at:]
        elif kind == 4:
            fields.insert(rng.randint(0, len(fields)), list(chosen))
        else:
            body = rng.choice(["", body[:3], body + "x", SMUGGLED])
    return [port, fields, body]


class Differential(harness.SluiceTest):
    @classmethod
    def setUpClass(cls):
        cls.origins = origins.Origins(harness.THE_LAB)

    @classmethod
    def tearDownClass(cls):
        cls.origins.stop()

    def rules(self):
        rules = []
        for port in origins.PORTS.values():
            rules += [f"allow http http://a.test:{port}/pub/**", f"allow http http://a.test:{port}/echo", f"deny http http://a.test:{port}{SECRET}/**",
                      f"deny http http://a.test:{port}{SECRET}"]
            port += origins.TLS
            rules += [f"allow http a.test:{port}/pub/**", f"allow http a.test:{port}/echo", f"deny http a.test:{port}{SECRET}/**", f"deny http a.test:{port}{SECRET}"]
        return rules

    def through(self, cases):
        """Sends every case to every server. Gives the codes, what the servers saw and the run."""
        return self.send(SEND, [[port, data] for data in cases for port in origins.PORTS.values()])

    def send(self, script, cases):
        before = len(self.origins.seen())
        listed = self.work / "cases.json"
        listed.write_text(json.dumps(cases))
        result = self.python(self.rules(), script, str(listed), timeout=400)
        self.assertExit(result, 0)
        return json.loads(result.out), self.origins.seen()[before:], result

    def judged(self, result):
        """{port: Counter of (method, path)} of the requests that were let through, and the same with the length of their bodies."""
        requests, bodies = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
        for record in result.audit:
            target = record["target"]
            if record["type"] == "decision" and record.get("request") and record["verdict"] == "allow":
                requests[target["port"]][target["method"], target["path"]] += 1
            if record["type"] == "exchange" and record.get("request"):
                bodies[target["port"]][target["method"], target["path"], record["bytes_up"]] += 1
        return requests, bodies

    def check(self, seen, result, shift=0):
        """`shift`: how much higher the ports are that the requests were sent to."""
        requests, bodies = self.judged(result)
        counted, with_body = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
        for entry in seen:
            name = entry["server"].removeprefix("behind ")
            port = origins.PORTS[name] + shift
            if not entry["method"]:  # nginx, of a method that is none to it
                entry["method"], entry["target"], _ = entry["unread"].split(" ")
                entry["path"], entry["host"] = entry["target"].partition("?")[0], f"a.test:{port}"
            target = entry["line"].split(" ")[1] if "line" in entry else entry["target"]
            path = target.partition("?")[0]
            self.assertEqual(entry["host"], f"a.test:{port}", entry)
            # As sent, decoded once, and as the server says that it decoded it.
            for reading in {path, urllib.parse.unquote(path, "latin-1"), entry.get("path", path)}:
                self.assertTrue(reading.startswith("/pub/") or reading == "/echo", entry)
                self.assertFalse(reading.startswith(SECRET + "/") or reading == SECRET, entry)
                self.assertFalse({"..", "."} & set(reading.replace("\\", "/").split("/")), entry)
            if not entry["server"].startswith("behind"):
                counted[port][entry["method"], path] += 1
            if "body" in entry:
                with_body[port][entry["method"], path, len(entry["body"])] += 1
        for port, counter in counted.items():
            self.assertEqual(counter - requests[port], collections.Counter(), f"port {port}: seen and not judged")
        for port, counter in with_body.items():
            self.assertEqual(counter - bodies[port], collections.Counter(), f"port {port}: another body than was relayed")
        return counted

    def test_no_server_sees_what_the_policy_did_not_judge_in_any_spelling(self):
        cases = [data + SMUGGLED for _, data in smuggle_test.REFUSED.values()]
        cases += [data + SMUGGLED for data in (*smuggle_test.DENIED.values(), *smuggle_test.BROKEN.values())]
        cases += [data + SMUGGLED for data, _ in smuggle_test.FORWARDED.values()]
        cases = [data.replace("https://", "http://") for data in cases]
        codes, seen, result = self.through(cases)
        counted = self.check(seen, result)
        # Those that are forwarded reached every server: the test would tell nothing if none had.
        for name, port in origins.PORTS.items():
            self.assertGreaterEqual(sum(counted[port].values()), len(smuggle_test.FORWARDED), name)
        self.assertNotIn(["timeout"], codes)

    def test_nor_what_a_generator_makes_of_ordinary_requests(self):
        rng = random.Random(4_0007)
        codes, seen, result = self.through([mutant(rng) for _ in range(MUTANTS)])
        counted = self.check(seen, result)
        kinds = collections.Counter(code[0] if code else "closed" for code in codes)
        print(f"{len(codes)} requests sent, {sum(map(len, counted.values()))} kinds seen by {len(counted)} servers; first answers: {dict(kinds)}", flush=True)
        for name, port in origins.PORTS.items():
            self.assertGreater(sum(counted[port].values()), MUTANTS // 8, name)
        self.assertTrue({"200", "400", "403"} <= kinds.keys(), kinds)


    def test_nor_what_http2_would_say_otherwise_in_http_1_1(self):
        rng = random.Random(4_0008)
        cases = [h2_mutant(rng, port + origins.TLS) for _ in range(H2_MUTANTS) for port in origins.PORTS.values()]
        codes, seen, result = self.send(SEND_H2, cases)
        counted = self.check(seen, result, origins.TLS)
        kinds = collections.Counter(code[0] if code else "closed" for code in codes)
        print(f"{len(codes)} requests of HTTP/2 sent; first answers: {dict(kinds)}", flush=True)
        for name, port in origins.PORTS.items():
            self.assertGreater(sum(counted[port + origins.TLS].values()), H2_MUTANTS // 2, name)
        self.assertTrue({"200", "403", "reset"} <= kinds.keys(), kinds)
        self.assertNotIn("timeout", kinds)


if __name__ == "__main__":
    harness.main()
