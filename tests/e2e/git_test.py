#!/usr/bin/python3
"""Real git against real git-http-backend: what fetch-pack grants, and how a refused push reads."""
import harness

FETCH = ["allow git fetch-pack github.com/octo/*"]
BOTH = FETCH + ["allow git receive-pack github.com/octo/hello"]
WHO = ["-c", "user.name=octo", "-c", "user.email=octo@a.test"]
URL = "https://github.com/octo/hello.git"


class Git(harness.SluiceTest):
    def git(self, *arguments, rules=FETCH, env=None):
        return self.sluice(rules, "git", *arguments, env=env)

    def pushed(self):
        return [e["target"] for e in self.served() if "receive-pack" in e.get("target", "")]

    def test_clone_and_fetch_work_over_protocol_version_two(self):
        result = self.git("clone", URL)
        self.assertExit(result, 0)
        self.assertIn("line 3", (self.work / "hello/README").read_text())
        versions = {{k.lower(): v for k, v in e["headers"]}.get("git-protocol") for e in self.served()}
        self.assertEqual(versions, {"version=2"})
        commit = self.lab.add_commit("octo/hello", "later")
        fetched = self.git("-C", "hello", "fetch", "-q")
        self.assertExit(fetched, 0)
        self.assertIn(commit, (self.work / "hello/.git/refs/remotes/origin/main").read_text())

    def test_clone_without_the_suffix_and_protocol_zero_and_one(self):
        for version in ("0", "1"):
            result = self.git("-c", f"protocol.version={version}", "clone", "-q", "https://github.com/octo/second", f"v{version}")
            self.assertExit(result, 0)
            self.assertTrue((self.work / f"v{version}/README").exists())

    def test_ls_remote_and_a_shallow_clone(self):
        self.assertIn("refs/heads/main", self.git("ls-remote", URL).out)
        self.assertExit(self.git("clone", "-q", "--depth", "1", "https://github.com/octo/second.git", "shallow"), 0)
        self.assertEqual(len((self.work / "shallow/.git/shallow").read_text().split()), 1)

    def test_a_push_is_refused_and_git_shows_the_reason(self):
        self.assertExit(self.git("clone", "-q", URL), 0)
        self.assertExit(self.git("-C", "hello", *WHO, "commit", "-q", "--allow-empty", "-m", "mine"), 0)
        result = self.git("-C", "hello", "push", "origin", "HEAD:main")
        self.assertNotEqual(result.code, 0)
        self.assertRegex(result.err, r"remote: .*git receive-pack github\.com/octo/hello")
        self.assertDenialLine(result, "git receive-pack https://github.com/octo/hello.git ", "git-remote-http")
        self.assertIn("allow it: --allow 'git receive-pack github.com/octo/hello'", result.err)
        self.assertEqual(self.pushed(), [])

    def test_a_push_goes_through_where_a_rule_allows_it(self):
        self.assertExit(self.git("clone", "-q", URL, rules=BOTH), 0)
        self.assertExit(self.git("-C", "hello", *WHO, "commit", "-q", "--allow-empty", "-m", "mine", rules=BOTH), 0)
        self.assertExit(self.git("-C", "hello", "push", "-q", "origin", "HEAD:refs/heads/mine", rules=BOTH), 0)
        self.assertIn("refs/heads/mine", self.git("ls-remote", URL).out)

    def test_another_owner_is_refused(self):
        result = self.git("clone", "-q", "https://github.com/mallory/loot.git")
        self.assertNotEqual(result.code, 0)
        self.assertRegex(result.err, r"remote: .*mallory/loot")
        self.assertEqual(self.served(), [])

    def test_fetch_pack_grants_nothing_else_of_the_repository(self):
        for arguments in (["https://github.com/octo/hello.git/HEAD"], ["https://github.com/octo/hello.git/info/refs?service=git-receive-pack"],
                          ["https://github.com/octo/hello.git/info/refs"], ["-X", "POST", "https://github.com/octo/hello.git/git-receive-pack"],
                          ["-X", "POST", "-H", "Content-Type: text/plain", "-d", "x", "https://github.com/octo/hello.git/git-upload-pack"]):
            result = self.sluice(FETCH, "curl", "-sS", "-i", *arguments)
            self.assertRegex(result.out, r"HTTP/1.1 403 ", str(arguments))
        self.assertEqual(self.served(), [])


if __name__ == "__main__":
    harness.main()
