#!/usr/bin/python3
"""The proxy's reading of bodies against programs that read them for a living: Python's json, the reference implementation of
GraphQL, and git receive-pack. Random spellings, with the seed in every failure.

Usage: oracle_test.py READ_BODY GRAPHQL_FOLDER
"""
import gzip
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import unittest
import http.server

READ_BODY, GRAPHQL = sys.argv[1], sys.argv[2]
JSON, GRAPHQL_KIND, RPC, PUSH, LFS = 1, 2, 4, 8, 16
JSON_HEAD = [["content-type", "application/json"]]
PUSH_HEAD = [["content-type", "application/x-git-receive-pack-request"]]
SEED = int(os.environ.get("SLUICE_TEST_SEED", "20240607"))


def read(requests):
    """requests: (kinds, headers, body) or (kinds, headers, body, method, query)."""
    lines = []
    for kinds, headers, body, *rest in requests:
        method, query = rest or ("POST", "")
        lines.append(json.dumps({"kinds": kinds, "method": method, "headers": headers, "query": query, "body": body.hex()}))
    out = subprocess.run([READ_BODY], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def mutate(rng, seed, pieces):
    """The seed with a few bytes dropped, doubled or replaced, mostly by pieces that mean something."""
    out = bytearray(seed)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(out) + 1)
        to = min(len(out), at + rng.choice((0, 0, 1, 1, 2, 5, 20)))
        piece = rng.choice(pieces) if rng.random() < 0.8 else bytes([rng.randrange(256)])
        out[at:to] = piece if rng.random() < 0.75 else b""
    return bytes(out)


# --- JSON

JSON_PIECES = [p.encode() if isinstance(p, str) else p for p in (
    "{", "}", "[", "]", ",", ":", '"', '"a":', '"a":1,', '"A":1,', '"\\u0061":', "null", "true", "tru", "NaN", "Infinity", "-0", "01",
    "1e5", "1.", "0.5", "\\u0000", "\\ud83d\\ude00", "\\ud800", "\\n", "\\x", "\n", "\t", " ", "//", "\u00e9", "\u017f", "\x00", '""', '"',
    "1", "9" * 30, b"\xff", b"\xc0\x80", b"\xef\xbb\xbf", b"\xed\xa0\x80", "[]", "{}", "'x'")]
JSON_SEEDS = [b'{"a":[1,{"b":null,"c/d":"x\\u00e9"}],"e~":true,"":{"k":-1.5e3}}', b'[{"a":1},{"a":2},[[]]]', b'"text"', b"0",
              b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{"path":"/x"}}}', b' { } ']


def fold(key):
    return key.replace("\u017f", "s").replace("\u212a", "k").translate({c: c + 32 for c in range(65, 91)})


class Number(str):
    pass


def python_leaves(body):
    """Sorted leaves as Python's reader sees them; None where it refuses, or where two readers may differ."""
    def pairs(items):
        if len({fold(k) for k, _ in items}) != len(items):
            raise ValueError("a key twice")
        return dict(items)

    def constant(name):
        raise ValueError(name)

    try:
        text = body.decode("utf-8")
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_int=Number, parse_float=Number)
    except (ValueError, RecursionError):
        return None
    leaves = []

    def walk(v, pointer):
        if isinstance(v, dict):
            leaves.append([pointer, "object", ""])
            for k, inner in v.items():
                walk(k, None)
                walk(inner, pointer + "/" + k.replace("~", "~0").replace("/", "~1"))
        elif isinstance(v, list):
            leaves.append([pointer, "array", ""])
            for i, inner in enumerate(v):
                walk(inner, f"{pointer}/{i}")
        elif isinstance(v, Number):
            leaves.append([pointer, "number", str(v)])
        elif isinstance(v, str):
            v.encode("utf-8")  # lone surrogates
            if "\0" in v:
                raise ValueError("NUL")
            if pointer is not None:
                leaves.append([pointer, "string", v])
        else:
            leaves.append([pointer, "null" if v is None else "boolean", json.dumps(v)])

    try:
        walk(value, "")
    except ValueError:
        return None
    return sorted(leaves, key=lambda leaf: leaf[0].encode())


