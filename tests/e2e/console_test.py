#!/usr/bin/python3
"""Standard error that nobody reads, floods of denials, hostile names, and audit files that fail: what a person then sees."""
import json
import os
import re

import harness

FLOOD = """
import socket, sys
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(int(sys.argv[1])):
    to = ("151.101.1.1", 9) if sys.argv[2] == "same" else ("151.101.%d.%d" % (n // 250 % 250, n % 250 + 1), 1000 + n % 100)
    try: udp.sendto(b"x", to)
    except OSError: pass
"""
# Its flood may still have all the room among the records that a process gets, and then what it may do is refused. Nobody reads its
# standard error, so that to say there what went wrong would take for ever.
THEN_ASK = """
import time, urllib.request
end = time.monotonic() + float(sys.argv[3])
while True:
    try: said = urllib.request.urlopen("https://a.test/pub", timeout=20).status
    except OSError as error: said = error
    if said == 200 or time.monotonic() > end: break
    time.sleep(0.05)
print(said, flush=True)
"""

HOSTILE = {"an escape": "\x1b]0;owned\x07\x1b[2J", "a line": "\nsluice: exit 0", "a direction": "\u202egnp.exe", "one code point": "\u009b31m"}


def refused(records):
    return sum(r.get("count", 1) for r in records if r.get("verdict") == "deny")


class UnreadStandardError(harness.SluiceTest):
    def full_pipe(self):
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        try:
            while os.write(writing, b"x" * 4096):
                pass
        except BlockingIOError:
            pass
        os.set_blocking(writing, True)
        self.addCleanup(os.close, reading)
        return reading, writing

    def test_a_flood_of_denials_holds_up_neither_others_nor_the_end(self):
        for kind, times in (("same", 100_000), ("different", 30_000)):
            _, writing = self.full_pipe()
            if self.audit.exists():
                self.audit.unlink()
            words = [harness.PYTHON, "-c", FLOOD + THEN_ASK, str(times), kind, str(10 * harness.SLOW)]
            with self.running(["allow GET a.test"], *words, stderr=writing) as process:
                os.close(writing)
                self.assertEqual(self.line_of(process), "200\n", kind)
                process.communicate(timeout=20 * harness.SLOW)
                self.assertEqual(process.returncode, 0)
            records = [json.loads(line) for line in self.audit.read_text().splitlines()]
            # Those without a place are counted by process: of its flood, and of its asking where that found no room.
            self.assertLessEqual(refused([r for r in records if r["target"].get("port", 443) != 443]), times, kind)
            self.assertGreaterEqual(refused([r for r in records if r["target"].get("host") != "a.test"]), times, kind)
            self.assertTrue(any(r.get("verdict") == "allow" and r["layer"] == "request" for r in records))

    def test_what_found_room_is_read_later(self):
        reading, writing = self.full_pipe()
        with self.running(["allow GET a.test"], harness.PYTHON, "-c", FLOOD + "print('over', flush=True)", "5000", "same", stderr=writing) as process:
            os.close(writing)
            self.assertEqual(self.line_of(process), "over\n")
            with os.fdopen(os.dup(reading)) as text:
                said = text.read().lstrip("x")
            process.wait(timeout=20 * harness.SLOW)
        self.assertIn("sluice: denied  UDP to 151.101.1.1:9", said)
        self.assertTrue(said.endswith("sluice: exit 0 · 0 allowed · 5000 denied\n"), said)


class Floods(harness.SluiceTest):
    def test_equal_denials_are_counted_and_every_one_of_them(self):
        result = self.python(["allow GET a.test"], FLOOD, "20000", "same", flags=["--fail-on-deny"])
        self.assertExit(result, 3)
        self.assertIn("20000 denied", result.err)
        self.assertEqual(refused(result.audit), 20000)
        self.assertLess(len(result.audit), 2000)
        folded = [r for r in result.audit if "count" in r]
        self.assertTrue(folded)
        for record in folded:
            self.assertEqual(record["target"], {"address": "151.101.1.1", "port": 9})
            self.assertLessEqual(record["first"], record["time"])
            self.assertIn("last_denial", record)
        shown = sum(int(n) for n in re.findall(r"… (\d+) more  UDP to 151.101.1.1:9", result.err)) + len(re.findall(r"denied  UDP", result.err))
        self.assertEqual(shown, 20000, "standard error counts them too")

    def test_other_processes_are_decided_during_a_flood(self):
        script = f"""
import socket, subprocess, sys
to = (socket.gethostbyname("db.test"), 5432)
floods = [subprocess.Popen([sys.executable, "-c", {FLOOD!r}, "10000000", "different"]) for _ in range(6)]
refused = 0
for _ in range(400):
    s = socket.socket()
    try: s.connect(to)
    except OSError: refused += 1
    s.close()
for flood in floods: flood.kill()
print("refused", refused)
"""
        result = self.python(["allow tcp db.test:5432"], script)
        self.assertIn("refused 0\n", result.out, str(result))
        denied = int(re.search(r"(\d+) denied", result.err).group(1))
        self.assertEqual(refused(result.audit), denied)


