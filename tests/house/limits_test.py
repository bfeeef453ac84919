#!/usr/bin/python3
"""Every bound that the code names stands in docs/limits.md, and every bound there is in the file it names and used: what is
only defined bounds nothing.

A bound is a constant named kMax…, or k… ending in Limit, Capacity, Deadline or Timeout.
Usage: limits_test.py SOURCE_FOLDER
"""
import pathlib
import re
import sys

ROOMS = ("base", "policy", "prover", "dns", "nft", "proxy", "supervisor", "audit", "app", "library")
NAME = re.compile(r"\bk[A-Z]\w*")
DEFINITION = re.compile(r"\bconstexpr\b[^;=]*\b(k[A-Z]\w*)\s*(?:=|\{)")
DEFINED = re.compile(r"\bconstexpr\b[^;=]*?\b(kMax[A-Z]\w*|k[A-Z]\w*(?:Limit|Capacity|Deadline|Timeout))\b\s*(?:=|\{)")


def main():
    root = pathlib.Path(sys.argv[1])
    defined = {}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.*")):
            if path.suffix in (".h", ".cc"):
                for name in DEFINED.findall(path.read_text()):
                    defined.setdefault(name, str(path.relative_to(root)))
    page = (root / "docs/limits.md").read_text()
    written = set(re.findall(r"`(k[A-Z]\w*)`", page))
    faults = [f"docs/limits.md lacks {name} of {where}" for name, where in sorted(defined.items()) if name not in written]
    lines = [line for room in ROOMS for p in (root / room).rglob("*") if p.suffix in (".h", ".cc") for line in p.read_text().splitlines()]
    named = {name for line in lines for name in NAME.findall(line)}
    faults += [f"docs/limits.md names {name}, which the code lacks" for name in sorted(written - named)]
    for row in page.splitlines():
        # `kOne`, `kTwo`, file: the file is that of all since the one before.
        for names, file in re.findall(r"((?:`k[A-Z]\w*`,? )+)([a-z][\w/]*\.(?:h|cc))", row):
            text = (root / file).read_text() if (root / file).is_file() else ""
            faults += [f"docs/limits.md: {name} is not defined in {file}" for name in re.findall(r"`(\w+)`", names)
                       if not re.search(rf"\b{name}\b\s*(?:=|\{{)", text)]
    used = set()
    for line in lines:
        code = line.split("//")[0]
        used.update(set(NAME.findall(code)) - set(DEFINITION.findall(code)))
    faults += [f"docs/limits.md names {name}, which no code uses" for name in sorted(written - used)]
    print("\n".join(faults))
    print(f"{len(defined)} bounds checked, {len(faults)} faults")
    return 1 if faults or not defined else 0


sys.exit(main())
