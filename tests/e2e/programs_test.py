#!/usr/bin/python3
"""Programs that are hard on a supervisor, as they are: debuggers, ssh, daemons, storms of threads, namespaces and sandboxes of their own."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import harness
import lab

READ = ["allow GET a.test/pub/**"]
NOTHING = ["allow GET nothing.test"]


class Traced(harness.SluiceTest):
    def test_strace_follows_a_program_that_connects(self):
        result = self.sluice(READ, "strace", "-f", "-qq", "-e", "trace=connect", "-o", "trace", "curl", "-sS", "https://a.test/pub/x")
        self.assertExit(result, 0)
        self.assertIn("hello from the lab", result.out)
        trace = (self.work / "trace").read_text()
        self.assertRegex(trace, r"connect\(\d+, \{sa_family=AF_INET6?, .*htons\(443\)")
        denied = self.sluice(READ, "strace", "-f", "-qq", "-e", "trace=connect", "-o", "trace", "curl", "-sS", "http://151.101.1.20:81/")
        self.assertNotEqual(denied.code, 0)
        self.assertRegex((self.work / "trace").read_text(), r"htons\(81\).* = -1 EACCES")

    def test_gdb_stops_and_goes_on_in_the_middle_of_a_connect(self):
        script = "import socket; print('said', *(socket.socket().connect_ex(('151.101.1.20', port)) for port in (81, 80)))"
        result = self.sluice(["allow tcp 151.101.1.20:80"], "gdb", "-q", "-batch", "-nx", "-ex", "set breakpoint pending on", "-ex", "set debuginfod enabled off", "-ex", "break connect",
                             "-ex", "run", "-ex", "backtrace 1", "-ex", "continue", "-ex", "continue", "--args", harness.PYTHON, "-c", script)
        self.assertRegex(result.out, r"Breakpoint 1, .*connect", str(result))
        self.assertIn("said 13 0", result.out)
        self.assertDenialLine(result, "151.101.1.20:81")


class OwnNamespaces(harness.SluiceTest):
    def test_they_are_made_with_leave_alone(self):
        self.assertEqual(self.sluice(NOTHING, "unshare", "--user", "--net", "true", flags=["--allow-user-namespaces"]).code, 0)
        self.assertNotEqual(self.sluice(NOTHING, "unshare", "--user", "--net", "true").code, 0)
        # An ordinary user's may map its own id. Root's not: the files in /proc that nothing but their owner guards are its.
        mapped = self.sluice(NOTHING, "unshare", "--map-root-user", "id", "-u", flags=["--allow-user-namespaces"])
        self.assertEqual((mapped.code == 0, mapped.out.strip()), (True, "0") if harness.MODE == "rootless" else (False, ""), str(mapped))
        self.assertNotEqual(self.sluice(NOTHING, "unshare", "--map-root-user", "true").code, 0)

    def test_in_proc_nothing_but_processes_files_can_be_written(self):
        """Whoever maps its ids has every capability in its namespace, and no other id, mount, setting or process than before."""
        script = r"""
import ctypes, errno, os, stat
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.getuid(), os.getgid()
def said(attempt):
    try: attempt(); return "DONE"
    except OSError as error: return errno.errorcode[error.errno]
def put(path, text):
    fd = os.open(path, os.O_WRONLY)
    try: os.write(fd, text)
    finally: os.close(fd)
def kernel_files():
    for name in sorted(os.listdir("/proc")):
        path = "/proc/" + name
        if name.isdigit() or os.path.islink(path): continue
        yield path
        if os.path.isdir(path):
            for folder, folders, files in os.walk(path):
                for file in files: yield os.path.join(folder, file)
def writable():
    for path in kernel_files():
        try: about = os.lstat(path)
        except OSError: continue
        if stat.S_ISREG(about.st_mode) and said(lambda: os.close(os.open(path, os.O_WRONLY))) == "DONE": yield path
        if said(lambda: os.chmod(path, 0o777)) == "DONE": yield "chmod " + path
