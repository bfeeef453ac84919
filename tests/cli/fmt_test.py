"""`sluice fmt`: the same meaning, every comment kept, and the second time nothing changes; what it will not touch."""
import os
import random
import re
import stat

import cli

MESSY = """# About the file.
rules:   # the rules
    # One.
    -   deny:    {methods: [GET], host: API.Example.com., path: /x/**}   # after one
    - by: /usr/bin/node
      allow: "GET   a.test/v1/**"
version: 1
# The end.
"""


class Formats(cli.Case):
    def lint(self, name):
        return self.sluice("lint", "--format", "json", "--fail-on", "never", name).json()["files"][0]

    def check(self, text, label):
        """Formats a copy: same digest and assertions, same comments, and stable."""
        self.write("p.yaml", text)
        before = self.lint("p.yaml")
        self.assertTrue(before["loads"], f"{label}: {before}")
        outcome = self.expect(self.sluice("fmt", "p.yaml"), 0)
        result = (self.folder / "p.yaml").read_text()
        after = self.lint("p.yaml")
        self.assertTrue(after["loads"], f"{label}: {after}\n{result}")
        self.assertEqual((after["digest"], after["rules"]), (before["digest"], before["rules"]), f"{label}\n{result}")
        self.assertEqual(self.broken(after), self.broken(before), label)
        self.assertEqual(sorted(comments(result)), sorted(comments(text)), f"{label}\n{result}")
        self.expect(self.sluice("fmt", "p.yaml"), 0)
        self.assertEqual((self.folder / "p.yaml").read_text(), result, f"{label}: not stable")
        self.expect(self.sluice("fmt", "--check", "p.yaml"), 0)
        self.assertEqual(outcome.out, "p.yaml\n" if result != text else "", label)
        return result

    @staticmethod
    def broken(report):
        return sorted(finding["message"] for finding in report["findings"] if finding["code"] in ("never-broken", "always-broken"))

    def test_every_policy_of_the_tree(self):
        count = 0
        for path in sorted(cli.ROOT.rglob("*.yaml")):
            if "build" in path.parts or path.name.endswith(".test.yaml"):
                continue
            text = path.read_text(errors="replace")
            if not re.search(r"^version:", text, re.M) or not re.search(r"^(rules|presets|assert|include):", text, re.M):
                continue
            text = re.sub(r"(?m)^include:.*\n(?:  ?- .*\n)*", "", text)  # what it includes is not copied
            self.write("p.yaml", text)
            if not self.lint("p.yaml")["loads"]:
                continue
            count += 1
            with self.subTest(str(path.relative_to(cli.ROOT))):
                self.check(text, path)
        self.assertGreater(count, 2)

    def test_what_is_shipped_is_canonical(self):
        shipped = [path for room in ("examples", "packaging") for path in sorted((cli.ROOT / room).rglob("*.yaml"))
                   if re.search(r"(?m)^version: 1$", path.read_text()) and not path.name.endswith(".test.yaml")]
        self.assertGreaterEqual(len(shipped), 5)
        for path in shipped:
            self.expect(self.sluice("fmt", "--check", path), 0)

    def test_random_policies(self):
        for seed in range(60):
            text = Writer(seed).policy()
            with self.subTest(seed=seed):
                self.check(text, f"seed {seed}\n{text}")

    def test_what_the_canonical_form_looks_like(self):
        text = self.check(MESSY.replace("GET   a", "GET a"), "messy")
        self.assertTrue(text.index("version: 1") < text.index("rules:"), text)
        self.assertIn("  - allow: GET a.test/v1/**\n    by: [/usr/bin/node]\n", text)
        self.assertRegex(text, r"  - deny: GET \S+/x/\*\*  # after one\n")

    def test_sections_other_than_rules_are_kept(self):
        text = ("version: 1\nname: bot\nmode: audit\nsettings: { dns: synthetic, deny-errno: EACCES }\npresets:\n"
                "  # for ci\n  - npm@1: { host: registry.corp.example }  # ours\n"
                "rules:\n  - allow: GET a.test/x\nassert:\n  # keep\n  - never: POST b.test/**  # always\n  - always: GET a.test/x\n")
        result = self.check(text, "sections")
        for part in ("name: bot", "mode: audit", "deny-errno: EACCES", "npm@1: { host: registry.corp.example }  # ours", "never: POST b.test/**  # always"):
            self.assertIn(part, result)

    def test_line_ends_and_a_missing_last_one(self):
        plain = "version: 1\nrules:\n  # why\n  - allow: GET a.test/x  # because\n"
        for text in (plain.replace("\n", "\r\n"), plain.rstrip("\n"), plain + "\n\n\n"):
            self.assertEqual(self.check(text, repr(text)), plain)

    def test_a_block_text_keeps_its_hash(self):
        text = "version: 1\nrules:\n  - allow: GET a.test/x\n    note: |\n      first\n      # no comment\n\n      last\n"
        self.assertEqual(self.check(text, "block"), text)


