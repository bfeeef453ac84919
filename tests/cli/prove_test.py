"""`sluice prove` on files, folders, assertions, acceptances and manifests: verdicts, exit codes and what stands in the report."""
import json

import cli

GET = "allow: GET api.github.com/repos/**"
POST = "allow: GET,POST api.github.com/repos/**"


class Files(cli.Case):
    def verdict(self, base, head, *flags):
        self.policy("base.yaml", *base)
        self.policy("head.yaml", *head)
        outcome = self.sluice("prove", "--format", "json", "base.yaml", "head.yaml", *flags)
        return outcome.code, outcome.json()

    def test_each_verdict_has_its_exit_code(self):
        for base, head, word, code in (([GET], [GET], "equal", 0), ([POST], [GET], "narrowed", 0), ([GET], [POST], "widened", 1),
                                       ([GET], ["allow: POST api.github.com/repos/**"], "incomparable", 1)):
            with self.subTest(word):
                got, report = self.verdict(base, head)
                self.assertEqual((got, report["verdict"]), (code, word))
                self.assertEqual(bool(report["gains"]), word in ("widened", "incomparable"))
                self.assertEqual(bool(report["losses"]), word in ("narrowed", "incomparable"))

    def test_a_gain_has_rule_place_region_and_a_whole_witness(self):
        _, report = self.verdict([GET], [POST])
        (gain,) = report["gains"]
        self.assertEqual((gain["rule"], gain["file"], gain["line"], gain["column"]), (POST, "head.yaml", 3, 12))
        self.assertEqual(gain["region"]["text"], "POST api.github.com/repos/**")
        self.assertEqual(gain["region"]["method"], ["POST"])
        self.assertEqual(gain["region"]["path"], ["/repos/**"])
        self.assertEqual(gain["refused_because"], "method")
        witness = gain["witness"]
        self.assertEqual({key: witness[key] for key in ("layer", "host", "port", "scheme", "method", "path", "query", "process")},
                         {"layer": "http", "host": "api.github.com", "port": 443, "scheme": "https", "method": "POST",
                          "path": "/repos/", "query": "", "process": None})
        self.assertIn("ip", witness)

    def test_a_witness_shows_the_body_that_is_judged(self):
        call = "allow: mcp tools/call mcp.test/rpc"
        code, report = self.verdict([f"{call}\ntool: [read_*]"], [f"{call}\ntool: [read_*, write_*]"])
        self.assertEqual((code, report["verdict"]), (1, "widened"))
        (gain,) = report["gains"]
        self.assertEqual(gain["region"]["tool"], ["read_*", "write_*"])
        self.assertEqual(gain["witness"]["body"],
                         {"kind": "jsonrpc", "method": "tools/call", "tool": "write_", "json": [], "batch": False})
        push = "allow: git receive-pack github.com/octo/site"
        _, report = self.verdict([f"{push}\nrefs: [refs/heads/a]\nref-changes: [update]"], [f"{push}\nrefs: [refs/heads/a]"])
        self.assertIn({"kind": "push", "ref": "refs/heads/a", "change": "create"}, [gain["witness"]["body"] for gain in report["gains"]])
        _, report = self.verdict(["allow: graphql query a.test/graphql"],
                                 ["allow: graphql query a.test/graphql", "allow: graphql mutation a.test/graphql"])
        self.assertEqual([gain["witness"]["body"]["kind"] for gain in report["gains"]], ["graphql mutation"])

    def test_a_witness_shows_the_way_it_goes(self):
        def prove(name, base, head):
            for file, way in (("base.yaml", base), ("head.yaml", head)):
                self.write(file, f"version: 1\n{name}\nrules:\n  - allow: GET api.test/**\n{way}")
            return self.expect(self.sluice("prove", "--format", "json", "base.yaml", "head.yaml"), 1).json()

        report = prove("credentials:\n  main: { from: env TOKEN, send: bearer, to: [api.test] }", "", "    with: main\n")
        (gain,) = report["gains"]
        self.assertEqual((gain["witness"]["credential"], gain["refused_because"]), ("main", "allowed"))
        self.assertNotIn("via", gain["witness"])
        report = prove("credentials:\n  main: { from: env TOKEN, send: bearer, to: [api.test] }", "    with: main\n", "")
        (gain,) = report["gains"]
        self.assertEqual((gain["witness"]["own"], gain["refused_because"]), ("authorization", "allowed"))
        report = prove("proxies:\n  corp: { url: 'http://proxy.test:3128' }", "    via: corp\n", "")
        self.assertEqual([gain["witness"]["via"] for gain in report["gains"]], [None])
        report = prove("proxies:\n  corp: { url: 'http://proxy.test:3128' }", "", "    via: corp\n")
        self.assertEqual([gain["witness"]["via"] for gain in report["gains"]], ["corp"])

    def test_text_reads_place_region_witness_and_why(self):
        self.policy("base.yaml", GET, "deny: POST api.github.com/repos/x")
        self.policy("head.yaml", POST)
        outcome = self.expect(self.sluice("prove", "base.yaml", "head.yaml"), 1)
        lines = outcome.out.splitlines()
        self.assertEqual(lines[0], "head.yaml:3:12: error: widened: `POST api.github.com/repos/**`")
        self.assertEqual(lines[1], "    witness  POST https://api.github.com/repos/")
        self.assertEqual(lines[2], "    rule     allow: GET,POST api.github.com/repos/**")
        self.assertIn("    before   refused by `deny: POST api.github.com/repos/x` at base.yaml:4", lines)
        self.assertEqual(lines[-1], "2 gains, 0 losses: widened")
        equal = self.expect(self.sluice("prove", "head.yaml", "head.yaml"), 0)
        self.assertEqual(equal.out, "equal: both let out the same\n")

    def test_regions_are_in_the_authors_words(self):
        for rule, text in (
                ("allow: GET a.test", "GET a.test"),
                ("allow: GET,POST a.test/v1/**", "GET,POST a.test/v1/**"),
                ("allow: http http://old.test:8080/a/*", "http http://old.test:8080/a/*"),
                ("allow: GET a.test/v1/**\nby: [/usr/bin/node, /usr/bin/npm]", "GET a.test/v1/**, by /usr/bin/node or /usr/bin/npm"),
                ("allow: GET a.test/v1/**\nquery: { tag: [v1*] }\nuntil: 2999-05-01", "GET a.test/v1/**, query tag=v1*, until 2999-05-01"),
                ("allow: git receive-pack github.com/octo/*", "git receive-pack github.com/octo/*"),
                ("allow: tls pinned.test", "TLS to pinned.test:443"),
                ("allow: tcp 10.0.0.0/8:5432", "tcp 10.0.0.0/8:5432"),
                ("allow: tcp **:1-65535", "tcp **:1-65535"),
                ("allow: GET [2001:db8::1]:8443/x", "GET [2001:db8::1]:8443/x"),
                ("allow: tcp db.test:5432\nip: [10.0.0.0/8]", "tcp db.test:5432, ip 10.0.0.0/8"),
                ("allow: udp [2001:db8::1]:123", "udp [2001:db8::1]:123"),
                ("allow: dns x.test", "lookup of x.test"),
                ("allow: dns x.test\ntypes: [TXT]", "lookup of x.test (TXT)"),
                ("allow: unix /run/x.sock", "unix /run/x.sock")):
            with self.subTest(rule):
                code, report = self.verdict([], [rule])
                self.assertEqual(code, 1)
                self.assertEqual(report["gains"][0]["region"]["text"], text)

    def test_a_region_excepts_only_what_the_other_side_really_has(self):
        _, report = self.verdict(["allow: GET a.test/v1/*"], ["allow: GET,POST a.test/v1/**"])
        texts = sorted(gain["region"]["text"] for gain in report["gains"])
        self.assertEqual(texts, ["GET a.test/v1/** except /v1/*", "POST a.test/v1/**"])
        _, report = self.verdict(["allow: GET *.x.test"], ["allow: GET **.x.test"])
        self.assertEqual(report["gains"][0]["region"]["text"], "GET **.x.test except *.x.test")
        _, report = self.verdict(["allow: GET *.x.test\nuntil: 2990-01-01"], ["allow: GET **.x.test"])
        self.assertIn("GET **.x.test", [gain["region"]["text"] for gain in report["gains"]])
        _, report = self.verdict(["allow: GET a.test/v1/*", "deny: GET a.test/v1/x"], ["allow: GET a.test/v1/**"])
        self.assertTrue(all("except" not in gain["region"]["text"] for gain in report["gains"]), report["gains"])
        _, report = self.verdict([], ["allow: GET a.test/v1/**", "deny: GET a.test/v1/secret/**"])
        self.assertEqual(report["gains"][0]["region"]["text"], "GET a.test/v1/** except /v1/secret/**")

    def test_http_is_every_method_but_those_that_were_there(self):
        _, report = self.verdict(["allow: GET a.test"], ["allow: http a.test"])
        self.assertEqual(report["gains"][0]["region"]["text"], "http a.test except GET")

    def test_mode_audit_is_everything(self):
        self.policy("base.yaml", GET)
        self.policy("head.yaml", GET, more="mode: audit\n")
        outcome = self.expect(self.sluice("prove", "base.yaml", "head.yaml"), 1)
        self.assertIn("head.yaml: error: widened: `everything (", outcome.out)
        self.assertIn("    rule     mode: audit\n", outcome.out)

    def test_a_preset_names_its_own_line(self):
        self.policy("base.yaml")
        self.write("head.yaml", "version: 1\npresets:\n  - npm@1: { host: registry.corp.example }\n")
        outcome = self.expect(self.sluice("prove", "base.yaml", "head.yaml"), 1)
        self.assertRegex(outcome.out, r"head.yaml:3:5: error: widened")
        self.assertRegex(outcome.out, r"rule     allow: GET registry.corp.example/\*\*  \(npm@1:\d+, from head.yaml:3\)")
        report = self.sluice("prove", "--format", "json", "base.yaml", "head.yaml").json()
        self.assertEqual(report["gains"][0]["origin"]["file"], "preset:npm@1")

    def test_time_begins_at_at(self):
        rule = "allow: POST api.github.com\nuntil: 2027-01-31"
        self.assertEqual(self.verdict([GET], [GET, rule], "--at", "2027-01-01T00:00:00Z")[0], 1)
        self.assertEqual(self.verdict([GET], [GET, rule], "--at", "2027-02-01T00:00:00Z")[0], 0)
        self.expect(self.sluice("prove", "base.yaml", "head.yaml", "--at", "soon"), 2)

    def test_a_bound_that_is_reached_is_no_pass(self):
        outcome = self.verdict([GET], [POST, "allow: GET *.b.test/x/**"], "--limit", "1")
        self.assertEqual(outcome[0], 3)
        self.assertEqual(outcome[1]["verdict"], "unknown")
        self.assertIn("unknown", outcome[1]["policies"][0])
        text = self.expect(self.sluice("prove", "--limit", "1", "base.yaml", "head.yaml"), 3)
        self.assertTrue(text.out.splitlines()[-1].endswith("unknown"), text.out)
        # A question that is answered before any work is done is answered all the same.
        self.expect(self.sluice("prove", "--limit", "1", "--never", "GET api.github.com/**", "head.yaml"), 3)

    def test_other_tools_policies_are_compared_too(self):
        self.policy("native.yaml", "allow: tls a.test", "allow: tls b.test")
        self.write("domains.json", json.dumps({"defaultAction": "deny", "egress": [{"action": "allow", "target": "a.test"}]}))
        outcome = self.sluice("prove", "domains.json", "native.yaml", "--format", "json")
        self.assertIn(outcome.code, (0, 1), outcome.err)
        self.assertTrue(any("b.test" in gain["region"]["text"] for gain in outcome.json()["gains"]))

    def test_what_cannot_be_read_is_bad_input(self):
        self.policy("good.yaml", GET)
        self.write("bad.yaml", "version: 1\nrules:\n  - allow: gti a\n")
        self.write("folder/x.yaml", "version: 1\n")
        self.write("empty/readme.txt", "")
        for arguments, said in (
                (["good.yaml", "none.yaml"], "cannot open none.yaml"), (["good.yaml", "bad.yaml"], "bad.yaml:3:12: error: unknown verb `gti`"),
                (["good.yaml", "folder"], "compare two files or two folders"), (["good.yaml", "good.yaml", "good.yaml"], "compare two"),
                (["empty", "empty"], "holds a policy"), (["good.yaml"], "nothing to prove"), (["folder"], "nothing to prove"),
                (["good.yaml", "--never", "gti x"], "--never 'gti x': unknown verb"), (["good.yaml", "--always", "tcp x"], "--always 'tcp x'"),
                (["good.yaml", "good.yaml", "--accept", "none"], "none"), (["good.yaml", "good.yaml", "--exe-manifest", "none"], "none")):
            with self.subTest(arguments):
                outcome = self.expect(self.sluice("prove", *arguments), 2)
                self.assertEqual(outcome.out, "")
                self.assertIn(said, outcome.err)

    def test_colour_is_for_terminals(self):
        self.policy("base.yaml", GET)
        self.policy("head.yaml", POST)
        run = f"{cli.SLUICE} prove base.yaml head.yaml"
        for env, colour in (({}, True), ({"NO_COLOR": "1"}, False)):
            env = {"NO_COLOR": "", **env}
            done = cli.subprocess.run(["script", "-qec", run, "/dev/null"], cwd=self.folder, capture_output=True, timeout=60,
                                      env={**cli.os.environ, **env})
            self.assertEqual(b"\x1b[" in done.stdout, colour, done.stdout)
        self.assertNotIn("\x1b", self.sluice("prove", "base.yaml", "head.yaml").out)


