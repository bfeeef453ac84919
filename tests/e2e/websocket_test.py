#!/usr/bin/python3
"""WebSockets of real programs: python3-websockets and the npm package ws, as workload and as origin, allowed and denied."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import harness

ADDRESS, PY_TLS, PY_PLAIN, NODE_TLS = "151.101.1.10", 9301, 9302, 9303  # a.test
RULES = [f"allow ws a.test:{PY_TLS}/echo", f"allow ws a.test:{PY_TLS}/events", f"allow ws a.test:{PY_TLS}/refuse", f"allow ws http://a.test:{PY_PLAIN}/echo",
         f"allow ws a.test:{NODE_TLS}"]


class WebSockets(harness.SluiceTest):
    @classmethod
    def setUpClass(cls):
        lab = harness.THE_LAB
        source = pathlib.Path(os.environ.get("SLUICE_NODE_WS") or harness.lab_module.ROOT / "build/test-data/ws")
        cls.module = lab.folder / "ws"
        if not cls.module.exists():
            shutil.copytree(source, cls.module)
            subprocess.run(["chmod", "-R", "a+rX", cls.module], check=True)
        inside = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{lab.world.pid}/ns/net"]
        certificate = [str(lab.folder / "good.pem"), str(lab.folder / "good.key")]
        cls.log = open(lab.folder / "ws-origins.out", "w+")
        more = {"stdin": subprocess.DEVNULL, "stdout": cls.log, "stderr": cls.log, "cwd": "/"}
        cls.origins = [
            subprocess.Popen(inside + [harness.PYTHON, str(harness.CLIENTS / "ws_origin.py"), ADDRESS, str(PY_TLS), str(PY_PLAIN), *certificate], **more),
            subprocess.Popen(inside + ["node", str(harness.CLIENTS / "ws_origin.mjs"), str(cls.module), ADDRESS, str(NODE_TLS), *certificate], **more)]
        deadline = time.monotonic() + 30 * harness.SLOW
        for port in (PY_TLS, PY_PLAIN, NODE_TLS):
            probe = f"import socket; socket.create_connection(('{ADDRESS}', {port}), 1).close()"
            while subprocess.run(inside + [harness.PYTHON, "-c", probe], stderr=subprocess.DEVNULL).returncode:
                if time.monotonic() > deadline:
                    raise SystemExit("the WebSocket origins did not start: " + pathlib.Path(cls.log.name).read_text())
                time.sleep(0.1)

    @classmethod
    def tearDownClass(cls):
        for process in cls.origins:
            process.kill()
            process.wait()
        cls.log.close()

    def py(self, url, *steps, rules=RULES, **more):
        return self.sluice(rules, harness.PYTHON, self.client("ws_client.py"), url, *steps, **more)

    def node(self, url, rules=RULES):
        module = self.work / "ws"
        if not module.exists():
            shutil.copytree(self.module, module)
        return self.sluice(rules, "node", self.client("ws_client.mjs"), "./ws", url)

    def exchanges(self, result):
        return [r for r in result.audit if r["type"] == "exchange" and r.get("status") == 101]

    def test_python_to_python_over_tls(self):
        result = self.py(f"wss://a.test:{PY_TLS}/echo", "text:h\u00e9llo", "ping", "bytes:3000000")
        self.assertEqual(result.out.splitlines(), ["open chat.v2 ['permessage-deflate']", "text h\u00e9llo", "pong", "bytes True", "closed 4001 done"], str(result))
        [exchange] = self.exchanges(result)
        self.assertEqual(exchange["close_code"], 4001)
        self.assertGreater(exchange["bytes_up"], 2000000)
        self.assertNotIn("error", exchange)

    def test_node_over_http2_to_node_over_http11(self):
        result = self.sluice(RULES, "node", self.client("h2_ws_client.mjs"), f"https://a.test:{NODE_TLS}", "/", "hello")
        self.assertEqual(result.out.splitlines(), ["offered true", "status 200", "frame 1 hello", "close 4001 done", "end 0"], str(result))

    def test_python_to_python_in_the_clear(self):
        result = self.py(f"ws://a.test:{PY_PLAIN}/echo", "text:x", "bytes:100000")
        self.assertEqual(result.out.splitlines()[1:], ["text x", "bytes True", "closed 4001 done"], str(result))

    def test_python_to_node(self):
        result = self.py(f"wss://a.test:{NODE_TLS}/any", "text:x", "bytes:1000000", "ping")
        self.assertEqual(result.out.splitlines(), ["open chat.v2 ['permessage-deflate']", "text x", "bytes True", "pong", "closed 4001 done"], str(result))

    def test_node_to_python_and_to_node(self):
        for port in (PY_TLS, NODE_TLS):
            result = self.node(f"wss://a.test:{port}/echo")
            self.assertEqual(result.out.splitlines(), ["open chat.v2 permessage-deflate", "text h\u00e9llo \u20ac", "pong still there?", "bytes true", "closed 4001 done"], str(result))

    def test_a_server_that_closes_tells_its_code(self):
        result = self.py(f"wss://a.test:{PY_TLS}/events", "take:10", "wait")
        self.assertIn("took event 9", result.out, str(result))
        self.assertRegex(result.out, r"closed 4000 all told\n$")
        self.assertEqual(self.exchanges(result)[0]["close_code"], 4000)

    def test_what_the_origin_refuses_is_its_own_answer(self):
        self.assertEqual(self.py(f"wss://a.test:{PY_TLS}/refuse").out, "status 403 yes\n")

    def test_a_denied_upgrade_is_403_with_the_rule_that_would_allow_it(self):
        for rules in ([f"allow http a.test:{PY_TLS}"], [f"allow ws a.test:{PY_TLS}/other"], [*RULES, f"deny ws a.test:{PY_TLS}/echo"], [*RULES, f"deny GET a.test:{PY_TLS}/echo"]):
            result = self.py(f"wss://a.test:{PY_TLS}/echo", "text:x", rules=rules)
            self.assertRegex(result.out, r"^status 403 \S", str(rules) + str(result))
            self.assertEqual(self.exchanges(result), [])
            self.assertTrue(result.denials(path="/echo"), str(result))
        result = self.node(f"wss://a.test:{PY_TLS}/echo", rules=[f"allow http a.test:{PY_TLS}"])
        self.assertRegex(result.out, rf'^status 403 Egress denied: needs "ws a\.test:{PY_TLS}/echo" \(d-\d+\)\nbody ws a\.test:{PY_TLS}/echo\n', str(result))
        self.assertDenialLine(result, f"a.test:{PY_TLS}/echo", "node")

    def test_a_stand_in_in_text_is_replaced_on_its_way_out(self):
        secret = 'sk-real"quoted-0123456789abcdef'
        policy = harness.policy_text([(f"allow ws a.test:{PY_TLS}/echo", {"with": "model"})],
                                     f"credentials:\n  model: {{ from: env MODEL, send: placeholder MODEL_KEY, to: ['a.test:{PY_TLS}'] }}")
        result = self.py(f"wss://a.test:{PY_TLS}/echo", "variable:MODEL_KEY", rules=policy, env={**os.environ, "MODEL": secret})
        # The origin says back what it got; compressed text could not be edited, so compression was not offered.
        self.assertEqual(result.out.splitlines()[:3], ["open chat.v2 []", f"text key={secret}", "text " + json.dumps({"key": secret})], str(result))

    def test_ws_grants_no_other_request(self):
        result = self.sluice(RULES, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", f"https://a.test:{PY_TLS}/echo")
        self.assertEqual(result.out, "403", str(result))

    def test_a_change_of_policy_closes_with_1008(self):
        with self.running(RULES, harness.PYTHON, "-u", self.client("ws_client.py"), f"wss://a.test:{PY_TLS}/echo", "text:x", "wait") as process:
            self.assertRegex(process.stdout.readline() + process.stdout.readline(), r"^open .*\ntext x\n$")
            fresh = self.folder / "fresh.yaml"
            fresh.write_text(harness.policy_text([f"allow GET a.test:{PY_TLS}"]))
            os.replace(fresh, self.policy)
            said, _ = process.communicate(timeout=20 * harness.SLOW)
        self.assertRegex(said, re.escape("closed 1008 no longer allowed by the egress policy"))


if __name__ == "__main__":
    harness.main()
