#!/usr/bin/python3
"""Asks Z3 and `sluice prove` the same question and prints what each took: does the head let out a request that the base does not?

    bench/prover/z3_peer.py SLUICE [RULES [SECONDS]]

The policies: RULES allows, each with a host wildcard and a path glob; in the head one path is opened, or one is closed, where the
answer is that nothing is gained. Z3 gets one string for the host and one for the path, and regular expressions for the globs; it
is given SECONDS, after which it has no answer.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

import z3


def rules(count, edit=None):
    for i in range(count):
        path = f"/v{i % 7}/t{i}/*/items/**"
        if i == count // 2 and edit:
            path = {"opened": f"/v{i % 7}/t{i}/**", "closed": f"/v{i % 7}/t{i}/*/items/*"}[edit]
        yield f"*.team{i}.example.com", path


def policy(pairs):
    return "version: 1\nrules:\n" + "".join(f"  - allow: GET {host}{path}\n" for host, path in pairs)


def glob(text, one, many):
    parts, at = [], 0
    while at < len(text):
        if text.startswith("**", at):
            parts.append(z3.Star(many))
            at += 2
        elif text[at] == "*":
            parts.append(z3.Star(one))
            at += 1
        else:
            end = next((i for i in range(at, len(text)) if text[i] == "*"), len(text))
            parts.append(z3.Re(text[at:end]))
            at = end
    return z3.Concat(*parts) if len(parts) > 1 else parts[0]


def ask_z3(base, head, seconds):
    letters = z3.Union(z3.Range("a", "z"), z3.Range("0", "9"), z3.Re("-"))
    segment = z3.Union(letters, z3.Re("."), z3.Re("_"))
    host, path = z3.Strings("host path")

    def reach(pairs):
        return z3.Or(*[z3.And(z3.InRe(host, glob(h, letters, letters)), z3.InRe(path, glob(p, segment, z3.Union(segment, z3.Re("/")))))
                       for h, p in pairs])

    solver = z3.Solver()
    solver.set("timeout", seconds * 1000)
    solver.add(reach(head), z3.Not(reach(base)))
    return solver.check()


def compare(sluice, count, seconds, edit):
    base, head = list(rules(count)), list(rules(count, edit))
    begin = time.perf_counter()
    answer = str(ask_z3(base, head, seconds))
    peer = time.perf_counter() - begin
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        files = [pathlib.Path(folder, name) for name in ("base.yaml", "head.yaml")]
        for file, pairs in zip(files, (base, head)):
            file.write_text(policy(pairs))
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            done = subprocess.run([sluice, "prove", *map(str, files)], stdout=subprocess.PIPE, text=True)
            times.append(time.perf_counter() - begin)
        ours = sorted(times)[2]
    verdict = done.stdout.strip().splitlines()[-1].rsplit(": ", 1)[-1]
    print(f"{count} rules, one {edit}: sluice prove {ours * 1e3:.1f} ms ({verdict}); z3 {peer * 1e3:.0f} ms ({answer}); ratio {peer / ours:.1f}")
    if answer != "unknown" and (answer == "sat") != (done.returncode == 1):
        sys.exit("the answers differ")


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    for edit in ("opened", "closed"):
        compare(sys.argv[1], count, seconds, edit)


main()
