#!/usr/bin/python3
"""Containers that the command starts itself, under --allow-containers: what they ask for is judged and attributed as the command's own,
and nothing that they may mount, join or make leads past the policy."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import harness
import lab

READ = ["allow GET a.test/pub/**"]
LEAVE = ["--allow-containers"]
URL = "https://a.test/pub/x"
SHARED = ("--unshare-all", "--share-net")
OWN = ("--unshare-all",)
BWRAP = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
# Namespaces of its own, with every capability in them.
ENTER = r"""
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWCGROUP, NEWUSER, NEWPID, NEWNET = 0x20000, 0x2000000, 0x10000000, 0x20000000, 0x40000000
def put(path, text):
    fd = os.open(path, os.O_WRONLY)
    try: os.write(fd, text)
    finally: os.close(fd)
def said(attempt):
    try: attempt(); return "DONE"
    except OSError as error: return errno.errorcode[error.errno]
def call(name, *arguments):
    return "DONE" if getattr(libc, name)(*arguments) >= 0 else errno.errorcode[ctypes.get_errno()]
def enter(kinds):
    uid, gid = os.getuid(), os.getgid()
    assert call("unshare", NEWUSER | kinds) == "DONE"
    put("/proc/self/setgroups", b"deny"); put("/proc/self/uid_map", b"0 %d 1" % uid); put("/proc/self/gid_map", b"0 %d 1" % gid)
"""
# What it may try with the view's mounts: nothing is done.
VIEW = r"""
hidden = sys.argv[1].encode()
OPEN_TREE, PIVOT_ROOT = 428, 155 if os.uname().machine == "x86_64" else 41
os.makedirs("/tmp/o"); os.makedirs("/tmp/p")
# A descriptor that stays, of a folder whose mounts are left behind.
etc = os.open("/etc", os.O_RDONLY)
enter(NEWNS | NEWNET | NEWCGROUP)
REMOUNT, BIND, REC, DETACH = 32, 4096, 16384, 2
def read(path, **where): return said(lambda: os.read(os.open(path, os.O_RDONLY, **where), 1) or os.listdir(path))
print("unmask", call("umount2", hidden, 0), call("umount2", hidden, DETACH), call("umount2", b"/proc", DETACH), call("umount2", b"/", DETACH))
print("write", call("mount", None, b"/usr", None, REMOUNT | BIND, None), call("mount", None, b"/", None, REMOUNT | BIND, None))
print("below", call("mount", b"/etc", b"/tmp/o", None, BIND, None), call("mount", b"o", b"/tmp/o", b"overlay", 0, b"lowerdir=/etc"),
      call("mount", b"o", b"/tmp/o", b"overlay", 0, b"lowerdir=/"), call("syscall", OPEN_TREE, -100, b"/etc", 1))
print("kinds", *(call("mount", b"none", b"/tmp/o", kind, 0, None) for kind in (b"sysfs", b"debugfs", b"tracefs", b"securityfs", b"ext4", b"devtmpfs")))
print("node", said(lambda: os.mknod("/tmp/null", 0o20666, os.makedev(1, 3))))
assert call("mount", b"/", b"/tmp/p", None, BIND | REC, None) == "DONE"
print("along", read("/tmp/p" + sys.argv[1]), said(lambda: os.close(os.open("/tmp/p/usr/x", os.O_CREAT | os.O_WRONLY))))
os.chdir("/tmp/o")
assert call("mount", b"none", b"/tmp/o", b"tmpfs", 0, None) == "DONE"
os.chdir("/tmp/o"); os.mkdir("old")
assert call("syscall", PIVOT_ROOT, b".", b"old") == "DONE" and call("umount2", b"/old", DETACH) == "DONE"
print("left", read(os.path.relpath(sys.argv[1], "/etc"), dir_fd=etc), said(lambda: os.rename(os.path.relpath(sys.argv[1], "/etc"), "x", src_dir_fd=etc, dst_dir_fd=etc)))
"""


def ordinary_user(test):
    def run(self):
        if harness.MODE != "rootless" or not self.lab.uid:
            self.skipTest("root has no containers of its own")
        test(self)
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


class NestedTest(harness.SluiceTest):
    def contained(self, rules, *command, flags=LEAVE, **more):
        return self.sluice(rules, *command, flags=flags, **more)

    def bwrap(self, rules, how, *command, **more):
        return self.contained(rules, "bwrap", *how, *BWRAP, *command, **more)

    def inside(self, script, rules=None, **more):
        """A program that has ENTER's words."""
        return self.python(rules or READ, ENTER + script, flags=LEAVE, **more)

    def assertServedToCurl(self, result):
        self.assertExit(result, 0)
        self.assertIn("hello from the lab", result.out)
        allowed = [r for r in result.audit if r.get("verdict") == "allow"]
        self.assertTrue(allowed, str(result))
        self.assertEqual({r["process"]["exe"] for r in allowed if r.get("process")}, {"/usr/bin/curl"})

    def assertRefusedToCurl(self, result):
        self.assertNotEqual(result.code, 0, str(result))
        self.assertDenialLine(result, "151.101.1.20:81", "curl")
        self.assertEqual({r["process"]["exe"] for r in result.denials(port=81)}, {"/usr/bin/curl"})