class Folders(cli.Case):
    def test_pairs_go_by_relative_path_and_count_what_is_new_or_gone(self):
        self.policy("old/same.yaml", GET)
        self.policy("old/deep/gone.yml", "allow: GET gone.test")
        self.policy("new/same.yaml", GET)
        self.policy("new/deep/added.yaml", "allow: GET added.test")
        self.policy("new/.hidden.yaml", "allow: GET hidden.test")
        self.policy("new/.git/x.yaml", "allow: GET hidden.test")
        self.write("new/same.test.yaml", "version: 1\n")
        outcome = self.expect(self.sluice("prove", "--format", "json", "old", "new"), 1)
        report = outcome.json()
        self.assertEqual({policy["file"]: policy["verdict"] for policy in report["policies"]},
                         {"new/same.yaml": "equal", "new/deep/added.yaml": "widened", "old/deep/gone.yml": "narrowed"})
        self.assertEqual([gain["file"] for gain in report["gains"]], ["new/deep/added.yaml"])
        self.assertEqual([loss["file"] for loss in report["losses"]], ["old/deep/gone.yml"])
        self.assertIn("1 gain, 1 loss in 3 policies: incomparable", self.sluice("prove", "old", "new").out)

    def test_an_included_file_changes_what_includes_it(self):
        for side, rule in (("old", GET), ("new", POST)):
            self.policy(f"{side}/common.yaml", rule)
            self.write(f"{side}/top.yaml", "version: 1\ninclude: [common.yaml]\n")
        report = self.expect(self.sluice("prove", "--format", "json", "old/top.yaml", "new/top.yaml"), 1).json()
        self.assertEqual((report["gains"][0]["file"], report["gains"][0]["line"]), ("new/common.yaml", 3))
        both = self.sluice("prove", "--format", "json", "old", "new").json()
        self.assertEqual([policy["verdict"] for policy in both["policies"]], ["widened", "widened"])

    def test_a_dangling_link_is_an_error_and_a_loop_ends(self):
        self.policy("old/a.yaml", GET)
        self.policy("new/a.yaml", GET)
        (self.folder / "new/loop").symlink_to(".")
        self.expect(self.sluice("prove", "old", "new"), 0)
        (self.folder / "new/b.yaml").symlink_to("nowhere")
        self.assertIn("b.yaml", self.expect(self.sluice("prove", "old", "new"), 2).err)


