"""The formats of `lint` and `prove`: SARIF by its schema, workflow commands, Markdown, and text that wants to be more than text.

SLUICE_SARIF_SCHEMA is the schema (tests/cli/fetch_sarif_schema).
"""
import json
import os
import pathlib
import re
import subprocess
import warnings

import jsonschema

import cli

SCHEMA = json.loads(pathlib.Path(os.environ["SLUICE_SARIF_SCHEMA"]).read_text())
GET = "allow: GET a.test/v1/**"
# Escape, carriage return and line feed, a right-to-left override, a zero-width space.
INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


class Sarif(cli.Case):
    def sarif(self, *arguments, code):
        log = self.expect(self.sluice(*arguments, "--format", "sarif"), code).json()
        validator = jsonschema.validators.validator_for(SCHEMA)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            validator(SCHEMA).validate(log)
        self.assertEqual(log["version"], "2.1.0")
        return log["runs"][0]

    def prove(self, base, head, more=""):
        self.policy("base.yaml", *base)
        self.policy("net/head.yaml", *head, more=more)
        return self.sarif("prove", "base.yaml", "net/head.yaml", code=1)

    def test_the_schema_is_one_that_can_refuse(self):
        self.assertFalse(jsonschema.validators.validator_for(SCHEMA)(SCHEMA).is_valid({"version": "2.1.0", "runs": [{"tool": {}}]}))

    def test_prove_is_valid_and_points_at_the_line(self):
        run = self.prove([GET], ["allow: GET,POST a.test/v1/**", "allow: GET b.test"], more="assert:\n  - never: GET b.test\n")
        self.assertEqual([result["ruleId"] for result in run["results"]], ["sluice/widened", "sluice/widened", "sluice/never-broken"])
        rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        for result in run["results"]:
            self.assertEqual(rules[result["ruleIndex"]], result["ruleId"])
            self.assertEqual(result["level"], "error")
            self.assertEqual(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "net/head.yaml")
        place = run["results"][0]["locations"][0]["physicalLocation"]["region"]
        self.assertEqual((place["startLine"], place["startColumn"]), (3, 12))
        self.assertEqual(run["results"][2]["relatedLocations"][0]["physicalLocation"]["region"]["startLine"], 4)

    def test_columns_count_characters(self):
        # In front of the rule stand characters of one to four octets.
        head = 'version: 1\nrules:\n  - { note: "aéΩ€😀", allow: "GET,POST a.test/u/**" }\n'
        self.policy("base.yaml")
        self.write("head.yaml", head)
        line = head.splitlines()[2]
        start = line.index('"GET') + 1
        region = self.sarif("prove", "base.yaml", "head.yaml", code=1)["results"][0]["locations"][0]["physicalLocation"]["region"]
        self.assertIn(region["startColumn"], (start, start + 1))
        self.assertEqual(line[region["startColumn"] - 1:region["endColumn"] - 1].strip('"'), "GET,POST a.test/u/**")
        command = self.expect(self.sluice("prove", "--format", "github", "base.yaml", "head.yaml"), 1).out
        self.assertIn(f",line=3,col={region['startColumn']},", command)
        self.write("bad.yaml", 'version: 1\nrules:\n  - { note: "é😀", allow: "gti a" }\n')
        bad = self.sarif("lint", "bad.yaml", code=2)["results"][0]["locations"][0]["physicalLocation"]["region"]
        self.assertEqual(bad["startColumn"], 27)

    def test_narrowing_alone_has_no_results(self):
        self.policy("base.yaml", GET, "allow: GET b.test")
        self.policy("head.yaml", GET)
        self.assertEqual(self.sarif("prove", "base.yaml", "head.yaml", code=0)["results"], [])

    def test_every_outcome_is_valid(self):
        self.policy("p.yaml", "allow: GET,POST *.b.test/x/**", GET)
        self.policy("base.yaml", GET)
        self.assertEqual(self.sarif("prove", "--limit", "1", "base.yaml", "p.yaml", code=3)["results"][-1]["ruleId"], "sluice/unknown")
        self.write("audit.yaml", "version: 1\nmode: audit\n")
        run = self.sarif("prove", "base.yaml", "audit.yaml", code=1)
        self.assertNotIn("region", run["results"][0]["locations"][0]["physicalLocation"])
        self.write("bad.yaml", "version: 1\nrules:\n  - allow: gti a\n")
        self.policy("wrong.yaml", "allow: tls a.test", "deny: POST a.test", "allow: tls a.test")
        run = self.sarif("lint", "bad.yaml", "wrong.yaml", "none.yaml", code=2)
        codes = [result["ruleId"] for result in run["results"]]
        self.assertEqual(codes.count("sluice/does-not-load"), 2)
        self.assertIn("sluice/opaque-allow-meets-deny", codes)
        (self.folder / "new\nline ü %.yaml").write_text("version: 1\nrules:\n  - allow: gti a\n")
        run = self.sarif("lint", "new\nline ü %.yaml", code=2)
        self.assertEqual(run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "new%0Aline%20%C3%BC%20%25.yaml")

    def test_prove_reports_what_does_not_load_in_every_format(self):
        self.policy("base.yaml", GET)
        self.write("net/bad.yaml", "version: 1\nrules:\n  - allow: gti a\n")
        for pair, code, place in ((("base.yaml", "net/bad.yaml"), "does-not-load", ("net/bad.yaml", 3)), (("base.yaml", "none.yaml"), "not-proved", ("none.yaml", 0)),
                                  (("--base-git", "none", "base.yaml"), "not-proved", ("base.yaml", 0)), (("base.yaml",), "not-proved", ("base.yaml", 0))):
            with self.subTest(pair):
                (result,) = self.sarif("prove", *pair, code=2)["results"]
                self.assertEqual((result["ruleId"], result["level"]), ("sluice/" + code, "error"))
                where = result["locations"][0]["physicalLocation"]
                self.assertEqual((where["artifactLocation"]["uri"], where.get("region", {}).get("startLine", 0)), place)
                outcome = self.expect(self.sluice("prove", "--format", "json", *pair), 2)
                report = outcome.json()
                self.assertEqual((report["verdict"], report["gains"], report["error"]["file"], report["error"]["line"]), (None, [], *place))
                self.assertIn(report["error"]["message"], outcome.err)
                self.assertRegex(self.expect(self.sluice("prove", "--format", "github", *pair), 2).out, rf"(?m)^::error file={place[0]},")
                self.assertIn(f"**{code}** `{place[0]}", self.expect(self.sluice("prove", "--format", "markdown", *pair), 2).out)
                self.assertEqual(self.expect(self.sluice("prove", *pair), 2).out, "")

    def test_prove_reports_all_that_does_not_load(self):
        for name in ("base/a", "base/m", "base/z", "net/a", "net/m", "net/z"):
            self.policy(f"{name}.yaml", GET)
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@a.test", *words], cwd=self.folder, check=True, capture_output=True)
        self.write("net/a.yaml", "version: 1\nrules:\n  - allow: gti a\n")
        self.write("net/z.yaml", "version: 1\nrules:\n\n  - allow: gti a\n")
        places = [("net/a.yaml", 3), ("net/z.yaml", 4)]
        for pair in (("base", "net"), ("--never", "POST a.test", "net"), ("--base-git", "HEAD", "base", "net")):
            with self.subTest(pair):
                outcome = self.expect(self.sluice("prove", *pair), 2)
                for file, line in places:
                    self.assertIn(f"{file}:{line}:", outcome.err)
                self.assertEqual(outcome.out, "")
                results = self.sarif("prove", *pair, code=2)["results"]
                self.assertEqual([(r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], r["ruleId"]) for r in results],
                                 [(file, "sluice/does-not-load") for file, _ in places])
                report = self.expect(self.sluice("prove", "--format", "json", *pair), 2).json()
                self.assertEqual([(e["file"], e["line"]) for e in report["errors"]], places)
                self.assertEqual(report["error"], report["errors"][0])

    def test_prove_says_once_what_several_include(self):
        for name in ("a", "b"):
            self.write(f"net/{name}.yaml", "version: 1\ninclude: [parts/rules.yaml]\n")
        self.write("net/parts/rules.yaml", "version: 1\nrules:\n  - allow: gti a\n")
        self.assertEqual(len(self.expect(self.sluice("prove", "--format", "json", "--never", "GET a.test", "net"), 2).json()["errors"]), 1)

    def test_fingerprints_stay_when_lines_move_and_differ_between_findings(self):
        head = ["allow: GET,POST a.test/v1/**", "allow: GET b.test", "allow: GET http://c.test"]

        def prints(run):
            return sorted(result["partialFingerprints"]["sluiceFinding/v1"] for result in run["results"])
        before = prints(self.prove([GET], head))
        self.assertEqual(len(set(before)), 3)
        self.policy("net/head.yaml", *head)
        moved = "# a\n\n# b\n" + (self.folder / "net/head.yaml").read_text().replace("  - allow: GET b", "\n  # c\n  - allow: GET b")
        self.write("net/head.yaml", moved)
        self.assertEqual(prints(self.sarif("prove", "base.yaml", "net/head.yaml", code=1)), before)
        whole = str(self.folder / "net/head.yaml")
        self.assertEqual(prints(self.sarif("prove", "base.yaml", whole, code=1)), before)
        lint = prints(self.sarif("lint", "net/head.yaml", code=0))
        self.write("net/head.yaml", "\n" + moved)
        self.assertEqual(prints(self.sarif("lint", "net/head.yaml", code=0)), lint)
        self.assertNotEqual(prints(self.prove([GET], ["allow: GET,PUT a.test/v1/**", *head[1:]])), before)


    def test_comments_that_ignore_nothing_are_told_apart(self):
        self.policy("p.yaml", "allow: GET a.test/x  # sluice:ignore cleartext old", "allow: GET b.test/x  # sluice:ignore cleartext old",
                    "allow: GET c.test/x  # sluice:ignore nosuch old", "allow: GET d.test/x  # sluice:ignore nosuch old")
        results = self.sarif("lint", "p.yaml", code=0)["results"]
        self.assertEqual(len({result["partialFingerprints"]["sluiceFinding/v1"] for result in results}), 4)