print("files", list(writable()))
print("init", said(lambda: put("/proc/1/oom_score_adj", b"1000")), said(lambda: put("/proc/1/mem", b"x")), said(lambda: put("/proc/1/uid_map", b"0 0 1")))
print("adjust", said(lambda: put("/proc/self/oom_score_adj", b"-1000")))
NEWUSER, NEWNET, NEWPID, NEWNS = 0x10000000, 0x40000000, 0x20000000, 0x00020000
print("own", libc.unshare(NEWUSER | NEWNET))
put("/proc/self/setgroups", b"deny")
print("others", said(lambda: put("/proc/self/uid_map", b"0 0 1")), said(lambda: put("/proc/self/uid_map", b"0 %d 2" % uid)))
put("/proc/self/uid_map", b"0 %d 1" % uid)
put("/proc/self/gid_map", b"0 %d 1" % gid)
print("root", os.getuid(), said(lambda: os.setuid(0)), said(lambda: os.setuid(1)))
print("files", list(writable()))
print("mounts", libc.unshare(NEWNS), libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), libc.mount(b"proc", b"/proc", b"proc", 0, None))
print("joins", [said(lambda: os.open(f"/proc/1/ns/{kind}", os.O_RDONLY)) for kind in ("user", "net", "mnt")], libc.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0))
print("net", said(lambda: put("/proc/sys/net/ipv4/ip_unprivileged_port_start", b"0")), said(lambda: put("/proc/self/net/dev", b"0")))
os.chroot("/proc/self/fdinfo"); os.chdir("/")
print("chroot", os.listdir("/"))
"""
        result = self.python(NOTHING, script, flags=["--allow-user-namespaces"])
        lines = result.out.splitlines()
        self.assertEqual(lines[0], "files []", str(result))
        self.assertNotIn("DONE", lines[1])
        if harness.MODE != "rootless":
            return self.assertIn("EROFS", lines[1])
        self.assertEqual(lines[2:7], ["adjust EACCES", "own 0", "others EPERM EPERM", "root 0 DONE EINVAL", "files []"], str(result))
        self.assertEqual(lines[7], "mounts -1 -1 -1")
        self.assertNotIn("DONE", lines[8] + lines[9])
        self.assertTrue(lines[10].startswith("chroot "))

    def test_namespaces_of_its_own_lead_nowhere(self):
        script = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
NEWUSER, NEWPID, NEWNET, NEWNS = 0x10000000, 0x20000000, 0x40000000, 0x00020000
def call(name, *arguments): return "fine" if getattr(libc, name)(*arguments) == 0 else errno.errorcode[ctypes.get_errno()]
print("mounts", call("unshare", NEWNS))
print("own", call("unshare", NEWUSER | NEWNET))
uid = os.getuid()
for address in (("151.101.1.10", 443), ("151.101.1.20", 81), ("127.0.0.1", 801)):
    try: socket.create_connection(address, timeout=5); print("out", address)
    except OSError as error: print("no", errno.errorcode.get(error.errno, "timeout"))
try: socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print("raw")
except OSError as error: print("no", errno.errorcode[error.errno])
try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12); print("nft")
except OSError as error: print("no", errno.errorcode[error.errno])
print("mount", call("mount", b"none", b"/tmp", b"tmpfs", 0, None))
"""
        result = self.python(READ, script, flags=["--allow-user-namespaces"])
        lines = result.out.splitlines()
        self.assertEqual(lines[:2], ["mounts EPERM", "own fine"], str(result))
        self.assertNotRegex(result.out, r"(?m)^(out|raw|nft)")
        self.assertIn("mount EPERM", lines)
        self.assertEqual(self.served(), [])

    def test_a_network_of_its_own_has_its_own_services_and_says_that_it_has_no_way_out(self):
        script = r"""
import ctypes, fcntl, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
captured = socket.socket()
assert libc.unshare(0x10000000 | 0x40000000) == 0
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, 0x8914, struct.pack("16sh22x", b"lo", 1))  # up
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near, server.accept()[0] as far:
    near.sendall(b"stream"); print(far.recv(100))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near:
    far.bind(("127.0.0.1", 0)); near.sendto(b"sent", far.getsockname()); print(far.recv(100))
with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as near:
    server.bind("\0abstract"); server.listen(); near.connect("\0abstract"); print("unix")
print(socket.socket().connect_ex(("127.0.0.1", 1)), socket.socket().connect_ex(("151.101.1.10", 443)), captured.connect_ex(("151.101.1.20", 81)))
"""
        result = self.python(READ, script, flags=["--allow-user-namespaces"])
        self.assertEqual(result.out.splitlines(), ["b'stream'", "b'sent'", "unix", "111 13 13"], str(result))
        self.assertIn("a network namespace that the command made, which has no way out: share the sandbox's", result.err)
        self.assertEqual(self.served(), [])