class HostileNames(harness.SluiceTest):
    def check(self, result):
        for bad in ("\x1b", "\x07", "\u202e", "\u009b", "\nsluice: exit 0\n"):
            self.assertNotIn(bad, result.err, repr(bad))
        raw = self.audit.read_bytes()
        self.assertTrue(raw and all(0x20 <= b < 0x7f or b == 0x0a for b in raw))
        for record in result.audit:
            self.assertIn(record["type"], ("decision", "exchange"))

    def test_in_executables_arguments_and_their_ancestors(self):
        for what, name in HOSTILE.items():
            script = """
import os, shutil, subprocess, sys
name = os.path.abspath("x" + sys.argv[1])
shutil.copy("/usr/bin/bash", name)
subprocess.run([name, "-c", "getent hosts b.test; exit 0"])
subprocess.run([name, "-c", "exec 3<>/dev/tcp/151.101.1.1/9", sys.argv[1]], stderr=subprocess.DEVNULL)
"""
            with self.subTest(what):
                result = self.python(["allow GET a.test"], script, name)
                self.assertTrue(any("/x" in r["process"]["exe"] for r in result.denials()), str(result.audit))
                self.check(result)

    def test_in_bytes_that_are_not_utf8(self):
        script = "import os, shutil, subprocess; p = os.path.abspath(b'x\\xff\\x9b'); shutil.copy('/usr/bin/getent', p); subprocess.run([p, 'hosts', 'b.test'])"
        result = self.python(["allow GET a.test"], script)
        self.assertIn("x%FF%9B[", result.err)
        self.check(result)

    def test_in_paths_headers_and_sockets(self):
        script = """
import socket, ssl, sys
name = sys.argv[1].encode()
def ask(head):
    s = ssl.create_default_context().wrap_socket(socket.create_connection(("a.test", 443)), server_hostname="a.test")
    s.sendall(head)
    while s.recv(65536): pass
for head in (b"GET /" + name, b"GET /x HTTP/1.1\\r\\nHost: " + name, b"G" + name + b" /x", b"GET /x HTTP/1.1\\r\\nHost: a.test\\r\\nX-A: " + name):
    try: ask(head + b" HTTP/1.1\\r\\nHost: a.test\\r\\nConnection: close\\r\\n\\r\\n")
    except OSError: pass
s = socket.socket(socket.AF_UNIX); s.bind("own" + sys.argv[1])
try: socket.socket(socket.AF_UNIX).connect("own" + sys.argv[1])
except OSError: pass
"""
        for what, name in HOSTILE.items():
            with self.subTest(what):
                self.check(self.python(["allow POST a.test", f"deny unix {self.work}/**"], script, name))