class Github(cli.Case):
    def test_commands_stand_on_lines_of_their_own_and_are_escaped(self):
        self.policy("base.yaml", GET)
        self.policy("he,a:d%.yaml", "allow: GET,POST a.test/v1/%40/**")
        outcome = self.expect(self.sluice("prove", "--format", "github", "base.yaml", "he,a:d%.yaml"), 1)
        first = outcome.out.splitlines()[0]
        self.assertTrue(first.startswith("::error file=he%2Ca%3Ad%25.yaml,line=3,col=12,title=sluice%3A The policy lets out more::"), first)
        self.assertIn("%0Awitness: ", first)
        self.assertEqual(outcome.out.splitlines()[-1], "1 gain, 1 loss: incomparable" if "loss" in outcome.out else "1 gain, 0 losses: widened")

    def test_severities(self):
        self.policy("p.yaml", "allow: GET http://a.test", "allow: git receive-pack b.test/x")
        lines = self.sluice("lint", "--format", "github", "p.yaml").out.splitlines()
        self.assertEqual([line.split(" ")[0] for line in lines], ["::warning", "::notice"])


class Markdown(cli.Case):
    def test_an_item_a_finding(self):
        self.policy("base.yaml", GET)
        self.policy("head.yaml", "allow: GET,POST a.test/v1/**")
        outcome = self.expect(self.sluice("prove", "--format", "markdown", "base.yaml", "head.yaml"), 1)
        self.assertTrue(outcome.out.startswith("### Policy reach: widened\n\n1 gain, 0 losses: widened\n\n"), outcome.out)
        self.assertIn("- 🔴 **widened** `head.yaml:3` — `POST a.test/v1/**`\n  - witness: `POST https://a.test/v1/`\n", outcome.out)

    def test_a_comment_holds_at_most_so_much(self):
        self.policy("base.yaml")
        self.policy("head.yaml", *[f"allow: GET host-{i}.test/{'x' * 100}" for i in range(500)])
        text = self.expect(self.sluice("prove", "--format", "markdown", "base.yaml", "head.yaml"), 1).out
        self.assertLess(len(text.encode()), 61_000)
        self.assertRegex(text, r"… and \d+ more; ")

    def test_backquotes_in_a_rule_do_not_let_it_out_of_its_code(self):
        for i, evil in enumerate(("/`<img/src=x>", "/``<img/src=x>``", "/`a`<img/src=x>`", "/```<img/src=x>")):
            with self.subTest(evil):
                self.policy("base.yaml")
                self.write("head.yaml", f"version: 1\nrules:\n  - allow: 'GET a.test{evil}'\n    by: ['/usr/bin/{evil[1:]}']\n")
                outcome = self.sluice("prove", "--format", "markdown", "base.yaml", "head.yaml")
                if outcome.code == 2:  # no such path can be written
                    self.assertIn("head.yaml:3:", outcome.err)
                    continue
                for line in outcome.out.splitlines():
                    outside = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", line)
                    self.assertNotRegex(outside, r"(?<!\\)[<\[]", line)


