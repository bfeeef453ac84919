"""`sluice prove --base-git`: the base is what a repository held, and the repository is a real one."""
import os
import shutil
import subprocess

import cli

GET = "allow: GET api.github.com/repos/**"
POST = "allow: GET,POST api.github.com/repos/**"


class Git(cli.Case):
    def setUp(self):
        super().setUp()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments, cwd=None):
        env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": str(self.folder)}
        identity = ["-c", "user.name=a", "-c", "user.email=a@a.test", "-c", "protocol.file.allow=always"]
        done = subprocess.run(["git", *identity, *arguments], cwd=cwd or self.folder, capture_output=True, text=True, env=env, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")
        return self.git("rev-parse", "HEAD").strip()

    def prove(self, revision, *arguments, **more):
        return self.sluice("prove", "--base-git", revision, "--format", "json", *arguments, **more)

    def test_branch_tag_commit_and_expression(self):
        self.policy("p.yaml", GET)
        commit = self.commit()
        self.git("tag", "v1")
        self.git("tag", "-a", "-m", "x", "annotated")
        self.git("branch", "release/1")
        self.policy("p.yaml", POST)
        self.commit()
        for revision in (commit, commit[:10], "v1", "annotated", "release/1", "HEAD~1", "main^"):
            with self.subTest(revision):
                report = self.expect(self.prove(revision, "p.yaml"), 1).json()
                self.assertEqual((report["gains"][0]["file"], report["gains"][0]["line"]), ("p.yaml", 3))
        self.expect(self.prove("HEAD", "p.yaml"), 0)
        self.policy("p.yaml", POST, "allow: GET x.test")  # what is not committed yet counts
        self.expect(self.prove("HEAD", "p.yaml"), 1)

    def test_the_bases_places_name_the_revision(self):
        self.policy("p.yaml", POST)
        self.commit()
        self.policy("p.yaml", GET)
        outcome = self.expect(self.sluice("prove", "--base-git", "HEAD", "p.yaml"), 0)
        self.assertIn("HEAD:p.yaml:3:12: note: narrowed: `POST api.github.com/repos/**`", outcome.out)

    def names(self, report):
        return sorted(policy["file"] for policy in report["policies"])

    def test_a_change_of_an_included_file_is_one_of_its_includers(self):
        deny = "deny: GET api.github.com/repos/*/secret/**"
        self.policy("net/parts/common.yaml", deny)
        self.policy("net/parts/between.yaml", more="include: [common.yaml]\n")
        self.policy("net/agent.yaml", GET, more="include: [parts/common.yaml]\n")
        self.policy("top.yaml", POST, more="include: [net/parts/between.yaml]\n")
        self.policy("net/other.yaml", GET)
        self.commit()
        every = ["net/agent.yaml", "net/parts/between.yaml", "net/parts/common.yaml", "top.yaml"]
        self.assertEqual(self.names(self.expect(self.prove("HEAD", "net/parts/common.yaml"), 0).json()), every)
        self.policy("net/parts/common.yaml")
        report = self.expect(self.prove("HEAD", "net/parts/common.yaml"), 1).json()
        self.assertEqual(self.names(report), every)
        self.assertEqual({gain["file"] for gain in report["gains"]}, {"net/agent.yaml", "top.yaml"})
        # By its folder too, from a folder below the repository's, and each once.
        self.assertEqual(self.names(self.expect(self.prove("HEAD", "net/parts", "top.yaml"), 1).json()), every)
        report = self.expect(self.prove("HEAD", "parts/common.yaml", cwd=self.folder / "net"), 1).json()
        self.assertEqual(self.names(report), ["../top.yaml", "agent.yaml", "parts/between.yaml", "parts/common.yaml"])
        # Gone: its includers do not load.
        (self.folder / "net/parts/common.yaml").unlink()
        self.assertIn("parts/common.yaml", self.expect(self.prove("HEAD", "net/parts/common.yaml"), 2).err)

    def test_a_link_to_an_included_file(self):
        deny = "deny: GET api.github.com/repos/*/secret/**"
        self.policy("net/parts/deep/real.yaml", deny)
        (self.folder / "net/link.yaml").symlink_to("middle.yaml")
        (self.folder / "net/middle.yaml").symlink_to("also/deep/../deep/real.yaml")
        (self.folder / "net/also").symlink_to("parts")
        self.policy("net/agent.yaml", GET, more="include: [link.yaml]\n")
        (self.folder / "agent.yaml").symlink_to("net/agent.yaml")
        self.commit()
        for changed in ("net/parts/deep/real.yaml", "net/agent.yaml"):
            self.expect(self.prove("HEAD", changed), 0)
        self.policy("net/parts/deep/real.yaml")
        report = self.expect(self.prove("HEAD", "net/parts/deep/real.yaml"), 1).json()
        self.assertIn("net/agent.yaml", {gain["file"] for gain in report["gains"]})
        report = self.expect(self.prove("HEAD", "net/agent.yaml"), 1).json()
        self.assertEqual(report["gains"][0]["refused_by"]["file"], "HEAD:net/link.yaml")
        # From below, where the names are others, and a link changed for a file.
        self.expect(self.prove("HEAD", "agent.yaml", cwd=self.folder / "net"), 1)
        (self.folder / "net/link.yaml").unlink()
        self.policy("net/link.yaml", deny)
        self.expect(self.prove("HEAD", "net/agent.yaml"), 0)

    def test_links_that_lead_nowhere_are_no_policy(self):
        self.policy("other/real.yaml", GET)
        self.policy("net/agent.yaml", more="include: [link.yaml]\n")
        link = self.folder / "net/link.yaml"
        for target, why in (
            ("../other/real.yaml", "leads out of the policy's folder"),
            (str(self.folder / "other/real.yaml"), "leads out of the repository"),
            ("../../../../../../etc/passwd", "outside repository"),
            ("link.yaml", "leads to too many others"),
            ("gone.yaml", "net/link.yaml is not in"),
            (".", "net/link.yaml is not in"),
        ):
            with self.subTest(target):
                link.unlink(missing_ok=True)
                link.symlink_to(target)
                commit = self.commit()
                link.unlink()
                self.policy("net/link.yaml", GET)
                self.assertIn(why, self.expect(self.prove(commit, "net/agent.yaml"), 2).err)

    def test_a_revision_that_is_not_there(self):
        self.policy("p.yaml", GET)
        self.commit()
        for revision in ("origin/main", "v9", "0123456789012345678901234567890123456789"):
            outcome = self.expect(self.sluice("prove", "--base-git", revision, "p.yaml"), 2)
            self.assertIn(f"--base-git {revision}: ", outcome.err)
            self.assertIn("fetch it first (a CI checkout may be shallow)", outcome.err)
            self.assertEqual(outcome.out, "")
        for revision in ("--help", "-x", "HEAD:p.yaml"):
            self.assertIn(revision, self.expect(self.sluice("prove", f"--base-git={revision}", "p.yaml"), 2).err)

    def test_a_shallow_clone_lacks_what_came_before(self):
        self.policy("p.yaml", GET)
        old = self.commit()
        self.policy("p.yaml", POST)
        self.commit()
        self.git("clone", "-q", "--depth", "1", f"file://{self.folder}/.git", "shallow")
        outcome = self.expect(self.sluice("prove", "--base-git", old, "p.yaml", cwd=self.folder / "shallow"), 2)
        self.assertIn("shallow", outcome.err)
        self.expect(self.sluice("prove", "--base-git", "HEAD~1", "p.yaml", cwd=self.folder / "shallow"), 2)

    def test_no_repository_and_no_git(self):
        self.policy("p.yaml", GET)
        self.commit()
        shutil.rmtree(self.folder / ".git")
        self.assertIn("git repository", self.expect(self.prove("HEAD", "p.yaml", env={"LC_ALL": "C"}), 2).err)
        self.assertIn("`git` is not installed", self.expect(self.prove("HEAD", "p.yaml", env={"PATH": str(self.folder)}), 2).err)

    def test_a_file_in_a_sub_folder_from_above_and_from_inside(self):
        self.policy("net/deep/p.yaml", GET)
        self.policy("other/p.yaml", GET)
        self.commit()
        self.policy("net/deep/p.yaml", POST)
        for cwd, path in ((".", "net/deep/p.yaml"), ("net", "deep/p.yaml"), ("net/deep", "p.yaml"), ("net/deep", "./p.yaml"),
                          ("other", "../net/deep/p.yaml"), (".", str(self.folder / "net/deep/p.yaml"))):
            with self.subTest(cwd=cwd, path=path):
                report = self.expect(self.prove("HEAD", path, cwd=self.folder / cwd), 1).json()
                self.assertEqual(len(report["gains"]), 1)
                self.assertEqual(report["gains"][0]["region"]["text"], "POST api.github.com/repos/**")

    def test_folders_with_new_renamed_and_deleted_files(self):
        self.policy("net/kept.yaml", GET)
        self.policy("net/old-name.yaml", "allow: GET renamed.test")
        self.policy("net/sub/gone.yaml", "allow: GET gone.test")
        self.write("net/kept.test.yaml", "version: 1\n")
        self.commit()
        (self.folder / "net/old-name.yaml").rename(self.folder / "net/new-name.yaml")
        (self.folder / "net/sub/gone.yaml").unlink()
        for cwd, path, prefix in ((".", "net", "net/"), ("net", ".", "")):
            report = self.expect(self.prove("HEAD", path, cwd=self.folder / cwd), 1).json()
            self.assertEqual({policy["file"]: policy["verdict"] for policy in report["policies"]},
                             {f"{prefix}kept.yaml": "equal", f"{prefix}new-name.yaml": "widened",
                              f"{prefix}old-name.yaml": "narrowed", f"{prefix}sub/gone.yaml": "narrowed"})
        self.expect(self.prove("HEAD", "net/sub/gone.yaml"), 0)
        shutil.rmtree(self.folder / "net")
        self.assertEqual(len(self.expect(self.prove("HEAD", "net"), 0).json()["policies"]), 3)
        self.assertIn("nowhere", self.expect(self.prove("HEAD", "nowhere"), 2).err)

    def test_what_cannot_be_read_is_not_taken_for_deleted(self):
        self.policy("net/p.yaml", POST)
        self.commit()
        (self.folder / "net/p.yaml").unlink()
        for to, said in (("nowhere", "No such file or directory"), ("p.yaml", "Too many levels of symbolic links")):
            (self.folder / "net/p.yaml").symlink_to(to)
            for named in ("net", "net/p.yaml"):
                outcome = self.expect(self.prove("HEAD", named), 2)
                self.assertIn(f"cannot open net/p.yaml: {said}", outcome.err)
            (self.folder / "net/p.yaml").unlink()
        self.assertEqual(self.expect(self.prove("HEAD", "net/p.yaml"), 0).json()["verdict"], "narrowed")

    def test_hidden_files_and_unit_tests_are_passed_over_in_the_base_too(self):
        self.policy("p.yaml", GET)
        for name in (".github/workflows/x.yml", "net/.x.yaml", "net/p.test.yaml"):
            self.write(name, "on: push\n")
        self.commit()
        for path in (".", str(self.folder)):
            report = self.expect(self.prove("HEAD", path), 0).json()
            self.assertEqual(len(report["policies"]), 1)

    def test_a_new_file_counts_against_nothing(self):
        self.commit()
        self.policy("p.yaml", GET)
        self.assertEqual(self.expect(self.prove("HEAD", "p.yaml"), 1).json()["verdict"], "widened")

    def test_includes_are_those_of_the_old_revision(self):
        self.policy("net/common.yaml", GET)
        self.write("top.yaml", "version: 1\ninclude: [net/common.yaml]\n")
        self.commit()
        self.policy("net/common.yaml", POST)
        report = self.expect(self.prove("HEAD", "top.yaml"), 1).json()
        self.assertEqual(report["gains"][0]["file"], "net/common.yaml")
        # An include that only the new version has, and one that only the old one had.
        self.policy("net/more.yaml", "allow: GET more.test")
        self.write("top.yaml", "version: 1\ninclude: [net/more.yaml]\n")
        (self.folder / "net/common.yaml").unlink()
        report = self.expect(self.prove("HEAD", "top.yaml"), 1).json()
        self.assertEqual((len(report["gains"]), len(report["losses"])), (1, 1))

    def test_an_old_policy_that_does_not_load_names_its_revision_and_line(self):
        self.write("p.yaml", "version: 1\nrules:\n  - allow: gti a\n")
        self.commit()
        self.policy("p.yaml", GET)
        self.assertIn("HEAD:p.yaml:3:12: error: unknown verb `gti`", self.expect(self.prove("HEAD", "p.yaml"), 2).err)

    def test_odd_file_names(self):
        for name in ("-p.yaml", "a b.yaml", ":(glob)*.yaml", "ü.yaml", "a'\"$x.yaml"):
            self.policy(name, GET)
        self.commit()
        for name in ("a b.yaml", ":(glob)*.yaml", "ü.yaml", "a'\"$x.yaml", "./-p.yaml"):
            self.policy(name, POST)
            with self.subTest(name):
                self.assertEqual(len(self.expect(self.prove("HEAD", name), 1).json()["gains"]), 1)


if __name__ == "__main__":
    cli.main()
