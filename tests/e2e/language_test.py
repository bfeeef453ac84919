#!/usr/bin/python3
"""What a policy may say, each construct with its allowed and its denied side, on real programs."""
import datetime
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess

import harness

CURL, WGET = "/usr/bin/curl", "/usr/bin/wget"
GET = [CURL, "-sS", "-o", "/dev/null", "-w", "%{http_code}\\n"]
STATUS = shlex.join(GET)
NOW = datetime.datetime.now(datetime.timezone.utc)


# Connects, and lets another program speak on the connection.
HAND_ON = r"""
import array, os, socket, subprocess, sys
way, heir = sys.argv[1:]
SPEAK = (b"GET /pub HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
speak = f"import socket; s = socket.socket(fileno=0); s.sendall({SPEAK!r}); print(s.recv(65536, socket.MSG_WAITALL).decode())"
receive = ("import array, socket; _, m, _, _ = socket.socket(fileno=0).recvmsg(1, socket.CMSG_SPACE(4)); "
           f"s = socket.socket(fileno=array.array('i', m[0][2])[0]); s.sendall({SPEAK!r}); print(s.recv(65536, socket.MSG_WAITALL).decode())")
mine, theirs = socket.socketpair()
receiver = subprocess.Popen([heir, "-c", receive], stdin=theirs) if way == "message" else None
s = socket.create_connection(("a.test", 80))
if way == "fork":
    subprocess.run([heir, "-c", speak], stdin=s)
elif way == "exec":
    os.dup2(s.fileno(), 0)
    os.execv(heir, [heir, "-c", speak])
else:
    socket.send_fds(mine, [b"x"], [s.fileno()])
    s.close()
    receiver.wait()
"""