class Assertions(cli.Case):
    def test_never_and_always_of_the_command_line(self):
        self.policy("p.yaml", POST)
        for flags, code in ((["--never", "DELETE api.github.com/**"], 0), (["--never", "POST api.github.com/**"], 1),
                            (["--always", "GET api.github.com/repos/x"], 0), (["--always", "GET api.github.com/users"], 1),
                            (["--never", "DELETE api.github.com/**", "--always", "GET a.test"], 1)):
            with self.subTest(flags):
                self.expect(self.sluice("prove", *flags, "p.yaml"), code)
        broken = self.sluice("prove", "--never", "POST api.github.com/**", "--never", "DELETE api.github.com", "p.yaml")
        self.assertIn(f"p.yaml: error: `never: POST api.github.com/**` does not hold: `{POST}` lets it out [never-broken]\n"
                      "    witness  POST https://api.github.com/repos/\n    rule at p.yaml:3:12\n", broken.out)
        self.assertTrue(broken.out.endswith("1 of 2 assertions does not hold\n"), broken.out)
        self.assertEqual(self.sluice("prove", "--never", "DELETE a.test", "p.yaml").out, "the assertion holds\n")

    def test_a_policys_own_and_its_includes(self):
        self.policy("common.yaml", more="assert:\n  - never: POST **\n  - always: GET api.github.com/repos/a\n")
        self.policy("top.yaml", GET, more="include: [common.yaml]\n")
        self.assertEqual(self.expect(self.sluice("prove", "top.yaml"), 0).out, "all 2 assertions hold\n")
        self.policy("top.yaml", POST, more="include: [common.yaml]\n")
        report = self.expect(self.sluice("prove", "--format", "json", "top.yaml"), 1).json()
        by_text = {entry["assert"]: entry for entry in report["assertions"]}
        self.assertEqual(by_text["never: POST **"]["holds"], False)
        self.assertEqual((by_text["never: POST **"]["file"], by_text["never: POST **"]["line"]), ("common.yaml", 3))
        self.assertEqual(by_text["never: POST **"]["witnesses"][0]["method"], "POST")
        self.assertEqual(by_text["always: GET api.github.com/repos/a"]["holds"], True)

    def test_a_narrowing_may_break_always(self):
        self.policy("base.yaml", POST)
        self.policy("head.yaml", GET, "deny: GET api.github.com/repos/x", more="assert:\n  - always: GET api.github.com/repos/x\n")
        outcome = self.expect(self.sluice("prove", "base.yaml", "head.yaml"), 1)
        self.assertIn("`deny: GET api.github.com/repos/x` refuses it [always-broken]", outcome.out)
        self.assertIn("narrowed; the assertion does not hold", outcome.out)

    def test_an_accepted_region_does_not_lift_an_assertion(self):
        self.policy("base.yaml", GET)
        self.policy("head.yaml", POST, more="assert:\n  - never: POST **\n")
        self.write("ok.yaml", "version: 1\naccepted:\n  - allow: POST api.github.com/**\n    owner: o\n    reason: r\n    expires: 2999-01-01\n")
        report = self.expect(self.sluice("prove", "--accept", "ok.yaml", "--format", "json", "base.yaml", "head.yaml"), 1).json()
        self.assertEqual(report["gains"], [])
        self.assertFalse(report["assertions"][0]["holds"])


