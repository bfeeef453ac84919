"""Every code of `sluice lint` and `sluice prove` has its line in docs/lint.md, no line is left of a code that is gone, and no code is
used anywhere that app/lint_codes.cc does not name."""

import pathlib
import re
import sys

ROOMS = ("app", "policy", "prover")
# How code text comes by its code.
USES = (r'Severity::k\w+,\s*"([a-z0-9-]+)"', r'\.code = "([a-z0-9-]+)"', r'\.code = [^;"]*\? "([a-z0-9-]+)" : "[a-z0-9-]+"',
        r'\.code = [^;"]*\? "[a-z0-9-]+" : "([a-z0-9-]+)"', r'return "(import-[a-z-]+)"')


def table(text):
    return set(re.findall(r"^\| `([a-z0-9-]+)` \|", text, re.M))


root = pathlib.Path(sys.argv[1])
source = (root / "app/lint_codes.cc").read_text()
shared, of_lint, of_prove = re.split(r"constexpr auto k(?:Prove)?Codes =", source)
entry = re.compile(r'\{\s*"([a-z0-9-]+)",')
names = dict(re.findall(r'CodeInfo (k\w+) =\s*\{\s*"([a-z0-9-]+)"', shared))


def codes(part):
    return set(entry.findall(part)) | {names[name] for name in re.findall(r"^\s*(k\w+),$", part, re.M)}


lint_page, _, prove_page = (root / "docs/lint.md").read_text().partition("\n## Codes of `prove`")
used = {}
for room in ROOMS:
    for file in sorted((root / room).rglob("*.cc")):
        for pattern in USES:
            for code in re.findall(pattern, file.read_text()):
                used[code] = file.relative_to(root)
problems = []
for command, known, documented in (("lint", codes(of_lint), table(lint_page)), ("prove", codes(of_prove), table(prove_page))):
    assert known, f"no code of {command} found in app/lint_codes.cc"
    problems += [f"`{code}` of {command} is not in docs/lint.md" for code in sorted(known - documented)]
    problems += [f"docs/lint.md has `{code}`, which {command} does not know" for code in sorted(documented - known)]
everything = codes(of_lint) | codes(of_prove)
problems += [f"{file} uses `{code}`, which has no entry in app/lint_codes.cc" for code, file in sorted(used.items()) if code not in everything]
problems += [f"`{code}` is in app/lint_codes.cc, and nothing uses it" for code in sorted(everything - set(used))]
print("\n".join(problems))
print(f"{len(everything)} codes checked, {len(problems)} problems")
sys.exit(1 if problems else 0)