class Leave(NestedTest):
    def test_it_must_be_given(self):
        for flags in ((), ("--allow-user-namespaces",)):
            self.assertNotEqual(self.bwrap(READ, SHARED, "true", flags=flags).code, 0)

    def test_root_has_no_containers(self):
        if harness.MODE == "rootless":
            self.skipTest("of root")
        result = self.contained(READ, "true")
        self.assertExit(result, 4)
        self.assertIn("--allow-containers: not for root", result.err)

    @ordinary_user
    def test_a_folder_that_holds_what_must_not_change_is_refused(self):
        """In a mount namespace that lacks a lock, a file under it can be renamed away: what git runs later, and what is granted read-only."""
        subprocess.run(["git", "init", "-q", self.work], check=True)
        subprocess.run(["chown", "-R", str(self.lab.uid), self.work], check=True)
        result = self.contained(READ, "true")
        self.assertExit(result, 2)
        self.assertRegex(result.err, r"--allow-containers: .*/\.git\b.* is to be held as it is")
        self.assertExit(self.sluice(READ, "true", flags=["--allow-user-namespaces"]), 0)
        shutil.rmtree(self.work / ".git")
        (self.work / "fixed").mkdir()
        refused = self.contained(READ, "true", flags=[*LEAVE, "--ro", self.work / "fixed"])
        self.assertExit(refused, 2)
        self.assertIn("fixed is to be held as it is", refused.err)


class Bubblewrap(NestedTest):
    @ordinary_user
    def test_what_it_asks_for_is_judged_and_attributed(self):
        self.assertServedToCurl(self.bwrap(READ, SHARED, "curl", "-sS", URL))
        self.assertExit(self.bwrap(READ, SHARED, "curl", "-fsS", "-o", "out", "https://a.test/private"), 22)
        self.assertRefusedToCurl(self.bwrap(READ, SHARED, "curl", "-sS", "http://151.101.1.20:81/"))
        self.assertEqual([entry["target"] for entry in self.served()], ["/pub/x"])

    @ordinary_user
    def test_it_is_somebodys_parent(self):
        self.assertServedToCurl(self.bwrap([("allow GET a.test/pub/**", {"under": "/usr/bin/bwrap"})], SHARED, "sh", "-c", f"curl -sS {URL}; exit $?"))
        alone = self.contained([("allow GET a.test/pub/**", {"under": "/usr/bin/bwrap"})], "sh", "-c", f"curl -sS {URL}; exit $?")
        self.assertNotEqual(alone.code, 0)

    @ordinary_user
    def test_a_program_is_named_by_its_file_not_by_where_it_was_mounted(self):
        rules = [("allow GET a.test/pub/**", {"by": "/usr/bin/curl"})]
        self.assertServedToCurl(self.bwrap(rules, SHARED, "curl", "-sS", URL))
        before = len(self.served())
        shutil.copy("/usr/bin/curl", self.work / "mine")
        for place in ("/usr/bin/curl", "/usr/local/bin"):  # over it, and where there is none
            how = (*BWRAP, "--ro-bind", "mine", place) if place.endswith("curl") else (*BWRAP, "--tmpfs", place, "--ro-bind", "mine", place + "/curl")
            program = place if place.endswith("curl") else place + "/curl"
            result = self.contained(rules if place.endswith("curl") else [("allow GET a.test/pub/**", {"by": "/usr/local/bin/*"})], "bwrap", *SHARED, *how, program, "-sS", URL)
            self.assertNotEqual(result.code, 0, str(result))
            self.assertTrue(result.denials(), str(result))
        self.assertEqual(len(self.served()), before)

    @ordinary_user
    def test_a_network_of_its_own_leads_nowhere_and_says_so(self):
        result = self.bwrap(READ, OWN, "curl", "-sS", URL)
        self.assertNotEqual(result.code, 0)
        script = "import socket; print([socket.socket().connect_ex(address) for address in (('151.101.1.10', 443), ('198.18.0.1', 443), ('192.0.2.7', 53))])"
        result = self.bwrap(READ, OWN, harness.PYTHON, "-c", script)
        self.assertEqual(result.out.strip(), "[13, 13, 13]", str(result))
        self.assertIn("a network namespace that the command made, which has no way out: share the sandbox's", result.err)
        self.assertEqual({r["reason"] for r in result.denials()}, {"unattributed"})
        self.assertEqual(self.served(), [])

    @ordinary_user
    def test_a_network_of_its_own_has_its_own_services(self):
        script = r"""
import os, socket
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near, server.accept()[0] as far:
    near.sendall(b"stream"); print(far.recv(100))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near:
    far.bind(("127.0.0.1", 0)); near.sendto(b"sent", far.getsockname()); print(far.recv(100))
    near.connect(far.getsockname()); near.send(b"connected"); print(far.recv(100))
for name in ("\0abstract", "/tmp/s"):
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as near:
        server.bind(name); server.listen(); near.connect(name); print("unix")
print(socket.socket().connect_ex(("127.0.0.1", 1)))
"""
        result = self.contained(READ, "bwrap", *OWN, *BWRAP, "--tmpfs", "/tmp", harness.PYTHON, "-c", script)
        self.assertEqual(result.out.splitlines(), ["b'stream'", "b'sent'", "b'connected'", "unix", "unix", "111"], str(result))
        self.assertEqual(result.denials(), [])


