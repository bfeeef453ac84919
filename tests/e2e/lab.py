#!/usr/bin/python3
"""A network of its own for end-to-end tests: an "internet" and a "host", each a network namespace, joined by one veth pair.

The machine's network is never touched and nothing needs the internet. Sluice runs in the host namespace; the stand-ins
(API, git, echoes, resolver) hold public addresses in the internet namespace, because sluice refuses private ones.

    with Lab() as lab:
        done = lab.run(["curl", "https://a.test/pub"])

From a shell, with LAB_CA, LAB_RESOLVER, LAB_DNS_LOG and LAB_HTTP_LOG set:

    python3 tests/e2e/lab.py shell -- build/release/sluice run --policy p.yaml -- curl https://a.test/pub
    python3 tests/e2e/lab.py shell --uid 1000 -- bash

Works as root, and as an ordinary user where user namespaces are on. Everything it starts ends with it, a killed lab included.
"""
import argparse
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import authority
import zone

PR_SET_CHILD_SUBREAPER = 36
PYTHON = "/usr/bin/python3"
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
UNPRIVILEGED = 1000
FIRST_OF_2026 = 1767225600
SYSTEM_BUNDLE = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")


def become_root_in_a_user_namespace():
    """An ordinary user runs the lab as root of a user namespace of its own."""
    if os.geteuid() != 0:
        os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--", PYTHON, *sys.argv])


def sluice_binary():
    candidates = [os.environ.get("SLUICE_BINARY", ""), ROOT / "build/release/sluice", ROOT / "build/dev/sluice"]
    for candidate in candidates:
        if candidate and pathlib.Path(candidate).is_file():
            return str(pathlib.Path(candidate).resolve())
    raise SystemExit("lab: no sluice binary; run ./dev build, or set SLUICE_BINARY")


def binary_for_anyone(folder):
    """The binary at a place that any user may enter: the tree may lie in a private folder."""
    copy = pathlib.Path(folder) / "sluice"
    if not copy.exists():
        shutil.copy(sluice_binary(), copy)
        copy.chmod(0o755)
    return str(copy)


def records(path):
    """A file of JSON Lines that may be written to meanwhile: a line that has only begun to appear is waited for."""
    deadline = time.monotonic() + 2
    while True:
        text = path.read_text() if path.exists() else ""
        if not text or text.endswith("\n") or time.monotonic() > deadline:
            return [json.loads(line) for line in text.splitlines()]
        time.sleep(0.005)