class Json(unittest.TestCase):
    def test_leaves_are_those_of_python(self):
        rng = random.Random(SEED)
        bodies = [mutate(rng, rng.choice(JSON_SEEDS), JSON_PIECES) for _ in range(6000)]
        readable = 0
        for body, answer in zip(bodies, read([(JSON, JSON_HEAD, b) for b in bodies])):
            expected = python_leaves(body)
            if body == b"":
                continue
            self.assertEqual(answer["json"]["fault"] == "", expected is not None, (SEED, body, answer))
            if expected is not None:
                self.assertEqual(answer["json"]["items"], expected, (SEED, body))
                readable += 1
        self.assertGreater(readable, 1000)


# --- GraphQL

GRAPHQL_SEEDS = [s.encode() for s in (
    "query Q($x: [Int!]! = [1]) @d { a: field(x: $x, s: \"q\\\"}\") { id } ...F ... on T @include(if: true) { b } } fragment F on T { c ...G } fragment G on T { d }",
    "mutation M { create(input: {name: \"\"\"block \\\"\"\" } \"\"\", n: -1.5e3, e: ENUM}) { id } other }", "{ viewer { login } }", "subscription S { tick }",
    "query A { a } mutation B { b } # comment }\n fragment C on T { c }", "{ __schema { types { name } } }")]
GRAPHQL_PIECES = [p.encode() for p in (
    "{", "}", "(", ")", "[", "]", "...", "..", "on", "on T", "@d", "@d(x:1)", "$x", ":", "!", "=", "|", "&", ",", "#", "#\n", "\n", "\r\n", "\r", " ", "a",
    "query", "mutation", "subscription", "fragment", "fragment F on T { e }", "...F", "...G", "...H", "\"", '"""', '\\"""', "\"s\"", "\\u0041", "\\n", "1", "01", "1.5",
    "-", "null", "true", "{a}", "{ b c }", "query Q { z }", "\u00e9", "\ufeff", "\u2028", "\u0085", "\0", "type T { a: Int }", "b: a", "B", "M")]


def more_than_the_specification(text):
    """What the reader refuses though the reference implementation reads it: see graphql_lexer.h."""
    if "\r" in text.replace("\r\n", "") or "\\u{" in text:
        return True
    return any(c in "\ufeff\u2028\u2029\u0085\x7f" or (ord(c) < 32 and c not in "\t\n\r") for c in text)


class Graphql(unittest.TestCase):
    def reference(self, requests):
        lines = "\n".join(json.dumps(r) for r in requests) + "\n"
        script = pathlib.Path(__file__).with_name("graphql_oracle.cjs")
        out = subprocess.run(["node", str(script), GRAPHQL], input=lines, capture_output=True, text=True, check=True).stdout
        return [json.loads(line) for line in out.splitlines()]

    def test_root_fields_are_those_of_the_reference_implementation(self):
        rng = random.Random(SEED)
        requests = []
        while len(requests) < 8000:
            text = mutate(rng, rng.choice(GRAPHQL_SEEDS), GRAPHQL_PIECES).decode("utf-8", "ignore")
            name = rng.choice((None, None, None, "Q", "A", "B", "M"))
            requests.append({"query": text, **({"operationName": name} if name else {})})
        answers = read([(GRAPHQL_KIND, JSON_HEAD, json.dumps(r).encode()) for r in requests])
        run = 0
        for request, answer, expected in zip(requests, answers, self.reference(requests)):
            reading = answer["graphql"]
            if reading["fault"] and expected is not None:
                self.assertTrue(more_than_the_specification(request["query"]) or "\\u0000" in json.dumps(request), (SEED, request, reading, expected))
            elif not reading["fault"]:
                self.assertEqual(sorted(reading["items"]), sorted(expected or []), (SEED, request))
                self.assertIsNotNone(expected, (SEED, request, reading))
                run += 1
        self.assertGreater(run, 500)


# --- git

ZERO = "0" * 40


def packet(line):
    line = line.encode() if isinstance(line, str) else line
    return b"%04x" % (len(line) + 4) + line


