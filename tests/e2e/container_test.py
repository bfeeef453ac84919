#!/usr/bin/python3
"""`sluice agent` under a real container runtime.

Usage: container_test.py runc|crun|rootless_runc|rootless_crun

rootless: the runtime, the agent and the lab as an ordinary user, in a user namespace of that user's.
"""
import json
import os
import pathlib
import re
import socket
import subprocess
import time

import containers
import harness
import lab as lab_module

# What the profile answers by itself, and what it leaves alone.
CALLS = """
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
def sock(*arguments):
    try:
        socket.socket(*arguments).close()
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]
def call(number, *arguments):
    ctypes.set_errno(0)
    return "ok" if libc.syscall(number, *arguments) >= 0 else errno.errorcode[ctypes.get_errno()]
print("tcp", sock(socket.AF_INET, socket.SOCK_STREAM, 0), "udp6", sock(socket.AF_INET6, socket.SOCK_DGRAM, 17))
print("mptcp", sock(socket.AF_INET, socket.SOCK_STREAM, 262), "raw", sock(socket.AF_INET, socket.SOCK_RAW, 1), "packet", sock(17, 3, 0))
print("vsock", sock(40, 1, 0), "bluetooth", sock(31, 3, 0), "route", sock(16, 3, 0), "netfilter", sock(16, 3, 12), "wide", call(41, (1 << 32) | 5, 1, 0))
print("io_uring", call(425, 8, 0), "setns", call(308, 0, 0), "unshare", call(272, 0x10000000), "keyctl", call(250, 0, 0), "clone3", call(435, 0, 0))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def option(level, name):
    try:
        u.setsockopt(level, name, b"\\0" * 16)
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]
t = socket.socket()
try:
    t.sendto(b"x", 0x20000000, ("151.101.1.10", 443))
    fast = "sent"
except OSError as e:
    fast = "EOPNOTSUPP" if e.errno == errno.EOPNOTSUPP else errno.errorcode[e.errno]
print("filter", option(1, 26), "rthdr", option(41, 57), "device", option(1, 25), "fastopen", fast)
try:
    u.sendto(b"x", ("151.101.1.50", 7007))
    sent = "sent"
except OSError as e:
    sent = errno.errorcode[e.errno]
u.connect(("127.0.0.1", 9))
print("datagram", sent)
"""
# A server and a client of the container's own.
OWN = """
import socket, threading
s = socket.create_server(("127.0.0.1", 8080))
def serve():
    c, _ = s.accept()
    c.sendall(c.recv(10).upper())
threading.Thread(target=serve, daemon=True).start()
c = socket.create_connection(("127.0.0.1", 8080), 5)
c.sendall(b"own")
print(c.recv(10).decode())
p = "/tmp/own.sock"
u = socket.socket(socket.AF_UNIX); u.bind(p); u.listen()
d = socket.socket(socket.AF_UNIX); d.connect(p)
print("unix")
"""
# A connection that nobody was asked about.
UNASKED = """
import socket, sys
for spelling in sys.argv[1:]:
    host, port = spelling.rsplit(":", 1)
    try:
        s = socket.create_connection((host, int(port)), 10)
        s.sendall(b"unasked\\n")
        print(spelling, "answered" if s.recv(100) else "closed")
    except OSError as e:
        print(spelling, type(e).__name__)
"""
BASE = pathlib.Path("/usr/share/containers/seccomp.json")  # Podman's


