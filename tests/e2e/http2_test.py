#!/usr/bin/python3
"""HTTP/2 and gRPC with real programs at both ends: Node's and grpcio's servers, curl, nghttp, h2load, Node, OpenJDK, grpcio."""
import contextlib
import json
import os
import re
import subprocess

import harness

PYTHON = "/usr/bin/python3"
ADDRESS, PORT = "151.101.1.10", 8444
ORIGIN = f"https://a.test:{PORT}"
RULES = [f"allow GET,PUT a.test:{PORT}/pub/**"]


class Http2(harness.SluiceTest):
    @contextlib.contextmanager
    def serving(self, *command):
        """A server in the lab's internet."""
        process = subprocess.Popen(["nsenter", f"--net=/proc/{self.lab.world.pid}/ns/net", *command], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        try:
            self.assertEqual(process.stdout.readline().strip(), "ready")
            yield
        finally:
            process.kill()
            process.communicate()

    def node(self):
        return self.serving("node", str(harness.CLIENTS / "h2_server.js"), ADDRESS, str(PORT), str(self.lab.folder / "good.pem"),
                            str(self.lab.folder / "good.key"))

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
            rules = [f"allow POST a.test:{PORT}/lab.Words/*"]
            got = self.sluice(rules, PYTHON, self.client("grpc_client.py"), f"a.test:{PORT}", "/etc/ssl/certs/ca-certificates.crt",
                              timeout=120)
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


if __name__ == "__main__":
    harness.main()
