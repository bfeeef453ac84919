#!/usr/bin/python3
"""What a push or an LFS batch asks for decides, by git and git-lfs."""
import json
import os
import pathlib
import re
import time

import bodies_test
import harness


def resident(pid):
    """Bytes of memory a process holds; 0 once it is gone."""
    try:
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) << 10
    except (OSError, TypeError):
        return 0


class Git(bodies_test.Bodies):
    URL = "https://github.com/octo/hello.git"
    WHO = ["-c", "user.name=octo", "-c", "user.email=octo@a.test"]
    RULES = ["allow git fetch-pack github.com/octo/*", ("allow git receive-pack github.com/octo/*", {"refs": "[refs/heads/agent/*]"})]

    def git(self, *arguments, rules=None, **more):
        return self.sluice(rules or self.RULES, "git", *arguments, **more)

class Push(Git):
    def clone(self, url=Git.URL):
        self.assertExit(self.git("clone", "-q", url, "hello"), 0)
        self.assertExit(self.git("-C", "hello", *self.WHO, "commit", "-q", "--allow-empty", "-m", "mine"), 0)

    def refs(self):
        return set(re.findall(r"refs/\S+", self.git("ls-remote", self.URL).out))

    def test_an_agent_pushes_its_own_branches_only(self):
        self.clone()
        result = self.git("-C", "hello", "push", "origin", "HEAD:refs/heads/agent/one")
        self.assertExit(result, 0)
        self.assertIn(["create refs/heads/agent/one"], self.asked(result))
        self.assertIn("refs/heads/agent/one", self.refs())
        denied = self.git("-C", "hello", "push", "origin", "HEAD:main")
        self.assertNotEqual(denied.code, 0)
        self.assertRegex(denied.err, r"remote: sluice: denied POST github\.com/octo/hello\.git/git-receive-pack \(d-\d+\)")
        self.assertRegex(denied.err, r"! \[remote rejected\] HEAD -> main \(denied by policy \(d-\d+\)\)")
        self.assertIn("no rule allows a push that would update refs/heads/main", denied.err)
        self.assertIn(["update refs/heads/main"], self.asked(denied))

    def test_one_refused_ref_refuses_all_and_git_says_which(self):
        self.clone()
        result = self.git("-C", "hello", "push", "origin", "HEAD:refs/heads/agent/two", "HEAD:main")
        self.assertNotEqual(result.code, 0)
        self.assertRegex(result.err, r"! \[remote rejected\] HEAD -> main \(denied by policy")
        self.assertRegex(result.err, r"! \[remote rejected\] HEAD -> agent/two \(not pushed, since another ref is denied")
        self.assertNotIn("refs/heads/agent/two", self.refs())

    def test_deleting_needs_its_own_word(self):
        self.clone()
        self.assertExit(self.git("-C", "hello", "push", "-q", "origin", "HEAD:refs/heads/agent/gone"), 0)
        denied = self.git("-C", "hello", "push", "origin", ":refs/heads/agent/gone")
        self.assertNotEqual(denied.code, 0)
        self.assertIn("denied by policy", denied.err)
        self.assertIn("refs/heads/agent/gone", self.refs())
        rules = [self.RULES[0], ("allow git receive-pack github.com/octo/*", {"refs": "[refs/heads/agent/*]", "ref-changes": "[delete]"})]
        self.assertExit(self.git("-C", "hello", "push", "-q", "origin", ":refs/heads/agent/gone", rules=rules), 0)
        self.assertNotIn("refs/heads/agent/gone", self.refs())

    def test_a_large_push_streams_through_and_a_refused_one_is_told(self):
        self.clone("https://github.com/octo/second.git")
        size = int(os.environ.get("SLUICE_PUSH_OCTETS") or (100_000_000 if harness.MODE == "root" and harness.SLOW == 1 else 20_000_000))
        make = f"head -c {size} /dev/urandom > hello/noise && git -C hello -c core.compression=0 add noise && git -C hello -c user.name=o -c user.email=o@a commit -qm noise"
        self.assertExit(self.sluice(self.RULES, "sh", "-ec", make, timeout=240), 0)
        with self.running(self.RULES, "git", "-C", "hello", "push", "-q", "origin", "HEAD:refs/heads/agent/large") as process:
            peak = 0
            while process.poll() is None:
                peak = max(peak, resident(process.pid))
                time.sleep(0.05)
            self.assertEqual(process.returncode, 0, process.stderr.read())
        self.assertLess(peak, (60 if harness.SLOW == 1 else 600) << 20)
        records = [json.loads(line) for line in self.audit.read_text().splitlines()]
        exchanges = [r for r in records if r["type"] == "exchange" and r["target"].get("asked") == ["create refs/heads/agent/large"]]
        self.assertGreater(exchanges[0]["bytes_up"], size)
        pushed = [dict(entry["headers"]) for entry in self.served() if entry.get("method") == "POST" and "receive-pack" in entry["target"]]
        self.assertIn("chunked", {{name.lower(): value for name, value in fields.items()}.get("transfer-encoding") for fields in pushed})
        denied = self.git("-C", "hello", "push", "-q", "origin", "HEAD:refs/heads/large", timeout=300)
        self.assertNotEqual(denied.code, 0)
        self.assertIn("denied by policy", denied.err, str(denied))


class Lfs(Git):
    def setUp(self):
        super().setUp()
        self.lfs_environment = {"GIT_LFS_SKIP_SMUDGE": "1", "HOME": str(self.work), "GIT_CONFIG_GLOBAL": str(self.work / "gitconfig")}

    def lfs(self, script, rules):
        return self.sluice(rules, "sh", "-exc", script, env=self.lfs_environment, timeout=120)

    SETUP = """
        git lfs install --skip-repo >/dev/null; git config --global user.name o; git config --global user.email o@a.test
        git clone -q https://github.com/octo/hello.git lfs; cd lfs; git config lfs.locksverify false
        git lfs track '*.bin' >/dev/null; echo large > x.bin; git add .; git commit -qm lfs
        git push origin HEAD:refs/heads/agent/lfs"""

    def test_objects_go_up_and_down_by_the_verb_that_says_so(self):
        up = [self.RULES[0], ("allow git receive-pack github.com/octo/*", {"refs": "[refs/heads/agent/*]", "lfs": "true"})]
        result = self.lfs(self.SETUP, up)
        self.assertExit(result, 0)
        self.assertIn(["lfs upload"], self.asked(result))
        self.assertEqual(len(list((self.lab.folder / "lfs").iterdir())), 1)
        denied = self.lfs("cd lfs; rm -rf .git/lfs/objects; git lfs fetch origin HEAD", up)
        self.assertNotEqual(denied.code, 0)
        self.assertIn(["lfs download"], self.asked(denied))
        down = [("allow git fetch-pack github.com/octo/*", {"lfs": "true"})]
        fetched = self.lfs("cd lfs; git lfs fetch origin HEAD; git lfs checkout; cat x.bin", down)
        self.assertExit(fetched, 0)
        self.assertIn("large", fetched.out)
        self.assertIn(["lfs download"], self.asked(fetched))
        refused = self.lfs("cd lfs; echo other > y.bin; git add .; git commit -qm more; git lfs push origin HEAD", down)
        self.assertNotEqual(refused.code, 0)
        self.assertIn(["lfs upload"], self.asked(refused))
        self.assertEqual(len(list((self.lab.folder / "lfs").iterdir())), 1)


if __name__ == "__main__":
    harness.main()
