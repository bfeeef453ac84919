#!/usr/bin/python3
"""What a hostile program tries against the files that sluice trusts: the policy, its includes, the audit file, the program itself."""
import os
import shutil
import signal
import subprocess
import time

import harness
import lab

READ = ["allow GET a.test/pub/**"]


class Files(harness.SluiceTest):
    """The policy, what it includes, the audit file and the program itself, in trees that the command may write."""

    REPLACE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(what, f):
    try:
        f()
    except OSError:
        return
    print("WORKED:", what, flush=True)
def write(path, flags=os.O_WRONLY):
    os.close(os.open(path, flags))
def exchange(a, b):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), 2) != 0: raise OSError(ctypes.get_errno())
for path in sys.argv[1:]:
    folder, name = os.path.split(path)
    mine, link = folder + "/mine", path + ".pointer"
    open(mine, "w").write("rules: []")
    os.symlink(path, link)
    attempt("write " + path, lambda: write(path))
    attempt("append " + path, lambda: write(path, os.O_WRONLY | os.O_APPEND))
    attempt("truncate " + path, lambda: os.truncate(path, 0))
    attempt("through a link " + path, lambda: write(link))
    attempt("through proc " + path, lambda: write("/proc/self/root" + path))
    attempt("through the folder " + path, lambda: write(f"/proc/self/fd/{os.open(folder, os.O_RDONLY)}/{name}"))
    attempt("chmod " + path, lambda: os.chmod(path, 0o666))
    attempt("hard link " + path, lambda: os.link(path, folder + "/other-name"))
    attempt("unlink " + path, lambda: os.unlink(path))
    attempt("rename away " + path, lambda: os.rename(path, folder + "/gone"))
    attempt("rename over " + path, lambda: os.rename(mine, path))
    attempt("exchange " + path, lambda: exchange(mine, path))
    attempt("link over " + path, lambda: os.rename(link, path))
    attempt("rename the folder of " + path, lambda: os.rename(folder, folder + ".gone"))
    attempt("exchange the folder of " + path, lambda: (os.makedirs(folder + ".mine", exist_ok=True), exchange(folder, folder + ".mine")))
print("tried")
"""

    def own(self, *paths):
        for path in paths:
            if self.lab.uid:
                os.chown(path, self.lab.uid, self.lab.uid)

    def test_none_of_them_can_be_changed_in_any_tree(self):
        (self.folder / "script.py").write_text(self.REPLACE)
        for tree, flags in ((self.work, []), (self.folder / "granted", ["--rw", self.folder / "granted"])):
            inner = tree / "deep" / "conf"
            inner.mkdir(parents=True)
            policy, include, audit, binary = inner / "p.yaml", inner / "more.yaml", inner / "audit.jsonl", inner / "sluice"
            include.write_text("version: 1\nrules: []\n")
            policy.write_text("version: 1\nname: x\ninclude: [more.yaml]\nrules: []\n")
            audit.write_text("")
            shutil.copy(lab.sluice_binary(), binary)
            self.own(tree, tree / "deep", inner, policy, include, audit, binary)
            before = {path: path.read_bytes() for path in (policy, include, binary)}
            done = self.lab.run([binary, "run", "--policy", policy, "--audit", audit, *flags, "--ro", self.folder / "script.py", "--", harness.PYTHON,
                                 self.folder / "script.py", policy, include, audit, binary], cwd=self.work)
            self.assertEqual(done.stdout, "tried\n", done.stderr)
            for path, content in before.items():
                self.assertEqual(path.read_bytes(), content, path)
            self.assertTrue(audit.exists())

    # Writes what is allowed to it into each file as soon as that works, then asks.
    SEIZE = """
