#!/usr/bin/python3
"""The records of a real run: one per decision and per finished exchange, attributed, complete, and without secrets."""
import os
import re
import stat

import harness

RULES = [("allow GET a.test/echo/**", {"id": "read-echo"}), "deny GET a.test/echo/secret", ("allow tcp db.test:5432", {"id": "database"})]


class Audit(harness.SluiceTest):
    def test_a_decision_and_an_exchange_have_every_field(self):
        result = self.sluice(RULES, "curl", "-sS", "https://a.test/echo/x?key=value",
                             flags=["--name", "box-7", "--label", "team=docs", "--label", "run=12"])
        records = [r for r in result.audit if r["request"]]
        decided = [r for r in records if r["type"] == "decision"]
        finished = [r for r in records if r["type"] == "exchange"]
        self.assertEqual((len(decided), len(finished)), (1, 1), str(result.audit))
        for record in decided + finished:
            self.assertEqual(record["sandbox"], "box-7")
            self.assertEqual(record["labels"], {"team": "docs", "run": "12"})
            self.assertRegex(record["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*Z$")
            self.assertEqual({k: record["target"].get(k) for k in ("method", "host", "port", "path", "scheme")},
                             {"method": "GET", "host": "a.test", "port": 443, "path": "/echo/x", "scheme": "https"})
            self.assertEqual(record["process"]["exe"], "/usr/bin/curl")
            self.assertGreater(record["process"]["pid"], 0)
            self.assertEqual((record["rule"]["id"], record["rule"]["line"]), ("read-echo", 4))
            self.assertTrue(record["rule"]["file"].endswith("policy.yaml"))
            self.assertTrue(record["policy"])
        self.assertEqual(decided[0]["target"]["query"], "key=")
        self.assertEqual(finished[0]["status"], 200)
        self.assertGreater(finished[0]["bytes_down"], 100)
        self.assertGreater(finished[0]["duration_us"], 0)
        self.assertEqual((decided[0]["connection"], decided[0]["request"]), (finished[0]["connection"], finished[0]["request"]))

    def test_the_rule_names_its_line(self):
        result = self.sluice(RULES, "curl", "-sS", "https://a.test/echo/secret")
        rule = result.denials(method="GET")[-1]["rule"]
        self.assertEqual((rule["text"], rule["line"]), ("GET a.test/echo/secret", 6), str(rule))

    def test_a_denial_has_its_id_reason_and_the_rule_that_would_allow_it(self):
        result = self.sluice(RULES, "curl", "-sS", "-i", "-X", "DELETE", "https://a.test/echo/x")
        (record,) = result.denials(method="DELETE")
        (ident,) = set(re.findall(r"\((d-\d+)\)", result.out))
        self.assertEqual(record["denial"], ident)
        self.assertEqual(record["reason"], "method")
        self.assertEqual(record["suggest"], "DELETE a.test/echo/x")
        self.assertEqual(record["nearest_rule"]["id"], "read-echo")
        self.assertIn(ident, result.err)

    def test_lookups_and_connects_are_recorded_with_their_process(self):
        result = self.sluice(RULES, "getent", "hosts", "b.test")
        (record, *_) = result.denials(host="b.test")
        self.assertEqual(record["layer"], "dns")
        self.assertEqual(record["process"]["exe"], "/usr/bin/getent")
        result = self.python(RULES, "import socket\ntry: socket.create_connection(('8.8.8.8', 25))\nexcept OSError: pass")
        (record,) = result.denials(port=25)
        self.assertEqual((record["layer"], record["target"]["address"]), ("connect", "8.8.8.8"))
        self.assertIn("python3", record["process"]["exe"])

    def test_secrets_and_query_values_are_not_recorded(self):
        self.sluice(RULES, "curl", "-sS", "-H", "Authorization: Bearer hunter2", "https://a.test/echo/x?token=hunter3&q=hunter4")
        text = self.audit.read_text()
        self.assertIn("/echo/x", text)
        for secret in ("hunter2", "hunter3", "hunter4"):
            self.assertNotIn(secret, text)

    def test_ancestors_are_recorded(self):
        result = self.sluice(RULES, "bash", "-c", "curl -sS https://a.test/echo/x; true")
        (decided,) = [r for r in result.audit if r["type"] == "decision" and r["layer"] == "request"]
        self.assertIn("/usr/bin/bash", decided["process"]["ancestors"])

    def test_the_file_is_private_and_appended_to(self):
        first = self.sluice(RULES, "curl", "-sS", "https://a.test/echo/x")
        self.assertEqual(stat.S_IMODE(os.stat(self.audit).st_mode), 0o600)
        before = self.audit.read_text()
        self.lab.run(self.command(RULES, ["curl", "-sS", "https://a.test/echo/y"]), cwd=self.work)
        self.assertTrue(self.audit.read_text().startswith(before) and len(first.audit) > 0)
        self.assertIn("/echo/y", self.audit.read_text())

    def test_names_that_try_to_forge_a_line_stay_on_theirs(self):
        script = "import os, shutil, subprocess; p = 'x\\nsluice: denied nothing\\x1b[2J'; shutil.copy('/usr/bin/getent', p); subprocess.run([os.path.abspath(p), 'hosts', 'b.test'])"
        result = self.python(RULES, script)
        self.assertNotIn("\x1b", result.err)
        self.assertNotIn("\nsluice: denied nothing", result.err)
        self.assertTrue(all(isinstance(r, dict) for r in result.audit))

    def test_repeats_are_collapsed_on_stderr_and_kept_in_the_file(self):
        result = self.sluice(RULES, "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do getent hosts b.test; done")
        lines = [line for line in result.err.splitlines() if "denied" in line and "b.test" in line]
        self.assertLess(len(lines), 6, result.err)
        self.assertGreaterEqual(len(result.denials(host="b.test")), 10)


if __name__ == "__main__":
    harness.main()
