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
    "a query matcher dropped": (
        shell(API + ', rules: [{ allow: { method: GET, path: "/s", query: { q: "ok-*" } } }]'), shell(allowing("GET", "/s"))),
    "a prefix without a host": (shell(GET), shell(GET, 'port: 443, allowed_ips: ["10.0.0.0/8"]')),
    "read-only becomes read-write": (shell(GET), shell(WRITE)),
    "another endpoint of the same host, all of its path": (shell(GET), shell(GET, allowing("DELETE", "/admin/**"))),
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


def two_blocks(first, second):
    """Two blocks of OpenShell that show the same name."""
    lines = "".join(f"  {key}:\n    name: same\n    endpoints:\n      - {{ {e} }}\n    binaries:\n      - {{ path: /usr/bin/curl }}\n"
                    for key, e in (first, second))
    return "version: 1\nnetwork_policies:\n" + lines


class Across(unittest.TestCase):
    def run_prove(self, base, head):
        with tempfile.TemporaryDirectory(prefix="sluice-prove-") as folder:
            for name, text in (("base.yaml", base), ("head.yaml", head)):
                (pathlib.Path(folder) / name).write_text(text)
            return subprocess.run([BINARY, "prove", "--format", "json", "base.yaml", "head.yaml"], cwd=folder,
                                  capture_output=True, text=True, timeout=60, check=False)

    def prove(self, base, head):
        done = self.run_prove(base, head)
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

    def test_equal_names_are_two_blocks_and_equal_keys_are_an_error_with_both_lines(self):
        other = API.replace("api.", "raw.") + ", access: full"
        self.assertEqual(self.prove(two_blocks(("a", GET), ("b", other)), two_blocks(("b", other), ("a", GET)))[1]["verdict"], "equal")
        done = self.run_prove(NOTHING, two_blocks(("a", GET), ("a", other)))
        self.assertEqual(done.returncode, 2)
        self.assertIn("head.yaml:9:3: ", done.stderr)
        self.assertIn("line 3", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