class Accepted(cli.Case):
    ENTRY = "  - allow: {rule}\n    owner: {owner}\n    reason: release notes\n    expires: {expires}\n"

    def accept(self, *rules, expires="2999-01-01", owner="dana"):
        return self.write("accept.yaml", "version: 1\naccepted:\n" + "".join(
            self.ENTRY.format(rule=rule, owner=owner, expires=expires) for rule in rules))

    def prove(self, *flags):
        self.policy("base.yaml", GET)
        self.policy("head.yaml", POST, "allow: GET b.test")
        return self.sluice("prove", "--accept", "accept.yaml", *flags, "base.yaml", "head.yaml")

    def test_what_is_accepted_whole_passes(self):
        self.accept("POST api.github.com/**", "GET b.test")
        self.assertEqual(self.expect(self.prove(), 0).out, "equal: both let out the same; 2 accepted regions taken out\n")

    def test_a_part_that_is_not_accepted_is_still_a_gain(self):
        self.accept("POST api.github.com/repos/octo/**", "GET b.test")
        outcome = self.expect(self.prove(), 1)
        self.assertIn("    witness  POST https://api.github.com/repos/\n", outcome.out)
        self.assertNotIn("b.test", outcome.out)

    def test_unused_and_expired_entries_warn(self):
        self.accept("POST api.github.com/**", "GET b.test", "GET never.test")
        outcome = self.expect(self.prove(), 0)
        self.assertIn("accept.yaml:11:12: warning: nothing that is gained lies in `GET never.test`, accepted by dana [acceptance-unused]", outcome.out)
        self.accept("POST api.github.com/**", "GET b.test", expires="2027-01-31")
        self.expect(self.prove("--at", "2027-01-31T12:00:00Z"), 0)
        late = self.expect(self.prove("--at", "2027-02-01T00:00:00Z"), 1)
        self.assertIn("accept.yaml:3:12: warning: `POST api.github.com/**` has expired and counts no longer; dana answered for it: release notes "
                      "[acceptance-expired]", late.out)
        remarks = self.prove("--at", "2027-02-01T00:00:00Z", "--format", "json").json()["remarks"]
        self.assertEqual([remark["code"] for remark in remarks], ["acceptance-expired"] * 2)

    def test_bad_entries_have_their_place(self):
        good = "    owner: o\n    reason: r\n    expires: 2999-01-01\n"
        for text, place, said in (
                ("version: 1\naccepted:\n  - POST a.test\n", "3:5", "an entry is a map"),
                ("version: 1\naccepted:\n  - allow: POST a.test\n    reason: r\n    expires: 2999-01-01\n", "3:5", "`owner` is missing"),
                ("version: 1\naccepted:\n  - allow: POST a.test\n    owner: o\n    expires: 2999-01-01\n", "3:5", "`reason` is missing"),
                ("version: 1\naccepted:\n  - allow: POST a.test\n    owner: o\n    reason: r\n", "3:5", "`expires` is missing"),
                ("version: 1\naccepted:\n  - allow: POST a.test\n    owner: o\n    reason: r\n    expires: soon\n", "6:14", "soon"),
                (f"version: 1\naccepted:\n  - deny: POST a.test\n{good}", "3:5", "written as the `allow`"),
                (f"version: 1\naccepted:\n  - allow: PSOT a.test\n{good}", "3:12", "did you mean `POST`?"),
                (f"version: 1\naccepted:\n  - allow: POST a.test\n    until: 2999-01-01\n{good}", "4:5", "here it is `expires`"),
                (f"version: 1\naccepted:\n  - allow: POST a.test\n    onwer: x\n{good}", "4:5", "onwer"),
                ("version: 2\n", "1:10", "this version reads"), ("accepted: []\n", "1:1", "`version: 1` is missing"),
                ("version: 1\nacepted: []\n", "2:1", "unknown key `acepted`"), ("version: 1\naccepted: {}\n", "2:11", "is a list"),
                ("- x\n", "1:1", "is a map")):
            with self.subTest(said):
                self.write("accept.yaml", text)
                outcome = self.expect(self.prove(), 2)
                self.assertIn(f"accept.yaml:{place}: error: ", outcome.err)
                self.assertIn(said, outcome.err)