class Hostile(cli.Case):
    """Names and texts that others chose: a terminal, a log or a page must not obey them."""

    EVIL = "\x1b[2Jx\u202ey\u200bz\x07"

    def outputs(self):
        name = f"evil{self.EVIL}\n::error::forged`.yaml"
        texts = ['version: 1\nrules:\n  - allow: "gti\\e[2J\\n::error::forged\\u202e`a"\n', 'version: 1\nname: "\\e[2J"\nrules: 7\n',
                 'version: 1\n"\\e[2J\\n::error::forged": 1\n',
                 'version: 1\nrules:\n  - allow: GET http://a.test\n    note: "\\e[2J\\n::error::forged\\u202e b.test `"\n'
                 '    id: "\\e[2J\\n::error::forged\\u202e"\n', "version: 1\nrules:\n  - allow: GET http://a.test\nassert:\n  - never: GET **\n",
                 f"version: 1\nrules:\n  - allow: GET http://a.test\n  # sluice:ignore {self.EVIL} reason\n  - allow: GET http://b.test\n"]
        self.policy("base.yaml")
        for text in texts:
            self.write(name, text)
            for form in ("text", "json", "sarif", "github", "markdown"):
                yield form, self.sluice("lint", "--format", form, name)
                yield form, self.sluice("prove", "--format", form, "base.yaml", name)
                yield form, self.sluice("prove", "--format", form, "--never", "POST a.test/" + self.EVIL, name)
            yield "text", self.sluice("fmt", "--check", name)
            yield "text", self.sluice("explain", name, "GET http://a.test")
            self.write("x.test.yaml", f"version: 1\npolicy: {json.dumps(name)}\ntests:\n  - deny: GET http://a.test/\n  - allow: {json.dumps('GET ' + self.EVIL)}\n")
            yield "text", self.sluice("test", "x.test.yaml")
            yield "json", self.sluice("test", "--format", "json", "x.test.yaml")
        yield "text", self.sluice("prove", "--base-git", self.EVIL + "\n::error::forged", name)
        yield "text", self.sluice("prove", name + "/none", name)

    def test_nothing_printed_is_obeyed(self):
        count = 0
        for form, outcome in self.outputs():
            count += 1
            for text in (outcome.out, outcome.err):
                self.assertIsNone(INVISIBLE.search(text), f"{form}: {text!r}")
                self.assertNotRegex(text, r"(?m)^::error::forged", form)
                self.assertNotRegex(text, r"(?m)^forged", form)
            if form in ("json", "sarif") and outcome.out:
                json.loads(outcome.out)
        self.assertGreater(count, 100)


if __name__ == "__main__":
    cli.main()