def stamp(seconds):
    return (NOW + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Processes(harness.SluiceTest):
    def fetch(self, program):
        return {CURL: [CURL, "-sS", "https://a.test/pub"], WGET: [WGET, "-q", "-O-", "https://a.test/pub"]}[program]

    def both(self, keys, allowed, denied, code):
        """`keys` let through what `allowed` does and not what `denied` does."""
        rules = [("allow GET a.test", keys)]
        yes, no = self.sluice(rules, *allowed), self.sluice(rules, *denied)
        self.assertIn("hello from the lab", yes.out, str(yes))
        self.assertNotIn("hello from the lab", no.out, str(no))
        self.assertIn(code, [r["reason"] for r in no.audit if r.get("verdict") == "deny"], str(no))
        self.assertEqual(len(self.served()), 1)

    def test_by_path(self):
        self.both({"by": f"[{CURL}]"}, self.fetch(CURL), self.fetch(WGET), "binary")

    def test_by_glob(self):
        self.both({"by": "['/usr/bin/cur*']"}, self.fetch(CURL), self.fetch(WGET), "binary")

    def test_by_digest_is_the_file_and_not_its_path(self):
        digest = hashlib.sha256(pathlib.Path(CURL).read_bytes()).hexdigest()
        copy = self.work / "another-name"
        shutil.copy(CURL, copy)
        self.both({"by": f"['sha256:{digest}']"}, [str(copy), *self.fetch(CURL)[1:]], self.fetch(WGET), "binary")

    def test_by_is_the_caller_and_not_its_ancestors(self):
        result = self.sluice([("allow GET a.test", {"by": "[/usr/bin/dash]"})], "dash", "-c", " ".join(self.fetch(CURL)) + "; true")
        self.assertNotIn("hello", result.out, str(result))

    def test_by_is_who_connected_and_not_who_was_handed_the_connection(self):
        # What the connection's maker hands on by fork, exec or a message stays the maker's.
        rules = {who: [("allow GET http://a.test", {"by": f"[{', '.join(programs)}]"})] for who, programs in self.programs().items()}
        for way in ("fork", "exec", "message"):
            allowed = self.python(rules["maker"], HAND_ON, way, str(self.work / "heir"))
            self.assertIn("hello from the lab", allowed.out, f"{way} {allowed}")
            requests = [r for r in allowed.audit if r["type"] == "decision" and r["layer"] == "request"]
            self.assertEqual([r["process"]["exe"] for r in requests], [os.path.realpath(harness.PYTHON)], way)
            denied = self.python(rules["heir"], HAND_ON, way, str(self.work / "heir"))
            self.assertNotIn("hello from the lab", denied.out, f"{way} {denied}")

    def programs(self):
        """The one that connects, and a copy under another name that is handed the connection."""
        maker, heir = os.path.realpath(harness.PYTHON), self.work / "heir"
        shutil.copy(maker, heir)
        return {"maker": [maker], "heir": [str(heir)]}

    def test_under_is_the_process_or_an_ancestor(self):
        shell = " ".join(self.fetch(CURL)) + "; true"
        self.both({"under": "[/usr/bin/dash]"}, ["dash", "-c", shell], self.fetch(CURL), "binary")

    def test_a_deny_by_executable_binds_it_alone(self):
        rules = ["allow GET a.test", ("deny GET a.test", {"by": f"[{WGET}]"})]
        self.assertIn("hello", self.sluice(rules, *self.fetch(CURL)).out)
        self.assertNotIn("hello", self.sluice(rules, *self.fetch(WGET)).out)

    def test_by_a_link_is_an_error_that_names_the_file(self):
        link = self.folder / "link"
        link.symlink_to(CURL)
        result = self.sluice([("allow GET a.test", {"by": f"[{link}]"})], "true")
        self.assertExit(result, 2)
        self.assertIn(CURL, result.err)


class Requests(harness.SluiceTest):
    def codes(self, rules, *asked):
        """The status of each request, a list of curl arguments."""
        command = "; ".join(shlex.join([*GET, *arguments]) for arguments in asked)
        result = self.sluice(rules, "sh", "-c", command)
        return result.out.split(), result

    def test_headers_in_an_allow_and_in_a_deny(self):
        rules = [("allow GET a.test", {"headers": "{ accept: ['application/*'] }"})]
        codes, result = self.codes(rules, ["-H", "Accept: application/json", "https://a.test/pub"], ["-H", "Accept: text/html", "https://a.test/pub"],
                                   ["-H", "Accept:", "https://a.test/pub"])
        self.assertEqual(codes, ["200", "403", "403"], str(result))
        rules = ["allow GET a.test", ("deny GET a.test", {"headers": "{ x-debug: ['*'] }"})]
        codes, result = self.codes(rules, ["https://a.test/pub"], ["-H", "X-Debug: 1", "https://a.test/pub"])
        self.assertEqual(codes, ["200", "403"], str(result))

    def test_query_in_an_allow_and_in_a_deny(self):
        rules = [("allow GET a.test", {"query": "{ tag: ['v1*', 'v2*'] }"})]
        codes, result = self.codes(rules, ["https://a.test/pub?tag=v1.2"], ["https://a.test/pub?tag=v%32"], ["https://a.test/pub?tag=v1&tag=v3"],
                                   ["https://a.test/pub"], ["https://a.test/pub?x=1&tag=v1"])
        self.assertEqual(codes, ["200", "200", "403", "403", "200"], str(result))
        rules = ["allow GET a.test", ("deny GET a.test", {"query": "{ admin: ['*'] }"})]
        codes, result = self.codes(rules, ["https://a.test/pub?a=1"], ["https://a.test/pub?%61dmin=1"])
        self.assertEqual(codes, ["200", "403"], str(result))

    def test_query_keys_closes_the_set(self):
        rules = [("allow GET a.test", {"query-keys": "[page]"})]
        codes, result = self.codes(rules, ["https://a.test/pub?page=2"], ["https://a.test/pub?page=2&leak=x"])
        self.assertEqual(codes, ["200", "403"], str(result))

    def test_an_encoded_slash_needs_its_key(self):
        asked = ["--path-as-is", "https://a.test/pub/a%2Fb"]
        self.assertEqual(self.codes(["allow GET a.test"], asked)[0], ["403"])
        self.assertEqual(self.codes([("allow GET a.test/echo/**", {"encoded-slash": "true"})], ["--path-as-is", "https://a.test/echo/a%2Fb"])[0], ["200"])
        self.assertEqual(self.served()[-1]["target"], "/echo/a%2Fb")

    def test_until_ends_a_rule(self):
        codes, result = self.codes([("allow GET a.test", {"until": stamp(3600)})], ["https://a.test/pub"])
        self.assertEqual(codes, ["200"], str(result))
        codes, result = self.codes(["allow GET a.test/other", ("allow GET a.test/pub", {"until": stamp(-1)})], ["https://a.test/pub"])
        self.assertEqual(codes, ["403"], str(result))

    def test_until_passes_while_the_workload_runs(self):
        wait = 8 * harness.SLOW  # the first is asked well before it ends
        script = f"{STATUS} https://a.test/pub; sleep {wait}; {STATUS} https://a.test/pub"
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=wait - 1)
        rules = ["allow GET a.test/other", ("allow GET a.test/pub", {"until": end.strftime("%Y-%m-%dT%H:%M:%SZ")})]
        result = self.sluice(rules, "sh", "-c", script)
        self.assertEqual(result.out.split(), ["200", "403"], str(result))

    def test_the_long_form_and_a_list_of_methods(self):
        rules = "version: 1\nname: x\nrules:\n  - allow: { methods: [GET, PUT], host: a.test, path: /echo/** }\n"
        codes, result = self.codes(rules, ["https://a.test/echo/x"], ["-X", "PUT", "https://a.test/echo/x"], ["-X", "DELETE", "https://a.test/echo/x"],
                                   ["https://a.test/pub"])
        self.assertEqual(codes, ["200", "200", "403", "403"], str(result))

    def test_an_id_and_a_note_are_recorded(self):
        _, result = self.codes([("allow GET a.test", {"id": "read-a", "note": "for the test"})], ["https://a.test/pub"])
        self.assertIn("read-a", str([r.get("rule") for r in result.audit]))


