"""What cannot be printed is an error with a reason, whatever the command; a reader that goes away is none."""
import os
import resource
import subprocess

import cli


class Unwritable(cli.Case):
    def setUp(self):
        super().setUp()
        self.policy("p.yaml", "allow: GET a.test/v1/**")
        self.write("p.test.yaml", "version: 1\npolicy: p.yaml\ntests:\n  - allow: GET https://a.test/v1/x\n")
        self.write("foreign.txt", "a.test\n")
        self.write("long.yaml", "version: 1\nrules:\n" + "".join(f"  - allow: GET h{i}.test/some/rather/long/path/**\n" for i in range(900)))

    # Each prints something and exits 0.
    COMMANDS = (["lint", "p.yaml"], ["lint", "--format", "sarif", "p.yaml"], ["prove", "p.yaml", "p.yaml"],
                ["explain", "p.yaml", "GET https://a.test/v1/x"], ["preset", "list"], ["preset", "show", "npm"],
                ["import", "--from", "gh-aw-firewall", "foreign.txt"], ["completion", "bash"], ["oci-seccomp"], ["test", "p.test.yaml"],
                ["fmt", "--stdout", "p.yaml"], ["fmt", "--stdout", "long.yaml"], ["sidecar", "--policy", "p.yaml", "--dry-run"], ["--help"],
                ["run", "--help"], ["--version"])

    def run_into(self, command, output, **more):
        return subprocess.run([cli.SLUICE, *command], cwd=self.folder, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60, **more)

    def test_a_full_disk(self):
        for command in self.COMMANDS:
            with self.subTest(command), open("/dev/full", "w") as full:
                self.expect(self.sluice(*command), 0)
                done = self.run_into(command, full)
                self.assertEqual((done.returncode, done.stderr), (2, "sluice: error: cannot write to standard output: No space left on device\n"))

    def test_a_file_that_may_not_grow(self):
        for command in self.COMMANDS:
            with self.subTest(command), open(self.folder / "out", "w") as out:
                done = self.run_into(command, out, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
                self.assertEqual((done.returncode, done.stderr), (2, "sluice: error: cannot write to standard output: File too large\n"))

    def test_exit_codes_do_not_hang_on_who_reads_the_errors(self):
        self.write("spaced.yaml", "version:   1\n")
        self.write("thin.test.yaml", "version: 1\npolicy: p.yaml\ntests:\n  - deny: GET https://b.test/\n")
        for code, *command in ((2, "lint", "none"), (2, "lint", "none/"), (2, "prove", "none", "none"), (2, "explain", "none", "GET https://a.test"),
                               (2, "explain", "p.yaml", "dns"), (2, "fmt", "none"), (1, "fmt", "--check", "spaced.yaml"), (2, "import", "none"),
                               (2, "test", "none"), (1, "test", "--min-coverage", "100", "thin.test.yaml"), (2, "preset", "show", "none"), (2, "lint", "--none"),
                               (2, "run", "-p", "none", "--", "true")):
            with self.subTest(command), open("/dev/full", "w") as full:
                self.expect(self.sluice(*command), code)
                done = subprocess.run([cli.SLUICE, *command], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=full, timeout=60)
                self.assertEqual(done.returncode, code)

    def test_a_closed_one(self):
        for command in self.COMMANDS:
            with self.subTest(command):
                done = subprocess.run(["sh", "-c", '"$0" "$@" >&-', cli.SLUICE, *command], cwd=self.folder, stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (2, "sluice: error: cannot write to standard output: Bad file descriptor\n"))

    def test_doctor(self):
        with open("/dev/full", "w") as full:
            done = self.run_into(["doctor", "--no-live", "--format", "json"], full)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot write to standard output: No space left on device", done.stderr)

    def test_what_prints_nothing_needs_no_output(self):
        self.expect(self.sluice("fmt", "p.yaml"), 0)
        with open("/dev/full", "w") as full:
            self.assertEqual(self.run_into(["fmt", "p.yaml"], full).returncode, 0)
        done = subprocess.run(["sh", "-c", '"$0" fmt p.yaml >&-', cli.SLUICE], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_reader_that_is_gone(self):
        reads, writes = os.pipe()
        os.close(reads)
        self.addCleanup(os.close, writes)
        # Python's children take SIGPIPE, unless they keep what Python itself does.
        self.assertEqual(self.run_into(["preset", "list"], writes).returncode, -13)
        done = self.run_into(["preset", "list"], writes, restore_signals=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    cli.main()
