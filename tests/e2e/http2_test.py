#!/usr/bin/python3
"""HTTP/2 and gRPC with real programs at both ends: Node's and grpcio's servers, curl, nghttp, h2load, Node, OpenJDK, grpcio."""
import gzip
import json
import os
import signal

import harness

PYTHON = "/usr/bin/python3"
ADDRESS, PORT = "151.101.1.10", 8444
ORIGIN = f"https://a.test:{PORT}"
RULES = [f"allow GET,PUT a.test:{PORT}/pub/**"]


class Http2(harness.SluiceTest):
    def node(self):
        return self.serving("node", str(harness.CLIENTS / "h2_server.js"), ADDRESS, str(PORT), str(self.lab.folder / "good.pem"),
                            str(self.lab.folder / "good.key"), str(self.lab.folder / "repos"))

    def test_curl_speaks_http2_and_shows_a_denial(self):
        with self.node():
            got = self.sluice(RULES, "curl", "-sS", "-i", "--http2", f"{ORIGIN}/pub/./x?q=1")
            self.assertRegex(got.out, r"^HTTP/2 200")
            self.assertIn('"path":"/pub/x?q=1"', got.out)
            self.assertNotIn("d-forged", got.out)
            denied = self.sluice(RULES, "curl", "-sS", "-i", "--http2", "-d", "{}", f"{ORIGIN}/pub/x")
            self.assertExit(denied, 0)
            self.assertRegex(denied.out, r"^HTTP/2 403")
            self.assertRegex(denied.out, r"x-sluice-denied: d-\d+")
            body = json.loads(denied.out.split("\n\n", 1)[1])
            self.assertIn("POST a.test", body["suggest"])
            self.assertDenialLine(denied, "POST", "a.test", "curl")

    def test_curl_is_offered_http_1_1_where_the_upstream_speaks_only_that(self):
        got = self.sluice(["allow GET a.test/pub/**"], "curl", "-sS", "-i", "--http2", "https://a.test/pub/x")
        self.assertRegex(got.out, r"^HTTP/1\.1 200")

    def test_nghttp_talks_http2_to_an_upstream_that_speaks_http_1_1(self):
        got = self.sluice(["allow GET a.test"], "nghttp", "-v", "https://a.test/chunked/100000")
        self.assertIn(":status: 200", got.out)
        trailers = self.sluice(["allow GET a.test"], "nghttp", "-v", "https://a.test/trailers")
        self.assertIn("x-checksum: abc123", trailers.out)

    def test_node_has_one_stream_denied_while_its_neighbours_live(self):
        with self.node():
            got = self.sluice(RULES, "node", self.client("h2_client.js"), ORIGIN)
            self.assertExit(got, 0)
            hints, put, secret, reset = json.loads(got.out)
            self.assertEqual((hints["status"], hints["interim"], hints["sum"]), (200, 103, "0"))
            self.assertIn('"cookie":"a=1; b=2"', hints["text"])
            self.assertEqual((put["status"], put["sum"]), (200, "1000000"))
            self.assertEqual(secret["status"], 403)
            self.assertRegex(secret["denied"], r"^d-\d+$")
            self.assertEqual(reset["rst"], 11)
            self.assertEqual(len(got.denials(path="/secret")), 1)

    def test_java_speaks_http2(self):
        with self.node():
            got = self.sluice(RULES, "java", self.client("H2Get.java"), f"{ORIGIN}/pub/j", f"{ORIGIN}/private", timeout=120)
            self.assertRegex(got.out, r'HTTP_2 200 \{"method":"GET"')
            self.assertRegex(got.out, r'HTTP_2 403 \{"error":"egress denied')

    def test_a_go_program_speaks_http2_and_looks_names_up_by_itself(self):
        # hey is of net/http; netdns=go sends its questions without libc, http2debug says what it spoke. Unless told, it would put the port
        # into the SNI.
        go = ["env", "GODEBUG=netdns=go,http2debug=2", "hey", "-n", "2", "-c", "1", "-h2", "-host"]
        with self.node():
            for method, status in (("GET", 200), ("POST", 403)):
                got = self.sluice(RULES, *go, "a.test", "-m", method, f"{ORIGIN}/pub/go")
                self.assertRegex(got.out, rf"\[{status}\]\s+2 responses", str(got))
                self.assertRegex(got.err, rf'http2: decoded hpack field header field ":status" = "{status}"')
        self.assertDenialLine(got, "POST", "a.test", "hey")
        denied = self.sluice(RULES, *go, "b.test", "https://b.test/")
        self.assertIn("no such host", denied.out, str(denied))

    def test_h2load_runs_a_hundred_streams(self):
        with self.node():
            got = self.sluice(RULES, "h2load", "-n", "2000", "-c", "4", "-m", "100", f"{ORIGIN}/pub/load", timeout=120)
            self.assertIn("2000 succeeded, 0 failed, 0 errored", got.out)

    def test_prior_knowledge_is_judged_and_an_upgrade_is_ignored(self):
        rules = ["allow GET http://a.test/pub/**"]
        denied = self.sluice(rules, "curl", "-sS", "-i", "--http2-prior-knowledge", "http://a.test/secret")
        self.assertRegex(denied.out, r"^HTTP/2 403")
        upgrade = self.sluice(rules, "curl", "-sS", "-i", "--http2", "http://a.test/pub/x")
        self.assertRegex(upgrade.out, r"^HTTP/1\.1 200")

    def test_grpc_streams_in_all_four_ways_and_shows_why_a_call_is_denied(self):
        with self.serving(PYTHON, str(harness.CLIENTS / "grpc_server.py"), f"{ADDRESS}:{PORT}", str(self.lab.folder / "good.pem"),
                          str(self.lab.folder / "good.key")):
            call = (PYTHON, self.client("grpc_client.py"), f"a.test:{PORT}", "/etc/ssl/certs/ca-certificates.crt")
            kept = self.sluice([f"allow grpc a.test:{PORT} lab.Words/*", f"deny grpc a.test:{PORT} lab.Words/Up"], *call, timeout=120)
            self.assertExit(kept, 0)
            result = json.loads(kept.out)
            self.assertEqual((result["down"], result["both"]), (500, [6, 6, 100005, 0]))
            self.assertEqual({result[name]["code"] for name in ("up", "denied")}, {"PERMISSION_DENIED"})
            self.assertEqual({r["target"]["path"] for r in kept.audit if r.get("verdict") == "deny"}, {"/lab.Words/Up", "/lab.Secret/Read"})
            got = self.sluice([f"allow POST a.test:{PORT}/lab.Words/*"], *call, timeout=120)
            self.assertExit(got, 0)
            result = json.loads(got.out)
            self.assertEqual(result["single"], ["one:x", "True", "word"])
            self.assertEqual((result["fail"]["code"], result["fail"]["details"]), ("FAILED_PRECONDITION", "not today: 100% sure"))
            self.assertEqual(result["slow"]["code"], "DEADLINE_EXCEEDED")
            self.assertEqual((result["down"], result["up"]), (500, "a+b"))
            self.assertEqual(result["both"], [6, 6, 100005, 0])
            self.assertEqual(result["denied"]["code"], "PERMISSION_DENIED")
            self.assertRegex(result["denied"]["details"], r'^Egress denied: needs "grpc a\.test:8444 lab\.Secret/Read" \(d-\d+\)$')
            self.assertRegex(result["denied"]["trailers"]["x-sluice-denied"], r"^d-\d+$")
            self.assertEqual(result["neighbour"], ["echo:before", "echo:after"])


    # -- bodies

    RPC = [f"allow jsonrpc good a.test:{PORT}/rpc", f"allow graphql query a.test:{PORT}/graphql"]

    def post(self, path, data, *arguments):
        (self.work / "body").write_bytes(data)
        return self.sluice(self.RPC, "curl", "-sS", "-i", "--http2", "-H", "Content-Type: application/json", "--data-binary", "@body",
                           *arguments, ORIGIN + path)

    def call(self, method, **more):
        return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, **more}).encode()

    def test_curl_has_bodies_judged(self):
        with self.node():
            for data in (self.call("good"), self.call("good", params=["x" * 6_000_000])):
                got = self.post("/rpc", data)
                self.assertRegex(got.out, r"^HTTP/2 200", str(got))
                self.assertIn(f'"length":{len(data)}', got.out)
            packed = gzip.compress(self.call("good"))
            got = self.post("/rpc", packed, "-H", "Content-Encoding: gzip")
            self.assertIn(f'"length":{len(packed)}', got.out, str(got))
            rows = ((self.call("evil"), [], 403), (gzip.compress(self.call("evil")), ["-H", "Content-Encoding: gzip"], 403),
                    (self.call("good", params=["x" * 9_000_000]), [], 413), (b"", [], 403))
            for data, arguments, status in rows:
                denied = self.post("/rpc", data, *arguments)
                self.assertRegex(denied.out, rf"^HTTP/2 {status}", str(denied))
            graphql = self.post("/graphql", json.dumps({"query": "mutation { drop }"}).encode())
            self.assertRegex(graphql.out, r"^HTTP/2 403")
            self.assertIn("graphql mutation drop", json.dumps(graphql.audit))

    def test_node_has_sixty_bodies_judged_at_once(self):
        with self.node():
            got = self.sluice(self.RPC, "node", self.client("h2_bodies.js"), ORIGIN, "/rpc")
            self.assertExit(got, 0)
            answers = json.loads(got.out)
            self.assertEqual([a["status"] for a in answers], [a["wanted"] for a in answers])
            self.assertTrue(all(a["whole"] for a in answers if a["status"] == 200), got.out[:2000])
            self.assertEqual(sum(r.get("count", 1) for r in got.denials(path="/rpc")), 20)

    def test_git_pushes_what_refs_allow(self):
        url = f"{ORIGIN}/octo/hello.git"
        rules = [f"allow git fetch-pack a.test:{PORT}/octo/*",
                 (f"allow git receive-pack a.test:{PORT}/octo/*", {"refs": "[refs/heads/agent/*]"})]
        script = f"""set -e
        git clone -q {url} hello; cd hello
        git config user.name octo; git config user.email octo@a.test
        head -c 30000000 /dev/urandom > large; git add large; git commit -q -m large
        push() {{ GIT_CURL_VERBOSE=1 timeout {40 * harness.SLOW} git push {url} HEAD:refs/heads/$1; }}
        for try in 1 2 3; do code=0; push main 2> ../denied || code=$?; [ $code = 124 ] || break; done; [ $code = 1 ]
        for try in 1 2 3; do code=0; push agent/h2 2> ../allowed || code=$?; [ $code = 124 ] || break; done; exit $code"""
        # Where the end of a large upload finds curl 7.88's socket full, as on a busy machine, it asks git for more after it had the
        # last: git reads its pipe, into which nothing comes any more, and the upload never ends. Such a push is begun again.
        with self.node():
            got = self.sluice(rules, "sh", "-c", script, timeout=250)
            self.assertExit(got, 0)
        denied, allowed = ((self.work / name).read_text(errors="replace") for name in ("denied", "allowed"))
        self.assertIn("HTTP/2 200", denied)
        self.assertRegex(denied, r"main \(denied by policy \(d-\d+\)\)")
        self.assertRegex(allowed, r"new branch.* -> agent/h2")

    # -- credentials

    TOKEN, MODEL = "ghp_S3cret/Value+of=the.Supervisor", "sk-ant-api03-Real\"Key&of-the-supervisor-0123456789abcdef"

    def with_credentials(self, version, command):
        place = f"a.test:{PORT}"
        rules = [(f"allow http {place}/hub", {"with": "hub"}), (f"allow http {place}/model", {"with": "model"}),
                 (f"allow http {place}/aws", {"with": "aws"}), f"allow http {place}/none"]
        credentials = (f"credentials:\n  hub: {{ from: env HUB, send: bearer, to: ['{place}'] }}\n"
                       f"  model: {{ from: env MODEL, send: placeholder MODEL_KEY, to: ['{place}'] }}\n"
                       f"  aws: {{ from: env AWS, send: sigv4, to: ['{place}'] }}")
        env = {**os.environ, "HUB": self.TOKEN, "MODEL": self.MODEL, "AWS": "AKIDREAL:key"}
        got = self.sluice(harness.policy_text(rules, credentials), "sh", "-c", f"curl -sS -i {version} {command}", env=env)
        self.assertRegex(got.out, r"^HTTP/2 " if version == "--http2" else r"^HTTP/1\.1 ", str(got))
        head, _, body = got.out.partition("\r\n\r\n") if "\r\n\r\n" in got.out else got.out.partition("\n\n")
        # Trailers follow the body.
        return got, head, json.JSONDecoder().raw_decode(body)[0]

    def test_credentials_are_put_in_whichever_protocol_the_client_speaks(self):
        with self.node():
            for version in ("--http2", "--http1.1"):
                got, head, answer = self.with_credentials(version, f"-H 'Authorization: Bearer mine' {ORIGIN}/hub")
                self.assertEqual(answer["headers"]["authorization"], f"Bearer {self.TOKEN}", str(got))
                self.assertIn("x-back: Bearer [redacted]", head)
                self.assertNotIn(self.TOKEN, head + got.err + got.audit_path.read_text())
                got, _, answer = self.with_credentials(
                    version, f"""-H 'Content-Type: application/json' -H "x-key: $MODEL_KEY" -d '{{"key": "'$MODEL_KEY'"}}' {ORIGIN}/model""")
                self.assertEqual(answer["headers"]["x-key"], self.MODEL, str(got))
                self.assertEqual(json.loads(answer["body"]), {"key": self.MODEL})
                astray, head, answer = self.with_credentials(version, f'-d "k=$MODEL_KEY" {ORIGIN}/none')
                self.assertIn(" 403", head, str(astray))
                self.assertIn("stand-in of credential model", answer["error"])
                self.assertTrue([r for r in astray.denials() if "stand-in of credential model" in r.get("detail", "")], str(astray))
                got, _, answer = self.with_credentials(version, f"--aws-sigv4 aws:amz:eu-central-1:dynamodb -u a:b -d payload {ORIGIN}/aws")
                self.assertIn("Credential=AKIDREAL/", answer["headers"]["authorization"], str(got))
                self.assertEqual((answer["body"], answer["headers"]["content-length"]), ("payload", "7"))


    # -- WebSockets

    WS = [f"allow ws a.test:{PORT}/chat", f"allow ws a.test:{PORT}/refused"]

    def test_node_has_a_websocket_over_http2(self):
        with self.node():
            got = self.sluice(self.WS, "node", self.client("h2_ws_client.mjs"), ORIGIN, "/chat", "h\u00e9llo" * 100)
            self.assertEqual(got.out.splitlines(), ["offered true", "status 200", "frame 1 " + "h\u00e9llo" * 100, "close 4001 done", "end 0"], str(got))
            [exchange] = [r for r in got.audit if r["type"] == "exchange"]
            self.assertEqual((exchange["status"], exchange["close_code"], exchange["target"]["method"]), (200, 4001, "GET"))
            for path, status in (("/refused", 404), ("/other", 403)):
                got = self.sluice(self.WS, "node", self.client("h2_ws_client.mjs"), ORIGIN, path, "x")
                self.assertIn(f"status {status}", got.out, str(got))
            self.assertEqual(len(got.denials(path="/other")), 1)

    def test_python_has_a_websocket_of_an_upstream_that_speaks_only_http2(self):
        with self.node():
            got = self.sluice(self.WS, PYTHON, self.client("ws_client.py"), f"wss://a.test:{PORT}/chat", "text:x")
            lines = got.out.splitlines()
            self.assertRegex(lines[0], "^open", str(got))
            self.assertEqual(lines[1:], ["text x", "closed 4001 done"])

    def test_a_websocket_over_http2_is_closed_with_a_reason_when_the_policy_changes(self):
        with self.node(), self.running(self.WS, "node", self.client("h2_ws_client.mjs"), ORIGIN, "/chat", "hello", "wait") as process:
            self.assertEqual([process.stdout.readline().strip() for _ in range(3)], ["offered true", "status 200", "frame 1 hello"])
            self.policy.write_text(harness.policy_text([f"allow ws a.test:{PORT}/other"]))
            process.send_signal(signal.SIGHUP)
            self.assertEqual(process.stdout.readline().strip(), "close 1008 no longer allowed by the egress policy")
            self.assertRegex(process.stdout.readline(), "^end 0")


if __name__ == "__main__":
    harness.main()