class Reach(containers.ContainerTest):
    def test_real_programs_reach_what_the_policy_allows_and_nothing_else(self):
        rules = ["allow GET a.test/repos/**", "allow git fetch-pack github.com/octo/*", "allow tcp db.test:5432"]
        with self.agent(rules) as agent:
            result = self.shell("""
                curl -sS https://a.test/repos/octo/hello; echo "get $?"
                curl -sS -i -d '{}' https://a.test/repos/octo/hello; echo "post $?"
                curl -sS -m 5 https://151.101.1.20/; echo "address $?"
                git clone -q https://github.com/octo/hello.git /tmp/hello && wc -l < /tmp/hello/README
                git -C /tmp/hello push -q https://github.com/octo/hello.git HEAD:refs/heads/x; echo "push $?"
            """, annotations={"dev.sluice.name": "builder"})
            self.assertExit(result, 0)
            self.assertIn("get 0", result.out)
            self.assertIn("stand-in API", result.out)
            self.assertIn("403", result.out)
            self.assertIn("address 7", result.out)
            self.assertIn("\n3\n", result.out)
            self.assertNotIn("push 0", result.out)
            result = self.contain(harness.PYTHON, "-c", containers.DIAL, "db.test:5432", "db.test:5433", "140.82.121.4:22", "secret.b.test:443")
            self.assertEqual(result.out.split(), ["db.test:5432", "connected", "db.test:5433", "EACCES", "140.82.121.4:22", "EACCES",
                                                  "secret.b.test:443", "unknown-name"], str(result))
            self.assertNotIn("secret.b.test", self.asked())
            for last in ({"method": "POST"}, {"host": "secret.b.test"}):
                self.assertEventually(lambda: result.denials(**last), f"the record of {last}")
            denied = result.denials()
            builder = [r for r in denied if r["sandbox"] == "builder"]
            self.assertEqual({r["labels"]["container.name"] for r in builder}, {"builder"})
            self.assertTrue(all(r["labels"]["container.id"].startswith("c") for r in denied))
            curl = next(r for r in builder if r["target"].get("method") == "POST")
            self.assertTrue(curl["process"]["exe"].endswith("/curl"), curl)
            self.assertSaid(agent, "sluice: builder: denied  POST https://a.test/repos/octo/hello")
            self.assertSaid(agent, "container builder: supervised  policy")
            self.assertEventually(lambda: "container builder: ended" in agent.errors(), "the end of its container")
            self.assertEventually(lambda: not list(agent.state.iterdir()), "its record to go")

    def test_a_static_program_of_another_c_library_and_the_containers_own_loopback(self):
        with self.agent(["allow GET http://b.test/repos/**"]):
            result = self.shell("wget -q -O - http://b.test/repos/x/y; echo; wget -q -O - http://a.test/ || echo refused", root=self.busybox_root)
            self.assertIn("stand-in API", result.out, str(result))
            self.assertIn("refused", result.out)
            result = self.contain(harness.PYTHON, "-c", OWN)
            self.assertEqual(result.out.split(), ["OWN", "unix"], str(result))

    def test_the_profile_refuses_what_the_filter_of_run_refuses(self):
        with self.agent(["allow GET a.test"]):
            result = self.contain(harness.PYTHON, "-c", CALLS)
            self.assertExit(result, 0)
            said = dict(zip(result.out.split()[::2], result.out.split()[1::2]))
            self.assertEqual(said, {
                "tcp": "ok", "udp6": "ok", "mptcp": "EPROTONOSUPPORT", "raw": "EPERM", "packet": "EPERM", "vsock": "EPERM", "bluetooth": "EAFNOSUPPORT", "route": "ok",
                "netfilter": "EPROTONOSUPPORT", "wide": "EAFNOSUPPORT", "io_uring": "EPERM", "setns": "EPERM", "unshare": "EPERM", "keyctl": "EPERM",
                "clone3": "ENOSYS", "filter": "EPERM", "rthdr": "EPERM", "device": "EPERM", "fastopen": "EOPNOTSUPP", "datagram": "EACCES"}, str(result))

    def test_with_a_base_sockets_are_answered_alike(self):
        if not BASE.exists():
            self.skipTest(f"no {BASE}")
        with self.agent(["allow GET a.test"]) as agent:
            self.profile_json = agent.profile("--base", BASE)
            result = self.contain(harness.PYTHON, "-c", CALLS)
            said = dict(zip(result.out.split()[::2], result.out.split()[1::2]))
            wanted = {"tcp": "ok", "mptcp": "EPROTONOSUPPORT", "raw": "EPERM", "packet": "EPERM", "vsock": "EPERM", "bluetooth": "EAFNOSUPPORT",
                      "route": "ok", "netfilter": "EPROTONOSUPPORT"}
            self.assertEqual({name: said.get(name) for name in wanted}, wanted, str(result))

    def test_a_program_may_be_started_by_its_descriptor(self):
        with self.agent(["allow GET a.test"]):
            self.assertExit(self.contain(harness.PYTHON, "-c", "import os; os.execve(os.open('/bin/false', os.O_RDONLY), ['false'], {})"), 1)

    def test_a_runtime_that_takes_filter_flags_gets_them(self):
        with self.agent(["allow tcp 151.101.1.50:5432"]) as agent:
            self.profile_json = agent.profile("--wait-killable")
            result = self.contain(harness.PYTHON, "-c", containers.DIAL, "151.101.1.50:5432")
            if self.runtime == "crun":
                self.assertIn("connected", result.out, f"{result}\n{agent.errors()}")
            else:
                self.assertIn("flag", result.err)  # 1.1 knows none