def adopt_orphans():
    """From now on an orphan below this process becomes its child."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants():
    """Every live process below this one."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [os.getpid()]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def reap():
    """Every child that has ended. The first process of a pid namespace ends after all in it, orphans that fell to us included."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def command_line(pid):
    """As /proc has it; nothing once it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Lab:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-lab-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.ca, self.bundle = self.folder / "ca.pem", self.folder / "bundle.pem"
        self.world = self.host = None
        self.uid = None  # run() starts programs as this user; None: as we are

    # -- making and ending it

    def __enter__(self):
        adopt_orphans()
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        authority.make(self.folder)
        system = SYSTEM_BUNDLE.read_text() if SYSTEM_BUNDLE.exists() else ""
        self.bundle.write_text(system + self.ca.read_text())
        self.make_repositories()
        self.host = self.holder(["--mount", "--propagation", "private"], ["sleep", "infinity"])
        self.world = self.holder(["--pid", "--fork", "--kill-child=SIGKILL"],
                                 ["sh", "-c", f"while [ ! -e {self.folder}/link.ready ]; do sleep 0.01; done; exec {PYTHON} {HERE}/world.py {self.folder}"])
        self.join()
        (self.folder / "link.ready").touch()
        self.wait_for(lambda: (self.folder / "world.ready").exists(), "the stand-ins to listen")

    def holder(self, namespaces, command):
        mine = os.readlink("/proc/self/ns/net")
        process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", *namespaces, *command], stdin=subprocess.DEVNULL,
                                   cwd="/", start_new_session=True)

        def apart():
            if process.poll() is not None:
                raise SystemExit("lab: this machine makes no namespaces (unshare's own words are above); a chroot and most containers do not")
            return os.readlink(f"/proc/{process.pid}/ns/net") != mine

        self.wait_for(apart, "a namespace")
        if "--mount" in namespaces:
            mount = os.readlink("/proc/self/ns/mnt")
            self.wait_for(lambda: os.readlink(f"/proc/{process.pid}/ns/mnt") != mount, "a mount namespace")
            self.wait_for(lambda: pathlib.Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", "the holder")
        return process

    def join(self):
        def inside(process, links, script="true", *more):
            subprocess.run(["nsenter", f"--net=/proc/{process.pid}/ns/net", *more, "sh", "-ec", f"ip -batch -; {script}"], input="\n".join(links), text=True, check=True)

        inside(self.world, [
            "link set lo up",
            f"link add link0 type veth peer name eth0 netns {self.host.pid}",
            f"addr add {zone.GATEWAY_V4}/24 dev link0",
            f"addr add {zone.GATEWAY_V6}/64 dev link0 nodad",
            "link set link0 up",
            *(f"addr add {a}/{'128 nodad' if ':' in a else '32'} dev lo" for a in zone.LOCAL_ADDRESSES)])
        (self.folder / "resolv.conf").write_text(f"nameserver {zone.RESOLVER}\n")
        # The host of the lab trusts the lab's authority and asks its resolver, so commands need no extra flag.
        inside(self.host, [
            "link set lo up",
            f"addr add {zone.HOST_V4}/24 dev eth0",
            f"addr add {zone.HOST_V6}/64 dev eth0 nodad",
            "link set eth0 up",
            f"route add default via {zone.GATEWAY_V4}",
            f"route add default via {zone.GATEWAY_V6}"],
            f"""
            mount --bind {self.folder}/resolv.conf "$(readlink -f /etc/resolv.conf)"
            mount --bind {self.bundle} {SYSTEM_BUNDLE}""", f"--mount=/proc/{self.host.pid}/ns/mnt")

    def stop(self):
        # Again until none is left: what was forked after the look falls to us, a subreaper, when its parent dies.
        deadline = time.monotonic() + 10
        while (left := descendants()) and time.monotonic() < deadline:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            reap()
            time.sleep(0.002)
        for process in (self.world, self.host):
            if process:
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def make_repositories(self):
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}
        for name in ("octo/hello", "octo/second", "mallory/loot"):
            bare = self.folder / "repos" / f"{name}.git"
            history, text = "", ""
            for n in (1, 2, 3):
                text += f"line {n} of {name}\n"
                history += (f"commit refs/heads/main\ncommitter Lab <lab@a.test> {FIRST_OF_2026} +0000\ndata <<.\ncommit {n}\n.\n"
                            f"M 100644 inline README\ndata <<.\n{text}.\n")
            script = f"git init -q --bare -b main {bare}; cd {bare}; echo '[http] receivepack = true' >>config; exec git fast-import --quiet"
            subprocess.run(["sh", "-ec", script], check=True, env=environment, input=history, text=True)

    def add_commit(self, repository, text):
        """One more commit on the server, so that a fetch has something to bring."""
        bare = self.folder / "repos" / f"{repository}.git"
        script = (f'tree=$(git mktree </dev/null); c=$(git commit-tree "$tree" -p main -m "{text}"); git update-ref refs/heads/main "$c"; echo "$c"')
        environment = {**os.environ, "GIT_DIR": str(bare), "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "Lab", "GIT_AUTHOR_EMAIL": "lab@a.test",
                       "GIT_COMMITTER_NAME": "Lab", "GIT_COMMITTER_EMAIL": "lab@a.test"}
        return subprocess.run(["sh", "-ec", script], check=True, env=environment, capture_output=True, text=True).stdout.strip()

    @staticmethod
    def wait_for(condition, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"lab: waited {seconds} s for {what}")
            time.sleep(0.01)

    # -- using it

    def enter(self, uid=None, cwd=None):
        """The command prefix that runs a program in the host namespace; it execs, so its pid is the program's."""
        prefix = ["nsenter", f"--net=/proc/{self.host.pid}/ns/net", f"--mount=/proc/{self.host.pid}/ns/mnt"]
        uid = self.uid if uid is None else uid
        if uid:
            prefix += ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--inh-caps=-all"]
        # Entering a mount namespace moves to its root, hence this.
        return prefix + ["env", "-C", str(cwd or self.work(uid))]

    def work(self, uid=None):
        """A folder the user may write in."""
        uid = self.uid if uid is None else uid
        folder = self.folder / f"work-{uid or 0}"
        if not folder.exists():
            folder.mkdir()
            if uid:
                os.chown(folder, uid, uid)
        return folder

    def environment(self, extra=None):
        return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TERM": os.environ.get("TERM", "dumb"),
                "HOME": str(self.folder), "LAB_CA": str(self.ca), "LAB_RESOLVER": zone.RESOLVER, "LAB_DNS_LOG": str(self.folder / "dns.jsonl"),
                "LAB_HTTP_LOG": str(self.folder / "http.jsonl"), **(extra or {})}

    def run(self, command, uid=None, cwd=None, env=None, timeout=60, **more):
        more = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, **more}
        return subprocess.run(self.enter(uid, cwd) + [str(c) for c in command], env=self.environment(env), timeout=timeout, **more)

    def popen(self, command, uid=None, cwd=None, env=None, **more):
        return subprocess.Popen(self.enter(uid, cwd) + [str(c) for c in command], env=self.environment(env), **more)

    def log(self, name):
        return records(self.folder / f"{name}.jsonl")

    def dns_log(self):
        return self.log("dns")

    def http_log(self):
        return self.log("http")

    def asked(self, name):
        return [entry for entry in self.dns_log() if entry["name"] == name]


def main():
    parser = argparse.ArgumentParser(description="Run a command in the lab's host namespace.")
    parser.add_argument("action", choices=["shell"])
    parser.add_argument("--uid", type=int, help="run it as this unprivileged user")
    arguments, command = parser.parse_known_args()
    command = command[1:] if command[:1] == ["--"] else command
    become_root_in_a_user_namespace()
    with Lab() as lab:
        inherited = {k: v for k, v in os.environ.items() if k not in ("PATH", "HOME")}
        process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *lab.enter(arguments.uid, os.getcwd()), *(command or ["bash"])], env={**inherited, **lab.environment()})
        try:
            return process.wait()
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    sys.exit(main())