EMPTY_PACK = b"PACK\0\0\0\2\0\0\0\0"
EMPTY_PACK += hashlib.sha1(EMPTY_PACK).digest()


class Git(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.root), "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
                    "GIT_AUTHOR_NAME": "o", "GIT_AUTHOR_EMAIL": "o@a.test", "GIT_COMMITTER_NAME": "o", "GIT_COMMITTER_EMAIL": "o@a.test"}

    def git(self, *arguments, check=True, **more):
        return subprocess.run(["git", *map(str, arguments)], env=self.env, capture_output=True, check=check, **more)

    def repository(self, name, *options):
        bare = self.root / name
        self.git("init", "-q", "--bare", *options, bare)
        for key, value in (("http.receivepack", "true"), ("receive.advertisePushOptions", "true"), ("receive.denyDeleteCurrent", "ignore")):
            self.git("-C", bare, "config", key, value)
        return bare

    def refs(self, bare):
        return dict(line.split()[::-1] for line in self.git("-C", bare, "for-each-ref", "--format=%(objectname) %(refname)").stdout.decode().splitlines())

    def test_whatever_receive_pack_changes_was_read(self):
        rng = random.Random(SEED)
        bare, work = self.repository("r.git"), self.root / "w"
        self.git("init", "-q", work)
        ids = []
        for n in range(2):
            self.git("-C", work, "commit", "-q", "--allow-empty", "-m", str(n))
            ids.append(self.git("-C", work, "rev-parse", "HEAD").stdout.decode().strip())
        start = {f"refs/heads/{name}": ids[0] for name in ("main", "a", "b/c")}
        self.git("-C", work, "push", "-q", bare, *(f"{ids[0]}:{ref}" for ref in start), f"{ids[1]}:refs/heads/keep")
        start["refs/heads/keep"] = ids[1]
        cases = [self.commands(rng, ids) for _ in range(200)]
        changed = readable = 0
        for commands, answer in zip(cases, read([(PUSH, PUSH_HEAD, c) for c in cases])):
            self.git("-C", bare, "update-ref", "--stdin", input="".join(f"update {r} {i}\n" for r, i in start.items()).encode())
            for extra in set(self.refs(bare)) - set(start):
                self.git("-C", bare, "update-ref", "-d", extra)
            self.git("receive-pack", "--stateless-rpc", bare, check=False, input=commands)
            after = self.refs(bare)
            done = {ref: 1 if ref not in start else 4 if ref not in after else 2 for ref in start.keys() | after.keys() if start.get(ref) != after.get(ref)}
            reading = answer["push"]
            readable += not reading["fault"]
            changed += bool(done)
            for change in done.items() if not reading["fault"] else ():
                self.assertIn(list(change), reading["items"], (SEED, commands, done))
        self.assertGreater(changed, 10)
        self.assertGreater(readable, 30)

    def commands(self, rng, ids):
        lines = []
        for n in range(rng.choice((1, 1, 2, 3))):
            ref = rng.choice(("refs/heads/main", "refs/heads/a", "refs/heads/b/c", "refs/heads/new", "refs/tags/v1", "HEAD", "refs/heads/a.lock"))
            line = rng.choice((f"{ids[0]} {ids[1]} {ref}", f"{ids[0]} {ZERO} {ref}", f"{ZERO} {ids[1]} {ref}")).encode()
            if n == 0:
                line += b"\0 " + rng.choice((b"report-status", b"report-status atomic", b"object-format=sha1", b"push-options", b"", b"object-format=sha256"))
            lines.append(line + rng.choice((b"", b"\n", b"", b"", b" ")))
        if rng.random() < 0.1:
            lines.insert(rng.randrange(len(lines) + 1), b"shallow " + ids[0].encode())
        if rng.random() < 0.3:
            at = rng.randrange(len(lines))
            lines[at] = mutate(rng, lines[at], [b" ", b"\0", b"\n", b"refs/heads/a", b"0", b"A", ZERO.encode(), b"push-cert"])
        body = b"".join(packet(line) for line in lines)
        body += rng.choice((b"0000", b"0000", b"0000", b"0000", b"0001", b"0004", b"0003"))
        if rng.random() < 0.1:
            body = mutate(rng, body, [b"0000", b"0001", b"0004", b"00"])
        return body + EMPTY_PACK

    def test_pushes_of_real_git_are_read(self):
        bodies, bare = [], self.repository("r.git")
        sha256 = self.repository("sha256.git", "--object-format=sha256")
        url = self.serve(bodies)
        work = self.root / "w"
        self.git("init", "-q", "-b", "main", work)
        self.git("-C", work, "commit", "-q", "--allow-empty", "-m", "1")
        self.git("-C", work, "tag", "-a", "v1", "-m", "v1")

        def push(*arguments, source=work, target="r.git", options=()):
            del bodies[:]
            self.git("-C", source, *options, "push", *arguments[:1], f"{url}/{target}", *arguments[1:])
            answers = [a["push"] for a in read([(PUSH, PUSH_HEAD, b) for b in bodies])]
            self.assertEqual([a["fault"] for a in answers], [""] * len(answers))
            return [item for a in answers for item in a["items"]]

        self.assertEqual(push("-q", "main"), [["refs/heads/main", 1]])
        self.git("-C", work, "commit", "-q", "--allow-empty", "-m", "2")
        self.assertEqual(sorted(push("-q", "main", "main:refs/heads/x", "v1")), [["refs/heads/main", 2], ["refs/heads/x", 1], ["refs/tags/v1", 1]])
        self.assertEqual(push("--atomic", ":refs/heads/x"), [["refs/heads/x", 4]])
        self.assertEqual(push("-q", "main:refs/heads/old", options=("-c", "protocol.version=0")), [["refs/heads/old", 1]])
        self.assertEqual(push("-q", "main:refs/heads/one", options=("-c", "protocol.version=1")), [["refs/heads/one", 1]])
        self.assertEqual(push("--push-option=ci.skip", "main:refs/heads/y"), [["refs/heads/y", 1]])
        # Larger than http.postBuffer: chunked, and asked for first with a push of nothing where credentials may be wanted.
        (work / "noise").write_bytes(random.Random(1).randbytes(300_000))
        self.git("-C", work, "add", "noise")
        self.git("-C", work, "commit", "-q", "-m", "3")
        self.assertEqual(push("-q", "+main", options=("-c", "http.postBuffer=65536")), [["refs/heads/main", 2]])
        self.assertGreater(max(map(len, bodies)), 300_000)
        self.git("clone", "-q", "--depth=1", f"file://{bare}", self.root / "shallow")
        self.git("-C", self.root / "shallow", "commit", "-q", "--allow-empty", "-m", "4")
        self.assertEqual(push("-q", "HEAD:refs/heads/shallow", source=self.root / "shallow"), [["refs/heads/shallow", 1]])
        other = self.root / "w256"
        self.git("init", "-q", "-b", "main", "--object-format=sha256", other)
        self.git("-C", other, "commit", "-q", "--allow-empty", "-m", "1")
        self.assertEqual(push("-q", "main", source=other, target=sha256.name), [["refs/heads/main", 1]])

    def serve(self, bodies):
        """git http-backend on a port of its own; what is posted to git-receive-pack is kept in `bodies`."""
        root, env = self.root, self.env

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def body(self):
                if self.headers.get("transfer-encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("content-length", 0)))
                out = b""
                while size := int(self.rfile.readline(), 16):
                    out += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return out

            def do_GET(self):
                path, _, query = self.path.partition("?")
                body = self.body()
                if path.endswith("/git-receive-pack"):
                    bodies.append(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
                cgi = {**env, "GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
                       "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("content-type", ""), "CONTENT_LENGTH": str(len(body)),
                       "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""), "HTTP_GIT_PROTOCOL": self.headers.get("git-protocol", ""),
                       "GIT_PROTOCOL": self.headers.get("git-protocol", "")}
                out = subprocess.run(["git", "http-backend"], env=cgi, input=body, capture_output=True).stdout
                head, _, answer = out.partition(b"\r\n\r\n")
                fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
                self.send_response(int(fields.pop("Status", "200").split()[0]))
                for name, value in fields.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_GET

            def log_message(self, *arguments):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
