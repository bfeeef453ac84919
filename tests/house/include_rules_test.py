#!/usr/bin/python3
"""Checks every #include "room/file.h" against cmake/include_rules.txt, and that pure files stay pure.

Usage: include_rules_test.py SOURCE_FOLDER
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)
# Headers that mean I/O, a clock, threads or a heavy library; refused outside io/ folders, base/ and app/.
IMPURE = re.compile(r"^(boost/asio|openssl/|sys/socket\.h|sys/epoll\.h|unistd\.h|fcntl\.h|thread$|ares\.h|libmnl/|fstream|iostream|filesystem)")


def rules(root):
    table = {}
    for line in (root / "cmake/include_rules.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        folder, allowed = line.split(":")
        entry = set()
        for word in allowed.split():
            room = word.removesuffix("+io")
            entry.add(room)
            if word.endswith("+io"):
                entry.add(room + "/io")
        table[folder.strip()] = entry | {folder.strip()}
    return table


def check(root):
    table = rules(root)
    faults, files = [], 0
    for folder, allowed in table.items():
        for path in sorted((root / folder).glob("*.*")):
            if path.suffix not in (".h", ".cc"):
                continue
            files += 1
            for target in INCLUDE.findall(path.read_text()):
                home = str(pathlib.PurePosixPath(target).parent)
                where = path.relative_to(root)
                if home in table and home not in allowed:
                    faults.append(f"{where}: {folder}/ may not include {target}")
                if folder not in ("base", "app") and not folder.endswith("/io") and IMPURE.match(target):
                    faults.append(f"{where}: a pure file includes <{target}>; move what needs it to {folder}/io/")
    return faults, files


def main():
    faults, files = check(pathlib.Path(sys.argv[1]))
    print("\n".join(faults))
    print(f"{files} files checked, {len(faults)} faults")
    return 1 if faults or files == 0 else 0


sys.exit(main())