class Several(containers.ContainerTest):
    def test_a_process_that_enters_is_held_by_the_same_policy(self):
        with self.agent(["allow tcp db.test:5432"]) as agent, self.contained(*containers.WAIT) as (name, process):
            self.assertEqual(process.stdout.readline(), "up\n", agent.errors())
            for _ in range(3):
                entered = self.enter(name, harness.PYTHON, "-c", containers.DIAL, "db.test:5432", "db.test:22", "140.82.121.4:22")
                self.assertEqual(entered.out.split()[1::2], ["connected", "EACCES", "EACCES"], f"{entered}\n{agent.errors()}")
            denied = self.refused(entered, 1)
            self.assertEqual({r["labels"]["container.id"] for r in denied}, {name})
            # Whoever started it stands outside, and is no ancestor that a rule could name.
            self.assertTrue(all("runc" not in a and "crun" not in a for r in denied for a in r["process"].get("ancestors", [])), denied[0])
            self.assertEqual(len(agent.supervisors()), 1)
            descriptors = len(os.listdir(f"/proc/{agent.supervisors()[0]}/fd"))
            for _ in range(3):
                self.assertExit(self.enter(name, "/bin/true"), 0)
            self.assertEventually(lambda: len(os.listdir(f"/proc/{agent.supervisors()[0]}/fd")) <= descriptors, "its filters to be let go of")

    @containers.root_alone("another container's namespaces")
    def test_one_that_enters_sees_the_same_mounts(self):
        with self.agent(["allow tcp db.test:5432"]) as agent, self.contained(*containers.WAIT) as (name, process):
            self.assertEqual(process.stdout.readline(), "up\n", agent.errors())

            def enter(config):
                for space in config["linux"]["namespaces"]:
                    if space["type"] in ("pid", "network"):
                        space["path"] = f"/proc/{self.first_process(name)}/ns/{space['type'].replace('network', 'net')}"

            # By the same name, so that it is taken for a process that enters.
            words = [self.runtime, "--root", self.folder / "other", "run", "-b", self.bundle(("/bin/echo", "it ran"), change=enter), name]
            done = self.lab.run(words, timeout=60 * harness.SLOW)
            self.assertNotIn("it ran", done.stdout, f"{done}\n{agent.errors()}")
            self.assertSaid(agent, "in another mount namespace than the container")
            self.lab.run([self.runtime, "--root", self.folder / "other", "delete", "-f", name])

    def test_each_container_has_the_policy_that_is_for_it(self):
        policies = self.folder / "policies"
        policies.mkdir()
        for name, port in (("one", 5432), ("two", 9443), ("rest", 80)):
            (policies / f"{name}.yaml").write_text(harness.policy_text([f"allow tcp db.test:{port}"]))
        (policies / "select").write_text("# who gets what\nlabel team=tw*  two.yaml\nannotation\nany * rest.yaml\n")
        ports = ("db.test:5432", "db.test:9443", "db.test:80")
        cases = [({"dev.sluice.policy": "one"}, 0), ({"dev.sluice.policy": "one", "team": "two"}, 1), ({}, 2)]
        with self.agent(None, "--policy-dir", policies) as agent:
            with self.contained(*containers.WAIT, annotations={"dev.sluice.policy": "one"}) as (_, process):
                self.assertEqual(process.stdout.readline(), "up\n", agent.errors())
                for annotations, allowed in cases:
                    result = self.contain(harness.PYTHON, "-c", containers.DIAL, *ports, annotations=annotations)
                    self.assertEqual([said == "connected" for said in result.out.split()[1::2]], [i == allowed for i in range(3)], f"{annotations} {result}")
                # Names by which lines of `select` go are the runtime's, or none.
                for annotations in ({"dev.sluice.name": "prod"}, {"io.kubernetes.cri.sandbox-namespace": "prod", "io.kubernetes.pod.namespace": "dev"}):
                    (policies / "select").write_text("name prod one.yaml\nnamespace prod one.yaml\nany * rest.yaml\n")
                    result = self.contain(harness.PYTHON, "-c", containers.DIAL, *ports, annotations=annotations)
                    self.assertNotIn("5432 connected", result.out, f"{annotations} {result}")
                self.assertSaid(agent, "more than one namespace: `prod` and `dev`")
                (policies / "select").write_text("annotation\nany * rest.yaml\n")
                result = self.contain("/bin/true", annotations={"dev.sluice.policy": "../one"})
                self.assertNotEqual(result.code, 0)
                self.assertSaid(agent, "names no policy file")

    def test_a_runtime_that_passes_no_annotation_on_names_its_policy_in_the_profile(self):
        policies = self.folder / "policies"
        policies.mkdir()
        for name, port in (("one", 5432), ("two", 9443)):
            (policies / f"{name}.yaml").write_text(harness.policy_text([f"allow tcp db.test:{port}"]))
        with self.agent(None, "--policy-dir", policies) as agent:
            for name, wanted in (("one", ["connected", "EACCES"]), ("two", ["EACCES", "connected"])):
                self.profile_json = agent.profile("--metadata", f"policy={name}")
                result = self.contain(harness.PYTHON, "-c", containers.DIAL, "db.test:5432", "db.test:9443")
                self.assertEqual(result.out.split()[1::2], wanted, f"{result}\n{agent.errors()}")
            self.assertEqual({r["labels"]["container.metadata"] for r in self.refused(result, 2)}, {"policy=one", "policy=two"})
            self.profile_json = agent.profile("--metadata", "policy=three")
            self.assertNotEqual(self.contain("/bin/true").code, 0)

    def test_twenty_start_at_once(self):
        with self.agent(["allow GET http://a.test/repos/**"]) as agent:
            script = "wget -q -O - http://a.test/repos/x/y"
            started = [self.lab.popen([*self.tool(), "run", "-b", self.bundle(("/bin/sh", "-c", script), root=self.busybox_root), self.name()],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(20)]
            said = [process.communicate(timeout=120 * harness.SLOW)[0] for process in started]
            self.assertEqual([i for i, text in enumerate(said) if "stand-in API" not in text], [], f"{said}\n{agent.errors()}")
            self.assertEventually(lambda: not agent.supervisors(), "their supervisors to end", 20)


class Refused(containers.ContainerTest):
    def test_what_could_not_be_held_does_not_start(self):
        def admin(config):
            config["process"]["capabilities"]["bounding"] = [*containers.CAPABILITIES, "CAP_NET_ADMIN"]

        def shared_network(config):
            config["linux"]["namespaces"] = [n for n in config["linux"]["namespaces"] if n["type"] != "network"]

        def shared_pids(config):
            config["linux"]["namespaces"] = [n for n in config["linux"]["namespaces"] if n["type"] != "pid"]

        listening = socket.socket(socket.AF_UNIX)
        self.addCleanup(listening.close)
        listening.bind(str(self.folder / "service.sock"))

        def host_socket(config):
            config["mounts"].append(containers.bind(self.folder / "service.sock", "/tmp/service.sock"))

        def handles(config):
            config["process"]["capabilities"]["bounding"] = [*containers.CAPABILITIES, "CAP_DAC_READ_SEARCH"]

        cases = [(admin, "CAP_NET_ADMIN"), (handles, "CAP_DAC_READ_SEARCH"), (shared_network, "network namespace of this agent"),
                 (host_socket, "allow: unix /tmp/service.sock")]
        if not self.rootless:  # whose /proc is its namespace's alone
            cases.append((shared_pids, "process namespace of this agent"))
        with self.agent(["allow GET a.test"]) as agent:
            for change, word in cases:
                result = self.contain("/bin/sh", "-c", "echo it ran", change=change)
                self.assertNotEqual(result.code, 0, word)
                self.assertNotIn("it ran", result.out, word)
                self.assertSaid(agent, word)
            self.assertExit(self.contain("/bin/true"), 0)

    def test_an_interface_that_leads_out_is_refused(self):
        space = self.folder / "space"
        self.lab.run(["sh", "-ec", f"touch {space}; unshare --net={space} sh -c 'ip link set lo up; ip link add leak type veth peer name inner; ip link set leak up'"])

        def joined(config):
            for namespace in config["linux"]["namespaces"]:
                if namespace["type"] == "network":
                    namespace["path"] = str(space)

        try:
            with self.agent(["allow GET a.test"]) as agent:
                result = self.contain("/bin/sh", "-c", "echo it ran", change=joined)
                self.assertNotIn("it ran", result.out)
                self.assertEventually(lambda: re.search("interface (leak|inner)", agent.errors()), "the agent to name the interface")
                # The same namespace again and again, once nothing leads out of it.
                self.lab.run(["nsenter", f"--net={space}", "ip", "link", "del", "leak"])
                for _ in range(2):
                    result = self.contain(harness.PYTHON, "-c", containers.DIAL, "140.82.121.4:22", change=joined)
                    self.assertIn("EACCES", result.out, f"{result}\n{agent.errors()}")
        finally:
            self.lab.run(["sh", "-c", f"umount -l {space}; rm -f {space}"])

    def test_another_profile_lets_nothing_more_out(self):
        def notifying(*names):
            def change(config):
                config["linux"]["seccomp"]["syscalls"] = [{"names": list(names), "action": "SCMP_ACT_NOTIFY"}]
            return change

        with self.agent(["allow tcp 151.101.1.50:5432"]) as agent:
            spellings = ("151.101.1.50:5432", "8.8.8.8:853")
            # By its first connect it runs already, and may have put a process where the agent would take that for the container.
            result = self.contain(harness.PYTHON, "-c", containers.DIAL, *spellings, change=notifying("connect"))
            self.assertNotIn("connected", result.out, f"{result}\n{agent.errors()}")
            self.assertSaid(agent, "its program ran before it could be looked at")
            self.assertNotIn("supervised", agent.errors())
            # Connects that are not notified end at the listener, allowed or not.
            result = self.contain(harness.PYTHON, "-c", UNASKED, spellings[0], change=notifying("execve"))
            self.assertNotIn("answered", result.out, str(result))
            self.assertEqual(len(result.out.splitlines()), 1, str(result))
            self.assertEventually(lambda: any("no notification approved" in json.dumps(r) for r in result.audit), "the record of a stray")

    @containers.root_alone("a second user")
    def test_who_is_no_runtime_gets_nothing(self):
        with self.agent(["allow GET a.test"]) as agent:
            for text in (b"[]", b"{}", b'{"fds":["seccompFd"],"pid":1,"state":{"id":"x"}}', b'{"a":'):
                with socket.socket(socket.AF_UNIX) as peer:
                    peer.connect(str(agent.socket))
                    peer.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, b"\1\0\0\0")])
                    peer.shutdown(socket.SHUT_WR)
                    self.assertEqual(peer.recv(1), b"")
            agent.socket.chmod(0o666)
            self.folder.chmod(0o755)
            script = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(agent.socket)!r}); print(s.recv(1))"
            stranger = self.lab.run([harness.PYTHON, "-c", script], uid=1000)
            self.assertIn("b''", stranger.stdout, stranger.stderr)
            self.lab.run([harness.PYTHON, "-c", script], uid=1000)
            self.assertEqual(agent.errors().count("user 1000 is not served"), 1)
            self.assertSaid(agent, "no notification descriptor")
            self.assertExit(self.contain("/bin/true"), 0)

    @containers.root_alone("a second user")
    def test_nor_holds_it_the_agent_up(self):
        self.folder.chmod(0o755)
        # As it is turned away, and as its descriptor is read with what is no message.
        script = harness.FULL_SOCKET + """
import sys, time
for full in [full_socket() for _ in range(30)]:
    client = socket.socket(socket.AF_UNIX); client.connect(sys.argv[1])
    try: socket.send_fds(client, [b"[]"], [full])
    except BrokenPipeError: pass
    let_go(full)
print("sent", flush=True)
time.sleep(600)
"""
        for uid in (65534, lab_module.UNPRIVILEGED):
            with self.agent(["allow GET a.test"], "--peer", str(lab_module.UNPRIVILEGED)) as agent:
                stranger = self.lab.popen([harness.PYTHON, "-c", script, agent.socket], uid=uid, stdout=subprocess.PIPE, text=True)
                try:
                    self.assertEqual(stranger.stdout.readline(), "sent\n")
                    self.assertExit(self.contain("/bin/true", timeout=20), 0)
                    self.assertEqual(agent.stop(), 0)
                finally:
                    stranger.kill()
                    stranger.communicate()

    @containers.root_alone("a second user")
    def test_nor_do_the_many_descriptors_of_a_user_who_is_served(self):
        self.folder.chmod(0o755)
        # Whoever sends them is gone then, and so the agent's are the last.
        script = """
import os, resource, socket, struct, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096); server.bind(("127.0.0.1", 0)); server.listen(500)
kept = []
for _ in range(8):
    if os.fork() == 0:
        full = [socket.create_connection(server.getsockname()) for _ in range(250)]
        for client in full:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 300)); client.setblocking(False)
            try:
                while True: client.send(b"x" * 65536)
            except BlockingIOError: pass
        agent = socket.socket(socket.AF_UNIX); agent.connect(sys.argv[1]); socket.send_fds(agent, [b"{"], [client.fileno() for client in full])
        os._exit(0)
    kept += [server.accept()[0] for _ in range(250)]
    os.wait()
print("sent", flush=True)
time.sleep(600)
"""
        with self.agent(["allow GET a.test"], "--peer", str(lab_module.UNPRIVILEGED)) as agent:
            peer = self.lab.popen([harness.PYTHON, "-c", script, agent.socket], uid=lab_module.UNPRIVILEGED, stdout=subprocess.PIPE, text=True)
            try:
                self.assertEqual(peer.stdout.readline(), "sent\n")
                begin = time.monotonic()
                self.assertExit(self.contain("/bin/true", timeout=60), 0)
                self.assertLess(time.monotonic() - begin, 8 * harness.SLOW)
            finally:
                peer.kill()
                peer.communicate()

    @containers.root_alone("a second user, and a file system of his")
    def test_nor_does_a_file_whose_last_close_nobody_answers(self):
        if not os.path.exists("/dev/fuse"):
            self.skipTest("this machine's kernel has no FUSE")
        self.folder.chmod(0o755)
        with self.agent(["allow GET a.test"], "--peer", str(lab_module.UNPRIVILEGED)) as agent:
            command = ["unshare", "--mount", "--propagation", "private", harness.PYTHON, harness.CLIENTS / "stuck_file.py", agent.socket, lab_module.UNPRIVILEGED, 3]
            peer = self.lab.popen(command, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                self.assertEqual(peer.stdout.readline(), "sent\n")
                self.assertExit(self.contain("/bin/true", timeout=20), 0)
                self.assertEqual(agent.stop(), 0)
            finally:
                peer.communicate()  # the end of its input is that of the file system


# Hands what a runtime sends on to the agent, as the user that this runs as.
FORWARD = """
import socket, sys
heard = socket.socket(socket.AF_UNIX); heard.bind(sys.argv[1]); heard.listen()
print("ready", flush=True)
runtime, _ = heard.accept()
data, fds, _, _ = socket.recv_fds(runtime, 1 << 16, 16)
agent = socket.socket(socket.AF_UNIX); agent.connect(sys.argv[2])
socket.send_fds(agent, [data], fds)
agent.recv(1)
"""


class Peers(containers.ContainerTest):
    """Another user's runtimes, with an agent of root's."""

    def own_container(self, config):
        """As an ordinary user's runtime makes it: in a user namespace of that user's."""
        config["linux"]["namespaces"].append({"type": "user"})
        for kind in ("uidMappings", "gidMappings"):
            config["linux"][kind] = [{"containerID": 0, "hostID": lab_module.UNPRIVILEGED, "size": 1}]
        del config["linux"]["cgroupsPath"]
        config["mounts"] = [m for m in config["mounts"] if m["destination"] != containers.BUNDLE]

    @containers.root_alone("a second user")
    def test_a_user_that_is_named_is_served_with_containers_of_its_own(self):
        self.folder.chmod(0o755)
        home = self.folder / "home"
        home.mkdir()
        os.chown(home, lab_module.UNPRIVILEGED, lab_module.UNPRIVILEGED)
        with self.agent(["allow tcp 151.101.1.50:5432"], "--peer", str(lab_module.UNPRIVILEGED)) as agent:
            bundle = self.bundle((harness.PYTHON, "-c", containers.DIAL, "151.101.1.50:5432", "8.8.8.8:853"), change=self.own_container)
            done = self.lab.run([self.runtime, "--root", home / "runtime", "run", "-b", bundle, "theirs"], uid=lab_module.UNPRIVILEGED,
                                env={"XDG_RUNTIME_DIR": str(home)})
            self.assertEqual(done.stdout.split()[1::2], ["connected", "EACCES"], f"{done}\n{agent.errors()}")

    @containers.root_alone("a second user")
    def test_and_with_nobody_elses(self):
        self.folder.chmod(0o755)
        meeting = self.folder / "meeting"
        meeting.mkdir()
        meeting.chmod(0o777)
        with self.agent(["allow tcp 151.101.1.50:5432"], "--peer", str(lab_module.UNPRIVILEGED)) as agent:
            forward = self.lab.popen([harness.PYTHON, "-c", FORWARD, meeting / "sock", agent.socket], uid=lab_module.UNPRIVILEGED,
                                     stdout=subprocess.PIPE, text=True)
            try:
                self.assertEqual(forward.stdout.readline(), "ready\n")
                self.profile_json["listenerPath"] = str(meeting / "sock")
                result = self.contain("/bin/sh", "-c", "echo it ran")
                self.assertNotIn("it ran", result.out)
                self.assertSaid(agent, f"user {lab_module.UNPRIVILEGED} asked for it, and its network namespace is user 0's")
            finally:
                forward.kill()
                forward.communicate()


class UnderItsUnit(containers.UnderItsUnit):
    test_real_programs_reach_what_they_may = containers.root_alone("a unit of the system's")(
        Reach.test_real_programs_reach_what_the_policy_allows_and_nothing_else)


containers.main()
