#!/usr/bin/python3
"""`sluice agent` under containerd, by `ctr`: the profile's listener comes to runc as it is in the file."""
import json
import pathlib
import subprocess

import containers
import harness

SHIMS = pathlib.Path("/run/containerd")  # where shims have their sockets, whatever the configuration says
CONFIG = """version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing"]
[grpc]
address = "{socket}"
"""


class Containerd(containers.ContainerTest):
    runtime = "containerd"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not SHIMS.exists():
            SHIMS.mkdir()
            cls.addClassCleanup(SHIMS.rmdir)
        # In the lab's own mount namespace.
        done = harness.THE_LAB.run(["mount", "-t", "tmpfs", "shims", SHIMS])
        assert done.returncode == 0, done.stderr
        cls.addClassCleanup(harness.THE_LAB.run, ["umount", "-l", SHIMS])

    def setUp(self):
        super().setUp()
        self.socket, self.log = self.folder / "containerd.sock", self.folder / "containerd.log"
        config = self.folder / "containerd.toml"
        config.write_text(CONFIG.format(folder=self.folder, socket=self.socket))
        with open(self.log, "w") as log:
            self.daemon = self.lab.popen(["containerd", "--config", config], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.assertEventually(lambda: self.ctr("version").returncode == 0 or self.daemon.poll() is not None, "containerd", 60)
        self.assertIsNone(self.daemon.poll(), self.log.read_text())

    def tearDown(self):
        self.daemon.terminate()
        self.daemon.wait(30 * harness.SLOW)

    def ctr(self, *arguments, **more):
        return self.lab.run(["ctr", "--address", self.socket, *arguments], **more)

    def contain(self, name, *command, annotations=()):
        """A container until it ends, with containerd's own rights and namespaces: a network namespace with `lo` alone."""
        root, mounts = self.host_root()
        profile = self.folder / "seccomp.json"
        profile.write_text(json.dumps(self.profile_json))
        flags = ["--rm", "--rootfs", "--cwd", "/", "--cpu-shares", "0", "--seccomp", "--seccomp-profile", profile]
        for annotation in annotations:
            flags += ["--annotation", annotation]
        for variable in containers.TRUST:
            flags += ["--env", variable]
        for mount in mounts:
            flags += ["--mount", f"type=bind,src={mount['source']},dst={mount['destination']},options={':'.join(mount['options'])}"]
        done = self.ctr("run", *flags, root, name, *command, timeout=120 * harness.SLOW)
        return harness.Result(done.returncode, done.stdout, done.stderr, self.audit)

    def test_a_container_is_supervised(self):
        with self.agent(["allow GET a.test/pub/**"]) as agent:
            script = ("curl -sS https://a.test/pub/hello; echo get $?; curl -sS -o /dev/null -w '%{http_code}\\n' https://a.test/no; "
                      "curl -sS -m 5 https://151.101.1.20/; echo address $?")
            result = self.contain("box", "/bin/sh", "-c", script, annotations=["dev.sluice.name=builder"])
            self.assertExit(result, 0)
            self.assertIn("hello from the lab", result.out, str(result) + agent.errors())
            self.assertIn("get 0\n403\n", result.out)
            self.assertIn("address 7", result.out)
            self.assertEventually(lambda: len(result.denials()) >= 2, "the records")
            denied = result.denials()
            self.assertEqual([(record["sandbox"], record["target"].get("path") or record["target"].get("address")) for record in denied],
                             [("builder", "/no"), ("builder", "151.101.1.20")])
            self.assertEqual({record["labels"]["container.id"] for record in denied}, {"box"})

    def test_without_an_agent_nothing_starts(self):
        with self.agent(["allow GET a.test/pub/**"]) as agent:
            self.assertEqual(agent.stop(), 0)
            result = self.contain("early", "/bin/true")
            self.assertNotEqual(result.code, 0)
            self.assertIn("seccomp", result.err)
            agent.start()
            self.assertExit(self.contain("later", "/bin/true"), 0)


if __name__ == "__main__":
    harness.main()
