#!/usr/bin/python3
"""Tables whose keys others may choose (names, paths, addresses, what stands in a body) hash them under the process's own key: whoever can
run the hash backwards makes keys that all fall on one place, and each look-up goes through all of them (base/keyed_hash.h).

Usage: tables_test.py SOURCE_FOLDER
"""
import pathlib
import re
import sys

# Where texts come from the network, the workload or a container. What policy and prover hash, a policy's author wrote.
ROOMS = ("dns", "nft", "proxy", "supervisor", "audit", "app", "library")
TABLE = re.compile(r"\bunordered_\w+\s*<\s*(?:const )?(?:std::string|std::string_view|(?:sluice::)?IpAddress)\b(?!.*KeyedHasher)")
HASH = re.compile(r"\b(?:std|boost)::hash\s*<|\bIpHash\b")


def faults_of(root, path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if TABLE.search(line) or HASH.search(line):
            yield f"{path.relative_to(root)}:{number}: hashes what others may choose without a key; take KeyedMap, KeyedSet or KeyedHasher"


def main():
    root = pathlib.Path(sys.argv[1])
    paths = [p for room in ROOMS for p in sorted((root / room).rglob("*.*")) if p.suffix in (".h", ".cc")]
    faults = [fault for path in paths for fault in faults_of(root, path)]
    print("\n".join(faults))
    print(f"{len(paths)} files checked, {len(faults)} faults")
    return 1 if faults or not paths else 0


sys.exit(main())
