"""Which files of a folder are policies, and what is said of the others."""
import os
import subprocess

import cli

ACCEPTED = "version: 1\naccepted:\n  - allow: POST a.test/**\n    owner: dana\n    reason: why\n    expires: 2099-01-31\n"


class Folders(cli.Case):
    def setUp(self):
        super().setUp()
        self.policy("net/p.yaml", "allow: GET a.test/**")

    def test_a_file_of_acceptances_is_no_policy(self):
        self.write("net/deep/accepted.yaml", ACCEPTED)
        self.assertIn("net/p.yaml: ok", self.expect(self.sluice("lint", "net"), 0).out)
        self.expect(self.sluice("fmt", "--check", "net"), 0)
        self.expect(self.sluice("prove", "net", "net"), 0)
        self.expect(self.sluice("prove", "--never", "POST a.test", "net"), 0)
        # Named itself, as by a hook, it is none either; where nothing is left there is no proof.
        for command, code in ((["lint"], 0), (["fmt", "--check"], 0), (["prove", "--never", "GET b.test"], 2)):
            self.assertIn("net/deep/accepted.yaml: passed over: it is for `prove --accept`, and no policy",
                          self.expect(self.sluice(*command, "net/deep/accepted.yaml"), code).err)
        # One that has more is a policy with a fault.
        self.write("net/deep/accepted.yaml", ACCEPTED + "rules: []\n")
        self.assertIn("unknown key `accepted`", self.expect(self.sluice("lint", "net"), 2).err)

    def test_nor_is_it_in_an_older_commit(self):
        def git(*arguments):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@a.test", *arguments], cwd=self.folder, check=True, capture_output=True)
        self.write("net/accepted.yaml", ACCEPTED)
        git("init", "-q")
        git("add", "-A")
        git("commit", "-qm", "x")
        self.policy("net/p.yaml", "allow: GET,POST a.test/**")
        self.expect(self.sluice("prove", "--base-git", "HEAD", "net"), 1)
        self.expect(self.sluice("prove", "--base-git", "HEAD", "--accept", "net/accepted.yaml", "net"), 0)
        self.write("net/accepted.yaml", ACCEPTED + "# changed\n")
        self.assertIn("passed over", self.expect(self.sluice("prove", "--base-git", "HEAD", "net/accepted.yaml"), 0).err)
        (self.folder / "net/accepted.yaml").unlink()
        self.expect(self.sluice("prove", "--base-git", "HEAD", "net"), 1)
        # What was a policy does not become none unseen.
        self.write("net/p.yaml", ACCEPTED)
        self.assertIn("unknown key `accepted`", self.expect(self.sluice("prove", "--base-git", "HEAD", "net/p.yaml"), 2).err)
        self.assertIn("unknown key `accepted`", self.expect(self.sluice("prove", "--base-git", "HEAD", "net"), 2).err)

    def test_what_is_passed_over_is_told(self):
        for name in (".hidden.yaml", ".folder/a.yaml", ".git/config.yaml", ".notes"):
            self.write("net/" + name, "version: 9\n")
        self.policy("elsewhere/q.yaml", "allow: GET b.test")
        (self.folder / "net/linked").symlink_to("../elsewhere")
        for command in (["lint", "net"], ["fmt", "net"], ["prove", "net", "net"]):
            outcome = self.expect(self.sluice(*command), 0)
            self.assertIn("sluice: net: passed over .folder, .hidden.yaml, linked: hidden, or a link to a folder", outcome.err)
            self.assertNotIn(".git", outcome.err)
            self.assertNotIn(".notes", outcome.err)
        self.assertIn("q.yaml: ok", self.expect(self.sluice("lint", "net/linked"), 0).out)
        for i in range(9):
            self.write(f"net/.h{i}.yaml", "")
        self.assertIn(".h3.yaml and 7 more: hidden", self.expect(self.sluice("lint", "net"), 0).err)

    def test_a_folder_below_that_cannot_be_read_is_named(self):
        (self.folder / "net/deep/closed").mkdir(parents=True)
        (self.folder / "net/deep/closed").chmod(0)
        self.addCleanup(os.chmod, self.folder / "net/deep/closed", 0o755)
        for command in (["lint", "net"], ["fmt", "net"], ["prove", "net", "net"]):
            self.assertIn("cannot read the folder net/deep/closed: Permission denied", self.expect(self.sluice(*command), 2).err)


if __name__ == "__main__":
    cli.main()