class Sluice(NestedTest):
    SCRIPT = "./sluice run --allow 'GET a.test/pub/x' -- curl -sS https://a.test/pub/x; echo code $?; ./sluice run --allow 'GET b.test' -- curl -sS https://b.test/; echo code $?"

    @ordinary_user
    def test_a_run_in_a_container_is_a_run_in_the_sandbox(self):
        shutil.copy(lab.sluice_binary(), self.work / "sluice")
        how = ("bwrap", *SHARED, *BWRAP, "--bind", self.work, self.work, "sh", "-c", self.SCRIPT)
        result = self.contained(READ, *how)
        self.assertEqual(re.findall("code (.*)", result.out), ["4", "4"], str(result))
        self.assertEqual(result.err.count("already runs in a sandbox of sluice"), 2, str(result))
        served = self.contained(READ, *how, flags=[*LEAVE, "--allow-nested"])
        self.assertEqual(re.findall("code (.*)", served.out), ["0", "2"], str(served))
        self.assertIn("hello from the lab", served.out)


class Unshare(NestedTest):
    @ordinary_user
    def test_a_shell_in_namespaces_of_its_own(self):
        result = self.contained(READ, "unshare", "-Urmpf", "--mount-proc", "sh", "-c", f"echo pid $$ uid $(id -u); mount -t tmpfs none /mnt 2>/dev/null || mount -t tmpfs none /tmp; "
                                f"grep -c . /proc/1/status >/dev/null && echo proc; curl -sS {URL}")
        self.assertServedToCurl(result)
        self.assertEqual(result.out.splitlines()[:2], ["pid 1 uid 0", "proc"], str(result))
        self.assertRefusedToCurl(self.contained(READ, "unshare", "-Urmpf", "--mount-proc", "curl", "-sS", "http://151.101.1.20:81/"))

    @ordinary_user
    def test_another_process_may_join_them(self):
        result = self.contained(READ, "sh", "-c", "unshare -Urm sh -c 'echo $$ > pid; mount -t tmpfs none /tmp; echo there > /tmp/mark; touch ready; exec sleep 60' & "
                                f"until [ -e ready ]; do sleep 0.02; done; nsenter --preserve-credentials -U -m -t $(cat pid) sh -c 'cat /tmp/mark; curl -sS {URL}'; kill $(cat pid)")
        self.assertServedToCurl(result)
        self.assertIn("there", result.out)


