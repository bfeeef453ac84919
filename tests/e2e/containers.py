"""Containers of a real runtime (runc, crun) under `sluice agent`, in the lab's host namespace."""
import contextlib
import functools
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import harness
import lab as lab_module

NUMBERS = itertools.count(1)
# What Docker gives a container, without the rights over the network's own rules.
CAPABILITIES = [f"CAP_{name}" for name in ("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "SETGID", "SETUID", "SETPCAP", "NET_RAW",
                                           "NET_BIND_SERVICE", "KILL", "SYS_CHROOT")]
NAMESPACES = ("pid", "network", "ipc", "uts", "mount")
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
TRUST = [f"{name}={BUNDLE}" for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE")]

DIAL = """
import errno, socket, sys
for spelling in sys.argv[1:]:
    host, port = spelling.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 10)
        said = "connected"
    except socket.gaierror:
        said = "unknown-name"
    except OSError as e:
        said = errno.errorcode.get(e.errno, str(e))
    print(spelling, said)
"""
WAIT = (harness.PYTHON, "-c", "import time; print('up', flush=True); time.sleep(60)")


def bind(source, destination, *options):
    return {"destination": destination, "type": "bind", "source": str(source), "options": ["rbind", "ro", *options]}


class Agent:
    """A running `sluice agent`, and how its runtimes are told of it."""

    def __init__(self, test, *flags):
        self.test, self.folder = test, test.folder
        self.socket, self.bundle = self.folder / "agent.sock", self.folder / "bundle.pem"
        self.state, self.log = self.folder / "state", self.folder / "agent.log"
        self.flags, self.process = flags, None

    def start(self):
        offset = len(self.errors())
        command = [*self.test.wrapper(), lab_module.binary_for_anyone(self.test.lab.folder), "agent", "--listen", self.socket, "--state-dir", self.state, "--audit",
                   self.test.audit, "--upstream-ca", self.test.lab.ca, "--ca-out", self.folder / "ca.pem", "--bundle-out", self.bundle, *self.flags]
        with open(self.log, "a") as log:
            self.process = self.test.lab.popen(command, cwd=self.test.work, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.test.assertEventually(lambda: "ready  agent" in self.errors()[offset:] or self.process.poll() is not None, "the agent to be ready", 20)
        self.test.assertIsNone(self.process.poll(), self.errors())
        return self

    def errors(self):
        return self.log.read_text() if self.log.exists() else ""

    def profile(self, *flags):
        done = self.test.lab.run([lab_module.binary_for_anyone(self.test.lab.folder), "oci-seccomp", "--agent", self.socket, *flags])
        self.test.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def supervisors(self):
        """The processes that supervise a container each."""
        return [int(pid) for pid in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()]

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(20 * harness.SLOW)


class ContainerTest(harness.SluiceTest):
    runtime = None  # "runc" or "crun"
    rootless = False

    @classmethod
    def setUpClass(cls):
        # Some hosts mount both hierarchies, on which crun does not start. In the lab's own mount namespace; an ordinary user mounts
        # what it sees of a cgroup namespace of its own.
        mount = "umount -R -l /sys/fs/cgroup 2>/dev/null || true; mount -t cgroup2 cgroup2 /sys/fs/cgroup"
        done = harness.THE_LAB.run([*(["unshare", "--cgroup"] if cls.rootless else []), "sh", "-ec", mount])
        assert done.returncode == 0, done.stderr

    def setUp(self):
        super().setUp()
        self.profile_json = None
        self.running_ids = []

    def tearDown(self):
        lab_module.reap()  # those that entered a container which has ended: its first process waits for them, and runc for that
        for name in self.running_ids:
            self.lab.run([*self.tool(), "delete", "-f", name])

    def wrapper(self):
        """What starts the agent."""
        return []

    def tool(self):
        no_cgroup = ["--cgroup-manager", "disabled"] if self.rootless and self.runtime == "crun" else []
        return [self.runtime, *no_cgroup, "--root", self.folder / "runtime"]

    @contextlib.contextmanager
    def agent(self, rules, *flags):
        if rules is not None:
            self.policy.write_text(rules if isinstance(rules, str) else harness.policy_text(rules))
            flags = ("--policy", self.policy, *flags)
        agent = Agent(self, *flags).start()
        self.profile_json = agent.profile()
        self.bundle_file = agent.bundle
        try:
            yield agent
        finally:
            if agent.process.poll() is None:
                agent.process.kill()
            agent.process.wait()

    def assertSaid(self, agent, words):
        self.assertEventually(lambda: words in agent.errors(), f"the agent to say: {words}")

    def refused(self, result, count):
        """The records of what was denied so far, once there are so many."""
        def denied():
            return [r for r in result.audit if r.get("verdict") == "deny"]

        self.assertEventually(lambda: len(denied()) >= count, f"{count} records of denials")
        return denied()

    # -- root file systems, as they are: the host's programs, read-only, or busybox alone

    def host_root(self):
        root = self.folder / "root-host"
        if not root.exists():
            for name in ("usr", "etc/ssl", "proc", "dev", "tmp", "work", "sys", "run"):
                (root / name).mkdir(parents=True)
            for name in ("bin", "sbin", "lib", "lib64"):
                (root / name).symlink_to(f"usr/{name}")
            (root / "etc/passwd").write_text("root:x:0:0:root:/work:/bin/sh\n")
            (root / "etc/group").write_text("root:x:0:\n")
            (root / "etc/resolv.conf").write_text("nameserver 192.0.2.53\n")
        return root, [bind("/usr", "/usr"), bind("/etc/ssl", "/etc/ssl"), bind(self.bundle_file, BUNDLE)]

    def busybox_root(self):
        root = self.folder / "root-busybox"
        if not root.exists():
            for name in ("bin", "proc", "dev", "tmp", "etc"):
                (root / name).mkdir(parents=True)
            shutil.copy("/bin/busybox", root / "bin/busybox")
            (root / "bin/sh").symlink_to("busybox")
            (root / "etc/resolv.conf").write_text("nameserver 192.0.2.53\n")
        return root, []

    def bundle(self, command, root=None, annotations=None, change=None):
        """A bundle's folder; `change` may edit its configuration."""
        rootfs, mounts = root() if root else self.host_root()
        capabilities = {kind: CAPABILITIES for kind in ("bounding", "effective", "permitted")}
        config = {
            "ociVersion": "1.0.2", "hostname": "box", "root": {"path": str(rootfs), "readonly": False},
            "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "cwd": "/", "args": [str(a) for a in command], "noNewPrivileges": True,
                        "env": ["PATH=/usr/bin:/bin", "HOME=/work", "LANG=C.UTF-8", *TRUST], "capabilities": capabilities},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                       {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                       {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}, *mounts],
            "annotations": annotations or {},
            "linux": {"namespaces": [{"type": kind} for kind in NAMESPACES], "seccomp": json.loads(json.dumps(self.profile_json))},
        }
        number = next(NUMBERS)
        if not self.rootless:
            config["linux"]["cgroupsPath"] = f"/sluice-test-{os.getpid()}-{self.runtime}-{number}"
        if change:
            change(config)
        folder = self.folder / f"bundle-{number}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    # -- running

    def name(self):
        name = f"c{next(NUMBERS)}"
        self.running_ids.append(name)
        return name

    def contain(self, *command, timeout=60, **more):
        """A container until it ends."""
        done = self.lab.run([*self.tool(), "run", "-b", self.bundle(command, **more), self.name()], timeout=timeout * harness.SLOW)
        return harness.Result(done.returncode, done.stdout, done.stderr, self.audit)

    def shell(self, script, **more):
        return self.contain("/bin/sh", "-c", script, **more)

    @contextlib.contextmanager
    def contained(self, *command, **more):
        """A container in the background: its id and its Popen."""
        name = self.name()
        process = self.lab.popen([*self.tool(), "run", "-b", self.bundle(command, **more), name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, bufsize=1)
        try:
            yield name, process
        finally:
            self.lab.run([*self.tool(), "kill", name, "KILL"])
            if process.poll() is None:
                process.kill()
            process.communicate()

    def enter(self, name, *command):
        done = self.lab.run([*self.tool(), "exec", name, *command])
        return harness.Result(done.returncode, done.stdout, done.stderr, self.audit)

    def first_process(self, name):
        done = self.lab.run([*self.tool(), "state", name])
        return json.loads(done.stdout)["pid"] if done.returncode == 0 else 0


def as_ordinary_user():
    """This test again, from a copy that the user may read."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-containers-", dir="/var/tmp"))
    try:
        shutil.copytree(pathlib.Path(__file__).parent, folder / "e2e")
        shutil.copy(lab_module.sluice_binary(), folder / "sluice")
        subprocess.run(["chown", "-R", f"{lab_module.UNPRIVILEGED}:{lab_module.UNPRIVILEGED}", folder], check=True)
        user = ["setpriv", "--reuid", str(lab_module.UNPRIVILEGED), "--regid", str(lab_module.UNPRIVILEGED), "--clear-groups"]
        environment = {**os.environ, "SLUICE_BINARY": str(folder / "sluice"), "HOME": str(folder)}
        return subprocess.run([*user, harness.PYTHON, folder / "e2e" / pathlib.Path(sys.argv[0]).name, *sys.argv[1:]], env=environment).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class UnderItsUnit(ContainerTest):
    """The agent as the unit in packaging/systemd holds it: it lacks nothing there."""

    UNIT = lab_module.ROOT / "packaging/systemd/sluice-agent.service"

    def wrapper(self):
        return [harness.PYTHON, lab_module.ROOT / "tests/e2e/under_unit.py", self.UNIT, self.folder, "--"]


def root_alone(why):
    """Of a test: what it needs an ordinary user does not have."""
    def of(test):
        @functools.wraps(test)
        def run(self):
            if self.rootless:
                self.skipTest(why)
            test(self)
        return run
    return of


def main():
    """The first argument is the runtime: runc or crun, or rootless_runc and rootless_crun as an ordinary user."""
    # Kept in the environment, since an ordinary user's lab starts the file once more.
    mode = os.environ.setdefault("CONTAINER_RUNTIME", sys.argv[1])
    ContainerTest.rootless = mode.startswith("rootless_")
    ContainerTest.runtime = mode.removeprefix("rootless_")
    if ContainerTest.rootless and os.geteuid() == 0 and "SLUICE_CONTAINERS_HOME" not in os.environ:
        os.environ["SLUICE_CONTAINERS_HOME"] = "1"
        sys.exit(as_ordinary_user())
    sys.argv[:] = [word for word in sys.argv if word != mode]
    harness.main()
