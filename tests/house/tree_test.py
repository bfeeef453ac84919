#!/usr/bin/python3
"""Small promises of the tree: no leftover markers, no tabs, files that a person can read in one sitting, every script starts alike.

Usage: tree_test.py SOURCE_FOLDER
"""
import pathlib
import re
import sys

FOLDERS = ("base", "policy", "prover", "dns", "nft", "proxy", "supervisor", "audit", "app", "library", "tests", "bench", "docs", "examples", "packaging", "cmake")
MARKER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
LONGEST = {".cc": 800, ".h": 500, ".py": 500}


def faults_of(path, name):
    text = path.read_text(errors="replace")
    if MARKER.search(text):
        yield f"{name}: a leftover marker: {MARKER.search(text).group()}"
    if path.suffix == ".py" and re.search(r"^\t", text, re.M):
        yield f"{name}: a tab at a line's start"
    if len(text.splitlines()) > LONGEST.get(path.suffix, 10**6):
        yield f"{name}: {len(text.splitlines())} lines; split it"
    if path.suffix == ".h" and "#pragma once" not in text:
        yield f"{name}: no #pragma once"


def main():
    root = pathlib.Path(sys.argv[1])
    faults, count = [], 0
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "corpus" not in path.parts and path.suffix in (".cc", ".h", ".py", ".md", ".txt", ".cmake", ".yaml", ".c", ".java", ".mjs"):
                count += 1
                faults += faults_of(path, path.relative_to(root))
    print("\n".join(map(str, faults)))
    print(f"{count} files checked, {len(faults)} faults")
    return 1 if faults or count == 0 else 0


sys.exit(main())
