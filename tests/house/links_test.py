#!/usr/bin/python3
"""Every relative link of every Markdown page leads to a file, and every #anchor to a heading.

Usage: links_test.py SOURCE_FOLDER
"""
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


def anchors(page):
    text = FENCE.sub("", page.read_text())
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in re.findall(r"^#+\s+(.*)$", text, re.M)}


def check(root):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "*.md"], capture_output=True, text=True).stdout.split()
    pages = [root / name for name in listed] or [p for p in root.rglob("*.md") if "build" not in p.relative_to(root).parts]
    faults, links = [], 0
    for page in pages:
        for target in LINK.findall(FENCE.sub("", page.read_text())):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            path, _, anchor = target.partition("#")
            destination = (page.parent / path) if path else page
            if not destination.exists():
                faults.append(f"{page.relative_to(root)}: {target} leads nowhere")
            elif anchor and destination.suffix == ".md" and anchor not in anchors(destination):
                faults.append(f"{page.relative_to(root)}: {target} names no heading")
    return faults, links


def main():
    faults, links = check(pathlib.Path(sys.argv[1]))
    print("\n".join(faults))
    print(f"{links} links checked, {len(faults)} faults")
    return 1 if faults or links == 0 else 0


sys.exit(main())