class Files(harness.SluiceTest):
    def test_an_included_file_allows_and_denies_and_its_lines_are_named(self):
        (self.folder / "common.yaml").write_text("version: 1\nrules:\n  - allow: GET a.test/pub\n  - deny: GET a.test/echo/**\n")
        text = harness.policy_text(["allow GET a.test/echo/**", "allow GET a.test/repos/**"], "include: [common.yaml]")
        script = "; ".join(f"{STATUS} https://a.test{path}" for path in ("/pub", "/repos/x", "/echo/x", "/status/200"))
        result = self.sluice(text, "sh", "-c", script)
        self.assertEqual(result.out.split(), ["200", "200", "403", "403"], str(result))
        self.assertTrue([r for r in result.audit if "common.yaml" in str(r.get("rule"))], result.audit)

    def test_an_include_that_is_missing_or_climbs_out_or_turns_in_a_circle_is_an_error_with_its_line(self):
        (self.folder / "loop.yaml").write_text("version: 1\ninclude: [policy.yaml]\nrules: []\n")
        for name in ("none.yaml", "../../etc/passwd", "loop.yaml"):
            result = self.sluice(harness.policy_text([], f"include: [{name}]"), "true")
            self.assertExit(result, 2)
            self.assertRegex(result.err, r"(policy|loop)\.yaml:\d+:\d+: ", name)

    def test_an_included_file_that_changes_is_loaded(self):
        common = self.folder / "common.yaml"
        common.write_text("version: 1\nrules:\n  - allow: GET a.test/pub\n")
        script = f"{STATUS} https://a.test/echo/x; read go; for i in 1 2 3 4 5 6 7 8 9 10; do s=$({STATUS} https://a.test/echo/x); echo $s; [ $s != 200 ] || exit 0; sleep 0.3; done"
        with self.running(harness.policy_text(["allow GET a.test/repos/**"], "include: [common.yaml]"), "sh", "-c", script) as process:
            self.assertEqual(process.stdout.readline().split(), ["403"])
            common.write_text("version: 1\nrules:\n  - allow: GET a.test/echo/**\n")
            out, err = process.communicate("go\n", timeout=60)
        self.assertEqual(out.split()[-1], "200", err)