class Runtime:
    """Of crun and runc: a bundle below the work folder, as an ordinary user has it."""
    tool = ()

    def bundle(self, command, change=None):
        root = self.work / "root"
        for name in ("usr", "etc", "proc", "dev", "tmp", "sys"):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            if not (root / name).is_symlink():
                (root / name).symlink_to(f"usr/{name}")
        bind = [{"destination": path, "type": "bind", "source": path, "options": ["rbind"]} for path in ("/usr", "/etc")]
        config = {
            "ociVersion": "1.0.2", "hostname": "box", "root": {"path": "root", "readonly": False},
            "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "cwd": "/", "args": list(command), "noNewPrivileges": True,
                        "env": ["PATH=/usr/bin:/bin", "HOME=/tmp", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "CURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt"],
                        "capabilities": {}},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                       {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                       {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}, *bind],
            "linux": {"namespaces": [{"type": kind} for kind in ("user", "mount", "pid", "ipc", "uts")],
                      "uidMappings": [{"containerID": 0, "hostID": self.lab.uid, "size": 1}],
                      "gidMappings": [{"containerID": 0, "hostID": self.lab.uid, "size": 1}]},
        }
        if change:
            change(config)
        (self.work / "config.json").write_text(json.dumps(config))
        subprocess.run(["chown", "-R", "-h", f"{self.lab.uid}:{self.lab.uid}", self.work], check=True)

    def box(self, rules, *command, change=None, before="", **more):
        self.bundle(command, change)
        tool = " ".join([*self.tool, "--root", "/tmp/boxes"])
        return self.contained(rules, "sh", "-c", f"{before} {tool} run -b . box", env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, **more)

    @ordinary_user
    def test_what_it_asks_for_is_judged_and_attributed(self):
        self.assertServedToCurl(self.box(READ, "curl", "-sS", URL))
        self.assertExit(self.box(READ, "curl", "-fsS", "-o", "/tmp/out", "https://a.test/private"), 22)
        self.assertRefusedToCurl(self.box(READ, "curl", "-sS", "http://151.101.1.20:81/"))
        self.assertServedToCurl(self.box([("allow GET a.test/pub/**", {"by": "/usr/bin/curl"})], "curl", "-sS", URL))
        self.assertEqual([entry["target"] for entry in self.served()], ["/pub/x", "/pub/x"])

    @ordinary_user
    def test_a_network_of_its_own_leads_nowhere(self):
        result = self.box(READ, "python3", "-c", "import socket; print(socket.socket().connect_ex(('151.101.1.10', 443)))",
                          change=lambda config: config["linux"]["namespaces"].append({"type": "network"}))
        self.assertEqual(result.out.strip(), "13", str(result))
        self.assertTrue(result.denials(port=443))
        self.assertEqual(self.served(), [])

    @ordinary_user
    def test_a_seccomp_profile_of_its_own_holds_beside_the_sandboxs(self):
        def profile(config):
            config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}]}
        result = self.box(READ, "sh", "-c", f"mkdir /tmp/x; curl -sS {URL}", change=profile)
        self.assertServedToCurl(result)
        self.assertIn("No space left on device", result.err)

    @ordinary_user
    def test_a_profile_that_asks_another_supervisor_is_an_error(self):
        """The kernel lets one supervisor be asked about a process."""
        def profile(config):
            config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/tmp/agent.sock",
                                          "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_NOTIFY"}]}
        listen = ("python3 -c 'import socket, time; s = socket.socket(socket.AF_UNIX); s.bind(\"/tmp/agent.sock\"); s.listen(); time.sleep(60)' & "
                  "until [ -e /tmp/agent.sock ]; do sleep 0.02; done;")
        result = self.box(READ, "curl", "-sS", URL, change=profile, before=listen)
        self.assertNotEqual(result.code, 0, str(result))
        self.assertRegex(result.err, r"(?i)busy")
        self.assertEqual(self.served(), [])


class Crun(Runtime, NestedTest):
    tool = ("crun", "--cgroup-manager", "disabled")


class Runc(Runtime, NestedTest):
    tool = ("runc",)


