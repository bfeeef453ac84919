#!/usr/bin/python3
"""clang-tidy over the files named on stdin, one a line, skipping those that were clean and have not changed since.

Usage: tidy.py BUILD_FOLDER [JOBS]

A file is clean as long as it, the headers of this tree that it includes, its compile command, .clang-tidy and clang-tidy itself
are the same as when it had no finding: BUILD_FOLDER/tidy/ holds a stamp of each. A run that is broken off goes on where it was.
"""
import concurrent.futures
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys
import time

TIDY = "clang-tidy-19"


def command_of(entry):
    return entry["arguments"] if "arguments" in entry else shlex.split(entry["command"])


def headers_of(entry):
    """The files of the tree that the compiler reads for this one, without those of the system."""
    words = [w for w in command_of(entry) if w not in ("-c", "-MD", "-MMD")]
    if words[0].endswith("ccache"):
        words = words[1:]
    for flag in ("-o", "-MF", "-MT"):
        while flag in words:
            at = words.index(flag)
            del words[at:at + 2]
    made = subprocess.run([*words, "-MM"], cwd=entry["directory"], capture_output=True, text=True, check=True).stdout
    return sorted({str(pathlib.Path(entry["directory"], w).resolve()) for w in shlex.split(made.split(":", 1)[1].replace("\\\n", " "))})


def digest_of(base, entry, files):
    total = hashlib.sha256(base + json.dumps(command_of(entry)).encode())
    for name in files:
        total.update(name.encode() + hashlib.sha256(pathlib.Path(name).read_bytes()).digest())
    return total.hexdigest()


def is_clean(stamp, base, entry):
    try:
        kept = json.loads(stamp.read_text())
        return kept["digest"] == digest_of(base, entry, kept["files"])
    except (OSError, ValueError, KeyError):
        return False


def check(build, base, entry, stamp):
    """What clang-tidy says against the file, and the seconds it took; no words for a clean one."""
    begin = time.monotonic()
    # Listed first: a header that is edited meanwhile must not be taken for the one that was read.
    files = headers_of(entry)
    digest = digest_of(base, entry, files)
    done = subprocess.run([TIDY, "-p", build, "--quiet", "--warnings-as-errors=*", entry["file"]], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        stamp.write_text(json.dumps({"digest": digest, "files": files}))
        return "", time.monotonic() - begin
    return done.stdout + done.stderr, time.monotonic() - begin


def main():
    build, jobs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2
    root = pathlib.Path(__file__).resolve().parent.parent
    stamps = pathlib.Path(build) / "tidy"
    stamps.mkdir(exist_ok=True)
    base = (root / ".clang-tidy").read_bytes() + subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
    known = {e["file"]: e for e in json.loads((pathlib.Path(build) / "compile_commands.json").read_text())}
    waiting, clean = [], 0
    for line in sys.stdin:
        entry = known.get(str(root / line.strip()))
        if entry is None:
            continue  # only what this build compiles has its flags written down
        stamp = stamps / line.strip().replace("/", "--")
        if is_clean(stamp, base, entry):
            clean += 1
        else:
            waiting.append((line.strip(), entry, stamp))
    print(f"   {clean} unchanged since they were clean, {len(waiting)} to check", file=sys.stderr, flush=True)
    found = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(check, build, base, entry, stamp): name for name, entry, stamp in waiting}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            name = running[done]
            words, seconds = done.result()
            print(f"   [{number}/{len(waiting)}] {name}  {seconds:.1f} s{'  FINDINGS' if words else ''}", file=sys.stderr, flush=True)
            if words:
                found.append(name)
                print(words, flush=True)
    if found:
        print(f"clang-tidy objects to {len(found)} files: {' '.join(sorted(found))}", file=sys.stderr)
    return 1 if found else 0


sys.exit(main())