class Audit(harness.SluiceTest):
    TEXT = staticmethod(lambda mode: harness.policy_text(["allow GET a.test/pub"], f"mode: {mode}"))

    def test_mode_audit_forwards_and_says_what_would_be_denied(self):
        script = f"{STATUS} -d x https://a.test/echo; {STATUS} https://b.test/pub"
        result = self.sluice(self.TEXT("audit"), "sh", "-c", script)
        self.assertEqual(result.out.split(), ["200", "200"], str(result))
        self.assertRegex(result.err, "mode audit")
        would = [r for r in result.audit if r.get("verdict") == "audit" or r.get("denial")]
        self.assertEqual({r["layer"] for r in would}, {"request", "dns", "connect"}, str(result.audit))
        self.assertTrue(all(r.get("denial") for r in would), would)
        self.assertRegex(result.err, r"(?m)^sluice: would deny .*a\.test/echo")
        self.assertEqual(self.sluice(self.TEXT("enforce"), "sh", "-c", script).out.split()[0], "403")

    def test_mode_audit_still_refuses_bad_addresses(self):
        for name in ("rebind.test", "metadata.test", "private.test"):
            result = self.sluice(self.TEXT("audit"), *GET, "-m", "10", f"http://{name}/")
            self.assertNotIn("200", result.out, name)
        self.assertEqual(self.served(), [])


class OtherTools(harness.SluiceTest):
    """Policies of other tools, run as they are."""

    def test_an_openshell_policy_holds_for_its_programs_and_what_they_start(self):
        link = self.folder / "link"
        link.symlink_to(CURL)
        text = f"""version: 1
network_policies:
  reads:
    endpoints:
      - {{ host: a.test, port: 443, protocol: rest, enforcement: enforce, access: read-only }}
    binaries: [{{ path: {link} }}]
  logged:
    endpoints:
      - {{ host: b.test, port: 443, protocol: rest, access: read-only }}
    binaries: [{{ path: {CURL} }}]
"""
        script = f"{STATUS} https://a.test/pub; {STATUS} -d x https://a.test/echo; {STATUS} -d x https://b.test/echo; {WGET} -q -O- https://a.test/pub"
        result = self.sluice(text, "sh", "-c", script)
        self.assertEqual(result.out.split(), ["200", "403", "200"], str(result))
        self.assertRegex(result.err, r"policy\.yaml:9: `enforcement` is left out")
        self.assertRegex(result.err, "is an OpenShell policy: 2 rules")
        self.assertIn("policy.yaml:5", str([r.get("rule") for r in result.audit]))

    def test_sandbox_runtime_settings_let_names_through(self):
        text = '{\n\t"network": { "allowedDomains": ["a.test", "*.b.test"], "deniedDomains": [] }\n}\n'
        result = self.sluice(text, "sh", "-c", f"{STATUS} -d x https://a.test/echo; {STATUS} https://b.test/pub")
        self.assertEqual(result.out.split(), ["200", "000"], str(result))

    def test_what_cannot_be_kept_starts_nothing(self):
        text = "version: 1\nnetwork_policies:\n  a:\n    endpoints: [{ host: a.test, port: 443, protocol: graphql }]\n"
        result = self.sluice(text, "true")
        self.assertExit(result, 2)
        self.assertRegex(result.err, r"policy\.yaml:4:\d+: ")


