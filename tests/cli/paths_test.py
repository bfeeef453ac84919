"""A file, folder or socket that this user may not have is the user's mistake, as one that is not there is: exit code 2, and its name."""
import os

import cli


class Paths(cli.Case):
    def setUp(self):
        super().setUp()
        self.policy("p.yaml", "allow: GET a.test")
        self.write("secret", (self.folder / "p.yaml").read_text())
        (self.folder / "secret").chmod(0)
        for name, mode in (("fixed", 0o555), ("closed", 0)):
            (self.folder / name).mkdir()
            (self.folder / name).chmod(mode)
            self.addCleanup(os.chmod, self.folder / name, 0o755)

    def refused(self, path, *command):
        for word in (path, "none/of/this"):  # what is not there is told as what may not be had
            outcome = self.sluice(*(word if part is None else part for part in command))
            with self.subTest(command, word=word):
                self.expect(outcome, 2)
                self.assertIn("No such file or directory" if word != path else "Permission denied", outcome.err)
                self.assertIn(word, outcome.err)

    def test_files_to_read(self):
        for command in (["run", "-p", None, "--", "true"], ["proxy", "-p", None, "--listen", "127.0.0.1:0"], ["sidecar", "--dry-run", "-p", None],
                        ["agent", "-p", None, "--listen", str(self.folder / "s"), "--state-dir", str(self.folder / "state")],
                        ["oci-seccomp", "--base", None], ["lint", None], ["prove", None, "p.yaml"],
                        ["explain", None, "GET https://a.test"], ["test", None], ["import", None], ["prove", "--accept", None, "p.yaml", "p.yaml"]):
            self.refused("secret", *command)

    def test_files_to_write(self):
        for command in (["run", "-p", "p.yaml", "--audit", None, "--", "true"], ["proxy", "-p", "p.yaml", "--listen", "127.0.0.1:0", "--audit", None],
                        ["proxy", "-p", "p.yaml", "--listen", "127.0.0.1:0", "--ca-out", None],
                        ["proxy", "-p", "p.yaml", "--listen", "127.0.0.1:0", "--bundle-out", None]):
            self.refused("fixed/file", *command)

    def test_sockets_and_folders(self):
        agent = ["agent", "-p", "p.yaml", "--state-dir", str(self.folder / "state"), "--listen"]
        for outcome in (self.sluice(*agent, str(self.folder / "fixed/s")), self.sluice(*agent, str(self.folder / "closed/s")),
                        self.sluice("proxy", "-p", "p.yaml", "--listen", f"unix:{self.folder}/fixed/s"),
                        self.sluice("run", "-p", "p.yaml", "--control", "/root/none/of/this", "--", "true"),
                        self.sluice("agent", "-p", "p.yaml", "--listen", str(self.folder / "s"), "--state-dir", str(self.folder / "fixed/state")),
                        self.sluice("agent", "--state-dir", str(self.folder / "state"), "--listen", str(self.folder / "s"),
                                    "--policy-dir", str(self.folder / "closed"))):
            self.expect(outcome, 2)
            self.assertIn("Permission denied", outcome.err)
            self.assertNotIn("unexpected", outcome.err)
        for flag in ("--cwd", "--workspace"):
            self.refused("closed", "run", "-p", "p.yaml", flag, None, "--", "true")

    def test_links_among_policies_to_choose_from(self):
        (self.folder / "policies").mkdir()
        agent = ["agent", "--state-dir", str(self.folder / "state"), "--listen", str(self.folder / "s"), "--policy-dir", "policies"]
        for to, said in (("nowhere", "No such file or directory"), ("p.yaml", "Too many levels of symbolic links"), ("../closed/x", "Permission denied")):
            (self.folder / "policies/p.yaml").symlink_to(to)
            self.assertRegex(self.expect(self.sluice(*agent), 2).err, rf"cannot open /.*/policies/p.yaml: {said}")
            (self.folder / "policies/p.yaml").unlink()

    def test_certificates(self):
        tls = ["--listen-tls-cert", None, "--listen-tls-key", "p.yaml"]
        self.refused("secret", "proxy", "-p", "p.yaml", "--listen", "127.0.0.1:0", *tls)
        self.refused("secret", "run", "-p", "p.yaml", "--upstream-ca", None, "--", "true")

    def test_a_folder_where_a_file_is_to_be_written(self):
        for flag in ("--ca-out", "--bundle-out", "--audit"):
            for folder in (".", "fixed"):
                outcome = self.expect(self.sluice("proxy", "-p", "p.yaml", "--listen", "127.0.0.1:0", flag, folder), 2)
                self.assertRegex(outcome.err, r"Is a directory|a folder; name a file in it")


if __name__ == "__main__":
    cli.main()
