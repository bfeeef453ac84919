#!/usr/bin/python3
"""What a runtime leaves open in a container: nothing by which bytes get past its network namespace.

Usage: container_carried_test.py runc|crun|rootless_runc|rootless_crun
"""
import contextlib
import ctypes
import os
import pathlib
import pty
import re
import select
import socket
import stat
import subprocess

import containers
import harness

# Puts the descriptors named first in the places from 3 on, as a service manager would, and becomes the command.
PLACE = """
import os, sys
count = int(sys.argv[1])
for place, number in enumerate(map(int, sys.argv[2:2 + count]), 3):
    os.dup2(number, place)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execvp(sys.argv[2 + count], sys.argv[2 + count:])
"""
# Where it can, it says so by the descriptor named.
SAY = ("/bin/sh", "-c", "echo it ran >&$0")
IO_URING_SETUP = 425


class Carried(containers.ContainerTest):
    @contextlib.contextmanager
    def sockets(self, family=socket.AF_INET, kind=socket.SOCK_DGRAM):
        """One from here, connected, and the one that would hear of it."""
        near, far = socket.socket(family, kind), socket.socket(family, kind)
        with near, far:
            far.bind(("127.0.0.1", 0) if family == socket.AF_INET else str(self.folder / "far.sock"))
            near.connect(far.getsockname())
            yield near, far

    def place(self, files, command):
        return [harness.PYTHON, "-c", PLACE, str(len(files)), *(str(f.fileno()) for f in files), *command]

    def start(self, *command, files=(), flags=(), env=None, stdin=subprocess.DEVNULL, entering=None):
        """A container in the background of nobody, so that it has the runtime's own standard streams; or another process in one."""
        out = self.folder / "out"
        with open(out, "w") as output:
            if entering:
                run = [*self.tool(), "exec", "-d", *flags, entering, *command]
            else:
                run = [*self.tool(), "run", "-d", *flags, "-b", self.bundle(command), self.name()]
            done = self.lab.run(self.place(files, run), capture_output=False, env=env, pass_fds=[f.fileno() for f in files],
                                stdin=stdin, stdout=output, stderr=subprocess.STDOUT)
        return done.returncode, out

    def assertRefused(self, agent, what, word, **how):
        before = len(agent.errors())
        _, out = self.start(*SAY, how.pop("said_by", "3"), **how)
        self.assertEventually(lambda: word in agent.errors()[before:], f"{what} to be refused: {word}")
        self.assertIn("leads past the container's network namespace", agent.errors()[before:], what)
        self.assertNotIn("it ran", out.read_text(), what)

    def test_a_socket_from_outside_is_left_open_in_no_container(self):
        with self.agent(["allow GET a.test"]) as agent:
            with self.sockets() as (near, far):
                self.assertRefused(agent, "a standard stream", "descriptor 0 is a network socket from outside", stdin=near, said_by="0")
                self.assertRefused(agent, "--preserve-fds", "descriptor 3 is a network socket from outside", files=[near], flags=["--preserve-fds", "1"])
                self.assertEqual(select.select([far], [], [], 0)[0], [])
            with socket.create_server(("127.0.0.1", 0)) as server:
                self.assertRefused(agent, "LISTEN_FDS", "descriptor 3 is a network socket from outside", files=[server], env={"LISTEN_FDS": "1"})
            with self.sockets(socket.AF_UNIX) as (near, far):
                self.assertRefused(agent, "a datagram socket", "descriptor 0 is a UNIX socket from outside", stdin=near, said_by="0")
                self.assertEqual(select.select([far], [], [], 0)[0], [])
            with contextlib.ExitStack() as ends:
                near, _ = map(ends.enter_context, socket.socketpair())
                self.assertRefused(agent, "no standard stream", "descriptor 3 is a UNIX socket from outside", files=[near], flags=["--preserve-fds", "1"])

    def test_nor_a_ring_or_a_tunnel(self):
        parameters = ctypes.create_string_buffer(256)
        number = ctypes.CDLL(None).syscall(IO_URING_SETUP, 8, parameters)
        files = {"an io_uring": os.fdopen(number, "rb", 0)} if number >= 0 else {}
        with contextlib.suppress(OSError):
            files["a tunnel device"] = open("/dev/net/tun", "r+b", 0)
        if not files:
            self.skipTest("this machine has neither")
        with self.agent(["allow GET a.test"]) as agent, contextlib.ExitStack() as opened:
            for what, file in files.items():
                opened.enter_context(file)
                self.assertRefused(agent, what, f"descriptor 3 is {what}", files=[file], flags=["--preserve-fds", "1"])

    def test_nor_a_device_that_is_no_terminal(self):
        with self.agent(["allow GET a.test"]) as agent, contextlib.ExitStack() as opened:
            # One that leads nowhere stands for those that this machine has not, vfio and RDMA among them.
            for path, word in (("/dev/kmsg", "a device that is no terminal (1:11)"), ("/dev/kvm", "a device that is no terminal (10:232)"),
                               ("/dev/vhost-net", "a vhost-net device"), ("/dev/vhost-vsock", "a vhost-vsock device")):
                with contextlib.suppress(OSError):
                    file = opened.enter_context(open(path, "rb", 0))
                    self.assertRefused(agent, path, f"descriptor 3 is {word}", files=[file], flags=["--preserve-fds", "1"])
            at = os.open("/dev/kmsg", os.O_PATH)
            opened.callback(os.close, at)
            self.assertRefused(agent, "a path", "descriptor 3 is a device that is no terminal (1:11)", files=[os.fdopen(os.dup(at), "rb", 0)], flags=["--preserve-fds", "1"])
            near, far = pty.openpty()
            opened.callback(os.close, near), opened.callback(os.close, far)
            with open("/dev/null") as nothing, os.fdopen(os.dup(far), "w") as terminal:
                self.start(*SAY, "3", files=[terminal, nothing], flags=["--preserve-fds", "2"])
                self.assertEqual(os.read(near, 100).strip(), b"it ran", agent.errors())

    @containers.root_alone("an ordinary user makes no device nodes")
    def test_nor_a_tap_of_an_interface(self):
        if not (major := re.search(r"(\d+) macvtap", pathlib.Path("/proc/devices").read_text())):
            self.skipTest("this machine has no macvtap")
        # In the lab's network; the kernel numbers them as they come.
        script = ("ip link add tap-a type veth peer name tap-b; ip link add link tap-a name tap-c type macvtap; ip link set tap-a up; ip link set tap-c up; "
                  "unshare --mount sh -c 'mount -t sysfs none /sys; cat /sys/class/net/tap-c/tap*/dev'")
        made = self.lab.run(["sh", "-ec", script])
        self.addCleanup(self.lab.run, ["ip", "link", "del", "tap-a"])
        self.assertEqual(made.returncode, 0, made.stderr)
        number = made.stdout.strip()
        self.assertEqual(number.split(":")[0], major.group(1))
        node = self.folder / "tap"
        os.mknod(node, 0o600 | stat.S_IFCHR, os.makedev(*map(int, number.split(":"))))
        with self.agent(["allow GET a.test"]) as agent:
            before = len(agent.errors())
            run = [*self.tool(), "run", "-d", "--preserve-fds", "1", "-b", self.bundle([*SAY, "3"]), self.name()]
            self.lab.run(["sh", "-c", 'exec 3<>"$0"; exec "$@"', node, *run])
            self.assertEventually(lambda: f"descriptor 3 is a device that is no terminal ({number})" in agent.errors()[before:], "the tap to be refused")

    def test_pipes_files_and_connected_streams_of_the_runtime_stay(self):
        with self.agent(["allow GET a.test"]) as agent:
            reader, writer = os.pipe()
            with os.fdopen(reader) as reader, os.fdopen(writer, "w") as writer:
                self.start(*SAY, "3", files=[writer], flags=["--preserve-fds", "1"])
                writer.close()
                self.assertEqual(reader.readline(), "it ran\n", agent.errors())
            ours, theirs = socket.socketpair()
            with ours, theirs:
                theirs_only = self.start("/bin/sh", "-c", "read line; echo got $line >&0", stdin=theirs)
                self.assertEqual(theirs_only[0], 0, agent.errors())
                ours.sendall(b"it\n")
                ours.settimeout(10 * harness.SLOW)
                self.assertEqual(ours.recv(100), b"got it\n", agent.errors())

    def test_a_process_that_enters_is_looked_at_too(self):
        with self.agent(["allow GET a.test"]) as agent, self.contained("/bin/sh", "-c", "echo up; exec sleep 60") as (name, process):
            self.assertEqual(process.stdout.readline(), "up\n", agent.errors())
            with self.sockets() as (near, far):
                self.assertRefused(agent, "a standard stream", "descriptor 0 is a network socket from outside", stdin=near, said_by="0", entering=name)
                self.assertRefused(agent, "--preserve-fds", "descriptor 3 is a network socket from outside", files=[near],
                                   flags=["--preserve-fds", "1"], entering=name)
                self.assertEqual(select.select([far], [], [], 0)[0], [])
            self.assertSaid(agent, f"container {name}: a process does not enter")
            self.assertExit(self.enter(name, "/bin/true"), 0)
            self.assertIsNone(process.poll())


containers.main()
