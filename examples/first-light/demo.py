#!/usr/bin/python3
"""The main job, shown on real curl and git without the internet: `./dev demo`.

Each step runs a command under `sluice run` with policy.yaml of this folder and checks what came of it.
Exit 0 when every step behaved, 1 otherwise. `--pause` waits for Enter after each step.
"""
import argparse
import json
import os
import pathlib
import re
import shlex
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests/e2e"))
import lab as lab_module

POLICY = HERE / "policy.yaml"
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ
DIAL = """
import errno, socket, time
begin = time.monotonic()
try:
    socket.create_connection(("140.82.121.4", 22), timeout=10)
    print("connected")
except OSError as error:
    print(errno.errorcode[error.errno], "after", round((time.monotonic() - begin) * 1000, 1), "ms")
"""


def paint(code, text):
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


class Demo:
    def __init__(self, lab, pause):
        self.lab, self.pause, self.step, self.failures = lab, pause, 0, []
        self.binary = lab_module.sluice_binary()
        self.audit = lab.folder / "audit.jsonl"

    def show(self, title, caption, command, checks, after=None, shown=None):
        """Runs one step. `checks` are (what must hold, predicate over the result)."""
        self.step += 1
        print(paint("1;36", f"\n── {self.step}. {title} " + "─" * max(0, 88 - len(title))))
        print(paint("2", caption))
        print(paint("1", "$ sluice run --policy policy.yaml -- ") + (shown or shlex.join(command)))
        begin = time.monotonic()
        result = self.lab.run([self.binary, "run", "--policy", POLICY, "--name", "first-light", "--audit", self.audit, "--label", "demo=yes",
                               "--", *command])
        elapsed = time.monotonic() - begin
        for stream, code in ((result.stdout, "0"), (result.stderr, "33")):
            for line in stream.strip().splitlines()[:24]:
                print("   " + paint(code, line[:170]))
        if after:
            after(result)
        for what, predicate in checks:
            good = bool(predicate(result))
            print("   " + (paint("32", "✓ ") if good else paint("1;31", "✗ ")) + what)
            if not good:
                self.failures.append(f"step {self.step}: {what} (exit {result.returncode})")
        print(paint("2", f"   exit {result.returncode}, {elapsed * 1000:.0f} ms"))
        if self.pause:
            input(paint("2", "   Enter goes on "))

    def resolver_log(self, _):
        names = sorted({entry["name"] for entry in self.lab.dns_log()})
        print("   " + paint("2", "the resolver upstream was asked for: ") + ", ".join(names))

    def run(self):
        lab = self.lab
        self.show("An allowed read", "The policy allows GET api.github.com/repos/**. TLS is terminated, the request judged and sent on.",
                  ["curl", "-sS", "https://api.github.com/repos/octo/hello"],
                  [("the stand-in API answered", lambda r: '"full_name": "octo/hello"' in r.stdout), ("exit code is curl's 0", lambda r: r.returncode == 0)])
        self.show("A write nobody allowed", "The same URL, but POST. The reason phrase, the body and one line on stderr name the missing rule.",
                  ["curl", "-sS", "-i", "-d", "{}", "https://api.github.com/repos/octo/hello/issues"],
                  [("403 with the rule in the reason phrase", lambda r: re.search(r"HTTP/1.1 403 .*POST api\.github\.com", r.stdout)),
                   ("the body suggests the smallest rule", lambda r: '"suggest"' in r.stdout),
                   ("stderr has the denial", lambda r: "denied" in r.stderr and "POST" in r.stderr),
                   ("nothing reached the server", lambda r: not any(e["method"] == "POST" for e in lab.http_log()))])
        self.show("git clone", "git fetch-pack github.com/octo/* allows clone and fetch over smart HTTP, and nothing else of it.",
                  ["sh", "-c", "git clone -q https://github.com/octo/hello.git && git -C hello log --oneline"],
                  [("three commits arrived", lambda r: r.stdout.count("commit ") == 3 and r.returncode == 0),
                   ("protocol version 2 went through", lambda r: "version=2" in self.git_protocols())], after=self.protocol_log)
        lab.add_commit("octo/hello", "made on the server since")
        self.show("git fetch", "A commit appeared on the server; the clone brings it.",
                  ["sh", "-c", "cd hello && git fetch -q && git log --oneline origin/main | head -2"],
                  [("the new commit arrived", lambda r: "made on the server since" in r.stdout)])
        self.show("git push", "Pushing needs git receive-pack, which no rule allows. git itself shows why.",
                  ["sh", "-c", "cd hello && git -c user.name=octo -c user.email=octo@a.test commit -q --allow-empty -m mine && git push -q origin HEAD:refs/heads/mine"],
                  [("git shows the reason on a remote: line", lambda r: re.search(r"remote: .*receive-pack", r.stderr)),
                   ("the push failed", lambda r: r.returncode != 0),
                   ("no receive-pack request reached the server", lambda r: not any("receive-pack" in e["target"] for e in lab.http_log() if "target" in e))])
        self.show("A raw connect", "Even to GitHub's own address: port 22 is nobody's rule. The errno comes at once, not after a timeout.",
                  ["/usr/bin/python3", "-c", DIAL], [("EACCES", lambda r: "EACCES" in r.stdout)], shown="python3: connect(140.82.121.4, 22)")
        self.show("Another name", "A lookup outside the policy is answered here. The resolver upstream never hears of it.",
                  ["getent", "hosts", "stolen-secret.telemetry.example"],
                  [("the name does not exist", lambda r: r.returncode == 2),
                   ("the resolver upstream was never asked for it", lambda r: not any("telemetry" in e["name"] for e in lab.dns_log())),
                   ("it was asked for what is allowed", lambda r: lab.asked("api.github.com") and lab.asked("github.com"))],
                  after=self.resolver_log)
        self.audit_records()
        return self.failures

    def git_protocols(self):
        headers = [{k.lower(): v for k, v in e["headers"]} for e in self.lab.http_log() if e.get("host") == "github.com"]
        return {h.get("git-protocol", "none") for h in headers}

    def protocol_log(self, _):
        print("   " + paint("2", "the server saw Git-Protocol: ") + ", ".join(sorted(self.git_protocols())))

    def audit_records(self):
        print(paint("1;36", "\n── What was recorded " + "─" * 72))
        print(paint("2", "One record per decision and per finished exchange, with sandbox, process and rule (--audit audit.jsonl)."))
        text = self.audit.read_text() if self.audit.exists() else ""
        records = [json.loads(line) for line in text.splitlines()]
        for record in records:
            print("   " + self.one_line(record))
        if not records:
            self.failures.append("no audit records")
        for fault in audit_faults(records):
            self.failures.append(fault)

    @staticmethod
    def one_line(record):
        target, process = record["target"], record["process"] or {"exe": "?", "pid": "?"}
        place = target.get("host") or f"{target.get('address', '')}:{target.get('port', '')}"
        request = f"{target.get('method', '')} {place}{target.get('path', '')}".strip()
        what = f"{record['layer']:8}{record['verdict']:6}" if record["type"] == "decision" else f"finished {record.get('status', '')}".ljust(14)
        colour = {"allow": "32", "deny": "31"}.get(record.get("verdict"), "2")
        rule = record.get("rule")
        why = f"rule {rule['id']}, line {rule['line']}" if rule else f"{record.get('reason', '')}; would need {record.get('suggest', '')}"
        return (f"{record['sandbox']}  " + paint(colour, what) + f" {pathlib.Path(process['exe']).name}[{process['pid']}]".ljust(24) +
                f" {request}  " + paint("2", why))


def audit_faults(records):
    """What the records lack, as sentences."""
    if not all(r.get("sandbox") == "first-light" for r in records):
        yield "an audit record lacks the sandbox name"
    decided = [r for r in records if r.get("verdict")]
    if not any(r.get("verdict") == "deny" for r in decided) or not any(r.get("verdict") == "allow" for r in decided):
        yield "the audit records lack an allow or a deny"
    if not all((r.get("process") or {}).get("exe") for r in decided):
        yield "a decision lacks its process"
    if not all(r.get("rule") for r in decided if r["verdict"] == "allow" and r["layer"] == "request"):
        yield "an allowed request lacks its rule"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pause", action="store_true")
    arguments = parser.parse_args()
    lab_module.become_root_in_a_user_namespace()
    print(paint("1", "Sluice, first light.") + " One policy, two rules:")
    for line in POLICY.read_text().splitlines():
        print("   " + paint("2", line))
    with lab_module.Lab() as lab:
        failures = Demo(lab, arguments.pause).run()
    if failures:
        print(paint("1;31", "\nNot as it should be:\n") + "\n".join("   " + f for f in failures))
        return 1
    print(paint("1;32", "\nEvery step behaved. ") + "The same commands work against the real sites where there is internet.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
