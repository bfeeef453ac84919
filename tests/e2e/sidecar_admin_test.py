#!/usr/bin/python3
"""The administration of a real sidecar: policies over its socket, proved, stored and fetched; health, metrics and the decisions stream."""
import base64
import contextlib
import datetime
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import time

import harness
import lab as lab_module
import sidecar_test

RULES = ["allow GET a.test/echo/**", "allow tcp db.test:5432", "allow tcp a.test:5432"]


class AdminTest(sidecar_test.SidecarTest):
    def setUp(self):
        super().setUp()
        self.socket = self.folder / "admin.sock"

    def admin(self, method, path, body=None, *headers, timeout=20):
        command = ["curl", "-sS", "-m", str(timeout), "--unix-socket", self.socket, "-X", method, f"http://sluice{path}", "-w", "\n%{http_code}"]
        if body is not None:
            sent = self.folder / "sent"
            sent.write_text(body)
            command += ["--data-binary", f"@{sent}"]
        for header in headers:
            command += ["-H", header]
        done = self.lab.run(command, timeout=timeout * 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        text, _, code = done.stdout.rpartition("\n")
        return int(code), text

    def json(self, method, path, body=None, *headers):
        code, text = self.admin(method, path, body, *headers)
        return code, json.loads(text)

    def flags(self, *more):
        return ["--admin", f"unix:{self.socket}", *more]


class Policy(AdminTest):
    def test_a_narrower_policy_cuts_what_it_does_not_allow_and_nothing_else(self):
        with self.sidecar(harness.policy_text(RULES), *self.flags()), self.held("db.test", 5432) as revoked, self.held("a.test", 5432) as kept:
            code, text = self.admin("GET", "/v1/policy")
            self.assertEqual((code, text), (200, self.policy.read_text()))
            narrower = harness.policy_text([RULES[0], RULES[2]])
            started = time.monotonic()
            code, answer = self.json("PUT", "/v1/policy?prove=1&apply=1", narrower)
            self.assertEqual(code, 200, answer)
            self.assertEqual((answer["applied"], answer["proof"]["verdict"]), (True, "narrowed"))
            self.assertEqual(revoked.stdout.readline(), "cut\n")
            self.assertLess(time.monotonic() - started, 5 * harness.SLOW)
            kept.stdin.write("\n")
            self.assertEqual(kept.stdout.readline(), "alive\n")
            self.assertNotEqual(self.echo("db.test", 5432).code, 0)
            code, answer = self.json("PUT", "/v1/policy?prove=1&apply=1", harness.policy_text(RULES))
            self.assertEqual((code, answer["code"]), (409, "widens"))
            self.assertNotEqual(self.echo("db.test", 5432).code, 0)
            self.assertEqual(self.json("PUT", "/v1/policy", harness.policy_text(RULES))[0], 200)
            self.assertEqual(self.echo("db.test", 5432).out, "hello\n")

    def test_a_bad_policy_changes_nothing(self):
        with self.sidecar(harness.policy_text(RULES), *self.flags()):
            code, answer = self.json("PUT", "/v1/policy", "version: 1\nrules:\n  - allow: gti a.test\n")
            self.assertEqual((code, answer["code"]), (422, "invalid_policy"))
            code, answer = self.json("PUT", "/v1/policy", "version: 1\nrules:\n  - allow: udp 151.101.1.0/24:7007\n    by: /usr/bin/curl\n")
            self.assertEqual(code, 422, answer)
            self.assertExit(self.curl("https://a.test/echo/x"), 0)

    def test_single_rules(self):
        with self.sidecar("version: 1\nrules:\n  - allow: GET a.test/echo/**\n    id: echo\n", *self.flags()):
            code, answer = self.json("PATCH", "/v1/policy", json.dumps({"add": [{"allow": "tcp db.test:5432", "id": "db"}]}))
            self.assertEqual(code, 200, answer)
            self.assertEqual(self.echo("db.test", 5432).out, "hello\n")
            self.assertEqual(self.json("DELETE", "/v1/policy/rules/echo")[0], 200)
            self.assertNotEqual(self.curl("https://a.test/echo/x").code, 0)

    def test_what_was_put_in_force_outlives_a_crash_until_the_operator_speaks(self):
        flags = self.flags("--state", self.folder / "state")
        narrow = harness.policy_text(RULES[:1])
        with self.sidecar(harness.policy_text(RULES), *flags) as sidecar:
            self.assertEqual(self.json("PUT", "/v1/policy", narrow)[0], 200)
            sidecar.stop(signal.SIGKILL)
        with self.sidecar(harness.policy_text(RULES), *flags):
            self.assertEqual(self.admin("GET", "/v1/policy")[1], narrow)
            self.assertNotEqual(self.echo("db.test", 5432).code, 0)
        with self.sidecar(harness.policy_text(RULES[1:]), *flags):
            self.assertEqual(self.echo("db.test", 5432).out, "hello\n", "the operator's own policy is another now")


class Caller(http.client.HTTPConnection):
    """The administration's socket, without a program in between that takes time."""

    def __init__(self, path):
        super().__init__("sluice")
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


WS_PORT = 9301


class Cuts(AdminTest):
    """What is no longer allowed ends within 100 ms of what ends it. A busy machine may be late now and then: of the tries the median counts."""
    TRIES, MOST_TRIES = 5, 15
    ALLOWED = 0.1 * harness.SLOW
    KEPT = ["allow tcp a.test:5432"]
    FLOWS = {"drip": ("allow GET a.test/drip", "drip:a.test:443"), "ws": (f"allow ws a.test:{WS_PORT}/echo", f"ws:a.test:{WS_PORT}"),
             "tcp": ("allow tcp db.test:5432", "tcp:db.test:5432"), "udp": ("allow udp db.test:7007", "udp:db.test:7007")}

    @classmethod
    def setUpClass(cls):
        lab = harness.THE_LAB
        inside = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{lab.world.pid}/ns/net"]
        cls.origin = subprocess.Popen([*inside, harness.PYTHON, str(harness.CLIENTS / "ws_origin.py"), "151.101.1.10", str(WS_PORT), str(WS_PORT + 1),
                                       str(lab.folder / "good.pem"), str(lab.folder / "good.key")], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        probe = f"import socket; socket.create_connection(('151.101.1.10', {WS_PORT}), 1).close()"
        until = time.monotonic() + 30 * harness.SLOW
        while subprocess.run([*inside, harness.PYTHON, "-c", probe], stderr=subprocess.DEVNULL).returncode:
            if time.monotonic() > until:
                raise SystemExit("the WebSocket origin did not start")
            time.sleep(0.1)

    @classmethod
    def tearDownClass(cls):
        cls.origin.kill()
        cls.origin.wait()

    @contextlib.contextmanager
    def flows(self, names, kept):
        targets = [f"{name}={self.FLOWS[name][1]}" for name in names] + kept
        process = self.lab.popen([*sidecar_test.WITHOUT_NET_ADMIN, harness.PYTHON, self.client("sidecar_cuts.py"), *targets], cwd=self.work,
                                 env={"SSL_CERT_FILE": str(self.bundle)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        try:
            self.assertEqual(process.stdout.readline(), "open\n")
            yield process
        finally:
            process.kill()
            process.communicate()

    def put(self, text):
        """When it was sent: it is in force later than that."""
        caller = Caller(self.socket)
        caller.connect()
        sent = time.monotonic()
        caller.request("PUT", "/v1/policy", text)
        answer = caller.getresponse()
        self.assertEqual(answer.status, 200, answer.read())
        caller.close()
        return sent

    def ends(self, process, names):
        told = [json.loads(process.stdout.readline()) for _ in names]
        self.assertEqual({one["name"] for one in told}, set(names))
        return told

    def median_of_tries(self, names, one_try):
        tries, medians = [], {}
        while len(tries) < self.TRIES or (max(medians.values()) >= self.ALLOWED and len(tries) < self.MOST_TRIES):
            tries.append(one_try())
            medians = {name: statistics.median(taken[name] for taken in tries) for name in names}
        print("  cut after, medians: " + ", ".join(f"{name} {after * 1000:.0f} ms" for name, after in medians.items()), flush=True)
        for name, after in medians.items():
            self.assertLess(after, self.ALLOWED, name)

    def by_a_policy(self, names, settings, kept):
        after = harness.policy_text(self.KEPT, settings)
        before = harness.policy_text(self.KEPT + [self.FLOWS[name][0] for name in names], settings)

        def one_try():
            self.put(before)
            with self.flows(names, kept) as process:
                sent = self.put(after)
                taken = {one["name"]: one["monotonic"] - sent for one in self.ends(process, names)}
                process.stdin.write("\n")
                self.assertEqual(json.loads(process.stdout.readline())["alive"], [one.split("=")[0] for one in kept])
                return taken

        with self.sidecar(before, *self.flags()):
            self.median_of_tries(names, one_try)

    def test_what_the_proxy_carries(self):
        self.by_a_policy(["drip", "ws", "tcp"], "settings: { dns: synthetic }", ["kept=tcp:a.test:5432"])

    def test_what_the_kernel_carries_beside_it(self):
        self.by_a_policy(["drip", "ws", "tcp", "udp"], sidecar_test.REAL, ["kept=tcp:a.test:5432"])

    def test_what_a_rule_allowed_ends_with_it(self):
        names = ["drip", "ws", "tcp", "udp"]

        def one_try():
            self.put(harness.policy_text(self.KEPT + [self.FLOWS[name][0] for name in names], sidecar_test.REAL))
            with self.flows(names, ["kept=tcp:a.test:5432"]) as process:
                until = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(seconds=2)
                rules = [(self.FLOWS[name][0], {"until": until.strftime("%Y-%m-%dT%H:%M:%SZ")}) for name in names]
                self.put(harness.policy_text(self.KEPT + rules, sidecar_test.REAL))
                taken = {one["name"]: one["wall"] - until.timestamp() for one in self.ends(process, names)}
                self.assertGreater(min(taken.values()), -0.01, "before its time")
                process.stdin.write("\n")
                self.assertEqual(json.loads(process.stdout.readline())["alive"], ["kept"])
                return taken

        with self.sidecar(harness.policy_text(self.KEPT, sidecar_test.REAL), *self.flags()):
            self.median_of_tries(names, one_try)


class Watching(AdminTest):
    def test_health_metrics_and_the_workload(self):
        binary = lab_module.binary_for_anyone(self.lab.folder)
        token = self.folder / "token"
        token.write_text("0123456789abcdef0123456789abcdef\n")
        token.chmod(0o600)
        with self.sidecar(harness.policy_text(RULES), *self.flags("--health", "127.0.0.1:19090", "--admin", "127.0.0.1:19091", "--admin-token", token)):
            self.assertExit(self.curl("https://a.test/echo/x"), 0)
            self.curl("https://b.test/")
            self.assertEqual(self.lab.run([binary, "health", "127.0.0.1:19090"]).returncode, 0)
            self.assertEqual(self.lab.run([binary, "health", f"unix:{self.socket}"]).returncode, 0)
            self.assertEqual(self.lab.run([binary, "health", "127.0.0.1:19099"]).returncode, 1)

            def counted():
                text = self.lab.run(["curl", "-sS", "http://127.0.0.1:19090/metrics"]).stdout
                return 'sluice_decisions_total{layer="dns",verdict="denied"' in text and "sluice_ready 1" in text
            self.assertEventually(counted, "the decisions to be counted")
            # The workload reaches the port, and gets nothing there without the token.
            for path in ("/v1/policy", "/v1/decisions"):
                self.assertEqual(self.workload("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:19091{path}").out, "401")
            code, status = self.json("GET", "/v1/status")
            self.assertTrue(status["ready"], status)
            self.assertIn("dropped", json.dumps(status["fence"]["counters"]))
            code, answer = self.json("POST", "/v1/explain", json.dumps({"question": "POST https://a.test/echo/x"}))
            self.assertEqual((code, answer["allowed"]), (200, False))

    def test_decisions_as_they_are_made(self):
        with self.sidecar(harness.policy_text(RULES), *self.flags()):
            reader = self.lab.popen(["curl", "-sSN", "-m", "60", "--unix-socket", self.socket, "http://x/v1/decisions?verdict=denied"],
                                    stdout=subprocess.PIPE, text=True)
            try:
                self.assertEventually(lambda: "sluice_stream_readers 1" in self.admin("GET", "/metrics")[1], "the reader")
                self.curl("https://b.test/")
                line = next(l for l in reader.stdout if l.strip())
                self.assertIn("b.test", line)
            finally:
                reader.kill()
                reader.communicate()

    def test_names_and_sets(self):
        with self.sidecar(harness.policy_text(RULES, sidecar_test.REAL), *self.flags()):
            self.assertEqual(self.echo("db.test", 5432).out, "hello\n")
            self.assertEqual(self.json("GET", "/v1/dns/151.101.1.50")[1]["names"], ["db.test"])
            self.workload("getent", "ahostsv4", "a.test")
            first = self.json("GET", "/v1/dns?limit=1")[1]["cache"]
            self.assertGreaterEqual(first["count"], 2, first)
            entries, after = first["entries"], first["next"]
            while after:
                page = self.json("GET", f"/v1/dns?limit=1&after={after.replace('/', '%2F').replace('+', '%2B')}")[1]["cache"]
                entries += page["entries"]
                after = page.get("next")
            known = {(e["name"], *e["types"]): e for e in entries}
            self.assertEqual(len(known), len(entries), "each once")
            db = known["db.test", "A"]
            self.assertEqual((db["status"], db["addresses"]), ("found", ["151.101.1.50"]))
            self.assertTrue(0 < db["left_seconds"] <= 60 < db["leases"]["left_seconds"] <= 120, db)
            self.assertEqual(db["leases"]["generation"], self.json("GET", "/v1/status")[1]["policy"]["revision"])
            self.assertIn("151.101.1.50", [e["address"] for e in self.json("GET", "/v1/sets")[1]["elements"]])


class Bundle(AdminTest):
    """A publisher that serves files: the policy, and its signature beside it."""

    def setUp(self):
        super().setUp()
        self.key, self.public = self.folder / "key.pem", self.folder / "policy-key.pem"
        self.lab.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", self.key])
        self.lab.run(["openssl", "pkey", "-in", self.key, "-pubout", "-out", self.public])

    def publish(self, serial, rules, key=None):
        text = f"# sluice-bundle serial={serial}\n" + harness.policy_text(rules)
        unsigned, signature = self.folder / "bundle.yaml", self.folder / "bundle.sig"
        unsigned.write_text(text)
        done = self.lab.run(["openssl", "pkeyutl", "-sign", "-inkey", key or self.key, "-rawin", "-in", unsigned, "-out", signature])
        self.assertEqual(done.returncode, 0, done.stderr)
        # Renamed into place, the signature first: between the two the bundle is bad, and the old one stays.
        for name, data in (("policy.yaml.sig", base64.b64encode(signature.read_bytes())), ("policy.yaml", text.encode())):
            path = self.lab.folder / "site/published" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(".fresh")
            fresh.write_bytes(data)
            os.replace(fresh, path)

    def sidecar_command(self, rules, flags):
        command = super().sidecar_command(None, flags)
        at = command.index("--policy")
        return command[:at] + command[at + 2:]

    def bundle_flags(self, *more):
        return self.flags("--policy-url", "https://registry.corp.example/published/policy.yaml", "--policy-key", self.public, "--policy-poll", "1s", *more)

    def revision(self):
        return self.json("GET", "/v1/status")[1]["policy"]["revision"]

    def test_what_is_signed_and_newer_comes_into_force(self):
        self.publish(1, ["allow tcp db.test:5432"])
        with self.sidecar(None, *self.bundle_flags("--state", self.folder / "state")) as sidecar:
            self.assertEventually(lambda: self.echo("db.test", 5432).code == 0, "the bundle", 20)
            self.publish(2, ["allow tcp a.test:5432"])
            self.assertEventually(lambda: self.echo("a.test", 5432).code == 0, "the second", 20)
            self.assertNotEqual(self.echo("db.test", 5432).code, 0)
            revision = self.revision()
            self.publish(1, ["allow tcp db.test:5432"])
            self.assertEventually(lambda: "is not newer than 2" in sidecar.errors(), "the old one to be told", 30)
            other = self.folder / "other.pem"
            self.lab.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", other])
            self.publish(9, ["allow tcp **:5432"], other)
            self.assertEventually(lambda: "no key of --policy-key has signed it" in sidecar.errors(), "the forged one to be told", 60)
            self.assertEqual(self.revision(), revision)
            self.assertEqual(self.json("PUT", "/v1/policy", "version: 1\n")[0], 409)
            sidecar.stop(signal.SIGKILL)
        with self.sidecar(None, *self.bundle_flags("--state", self.folder / "state")):
            self.assertEqual(self.echo("a.test", 5432).out, "hello\n", "the last good one begins")
            self.assertNotEqual(self.echo("db.test", 5432).code, 0)

    def test_nothing_is_let_out_before_the_first(self):
        self.publish(1, ["allow tcp db.test:5432"])
        signature = self.lab.folder / "site/published/policy.yaml.sig"
        signature.rename(signature.with_suffix(".away"))
        binary = lab_module.binary_for_anyone(self.lab.folder)
        with self.sidecar(None, *self.bundle_flags()):
            self.assertNotEqual(self.echo("db.test", 5432).code, 0)
            asked = self.lab.run([binary, "health", f"unix:{self.socket}"])
            self.assertEqual(asked.returncode, 1)
            self.assertIn("no signed policy has come yet", asked.stdout)
            signature.with_suffix(".away").rename(signature)
            self.assertEventually(lambda: self.lab.run([binary, "health", f"unix:{self.socket}"]).returncode == 0, "the bundle", 30)
            self.assertEqual(self.echo("db.test", 5432).out, "hello\n")


class OpenSandbox(AdminTest):
    """The calls of its clients, from outside and from the sandbox itself, on a sidecar that has nothing but its variables."""

    RULES = {"defaultAction": "deny", "egress": [{"action": "allow", "target": "db.test"}]}

    def sidecar_command(self, rules, flags):
        command = super().sidecar_command(None, flags)
        at = command.index("--policy")
        return ["env", *self.variables, *command[:at], *command[at + 2:]]

    def call(self, method, body=None, *headers, run=None):
        command = ["curl", "-sS", "-m", "20", "-X", method, "http://127.0.0.1:18080/policy", "-w", "\n%{http_code}"]
        for header in headers:
            command += ["-H", header]
        if body is not None:
            command += ["-d", json.dumps(body)]
        done = self.lab.run(command) if run is None else run(*command)
        text, _, code = (done.stdout if run is None else done.out).rpartition("\n")
        return int(code), text

    def test_its_users_change_nothing_but_the_image(self):
        self.variables = ["OPENSANDBOX_EGRESS_MODE=dns+nft", "OPENSANDBOX_EGRESS_SANDBOX_ID=one-of-many", f"OPENSANDBOX_EGRESS_RULES={json.dumps(self.RULES)}", "OPENSANDBOX_EGRESS_TOKEN=the-token-of-the-platform",
                          f"OPENSANDBOX_EGRESS_POLICY_FILE={self.folder}/policy.json", "OPENSANDBOX_EGRESS_HTTP_ADDR=:18080"]
        known = "OPENSANDBOX-EGRESS-AUTH: the-token-of-the-platform"
        with self.sidecar(None):
            self.assertEqual(self.echo("db.test", 5432).out, "hello\n")
            self.assertEventually(lambda: {record["labels"].get("sandbox") for record in harness.Result(0, "", "", self.audit).audit} == {"one-of-many"},
                                  "a record with the sandbox's id")
            self.assertNotEqual(self.echo("a.test", 5432).code, 0)
            self.assertEqual(self.call("GET")[0], 401)
            code, text = self.call("GET", None, known)
            self.assertEqual((code, json.loads(text)["policy"]), (200, self.RULES))
            code, text = self.call("PATCH", [{"action": "allow", "target": "a.test"}], known)
            self.assertEqual((code, json.loads(text)), (200, {"status": "ok", "mode": "enforcing", "enforcementMode": "dns+nft"}))
            self.assertEqual(self.echo("a.test", 5432).out, "hello\n")
            self.assertEqual(self.call("DELETE", ["db.test"], known)[0], 200)
            self.assertNotEqual(self.echo("db.test", 5432).code, 0)
            self.assertEqual(self.call("POST", {"defaultAction": "allow"}, run=self.workload)[0], 401)
        with self.sidecar(None):
            self.assertEqual(self.echo("a.test", 5432).out, "hello\n", "what was kept begins")
            self.assertNotEqual(self.echo("db.test", 5432).code, 0)

    def test_without_a_token_the_sandbox_cannot_free_itself(self):
        self.variables = []
        with self.sidecar(None, "--compat", "opensandbox"):
            self.assertEqual(self.call("GET", run=self.workload)[0], 200)
            for method, body in (("POST", {"defaultAction": "allow"}), ("PATCH", [{"action": "allow", "target": "db.test"}])):
                self.assertEqual(self.call(method, body, run=self.workload)[0], 401)
            self.assertNotEqual(self.echo("db.test", 5432).code, 0)

    def test_a_policy_beside_it_is_an_error(self):
        self.variables = []
        done = self.lab.run([*self.sidecar_command(None, ["--compat", "opensandbox"]), "--allow", "tcp db.test:5432"], cwd=self.work)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("would have no effect", done.stderr)


if __name__ == "__main__":
    harness.main()