class Attacks(NestedTest):
    @ordinary_user
    def test_what_the_view_hides_or_holds_stays_so(self):
        hidden = next(path for path in ("/etc/shadow", "/etc/gshadow", "/etc/ssl/private") if os.path.exists(path))
        result = self.python(READ, ENTER + VIEW, hidden, flags=LEAVE)
        self.assertNotIn("DONE", result.out, str(result))
        self.assertEqual([line.split()[0] for line in result.out.splitlines()], ["unmask", "write", "below", "kinds", "node", "along", "left"], str(result))

    @ordinary_user
    def test_a_socket_of_the_host_is_judged_wherever_it_is_mounted(self):
        """Bound elsewhere, there alone once the view's own mount is gone, and by a name from a folder that a mount covers."""
        folder = self.folder / "service"
        folder.mkdir(mode=0o755)
        with self.serving(harness.PYTHON, "-c", f"""
import os, socket, time
s = socket.socket(socket.AF_UNIX); s.bind("{folder}/s"); os.chmod("{folder}/s", 0o777); s.listen()
print("ready", flush=True); time.sleep(600)"""):
            result = self.python([(f"allow unix {folder}/s", {"by": "[/usr/bin/curl]"})], ENTER + r"""
folder = sys.argv[1].encode()
held = os.open(folder, os.O_RDONLY)
def reach(path): return said(lambda: socket.socket(socket.AF_UNIX).connect(path))
enter(NEWNS)
open("/tmp/s", "w").close()
print("bound", call("mount", folder + b"/s", b"/tmp/s", None, 4096, None), reach("/tmp/s"), flush=True)
if os.fork() == 0:
    os.chdir(folder)
    print("covered", call("unshare", NEWNS), call("mount", b"none", folder, b"tmpfs", 0, None), reach("s"))
    os.mkdir("/tmp/o"); assert call("mount", b"none", b"/tmp/o", b"tmpfs", 0, None) == "DONE"
    os.chdir("/tmp/o"); os.mkdir("old")
    assert call("syscall", 155 if os.uname().machine == "x86_64" else 41, b".", b"old") == "DONE" and call("umount2", b"/old", 2) == "DONE"
    print("taken", said(lambda: os.unlink("s", dir_fd=held)))
    sys.stdout.flush(); os._exit(0)
os.wait()
print("left", reach("/tmp/s"))
""", folder, flags=LEAVE, env={"HOME": str(self.folder)})
        self.assertEqual(result.out.splitlines(), ["bound DONE EACCES", "covered DONE DONE EACCES", "taken DONE", "left EACCES"], str(result))

    @ordinary_user
    def test_a_proc_of_its_own_changes_no_setting(self):
        result = self.contained(READ, "unshare", "-Urmpfn", "--mount-proc", harness.PYTHON, "-c", r"""
import errno, os
def said(path):
    try: fd = os.open(path, os.O_WRONLY); os.write(fd, b"1\n"); return path
    except OSError as error: return errno.errorcode[error.errno]
print(*(said("/proc/" + name) for name in ("sys/kernel/core_pattern", "sys/vm/drop_caches", "sys/kernel/modprobe", "sysrq-trigger", "sys/fs/file-max", "kcore", "irq/default_smp_affinity")))
""")
        self.assertExit(result, 0)
        self.assertEqual(set(result.out.split()) - {"EACCES", "EPERM", "ENOENT", "EROFS"}, set(), str(result))

    @ordinary_user
    def test_networks_are_neither_joined_nor_carried_out(self):
        result = self.inside(r"""
ours, theirs = socket.socketpair(socket.AF_UNIX)
captured = os.open("/proc/self/ns/net", os.O_RDONLY)
before = socket.socket()
if os.fork() == 0:
    enter(NEWNET | NEWNS)
    print("back", call("setns", captured, NEWNET))
    print("kept", before.connect_ex(("151.101.1.20", 81)))
    for name, make in (("raw", (socket.AF_INET, socket.SOCK_RAW, 1)), ("packet", (socket.AF_PACKET, socket.SOCK_RAW, 0)), ("netfilter", (socket.AF_NETLINK, socket.SOCK_RAW, 12))):
        print(name, said(lambda: socket.socket(*make)))
    open("/tmp/net", "w").close()
    print("bound", call("mount", b"/proc/self/ns/net", b"/tmp/net", None, 4096, None))
    own = os.open("/tmp/net", os.O_RDONLY)
    print("again", call("setns", own, NEWNET), socket.socket().connect_ex(("151.101.1.10", 443)))
    made = socket.socket()
    socket.send_fds(theirs, [b"x"], [made.fileno(), own])
    sys.stdout.flush(); os._exit(0)
os.wait()
_, fds, _, _ = socket.recv_fds(ours, 1, 2)
carried = socket.socket(fileno=fds[0])
print("carried", carried.connect_ex(("151.101.1.10", 443)), carried.connect_ex(("198.18.0.1", 443)))
print("joined", call("setns", fds[1], NEWNET))
print("first", *(said(lambda: os.open(f"/proc/1/ns/{kind}", os.O_RDONLY)) for kind in ("net", "user", "mnt")))
""")
        words = dict(line.split(" ", 1) for line in result.out.splitlines())
        self.assertEqual((words["back"], words["kept"], words["bound"], words["again"]), ("EPERM", "13", "DONE", "DONE 13"), str(result))
        self.assertEqual((words["raw"], words["packet"], words["netfilter"]), ("EPERM", "EPERM", "EPROTONOSUPPORT"), str(result))
        self.assertEqual((words["carried"], words["joined"]), ("13 13", "EPERM"), str(result))
        self.assertNotIn("DONE", words["first"], str(result))
        self.assertEqual(self.served(), [])