class Ssh(harness.SluiceTest):
    def setUp(self):
        super().setUp()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        (self.work / "key").write_bytes((self.folder / "user").read_bytes())
        (self.work / "key").chmod(0o600)
        os.chown(self.work / "key", self.lab.uid or 0, self.lab.uid or 0)
        (self.folder / "config").write_text(f"ListenAddress 151.101.1.50:2222\nHostKey {self.folder}/host\nAuthorizedKeysFile {self.folder}/user.pub\n"
                                            "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nPidFile none\n")
        os.makedirs("/run/sshd", exist_ok=True)
        self.server = subprocess.Popen(["nsenter", f"--net=/proc/{self.lab.world.pid}/ns/net", "/usr/sbin/sshd", "-D", "-e", "-f", self.folder / "config"],
                                       stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (self.server.kill(), self.server.communicate()))
        self.assertRegex(self.server.stderr.readline(), "listening")

    def ssh(self, rules, command):
        return self.sluice(rules, "ssh", "-F", "none", "-i", "key", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes",
                           "-o", "LogLevel=ERROR", "-p", "2222", "root@db.test", command)

    def test_ssh_runs_a_command_elsewhere(self):
        result = self.ssh(["allow tcp db.test:2222"], "head -c 300000 /dev/zero | wc -c; exit 9")
        self.assertEqual((result.out.strip(), result.code), ("300000", 9), str(result))
        denied = self.ssh(["allow tcp db.test:22"], "true")
        self.assertExit(denied, 255)
        self.assertDenialLine(denied, "db.test:2222", "ssh")


class Processes(harness.SluiceTest):
    def test_calls_of_many_kinds_of_process_are_decided_and_attributed(self):
        # posix_spawn is vfork; a descriptor that is passed on is the same connection; MPTCP falls back, as Go's library does.
        script = r"""
import array, errno, os, socket, subprocess, sys, threading
def body(connection):
    connection.sendall(b"ping" * 100)
    data = b""
    while len(data) < 400 and (piece := connection.recv(65536)): data += piece
    return data == b"ping" * 100
ours, theirs = socket.socketpair(socket.AF_UNIX)
ours.settimeout(20)
if os.fork() == 0:
    connection = socket.create_connection(("db.test", 5432))
    socket.send_fds(theirs, [b"x"], [connection.fileno()])
    os._exit(0)
_, fds, _, _ = socket.recv_fds(ours, 1, 1)
print("passed", body(socket.socket(fileno=fds[0])))
pid = os.posix_spawn("/usr/bin/curl", ["curl", "-sS", "https://a.test/pub/x"], dict(os.environ))
print("", flush=True); print("spawned", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
try: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
except OSError as error: print("mptcp", errno.errorcode[error.errno], body(socket.create_connection(("db.test", 5432))))
outcomes = []
def one(i):
    try:
        with socket.socket() as s: outcomes.append(s.connect_ex(("151.101.1.20", 81)) if i % 2 else body(socket.create_connection(("db.test", 5432))))
    except OSError as error: outcomes.append(repr(error))
threads = [threading.Thread(target=one, args=(i,)) for i in range(200)]
for t in threads: t.start()
for t in threads: t.join()
print("storm", sorted((str(o), outcomes.count(o)) for o in set(outcomes)))
"""
        result = self.python([*READ, "allow tcp db.test:5432"], script, timeout=60)
        lines = result.out.splitlines()
        self.assertIn("passed True", lines, str(result))
        self.assertIn("spawned 0", lines)
        self.assertIn("mptcp EPROTONOSUPPORT True", lines)
        self.assertIn("storm [('13', 100), ('True', 100)]", lines)
        curls = [r for r in result.audit if r["type"] == "decision" and (r["process"] or {}).get("exe", "").endswith("/curl")]
        self.assertTrue(curls, "the spawned program is named")

    def test_a_daemon_outlives_its_parent_and_not_the_run(self):
        script = ("setsid sh -c 'while :; do echo tick >> ticks; curl -sS -o /dev/null https://a.test/pub/x && echo fetched >> ticks; sleep 0.05; done' "
                  "</dev/null >/dev/null 2>&1 & sleep 0.1; until grep -q fetched ticks; do sleep 0.05; done; ps -o ppid= -C sh | sort -n | head -1")
        result = self.sluice(READ, "sh", "-c", script)
        self.assertExit(result, 0)
        before = (self.work / "ticks").stat().st_size
        subprocess.run(["sleep", "0.3"], check=True)
        self.assertEqual((self.work / "ticks").stat().st_size, before)


