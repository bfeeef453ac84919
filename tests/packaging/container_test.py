#!/usr/bin/python3
"""The image's root, as packaging/container/root lays it out: the program runs in it with nothing else around, and has NET_ADMIN alone.
And the image: buildah makes it of the Containerfile, twice the same, with what is laid out here in the place of the build stage.

Usage: container_test.py SOURCE_FOLDER SLUICE_BINARY
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest

import yaml

ROOT, BINARY = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


class Image(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="sluice-image-")
        self.root = pathlib.Path(self.folder.name) / "root"

    def tearDown(self):
        self.folder.cleanup()

    def lay_out(self, *flags):
        subprocess.run([ROOT / "packaging/container/root", BINARY, self.root, *flags], check=True, capture_output=True)

    def test_the_program_runs_with_nothing_else_around(self):
        if os.geteuid() != 0:
            self.skipTest("only root can change its root")
        self.lay_out("--no-capability")
        (self.root / "etc/sluice/policy.yaml").write_text((ROOT / "packaging/kubernetes/example/policy.yaml").read_text())
        done = subprocess.run(["chroot", "--userspec=65532:65532", self.root, "/usr/bin/sluice", "explain", "/etc/sluice/policy.yaml",
                               "GET https://api.github.com/repos/a/b"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("allowed", done.stdout)

    def test_it_holds_no_shell_and_little_else(self):
        self.lay_out("--no-capability")
        names = {p.name for p in self.root.rglob("*") if p.is_file()}
        self.assertFalse(names & {"sh", "bash", "dash", "busybox"})
        self.assertTrue({"sluice", "passwd", "ca-certificates.crt"} <= names, names)
        self.assertLess(len(names), 40)

    def test_the_capability_is_net_admin_alone(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a file a capability")
        self.lay_out()
        held = subprocess.run(["getcap", self.root / "usr/bin/sluice"], capture_output=True, text=True, check=True).stdout
        self.assertTrue(held.strip().endswith("cap_net_admin=ep"), held)

    @contextlib.contextmanager
    def started(self, network, words):
        """As a runtime starts it in a network that is there: process 1, read-only but for its volumes. Says once it is ready, and is killed in the end."""
        script = f"""
            mount --bind {self.root} {self.root}; mount --bind {self.root}/run {self.root}/run; mount -o remount,bind,ro {self.root}
            mount -t proc proc {self.root}/proc; exec chroot --userspec=65532:65532 {self.root} /usr/bin/sluice "$@" """
        process = subprocess.Popen(["nsenter", f"--net=/proc/{network}/ns/net", "unshare", "--mount", "--pid", "--fork",
                                    "sh", "-ec", script, "sh", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            told = []
            for line in process.stderr:
                told.append(line)
                if "ready  policy" in line:
                    break
            self.assertTrue(told and "ready  policy" in told[-1], "".join(told))
            yield
        finally:
            # Its file capability takes from it the signal of its parent's death.
            for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            process.stderr.read()  # until the last of them has ended
            process.wait()
            process.stderr.close()

    def test_the_sidecar_of_compose_goes_on_with_what_it_kept(self):
        if os.geteuid() != 0:
            self.skipTest("only root can change its root")
        self.lay_out()
        (self.root / "proc").mkdir()
        (self.root / "etc/resolv.conf").write_text("nameserver 127.0.0.1\n")
        (self.root / "etc/sluice/policy.yaml").write_text((ROOT / "packaging/compose/policy.yaml").read_text())
        words = yaml.safe_load((ROOT / "packaging/compose/compose.yaml").read_text())["services"]["sluice"]["command"]
        holder = subprocess.Popen(["unshare", "--net", "sh", "-ec", "ip link set lo up; echo up; exec sleep 600"], stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(holder.stdout.readline(), "up\n")
            state = self.root / "run/sluice/state"
            kept = []
            for _ in range(2):
                with self.started(holder.pid, words):
                    self.assertEqual((state.stat().st_uid, state.stat().st_mode & 0o777), (65532, 0o700))
                    kept.append({path.name: path.stat().st_ino for path in state.iterdir()})
                    self.assertIn("BEGIN CERTIFICATE", (self.root / "run/sluice-ca/ca.pem").read_text())
            self.assertTrue(kept[0])
            self.assertEqual(kept[0].keys(), kept[1].keys())
        finally:
            holder.kill()
            holder.communicate()

    def image(self, name):
        """The image's configuration and the headers of its one layer."""
        work = pathlib.Path(self.folder.name)
        policy = work / "signatures.json"
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        done = subprocess.run(["buildah", "--root", work / "store", "--runroot", work / "run", "--storage-driver", "vfs", "bud", "--isolation", "chroot",
                               "--signature-policy", policy, "--build-context", f"build={work / 'stage'}", "--timestamp", "0",
                               "-f", ROOT / "packaging/container/Containerfile", "-t", f"oci:{work / name}:x", work / "stage"],
                              capture_output=True, text=True, env={**os.environ, "TMPDIR": str(work)})
        self.assertEqual(done.returncode, 0, done.stderr)
        blob = lambda digest: work / name / "blobs" / digest.replace(":", "/")
        index = json.loads((work / name / "index.json").read_text())
        manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
        self.assertEqual(len(manifest["layers"]), 1)
        with tarfile.open(blob(manifest["layers"][0]["digest"])) as layer:
            entries = {entry.name.strip("/"): entry for entry in layer}
        return index["manifests"][0]["digest"], json.loads(blob(manifest["config"]["digest"]).read_text()), entries

    def test_the_image_is_the_same_twice(self):
        if os.geteuid() != 0:
            self.skipTest("only root can build it without subordinate user numbers")
        stage = pathlib.Path(self.folder.name) / "stage"
        stage.mkdir()
        self.root = stage / "root-fs"
        self.lay_out()
        first, config, entries = self.image("first")
        self.assertEqual(first, self.image("second")[0])
        self.assertEqual(config["config"]["User"], "65532:65532")
        self.assertEqual(config["config"]["Entrypoint"], ["/usr/bin/sluice"])
        self.assertEqual(config["config"]["Cmd"], ["sidecar"])
        self.assertEqual(config["created"], "1970-01-01T00:00:00Z")
        program = entries["usr/bin/sluice"]
        self.assertIn("SCHILY.xattr.security.capability", program.pax_headers)
        self.assertEqual([name for name, entry in entries.items() if entry.mode & 0o6000], [])

    def test_the_containerfile_ends_as_an_ordinary_user_on_nothing(self):
        text = (ROOT / "packaging/container/Containerfile").read_text()
        final = text.rsplit("FROM ", 1)[1]
        self.assertTrue(final.startswith("scratch\n"), final)
        self.assertIn("USER 65532:65532", final)
        self.assertNotIn("RUN", final)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