class Groups(NestedTest):
    """Control groups, which a container mounts in a namespace of its own."""

    LOOK = r"""
os.mkdir("/tmp/g")
enter(NEWNS | NEWCGROUP)
print("mounted", call("mount", b"none", b"/tmp/g", b"cgroup2", 0, None))
print("bounds", sorted(name for name in os.listdir("/tmp/g") if name in ("memory.max", "pids.max")))
def write(name, text): return said(lambda: put("/tmp/g/" + name, text))
print("procs", write("cgroup.procs", b"0"))
print("made", said(lambda: os.mkdir("/tmp/g/mine")))
"""

    def group(self, prepare):
        """A control group that `prepare` makes the user's, or not."""
        mounts = [line.split(" - ") for line in self.lab.run(["cat", "/proc/self/mountinfo"]).stdout.splitlines()]
        place = next((pathlib.Path(about.split()[4]) for about, kind in mounts if kind.startswith("cgroup2 ")), None)
        folder = place and place / f"sluice-nested-{os.getpid()}-{next(harness.NUMBERS)}"
        try:
            folder.mkdir()
        except (OSError, TypeError) as error:
            self.skipTest(f"no control group can be made here: {error}")
        self.addCleanup(folder.rmdir)
        prepare(folder)
        return folder

    def in_group(self, folder, script):
        command = self.command(READ, [harness.PYTHON, "-c", ENTER + script], LEAVE)
        process = self.lab.popen(["sh", "-c", 'read go; exec "$0" "$@"', *command], cwd=self.work, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        (folder / "cgroup.procs").write_text(str(process.pid))
        out, err = process.communicate("go\n", timeout=60 * harness.SLOW)
        return harness.Result(process.returncode, out, err, self.audit)

    @ordinary_user
    def test_a_delegated_one_holds_the_run_from_above(self):
        def delegate(folder):
            for path in (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control"):
                os.chown(path, self.lab.uid, self.lab.uid)
        folder = self.group(delegate)
        result = self.in_group(folder, self.LOOK + "put('/tmp/g/mine/cgroup.procs', b'0')\nprint(open('/proc/self/cgroup').read())")
        self.assertExit(result, 0)
        words = dict(line.split(" ", 1) for line in result.out.splitlines()[:4])
        self.assertEqual(words, {"mounted": "DONE", "bounds": "[]", "procs": "DONE", "made": "DONE"}, str(result))
        self.assertEqual([path for path in folder.iterdir() if path.is_dir()], [], "what the command made goes too")

    @ordinary_user
    def test_one_that_the_user_may_write_and_not_divide_is_refused(self):
        folder = self.group(lambda folder: os.chown(folder / "cgroup.procs", self.lab.uid, self.lab.uid))
        result = self.in_group(folder, self.LOOK)
        self.assertExit(result, 4)
        self.assertIn(f"--allow-containers: {folder} may be written by this user", result.err)

    @ordinary_user
    def test_roots_cannot_be_written(self):
        result = self.inside(self.LOOK)
        self.assertEqual(re.findall("(?:procs|made) (.*)", result.out), ["EACCES", "EACCES"], str(result))


if __name__ == "__main__":
    harness.main()