class Nested(harness.SluiceTest):
    """`sluice run` in a sandbox: an inner policy can only narrow the outer one."""

    OUTER = ["allow GET a.test/pub/**", "allow GET a.test/more/**"]

    def setUp(self):
        super().setUp()
        shutil.copy(lab.sluice_binary(), self.work / "sluice")

    def nested(self, script, rules=None, flags=("--allow-nested",), **more):
        return self.sluice(rules or self.OUTER, "sh", "-c", script, flags=flags, **more)

    def test_without_leave_it_does_not_start(self):
        for flags in ((), ("--allow-user-namespaces",)):
            result = self.nested("./sluice run --allow 'GET b.test' -- curl -sS https://b.test/", flags=flags)
            self.assertExit(result, 4)
            self.assertIn("already runs in a sandbox of sluice", result.err)
            self.assertEqual(self.served(), [])

    def test_a_narrower_policy_holds_for_what_it_runs(self):
        result = self.nested("export MARK=kept; echo outer > here; ./sluice run --name inner --allow 'GET a.test/pub/x' --env MARK -- sh -c '"
                             "echo $MARK; cat here; echo inner >> here; curl -sS https://a.test/pub/x; curl -sS -o /dev/null -w \"%{http_code}\\n\" https://a.test/pub/y; exit 9'; "
                             "echo code $?; cat here; curl -sS -o /dev/null -w '%{http_code}\n' https://a.test/pub/y")
        lines = result.out.splitlines()
        self.assertEqual([line for line in lines if line in ("kept", "403", "code 9", "200", "inner", "outer")],
                         ["kept", "outer", "403", "code 9", "outer", "inner", "200"], str(result))
        self.assertIn("hello from the lab", result.out)
        self.assertEqual({r["sandbox"] for r in result.audit if r.get("verdict") == "deny"}, {"sh/inner"})

    def test_a_wider_one_is_refused_with_a_witness(self):
        for inner, word in (("GET b.test", "b.test"), ("POST a.test/pub/x", "POST"), ("tcp a.test:443", "a.test")):
            result = self.nested(f"./sluice run --allow '{inner}' -- curl -sS https://b.test/; echo code $?")
            self.assertIn("code 2", result.out, str(result))
            self.assertRegex(result.err, rf"can only narrow the outer one, and `{inner}` would let out .*{word}")
        self.assertEqual(self.served(), [])

    def test_what_has_a_credential_is_not_for_it(self):
        # The outer run takes a token of the workload's own out of these requests; an inner one could send it.
        secret = self.folder / "secret"
        secret.write_text("the-operators-token")
        secret.chmod(0o600)
        os.chown(secret, self.lab.uid or 0, self.lab.uid or 0)
        rules = harness.policy_text([("allow GET a.test/pub/**", {"with": "tok"}), "allow GET a.test/more/**"],
                                    extra=f"credentials: {{tok: {{from: file {secret}, send: bearer, to: [a.test]}}}}")
        result = self.nested("./sluice run --allow 'GET a.test/pub/x' -- curl -sS -H 'Authorization: Bearer mine' https://a.test/pub/x; echo code $?; "
                             "./sluice run --allow 'GET a.test/more/x' -- curl -sS https://a.test/more/x; echo code $?", rules=rules)
        self.assertEqual(re.findall("code ([0-9]+)", result.out), ["2", "0"], str(result))
        self.assertIn("would let out GET https://a.test/pub/x", result.err)
        self.assertIn("with a credential is not for a run in the sandbox", result.err)
        self.assertFalse([r for r in self.served() if "/pub/x" in json.dumps(r)])

    def test_the_first_denial_ends_it_where_the_outer_run_says_so(self):
        result = self.nested("./sluice run --allow 'GET a.test/pub/x' -- sh -c 'curl -sS https://a.test/more/x; sleep 60'; echo code $?",
                             flags=("--allow-nested", "--kill-on-deny"))
        self.assertIn("code 137", result.out, str(result))

    def test_a_message_that_is_none_holds_nobody_up(self):
        # Its descriptor's last close would wait for a reader who does not read.
        script = harness.FULL_SOCKET + """
full = full_socket()
outer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); outer.connect(os.environ["SLUICE_NESTED"])
socket.send_fds(outer, [b"no message"], [full])
# In flight it is nobody's to wait for. Where the supervisor was quicker, this close is the last.
let_go(full)
print("sent", flush=True)
signal.pause()
"""
        (self.work / "linger.py").write_text(script)
        result = self.nested(f"{harness.PYTHON} linger.py > sent & until [ -s sent ]; do sleep 0.02; done; "
                             "timeout 15 ./sluice run --allow 'GET a.test/pub/x' -- true; echo $?; kill $!")
        self.assertEqual(result.out.strip(), "0", str(result))

    def test_what_lies_behind_a_message_that_is_none_holds_nobody_up(self):
        # Nobody receives the second message: it goes with the connection. Where the supervisor was quicker, another is tried.
        (self.work / "behind.py").write_text(harness.FULL_SOCKET + """
for full in [full_socket() for _ in range(60)]:
    while True:
        outer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); outer.connect(os.environ["SLUICE_NESTED"])
        try:
            outer.send(b"short"); socket.send_fds(outer, [b"m"], [full])
            break
        except OSError:
            pass
    let_go(full)
print("sent", flush=True)
signal.pause()
""")
        result = self.nested(f"{harness.PYTHON} behind.py > sent & until [ -s sent ]; do sleep 0.02; done; "
                             "timeout 15 ./sluice run --allow 'GET a.test/pub/x' -- true; echo $?; kill $!")
        self.assertEqual(result.out.strip(), "0", str(result))

    def test_it_does_not_go_on_where_the_outer_run_is_frozen(self):
        keep, give = os.pipe()
        inner = "while :; do echo x >> ticks; sleep 0.01; done"
        words = self.command(self.OUTER, ["sh", "-c", f"./sluice run --allow 'GET a.test/more/**' -- sh -c '{inner}'; sleep 1000"],
                             ["--allow-nested", "--lifeline", str(keep), "--on-disconnect", "freeze"])
        process = self.lab.popen(words, cwd=self.work, pass_fds=[keep], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        os.close(keep)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        ticks = self.work / "ticks"
        self.assertEventually(lambda: ticks.exists() and ticks.stat().st_size > 4, "the inner run", 20)
        os.close(give)

        def still():
            before = ticks.stat().st_size
            time.sleep(0.3)
            return ticks.stat().st_size == before

        self.assertEventually(still, "the inner run to stand still", 10)

    def test_it_chooses_nothing_of_the_machines(self):
        (self.work / "p.yaml").write_text("version: 1\ncredentials:\n  k: { from: file /etc/shadow, send: bearer, to: [a.test] }\nrules:\n  - allow: GET a.test/pub/x\n")
        (self.work / "i.yaml").write_text("version: 1\ninclude: [/etc/passwd]\nrules: []\n")
        result = self.nested("./sluice run --policy p.yaml -- true; ./sluice run --policy i.yaml -- true; ./sluice run --allow 'GET a.test/pub/x' --rw /etc -- true; "
                             "./sluice run --allow 'GET a.test/pub/x' -- sh -c 'cat /etc/shadow; ls /proc | grep -c ^[0-9]'")
        self.assertIn("names no credentials", result.err)
        self.assertNotIn("root:", result.out + result.err, str(result))
        self.assertIn("the rest is the outer run's", result.err)
        self.assertLess(int(result.out.split()[-1]), 8)

    def test_the_outer_policy_cannot_be_edited_from_there(self):
        inside = self.work / "outer.yaml"
        inside.write_text(harness.policy_text(self.OUTER))
        os.chown(inside, self.lab.uid or 0, self.lab.uid or 0)
        self.plain_sluice("run", "--policy", inside, "--allow-nested", "--", "./sluice", "run", "--allow", "GET a.test/pub/x", "--", "sh", "-c",
                          f"echo ran > mark; echo x >> {inside}; rm -f {inside}")
        self.assertTrue((self.work / "mark").exists())
        self.assertEqual(inside.read_text(), harness.policy_text(self.OUTER))

    def test_signals_time_and_the_end_of_its_asker_reach_it(self):
        mark = f"nested-{os.getpid()}"
        result = self.nested(f"./sluice run --allow 'GET a.test/pub/x' -- sh -c 'trap \"echo heard; exit 5\" TERM; echo up; while :; do sleep 0.05; done' {mark} > out & "
                             "until grep -q up out 2>/dev/null; do sleep 0.05; done; kill $!; wait $!; echo code $?; cat out; "
                             f"./sluice run --timeout 300ms --allow 'GET a.test/pub/x' -- sleep 60; echo code $?; ./sluice run --allow 'GET a.test/pub/x' -- sh -c 'sleep 1000' {mark} & sleep 0.7")
        self.assertEqual(result.out.split(), ["code", "5", "up", "heard", "code", "143"], str(result))
        self.assertEventually(lambda: subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True).stdout == "", "nobody is left", 8)

    def inner_supervisors(self, outer):
        """Those of an outer run, which starts them itself."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int(re.search(r"^PPid:\s+(\d+)", (folder / "status").read_text(), re.M)[1])
                if parent == outer and b"--nested" in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found

    def test_one_that_ends_slowly_holds_up_no_other(self):
        inner = "./sluice run --allow 'GET a.test/more/**' --"
        script = f"{inner} sh -c 'echo up; sleep 1000' & asker=$!; read go; kill -9 $asker; read go; {inner} echo second; read end"
        with self.running(self.OUTER, "sh", "-c", script, flags=["--allow-nested"]) as process:
            self.assertEqual(process.stdout.readline(), "up\n")
            [slow] = self.inner_supervisors(process.pid)
            os.kill(slow, signal.SIGSTOP)
            for _ in range(2):
                process.stdin.write("go\n")
                process.stdin.flush()
                time.sleep(0.1)
            self.assertEqual(process.stdout.readline(), "second\n")
            self.assertIn("State:\tT", pathlib.Path(f"/proc/{slow}/status").read_text(), "the first is still ending")
            self.assertEventually(lambda: not pathlib.Path(f"/proc/{slow}").exists(), "the first to be killed", 10 * harness.SLOW)

    def test_killing_its_supervisor_ends_it_and_the_outer_run_goes_on(self):
        ticking = "echo up; while :; do echo x >> ticks; sleep 0.01; done"
        command = f"./sluice run --allow 'GET a.test/more/**' -- sh -c '{ticking}'; echo code $?; curl -sS -o /dev/null -w '%{{http_code}}\\n' https://a.test/pub/x; sleep 1000"
        with self.running(self.OUTER, "sh", "-c", command, flags=["--allow-nested"]) as process:
            self.assertEqual(process.stdout.readline(), "up\n")
            self.assertEventually(lambda: self.ticks() > 0, "ticks")
            # Its child that supervises, beside the sandbox's own processes.
            inner = [pid for pid in lab.descendants() if b"\0run\0--nested\0" in lab.command_line(pid)]
            inner = min(inner, key=lambda pid: int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]))
            os.kill(inner, signal.SIGKILL)
            self.assertEqual(process.stdout.readline(), "code 137\n")
            self.assertEventually(self.ticks_stand, "the inner command to be gone")
            self.assertEqual(process.stdout.readline(), "200\n")
            self.assertIsNone(process.poll())

    def test_a_reload_that_makes_it_wider_than_the_outer_kills_it(self):
        with self.running(self.OUTER, "sh", "-c", "./sluice run --allow 'GET a.test/more/**' -- sh -c 'echo up; sleep 1000'; echo code $?; sleep 1000", flags=["--allow-nested"]) as process:
            self.assertEqual(process.stdout.readline(), "up\n")
            self.policy.write_text(harness.policy_text(self.OUTER[:1]))
            self.assertEqual(process.stdout.readline(), "code 137\n")


if __name__ == "__main__":
    harness.main()