class UnixSockets(harness.SluiceTest):
    SERVER = """
import os, socket, sys
server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o777); server.listen()
print("listening", flush=True)
while True:
    peer, _ = server.accept(); peer.sendall(b"host"); peer.close()
"""
    CLIENT = """
import errno, socket, sys
for path in sys.argv[1:]:
    try:
        s = socket.socket(socket.AF_UNIX); s.connect(path); print(s.recv(9).decode())
    except OSError as error:
        print(errno.errorcode[error.errno])
"""

    def setUp(self):
        super().setUp()
        self.outside = self.folder / "service"
        self.outside.mkdir()
        self.outside.chmod(0o755)
        self.paths = [str(self.outside / "one.sock"), str(self.work / "two.sock")]
        for path in self.paths:
            self.serve(path)

    def serve(self, path):
        server = subprocess.Popen([harness.PYTHON, "-c", self.SERVER, path], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        self.assertEqual(server.stdout.readline(), "listening\n")

    def connects(self, rules, *paths):
        result = self.python(rules, self.CLIENT, *(paths or self.paths))
        return result.out.split(), result

    def test_a_socket_of_the_host_needs_a_rule(self):
        got, result = self.connects([])
        self.assertEqual(got[0], "ENOENT", str(result))
        self.assertIn(got[1], ("EACCES", "ECONNREFUSED"), str(result))

    def test_a_rule_opens_the_socket_it_names(self):
        got, result = self.connects([f"allow unix {self.paths[0]}"])
        self.assertEqual(got[0], "host", str(result))
        self.assertNotEqual(got[1], "host", str(result))
        got, result = self.connects([f"allow unix {self.paths[1]}"])
        self.assertEqual(got, ["ENOENT", "host"], str(result))

    def test_a_glob_opens_what_it_finds(self):
        got, result = self.connects([f"allow unix {self.outside}/*.sock"])
        self.assertEqual(got[0], "host", str(result))
        got, result = self.connects([f"allow unix {self.folder}/**"])
        self.assertEqual(got, ["host", "host"], str(result))

    def test_a_rule_may_name_a_link(self):
        link = self.folder / "link"
        link.symlink_to(self.outside)
        got, result = self.connects([f"allow unix {link}/one.sock"], self.paths[0])
        self.assertEqual(got, ["host"], str(result))

    def test_by_binds_in_folders_the_workload_may_write_too(self):
        for path in self.paths:
            got, result = self.connects([(f"allow unix {path}", {"by": "[/usr/bin/curl]"})], path)
            self.assertEqual(got, ["EACCES"], str(result))
            self.assertDenialLine(result, path)
            real = os.path.realpath(harness.PYTHON)
            self.assertEqual(self.connects([(f"allow unix {path}", {"by": f"[{real}]"})], path)[0], ["host"])

    def test_a_link_past_names_is_no_way_round_by(self):
        """What nobody can follow in the workload's place is not taken for a socket of its own."""
        rules = [(f"allow unix {self.paths[0]}", {"by": "[/usr/bin/curl]"})]
        (self.work / "link").symlink_to(f"/proc/self/root{self.paths[0]}")
        (self.work / "loop").symlink_to("loop")
        # A lexical ".." would end at a file of its own.
        (self.work / "out").symlink_to(self.outside)
        (self.work / "service").mkdir()
        (self.work / "service/one.sock").touch()
        got, result = self.connects(rules, self.work / "out/../service/one.sock")
        self.assertEqual(got, ["EACCES"], str(result))
        self.assertDenialLine(result, self.paths[0])
        for path in (self.work / "link", "link", f"/proc/self/cwd/{self.paths[0][1:]}", "loop"):
            got, result = self.connects(rules, path)
            self.assertEqual(got, ["EACCES"], f"{path} {result}")
            self.assertIn("leads cannot be found out", str(result.denials()), str(result))

    def test_by_binds_by_whatever_name(self):
        """Names that mean something else to the supervisor, or to whoever takes ".." out of them without following links."""
        path = pathlib.Path(self.paths[0])
        link = self.work / "link"
        link.symlink_to(path.parent)
        (self.work / "self").symlink_to(f"/proc/self/root{path}")
        names = [f"{link}/../{path.parent.name}/{path.name}", f"/proc/self/root{path}", f"/proc/thread-self/root{path}", str(self.work / "self")]
        got, result = self.connects([(f"allow unix {path}", {"by": "[/usr/bin/curl]"})], *names)
        self.assertEqual(got, ["EACCES"] * 4, str(result))

    def test_a_socket_that_the_host_makes_later_needs_a_rule_in_a_folder_to_read(self):
        """Which lies in the command's home, where its own sockets need none."""
        fixed = self.folder / "fixed"
        fixed.mkdir()
        script = "print('ready', flush=True); input()\n" + self.CLIENT
        with self.running([], harness.PYTHON, "-c", script, fixed / "late.sock", flags=["--ro", fixed], env={"HOME": str(self.folder)}) as command:
            self.assertEqual(command.stdout.readline(), "ready\n")
            self.serve(str(fixed / "late.sock"))
            out, err = command.communicate("go\n", timeout=60 * harness.SLOW)
        self.assertEqual(out, "EACCES\n", err)

    def test_a_deny_wins(self):
        got, result = self.connects([f"allow unix {self.folder}/**", f"deny unix {self.outside}/**"])
        self.assertEqual(got, ["EACCES", "host"], str(result))

    def test_a_socket_that_is_not_there_is_said_and_no_error(self):
        result = self.sluice([f"allow unix {self.outside}/none.sock"], "true")
        self.assertExit(result, 0)
        self.assertIn("none.sock", result.err)


if __name__ == "__main__":
    harness.main()