import os, sys, time, urllib.request
print("up", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
for path in sys.argv[1:]:
    for _ in range(40):
        try:
            text = open(path).read()
            open(path, "r+").write(text.replace("GET a.test/echo", "http a.test"))
        except OSError:
            pass
        time.sleep(0.01)
time.sleep(0.5)
try:
    print("status", urllib.request.urlopen("https://a.test/pub", timeout=5).status)
except OSError as error:
    print("refused")
"""

    def until_said(self, process, words):
        line = ""
        while words not in line:
            line = process.stderr.readline()
            self.assertTrue(line, f"it ended without a word of: {words}")

    def test_a_policy_replaced_from_outside_where_the_command_may_write_is_not_loaded(self):
        # The rename takes the lock off the name, and the command writes the new file before, while or after it is read.
        for replaced in ("p.yaml", "more.yaml"):
            work = self.folder / replaced.removesuffix(".yaml") / "work"
            work.mkdir(parents=True)
            policy, include = work / "p.yaml", work / "more.yaml"
            policy.write_text("version: 1\nname: x\ninclude: [more.yaml]\nrules:\n  - allow: GET a.test/echo\n")
            include.write_text("version: 1\nrules:\n  - allow: GET a.test/echo\n")
            self.own(work, policy, include)
            process = self.lab.popen([lab.binary_for_anyone(self.lab.folder), "run", "--policy", policy, "--upstream-ca", self.lab.ca, "--", harness.PYTHON,
                                      "-c", self.SEIZE, policy, include], cwd=work, stdout=-1, stderr=-1, text=True)
            self.assertEqual(process.stdout.readline(), "up\n")
            fresh = work / "fresh"
            fresh.write_text((work / replaced).read_text() + "# edited\n")
            self.own(fresh)
            os.replace(fresh, work / replaced)
            (work / "go").touch()
            out, err = process.communicate(timeout=30 * harness.SLOW)
            self.assertEqual(out, "refused\n", err)
            self.assertIn(f"{work / replaced} was replaced", err)

    def test_a_policy_edited_in_place_is_still_loaded(self):
        policy = self.work / "p.yaml"
        policy.write_text(harness.policy_text(["allow GET a.test/echo"]))
        self.own(policy)
        process = self.lab.popen([lab.binary_for_anyone(self.lab.folder), "run", "--policy", policy, "--upstream-ca", self.lab.ca, "--", harness.PYTHON,
                                  "-c", self.SEIZE], cwd=self.work, stdout=-1, stderr=-1, text=True)
        self.assertEqual(process.stdout.readline(), "up\n")
        policy.write_text(harness.policy_text(["allow GET a.test/pub"]))
        self.until_said(process, "policy reloaded")
        (self.work / "go").touch()
        out, err = process.communicate(timeout=30 * harness.SLOW)
        self.assertEqual(out, "status 200\n", err)

    def test_a_policy_named_by_a_link_that_the_command_may_change_is_refused(self):
        outside = self.folder / "outside"
        outside.mkdir()
        (outside / "p.yaml").write_text(harness.policy_text(READ))
        (self.work / "direct.yaml").symlink_to("../outside/p.yaml")
        (self.work / "conf").symlink_to("../outside")
        (outside / "chain.yaml").symlink_to("../work/direct.yaml")
        for named, link in ((self.work / "direct.yaml", "direct.yaml"), (self.work / "conf/p.yaml", "conf"), (f"{self.work}/conf/../outside/p.yaml", "conf"), (outside / "chain.yaml", "direct.yaml")):
            result = self.plain_sluice("run", "--policy", named, "--", "true")
            self.assertExit(result, 2)
            self.assertIn(f"/{link} is a link in a tree the workload may write", result.err)
        (outside / "harmless.yaml").symlink_to("p.yaml")
        self.assertExit(self.plain_sluice("run", "--policy", outside / "harmless.yaml", "--", "true"), 0)

    def test_an_include_that_the_command_leads_elsewhere_is_not_loaded(self):
        # Both files it could lead to are the user's own, and one has no denials.
        outside = self.folder / "outside"
        work = outside / "work"
        work.mkdir(parents=True)
        (outside / "p.yaml").write_text("version: 1\nname: x\ninclude: [work/inc.yaml]\nrules:\n  - allow: http a.test\n")
        (outside / "strict.yaml").write_text("version: 1\nrules:\n  - deny: http a.test\n")
        (outside / "lax.yaml").write_text("version: 1\nrules: []\n")
        (work / "inc.yaml").symlink_to("../strict.yaml")
        self.own(work)
        script = """
import os, time, urllib.request, urllib.error
os.remove("inc.yaml"); os.symlink("../lax.yaml", "inc.yaml")
print("changed", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
try: print("status", urllib.request.urlopen("https://a.test/pub", timeout=5).status)
except OSError: print("refused")
"""
        process = self.lab.popen([lab.binary_for_anyone(self.lab.folder), "run", "--policy", outside / "p.yaml", "--upstream-ca", self.lab.ca, "--", harness.PYTHON, "-c", script],
                                 cwd=work, stdout=-1, stderr=-1, text=True)
        self.assertEqual(process.stdout.readline(), "changed\n")
        process.send_signal(signal.SIGHUP)
        self.until_said(process, "made of other files")
        (work / "go").touch()
        out, err = process.communicate(timeout=30 * harness.SLOW)
        self.assertEqual(out, "refused\n", err)

    def test_a_policy_that_changes_all_the_time_is_always_a_whole_one(self):
        # Each state allows one of two paths, and none allows the third.
        script = """
import sys, urllib.request, urllib.error
print("ready", flush=True)
for line in sys.stdin:
    codes = []
    for path in ("pub", "echo", "nothing"):
        try: codes.append(urllib.request.urlopen("https://a.test/" + path, timeout=10).status)
        except urllib.error.HTTPError as e: codes.append(e.code)
        except OSError: codes.append(0)  # cut by the change
    print(*codes, flush=True)
"""
        turns = [0]

        def flip():
            turns[0] += 1
            fresh = self.folder / "fresh.yaml"
            fresh.write_text(harness.policy_text([f"allow GET a.test/{'echo' if turns[0] % 2 else 'pub'}"]))
            os.replace(fresh, self.policy)

        with self.running(["allow GET a.test/pub"], harness.PYTHON, "-c", script, stderr=subprocess.DEVNULL) as process:
            def ask():
                process.stdin.write("\n")
                process.stdin.flush()
                return process.stdout.readline().split()

            self.assertEqual(process.stdout.readline(), "ready\n")
            for _ in range(40):
                for _ in range(3):
                    flip()
                    time.sleep(0.005)
                self.assertIn(ask()[2], ("403", "0"))
            self.assertEventually(lambda: ask() == ["200", "403", "403"], "the last policy, with an even number of turns, is in force", 10)


if __name__ == "__main__":
    harness.main()