class Refuses(cli.Case):
    def unchanged(self, name, text, said, *flags):
        self.write(name, text)
        outcome = self.expect(self.sluice("fmt", *flags, name), 2)
        self.assertIn(said, outcome.err)
        self.assertEqual((self.folder / name).read_bytes(), text.encode())
        self.assertEqual(outcome.out, "")

    def test_what_does_not_load_is_left_alone(self):
        self.unchanged("p.yaml", "version: 1\nrules:\n  - allow: gti a\n", "p.yaml:3:12: error: unknown verb `gti`")
        self.unchanged("p.yaml", "version: 1\nversion: 1\n", "p.yaml:2:1: error: ")
        self.unchanged("p.yaml", "", "p.yaml")

    def test_other_tools_policies_are_pointed_to_import(self):
        openshell = "version: 1\nnetwork_policies:\n  api:\n    endpoints: [{ host: a.test, port: 443 }]\n"
        self.unchanged("o.yaml", openshell, "sluice import")
        self.unchanged("s.json", '{"network": {"allowedDomains": ["a.test"], "deniedDomains": []}}\n', "sluice import")

    def test_a_folder_goes_on_after_a_bad_file(self):
        self.write("net/a.yaml", "version: 1\nrules: []\n")
        self.write("net/bad.yaml", "version: 2\n")
        self.write("net/c.yaml", "rules: [{allow: GET a.test/x}]\nversion: 1\n")
        outcome = self.expect(self.sluice("fmt", "net"), 2)
        self.assertIn("net/c.yaml\n", outcome.out)
        self.assertIn("net/bad.yaml:1:10: error: ", outcome.err)
        self.expect(self.sluice("fmt", "nowhere.yaml"), 2)


class Files(cli.Case):
    def test_check_changes_nothing(self):
        self.write("p.yaml", MESSY.replace("GET   a", "GET a"))
        before = (self.folder / "p.yaml").read_bytes()
        outcome = self.expect(self.sluice("fmt", "--check", "p.yaml"), 1)
        self.assertEqual((outcome.out, (self.folder / "p.yaml").read_bytes()), ("p.yaml\n", before))
        self.assertIn("1 of 1 file would change; run `sluice fmt` on it", outcome.err)
        self.expect(self.sluice("fmt", "--check", "--stdout", "p.yaml"), 2)

    def test_standard_input_and_output(self):
        text = MESSY.replace("GET   a", "GET a")
        self.write("p.yaml", text)
        printed = self.expect(self.sluice("fmt", "--stdout", "p.yaml"), 0).out
        self.assertEqual((self.folder / "p.yaml").read_text(), text)
        self.assertEqual(self.expect(self.sluice("fmt", "-", stdin=text.encode()), 0).out, printed)
        self.assertEqual(self.expect(self.sluice("fmt", "--check", "-", stdin=text.encode()), 1).out, "<stdin>\n")
        self.assertIn("<stdin>:1:10", self.expect(self.sluice("fmt", "-", stdin=b"version: 2\n"), 2).err)

    def test_a_link_stays_a_link_and_the_mode_stays(self):
        self.write("real.yaml", MESSY.replace("GET   a", "GET a"))
        os.chmod(self.folder / "real.yaml", 0o640)
        (self.folder / "link.yaml").symlink_to("real.yaml")
        self.expect(self.sluice("fmt", "link.yaml"), 0)
        self.assertTrue((self.folder / "link.yaml").is_symlink())
        self.assertEqual(stat.S_IMODE((self.folder / "real.yaml").stat().st_mode), 0o640)
        self.assertIn("  - allow: GET a.test/v1/**\n", (self.folder / "real.yaml").read_text())
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["link.yaml", "real.yaml"])

    def test_a_read_only_file_is_left_alone(self):
        text = MESSY.replace("GET   a", "GET a")
        self.write("net/p.yaml", text)
        os.chmod(self.folder / "net/p.yaml", 0o444)
        outcome = self.expect(self.sluice("fmt", "net/p.yaml"), 2)
        self.assertIn("net/p.yaml", outcome.err)
        self.assertEqual((self.folder / "net/p.yaml").read_text(), text)
        os.chmod(self.folder / "net/p.yaml", 0o644)
        os.chmod(self.folder / "net", 0o555)
        self.addCleanup(os.chmod, self.folder / "net", 0o755)
        self.assertIn("net/p.yaml", self.expect(self.sluice("fmt", "net/p.yaml"), 2).err)
        self.assertEqual((self.folder / "net/p.yaml").read_text(), text)
        self.expect(self.sluice("fmt", "--check", "net/p.yaml"), 1)


