#!/usr/bin/python3
"""`sluice proxy` with what is not plain HTTP/1.1: HTTP/2, gRPC, WebSocket, judged bodies and pushes, each allowed and denied as for `sluice run`."""
import json

import harness
import proxy_harness

ADDRESS, H2, GRPC, WS_TLS, WS_CLEAR = "151.101.1.10", 8444, 8445, 8446, 8447


class Protocols(proxy_harness.ProxyTest):
    @property
    def certificate(self):
        return self.lab.folder / "good.pem", self.lab.folder / "good.key"

    def test_http2_one_stream_denied_and_its_neighbours_served(self):
        origin = f"https://a.test:{H2}"
        with self.serving("node", harness.CLIENTS / "h2_server.js", ADDRESS, H2, *self.certificate, self.lab.folder / "repos"), \
                self.proxy([f"allow GET,PUT a.test:{H2}/pub/**"]) as proxy:
            got = self.curl(proxy, "-v", "--http2", "--parallel", f"{origin}/pub/one", f"{origin}/secret", f"{origin}/pub/two")
            self.assertEqual(got.err.count("< HTTP/2 200"), 2, got)
            self.assertEqual(got.err.count("< HTTP/2 403"), 1, got)
            self.assertIn('GET a.test:8444/secret', got.out)
            self.assertEventually(lambda: [r["target"]["path"] for r in proxy.denials()] == ["/secret"], "the record of the one that was denied")

    def test_grpc_by_method(self):
        with self.serving(harness.PYTHON, harness.CLIENTS / "grpc_server.py", f"{ADDRESS}:{GRPC}", *self.certificate), \
                self.proxy([f"allow grpc a.test:{GRPC} lab.Words/*"]) as proxy:
            got = self.client_run(harness.PYTHON, self.client("grpc_client.py"), f"a.test:{GRPC}", self.bundle, env=self.environment(proxy), timeout=120)
            self.assertExit(got, 0)
            result = json.loads(got.out)
            self.assertEqual((result["single"][0], result["down"], result["up"], result["both"]), ("one:x", 500, "a+b", [6, 6, 100005, 0]))
            self.assertEqual(result["denied"]["code"], "PERMISSION_DENIED")
            self.assertIn("lab.Secret/Read", result["denied"]["details"])
            self.assertEqual(result["neighbour"], ["echo:before", "echo:after"])

    def test_web_sockets_in_tunnels(self):
        def talk(proxy, url):
            environment = {"WS_PROXY": f"127.0.0.1:{proxy.port}", "SSL_CERT_FILE": str(self.bundle)}
            return self.client_run(harness.PYTHON, self.client("ws_client.py"), url, "text:hello", "bytes:300000", env=environment).out

        with self.serving(harness.PYTHON, harness.CLIENTS / "ws_origin.py", ADDRESS, WS_TLS, WS_CLEAR, *self.certificate), \
                self.proxy([f"allow ws a.test:{WS_TLS}/echo", f"allow ws http://a.test:{WS_CLEAR}/echo"]) as proxy:
            for url in (f"wss://a.test:{WS_TLS}/echo", f"ws://a.test:{WS_CLEAR}/echo"):
                said = talk(proxy, url)
                self.assertIn("text hello", said, url)
                self.assertIn("bytes True", said, url)
            for url in (f"wss://a.test:{WS_TLS}/other", f"ws://a.test:{WS_CLEAR}/other"):
                self.assertIn("status 403 d-", talk(proxy, url), url)
            both = {("/other", WS_TLS), ("/other", WS_CLEAR)}
            self.assertEventually(lambda: {(r["target"].get("path"), r["target"]["port"]) for r in proxy.denials()} == both, "the records of both")

    def test_bodies_are_read(self):
        def ask(proxy, query):
            return self.curl(proxy, "-w", "\n%{http_code}", "-H", "Content-Type: application/json", "-d", json.dumps({"query": query}), "https://a.test/graphql").out

        with self.proxy([("allow graphql query a.test/graphql", {"fields": "[viewer]"})]) as proxy:
            self.assertTrue(ask(proxy, "{ viewer { login } }").endswith("\n200"))
            denied = ask(proxy, "mutation { deleteRepo }")
            self.assertTrue(denied.endswith("\n403"), denied)
            self.assertIn("graphql mutation", denied)

    def test_what_no_process_can_be_seen_for_is_said_once(self):
        rules = harness.policy_text(["allow GET a.test/pub/**"]) + "    by: /usr/bin/curl\n"
        with self.proxy(rules, "--proxy-protocol", "required", "--proxy-protocol-from", "127.0.0.1") as proxy:
            proxy.stop()
            self.assertEqual(proxy.errors().count("no client's process can be seen here"), 1, proxy.errors())

    def test_a_request_that_names_no_place_is_recorded_without_one(self):
        with self.proxy(["allow GET a.test/pub/**"]) as proxy:
            answer = self.raw(proxy, "GET /status?token=secret HTTP/1.1\r\nHost: a.test\r\n\r\n")
            self.assertRegex(answer, r"^HTTP/1\.1 403 ")
            body = json.loads(answer.split("\r\n\r\n", 1)[1])
            self.assertEqual((body["host"], body["path"]), ("", "/status"))
            self.assertRegex(self.raw(proxy, "GET http://me:secret@[::x/ HTTP/1.1\r\nHost: a.test\r\n\r\n"), r"^HTTP/1\.1 400 ")
            self.assertEventually(lambda: len(proxy.denials()) == 2, "both records")
            path, malformed = (denial["target"] for denial in proxy.denials())
            self.assertEqual(path, {"scheme": "http", "method": "GET", "path": "/status", "query": "token="})
            self.assertEqual(malformed, {"scheme": "http", "method": "GET"})
            self.assertEventually(lambda: "denied  GET /status?token= " in proxy.errors(), "its line")
            self.assertEventually(lambda: "denied  GET (no place named) " in proxy.errors(), "the other's line")
            self.assertNotIn("secret", proxy.errors() + self.audit.read_text())

    def test_pushes_are_judged_by_ref(self):
        rules = ["allow git fetch-pack github.com/octo/*", ("allow git receive-pack github.com/octo/*", {"refs": "[refs/heads/agent/*]"})]
        with self.proxy(rules) as proxy:
            def git(*arguments):
                return self.client_run("git", *arguments, env={**self.environment(proxy), "HOME": str(self.work)})

            self.assertExit(git("clone", "-q", "https://github.com/octo/hello.git"), 0)
            self.assertExit(git("-C", "hello", "-c", "user.name=o", "-c", "user.email=o@a.test", "commit", "-q", "--allow-empty", "-m", "mine"), 0)
            self.assertExit(git("-C", "hello", "push", "-q", "origin", "HEAD:refs/heads/agent/by-proxy"), 0)
            denied = git("-C", "hello", "push", "-q", "origin", "HEAD:refs/heads/by-proxy")
            self.assertNotEqual(denied.code, 0)
            self.assertIn("denied by policy", denied.err)


if __name__ == "__main__":
    harness.main()
