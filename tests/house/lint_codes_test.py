"""Every code of `sluice lint` has its line in docs/lint.md, and no line is left of a code that is gone."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
source = (root / "app/lint_codes.cc").read_text()
codes = set(re.findall(r'^\s*\{"([a-z0-9-]+)",', source, re.M))
documented = set(re.findall(r"^\| `([a-z0-9-]+)` \|", (root / "docs/lint.md").read_text(), re.M))
assert codes, "no code found in app/lint_codes.cc"
used = set()
for file in ["policy/lint.cc", "policy/lint_breadth.cc", "prover/lint.cc", "app/lint_comments.cc", "app/lint.cc"]:
    text = (root / file).read_text()
    used |= set(re.findall(r'Severity::k\w+,\s*"([a-z0-9-]+)"', text)) | set(re.findall(r'\.code = "([a-z0-9-]+)"', text))
problems = [f"`{code}` is not in docs/lint.md" for code in sorted(codes - documented)]
problems += [f"docs/lint.md has `{code}`, which lint does not know" for code in sorted(documented - codes)]
problems += [f"`{code}` is used but has no entry in app/lint_codes.cc" for code in sorted(used - codes)]
print("\n".join(problems))
sys.exit(1 if problems else 0)