class Manifests(cli.Case):
    def test_links_and_the_executables_that_exist(self):
        self.policy("base.yaml", "allow: GET a.test\nby: [/usr/bin/nodejs]")
        self.policy("head.yaml", "allow: GET a.test\nby: [/usr/bin/node]")
        self.expect(self.sluice("prove", "base.yaml", "head.yaml"), 1)
        self.write("exes", "# of the image\n/usr/bin/nodejs -> /usr/bin/node\n\n/usr/bin/curl\n")
        self.expect(self.sluice("prove", "--exe-manifest", "exes", "base.yaml", "head.yaml"), 0)
        self.policy("head.yaml", "allow: GET a.test\nby: [/usr/bin/*]")
        report = self.sluice("prove", "--exe-manifest", "exes", "--format", "json", "base.yaml", "head.yaml").json()
        self.assertEqual([gain["witness"]["process"] for gain in report["gains"]], ["/usr/bin/curl"])

    def test_a_bad_line_has_its_number(self):
        self.policy("p.yaml", GET)
        self.write("exes", "/usr/bin/curl\nusr/bin/x\n")
        outcome = self.expect(self.sluice("prove", "--exe-manifest", "exes", "p.yaml", "p.yaml"), 2)
        self.assertIn("exes:2:1: error: a line is an absolute path, or `LINK -> PATH`", outcome.err)


cli.main()
