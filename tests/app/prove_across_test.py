#!/usr/bin/python3
"""`sluice prove` across languages: what another prover misses in OpenShell's own policies, and where it cries wolf.

Usage: prove_across_test.py SLUICE_BINARY
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BINARY = sys.argv[1]


def shell(*endpoints, binary="/usr/bin/curl"):
    """A policy of OpenShell with one block of these endpoints, flow maps without the braces."""
    lines = "".join(f"      - {{ {e} }}\n" for e in endpoints)
    return f"version: 1\nnetwork_policies:\n  a:\n    endpoints:\n{lines}    binaries:\n      - {{ path: {binary} }}\n"


def native(*rules):
    return "version: 1\nrules:\n" + "".join(f"  - {r}\n    by: [/usr/bin/curl]\n" for r in rules)


API = "host: api.github.com, port: 443, protocol: rest, enforcement: enforce"
ENFORCED = "protocol: rest, enforcement: enforce"
GET = API + ", access: read-only"
WRITE = API + ", access: read-write"
NOTHING = "version: 1\nrules: []\n"


def allowing(method, path):
    return API + f', rules: [{{ allow: {{ method: {method}, path: "{path}" }} }}]'


WIDENED = {
    "bytes to a host without a credential": (NOTHING, shell("host: attacker.example, port: 443")),
    "read-only on the host with one": (NOTHING, shell(GET)),
    "the protocol removed": (shell(WRITE), shell("host: api.github.com, port: 443")),
    "one path becomes all": (shell(allowing("POST", "/repos/o/r/issues")), shell(allowing("POST", "/**"))),
    "a deny removed": (
        shell(API + ', access: full, deny_rules: [{ method: DELETE, path: "/**" }]'), shell(API + ", access: full")),
    "enforce becomes audit": (shell(GET), shell(GET.replace("enforce,", "audit,"))),
    "enforcement left out": (shell(GET), shell(GET.replace(", enforcement: enforce", ""))),
    "tls skipped": (shell(GET), shell(GET + ", tls: skip")),
    "MKCOL": (
        shell(allowing("GET", "/**")),
        shell(API + ', rules: [{ allow: { method: GET, path: "/**" } }, { allow: { method: MKCOL, path: "/**" } }]')),
    "an address becomes its network": (
        shell('host: db.corp, port: 443, allowed_ips: ["10.1.2.3/32"], access: read-only, ' + ENFORCED),
        shell('host: db.corp, port: 443, allowed_ips: ["10.0.0.0/8"], access: read-only, ' + ENFORCED)),
    "one host and port twice with unlike access": (shell(GET), shell(GET, API + ", access: full")),
    "native to OpenShell": (native("allow: GET api.github.com"), shell(API + ", access: full")),
    "OpenShell to native": (shell(GET), native("allow: http api.github.com")),
}
SILENT = {
    "letter case": (shell(GET), shell(GET.replace("api.github", "API.GitHub"))),
    "a wildcard narrowed": (shell(GET.replace("api.", '"*.').replace(".com,", '.com",')), shell(GET)),
    "a host already covered": (
        shell(GET.replace("api.", '"*.').replace(".com,", '.com",')),
        shell(GET.replace("api.", '"*.').replace(".com,", '.com",'), GET)),
    "bytes become requests": (shell("host: api.github.com, port: 443"), shell(API + ", access: full")),
    "the same in both languages": (
        shell(allowing("GET", "/**")), native("allow: GET api.github.com/**")),
}


class Across(unittest.TestCase):
    def prove(self, base, head):
        with tempfile.TemporaryDirectory(prefix="sluice-prove-") as folder:
            for name, text in (("base.yaml", base), ("head.yaml", head)):
                (pathlib.Path(folder) / name).write_text(text)
            done = subprocess.run([BINARY, "prove", "--format", "json", "base.yaml", "head.yaml"], cwd=folder,
                                  capture_output=True, text=True, timeout=60)
        self.assertIn(done.returncode, (0, 1), done.stdout + done.stderr)
        return done.returncode, json.loads(done.stdout)

    def test_what_another_misses_is_found(self):
        for what, (base, head) in WIDENED.items():
            with self.subTest(what):
                code, report = self.prove(base, head)
                self.assertEqual(code, 1, report)
                self.assertIn(report["verdict"], ("widened", "incomparable"))
                self.assertTrue(report["gains"])
                self.assertTrue(report["gains"][0]["witness"])

    def test_false_alarms_stay_silent(self):
        for what, (base, head) in SILENT.items():
            with self.subTest(what):
                code, report = self.prove(base, head)
                self.assertEqual((code, report["gains"]), (0, []))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