def comments(text):
    """The comments of a policy of this file's making, where `#` stands in no value but a block text."""
    found, block = [], None
    for line in text.replace("\r", "").split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if block is not None and (not line.strip() or indent > block):
            continue
        key = len(re.match(r" *(?:- )?", line).group(0))
        block = key if re.search(r": [|>]-?\s*$", line) else None
        for match in re.finditer(r"(?:^|(?<= ))#", line):
            if line[:match.start()].count('"') % 2 == 0:
                found.append(line[match.start():].rstrip())
                break
    return found


class Writer:
    """A policy at random, written in every way that the language takes."""

    def __init__(self, seed):
        self.random, self.count = random.Random(seed), 0

    def one(self, *choices):
        return self.random.choice(choices)

    def comment(self):
        self.count += 1
        return f"# c{self.count} {self.one('why', 'ask: dana', 'x - y', '[a, b]', 'it is so')}"

    def above(self, indent):
        return "".join(f"{' ' * self.one(0, indent, indent, indent)}{self.comment()}\n" if self.random.random() < .8 else "\n"
                       for _ in range(self.one(0, 0, 0, 1, 2)))

    def after(self):
        return "  " + self.comment() if self.random.random() < .3 else ""

    def rule(self, number):
        host = self.one(f"h{number}.test", "*.x.test", f"API.h{number}.Test.")
        path = self.one("/v1/**", "/a", "/*/b")
        key = self.one("allow", "allow", "deny")
        target = self.one(f"GET {host}{path}", f"'POST,GET {host}{path}'", f'"http {host}{path}"', f"{{ methods: [POST, GET], host: '{host}', path: {path} }}",
                          f"tcp {host}:5432", f"git fetch-pack {host}/o/r", f"dns {host}")
        lines = [f"{key}: {target}"]
        if self.random.random() < .3:
            lines.append(self.one("by: /usr/bin/node", "by: [/usr/bin/node, /usr/bin/npm]", "by:\n        - /usr/bin/node"))
        if self.random.random() < .3:
            lines.append(self.one("note: plain words", "note: 'it''s'", "note: |\n        two\n        # lines"))
        if self.random.random() < .2:
            lines.append(f"id: r{number}")
        if self.random.random() < .3:
            self.random.shuffle(lines)
        out = ""
        for i, line in enumerate(lines):
            tail = "" if "|" in line else self.after()
            head, _, rest = line.partition("\n")
            out += ("    - " if i == 0 else "      ") + head + tail + "\n" + (rest + "\n" if rest else "")
        return self.above(4) + out

    def policy(self):
        sections = ["version: 1" + self.after() + "\n",
                    "rules:" + self.after() + "\n" + "".join(self.rule(i) for i in range(self.one(1, 2, 5, 9)))]
        if self.random.random() < .5:
            sections.append("assert:\n" + "".join(f"{self.above(2)}  - never: POST n{i}.test/**{self.after()}\n" for i in range(2)))
        if self.random.random() < .3:
            sections.append("name: some-bot" + self.after() + "\n")
        self.random.shuffle(sections)
        return "".join(self.above(0) + section for section in sections) + self.above(0)


if __name__ == "__main__":
    cli.main()