class AuditFiles(harness.SluiceTest):
    def refuses(self, path, *words):
        result = self.plain_sluice("run", "--allow", "GET a.test", "--audit", path, "--", "true")
        self.assertExit(result, 2)
        for word in (str(path), *words):
            self.assertIn(word, result.err)

    def test_what_is_no_file_is_refused_with_what_to_do(self):
        os.mkfifo(self.work / "pipe", 0o666)
        os.chmod(self.work / "pipe", 0o666)
        (self.work / "link").symlink_to(self.work / "a.jsonl")
        self.refuses(self.work / "pipe", "a pipe", "name a file")
        self.refuses(self.work / "link", "symbolic link", "name the file itself")
        self.refuses(self.work, "a folder")
        self.refuses("/dev/stderr", "could forge records", "name a file")
        self.assertFalse((self.work / "a.jsonl").exists())

    def fails_closed(self, result, path, why):
        self.assertExit(result, 5)
        self.assertIn("OSError", result.out, str(result))
        self.assertIn(f"{path}: {why}; from now on everything is refused", result.err)
        self.assertIn(f"audit records could not be written to {path}", result.err)

    def test_a_device_that_is_full_refuses_everything(self):
        script = """
import time, urllib.request
for _ in range(100):
    try: urllib.request.urlopen("https://a.test/pub").read()
    except OSError as error: print("OSError", error); break
    time.sleep(0.05)
"""
        self.audit = "/dev/full"
        self.command(["allow GET a.test"], [])
        done = self.lab.run(self.command(["allow GET a.test"], [harness.PYTHON, "-c", script]), cwd=self.work)
        self.fails_closed(harness.Result(done.returncode, done.stdout, done.stderr, self.folder), "/dev/full", "No space left on device")

    def test_a_full_disk_refuses_everything_and_leaves_whole_records(self):
        disk = self.folder / "disk"
        disk.mkdir()
        self.lab.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "tmpfs", disk], uid=0, cwd="/")
        script = """
import urllib.request
for n in range(2000):
    try: urllib.request.urlopen("https://a.test/pub").read()
    except OSError as error: print("OSError", error); break
"""
        self.audit = disk / "audit.jsonl"
        try:
            done = self.lab.run(self.command(["allow GET a.test"], [harness.PYTHON, "-c", script]), cwd=self.work)
            text = self.lab.run(["cat", self.audit], uid=0, cwd="/").stdout
        finally:
            self.lab.run(["umount", disk], uid=0, cwd="/")
        self.fails_closed(harness.Result(done.returncode, done.stdout, done.stderr, self.folder), self.audit, "No space left on device")
        self.assertTrue(text.endswith("}\n"))
        for line in text.splitlines():
            json.loads(line)

    def test_rotation_by_truncating_and_by_moving_loses_nothing_written_after(self):
        script = """
import urllib.request
for line in iter(input, "end"):
    urllib.request.urlopen("https://a.test/" + line).read()
    print("done", flush=True)
"""
        with self.running(["allow GET a.test"], harness.PYTHON, "-c", script) as process:
            def ask(path):
                process.stdin.write(path + "\n")
                self.assertEqual(process.stdout.readline(), "done\n")

            def holds(file, path):
                self.assertEventually(lambda: f'"/{path}"' in file.read_text(), f"{path} is in {file}")

            ask("pub?one")
            holds(self.audit, "pub")
            os.truncate(self.audit, 0)
            ask("echo/two")
            holds(self.audit, "echo/two")
            self.assertTrue(self.audit.read_bytes().startswith(b"{"), "no hole")
            moved = self.audit.with_suffix(".1")
            self.audit.rename(moved)
            ask("echo/three")
            holds(moved, "echo/three")
            self.assertFalse(self.audit.exists())
            process.stdin.write("end\n")
            process.stdin.close()
            said = process.stderr.read()
            self.assertEqual(process.wait(), 0)
        self.assertEqual(said.count(f"{self.audit} was moved"), 1, said)

    def test_a_deleted_file_refuses_everything(self):
        script = """
import time, urllib.request
print("go", flush=True); input()
for _ in range(100):
    try: urllib.request.urlopen("https://a.test/pub").read()
    except OSError as error: print("OSError", error, flush=True); break
    time.sleep(0.05)
"""
        with self.running(["allow GET a.test"], harness.PYTHON, "-c", script) as process:
            process.stdout.readline()
            self.audit.unlink()
            out, err = process.communicate("\n", timeout=30 * harness.SLOW)
        self.assertEqual(process.returncode, 5)
        self.assertIn("OSError", out)
        self.assertIn(f"the audit file {self.audit} was deleted; from now on everything is refused", err)


class Messages(harness.SluiceTest):
    def test_a_resolver_that_does_not_answer_is_named_once(self):
        result = self.sluice(["allow GET a.test", "allow GET b.test"], "sh", "-c", "getent hosts a.test & getent hosts b.test & wait",
                             flags=["--resolver", "203.0.113.77:5353"])
        said = [line for line in result.err.splitlines() if "lookup of" in line and "203.0.113.77:5353" in line]
        self.assertEqual(len(said), 1, str(result))
        self.assertRegex(said[0], r"warning: lookup of [ab]\.test: .*--resolver")

    def test_empty_values_are_errors(self):
        for flag in ("--name", "--audit", "--policy", "--resolver", "--cwd", "--timeout", "--label", "--env", "--rw", "--ro", "--allow"):
            result = self.plain_sluice("run", "--allow", "GET a.test", flag, "", "--", "true")
            self.assertExit(result, 2)
            self.assertIn(f"{flag}: the value is empty", result.err)

    def test_a_denied_clone_names_the_repository(self):
        result = self.sluice(["allow git fetch-pack github.com/octo/other"], "git", "clone", "https://github.com/octo/hello", "copy")
        self.assertDenialLine(result, "denied  git fetch-pack https://github.com/octo/hello ")


if __name__ == "__main__":
    harness.main()
