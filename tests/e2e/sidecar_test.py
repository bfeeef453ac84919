#!/usr/bin/python3
"""`sluice sidecar` in the lab's host namespace, and a workload that shares it: root, with every capability but CAP_NET_ADMIN."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import time

import harness
import lab as lab_module
import packages
import zone

# The workload: root, and all that a container may have, without the rights over the network's own rules.
WITHOUT_NET_ADMIN = ["setpriv", "--bounding-set=-net_admin,-sys_admin,-sys_module", "--inh-caps=-all", "--no-new-privs"]
ECHO = r"""
import socket, sys
host, port, word = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
s = socket.create_connection((host, port), 10)
s.settimeout(10)
s.sendall(word + b"\n")
print(s.makefile("rb").readline().decode().strip())
"""
# Keeps one connection, and says "open" and, once it is cut, how long after the line it got on standard input.
HOLD = r"""
import select, socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
s.sendall(b"hold\n")
assert s.recv(100)
print("open", flush=True)
while True:
    ready, _, _ = select.select([s, sys.stdin], [], [], 30)
    if sys.stdin in ready:
        sys.stdin.readline()
        s.settimeout(5)
        try:
            s.sendall(b"again\n")
            data = s.recv(100)
            print("alive" if data else "cut", flush=True)
            if not data: break
        except OSError as error:
            print("cut", flush=True)
            break
    elif s in ready:
        print("cut", flush=True)
        break
"""


SO_NETNS_COOKIE = 71
FIRST_DRAWN_NAMESPACE = 0xF0000000  # those that the kernel begins with have numbers below


class Sidecar:
    def __init__(self, test, process):
        self.test, self.process = test, process

    def errors(self):
        return self.test.stderr.read_text()

    def stop(self, number=signal.SIGTERM, timeout=30):
        self.process.send_signal(number)
        return self.process.wait(timeout * harness.SLOW)


class SidecarTest(harness.SluiceTest):
    def setUp(self):
        super().setUp()
        self.ca, self.bundle = self.folder / "ca.pem", self.folder / "bundle.pem"
        self.stderr = self.folder / "stderr"

    def tearDown(self):
        # Nobody holds the tables any more: whoever administers the namespace may take them away.
        for table in ("inet sluice", "netdev sluice_egress"):
            self.lab.run(["nft", "delete", "table", *table.split()])
        self.assertNotIn("sluice", self.lab.run(["nft", "list", "tables"]).stdout)

    def sidecar_command(self, rules, flags):
        if rules is not None:
            self.policy.write_text(rules if isinstance(rules, str) else harness.policy_text(rules))
        return [lab_module.binary_for_anyone(self.lab.folder), "sidecar", "--policy", self.policy, "--audit", self.audit,
                "--upstream-ca", self.lab.ca, "--ca-out", self.ca, "--bundle-out", self.bundle, *flags]

    @contextlib.contextmanager
    def sidecar(self, rules, *flags, environment=None, as_user=()):
        with open(self.stderr, "w") as stderr:
            process = self.lab.popen([*as_user, *self.sidecar_command(rules, flags)], cwd=self.work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
                                     text=True)
        try:
            self.assertEventually(lambda: "ready  policy" in self.stderr.read_text() or process.poll() is not None, "the sidecar to be ready", 30)
            self.assertIsNone(process.poll(), self.stderr.read_text())
            yield Sidecar(self, process)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    # -- the workload

    def workload(self, *command, timeout=60, **more):
        done = self.lab.run([*WITHOUT_NET_ADMIN, *command], cwd=self.work, timeout=timeout * harness.SLOW, **more)
        return harness.Result(done.returncode, done.stdout, done.stderr, self.audit)

    def curl(self, *arguments, **more):
        return self.workload("curl", "-sS", "-m", "20", "--cacert", self.bundle, *arguments, **more)

    def echo(self, host, port, word="hello", **more):
        return self.workload(harness.PYTHON, "-c", ECHO, host, str(port), word, **more)

    @contextlib.contextmanager
    def held(self, host, port):
        process = self.lab.popen([*WITHOUT_NET_ADMIN, harness.PYTHON, "-c", HOLD, host, str(port)], cwd=self.work, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True, bufsize=1)
        try:
            self.assertEqual(process.stdout.readline(), "open\n")
            yield process
        finally:
            process.kill()
            process.communicate()

    def ask_from(self, ports):
        """Those from which the workload's lookup got no answer."""
        return json.loads(self.workload(harness.PYTHON, self.client("ask_from.py"), zone.RESOLVER, "a.test", stdin=None, input=json.dumps(ports)).out)

    def sets(self):
        return self.lab.run(["nft", "list", "table", "inet", "sluice"]).stdout


RULES = ["allow GET a.test/echo/**", "allow git fetch-pack github.com/octo/*", "allow tcp db.test:5432"]


class Names(SidecarTest):
    def test_requests_are_judged_by_name(self):
        with self.sidecar(RULES) as sidecar:
            allowed = self.curl("https://a.test/echo/x")
            self.assertExit(allowed, 0)
            self.assertEqual(json.loads(allowed.out)["target"], "/echo/x")
            refused = self.curl("-i", "-X", "POST", "https://a.test/echo/x")
            self.assertIn(" 403 ", refused.out.splitlines()[0], str(refused))
            self.assertIn("POST", refused.out)
            unknown = self.curl("https://b.test/")
            self.assertExit(unknown, 6)  # no such name
            self.assertNotIn("b.test", self.asked())
            self.assertEventually(lambda: unknown.denials(host="b.test"), "the record of a refused lookup")
            literal = self.curl("-k", "https://151.101.1.10/echo/x")
            self.assertNotEqual(literal.code, 0)
            self.assertEventually(lambda: literal.denials(address="151.101.1.10"), "the record of a refused connection")
            self.assertEqual(sidecar.stop(), 0)
            self.assertIn("the fence stays shut", sidecar.errors())

    def test_git_and_opaque_bytes(self):
        with self.sidecar(RULES):
            clone = self.workload("git", "-c", f"http.sslCAInfo={self.bundle}", "clone", "-q", "https://github.com/octo/hello", "hello")
            self.assertExit(clone, 0)
            self.assertEqual(self.echo("db.test", 5432).out, "hello\n")
            other = self.workload("git", "-c", f"http.sslCAInfo={self.bundle}", "clone", "-q", "https://github.com/mallory/loot")
            self.assertNotEqual(other.code, 0)

    def test_every_server_asked_is_the_sidecar(self):
        with self.sidecar(RULES):
            for server in ("8.8.8.8", zone.RESOLVER, "203.0.113.9"):
                for transport in ("+notcp", "+tcp"):
                    dug = self.workload("dig", "+short", "+tries=1", "+time=5", transport, f"@{server}", "a.test", "A")
                    self.assertRegex(dug.out, r"^198\.1[89]\.", f"{server} {transport} {dug}")
            refused = self.workload("dig", "+tries=1", "+time=5", "@8.8.8.8", "b.test", "A")
            self.assertIn("NXDOMAIN", refused.out)
            self.assertIn("EDE: 15", refused.out)
            self.assertNotIn("b.test", self.asked())

    def test_ports_that_both_ask_from(self):
        """The workload and the sidecar ask the same server, and in time from the same ports. What one of them asked from a port must not be taken for the other's."""
        spelled = [f"n{i}.nowhere.test" for i in range(40)]
        with self.sidecar(RULES + [f"allow GET {name}" for name in spelled]) as sidecar:
            def upstream_ports():
                return {entry["port"] for entry in self.lab.dns_log()[self.dns_before:] if entry["transport"] == "udp"}

            dig = ["dig", "+tries=1", "+time=1"]
            for name in spelled[:8]:
                self.assertIn("NXDOMAIN", self.workload(*dig, name).out)
            theirs = sorted(upstream_ports())
            self.assertGreater(len(theirs), 8)
            self.assertEqual(self.ask_from(theirs), [], "from ports that the sidecar asked from")
            self.assertEqual(self.ask_from(list(range(33000, 61000, 6))), [], sidecar.errors())
            # A sixth of all ports: some of 32 names, each asked for in two families, are asked from one of them.
            unanswered = [name for name in spelled[8:] if "NXDOMAIN" not in self.workload(*dig, name).out]
            self.assertEqual(unanswered, [], "asked from ports that the workload asked from")

    def test_ipv6_alone(self):
        with self.sidecar(["allow GET v6only.test/echo/**"]):
            result = self.curl("-6", "https://v6only.test/echo/x")
            self.assertExit(result, 0)

    def test_processes_are_told_apart_where_they_are_seen(self):
        rules = [("allow GET a.test/echo/**", {"by": "/usr/bin/curl"})]
        with self.sidecar(rules):
            self.assertExit(self.curl("https://a.test/echo/x"), 0)
            other = self.workload("wget", "-q", "-O-", f"--ca-certificate={self.bundle}", "https://a.test/echo/x")
            self.assertNotEqual(other.code, 0)
            self.assertEventually(lambda: [r for r in other.audit if r.get("verdict") == "allow" and (r.get("process") or {}).get("exe") == "/usr/bin/curl"],
                                  "the record of the one that may")

    def test_rules_of_processes_nobody_sees_are_errors(self):
        rules = [("allow GET a.test/echo/**", {"by": "/usr/bin/curl"})]
        done = self.lab.run(self.sidecar_command(rules, ["--processes", "unseen"]), cwd=self.work)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("`by` and `under` could never be judged", done.stderr)
        self.assertIn("policy.yaml:4:", done.stderr)


REAL = "settings: { dns: real }"


class TrueAddresses(SidecarTest):
    def test_the_workload_sees_true_addresses(self):
        with self.sidecar(harness.policy_text(RULES, REAL)):
            self.assertEqual(self.workload("getent", "ahostsv4", "a.test").out.split()[0], "151.101.1.10")
            self.assertExit(self.curl("https://a.test/echo/x"), 0)
            self.assertIn(" 403 ", self.curl("-i", "-X", "POST", "https://a.test/echo/x").out.splitlines()[0])

    def test_an_opaque_rule_passes_in_the_kernel(self):
        with self.sidecar(harness.policy_text(RULES, REAL)):
            self.assertEqual(self.echo("db.test", 5432).out, "hello\n")
            self.assertIn("151.101.1.50 . tcp . 5432", self.sets())
            self.assertNotEqual(self.echo("db.test", 9443).code, 0)

    def test_two_names_at_one_address(self):
        rules = [f"allow {m} {scheme}{h}/echo/**" for m, h in (("GET", "a.test"), ("POST", "shared.test")) for scheme in ("", "http://")]
        with self.sidecar(harness.policy_text(rules, REAL)):
            for scheme in ("https", "http"):
                for host, method in (("a.test", "GET"), ("shared.test", "POST")):
                    self.workload("getent", "ahostsv4", host)
                for host, method in (("a.test", "GET"), ("shared.test", "POST")):
                    right = self.curl("-i", "-4", "-X", method, f"{scheme}://{host}/echo/x")
                    self.assertIn(" 200 ", right.out.splitlines()[0], str(right))
                    wrong = self.curl("-i", "-4", "-X", "POST" if method == "GET" else "GET", f"{scheme}://{host}/echo/x")
                    self.assertIn(" 403 ", wrong.out.splitlines()[0], str(wrong))

    def test_a_hundred_thousand_leases_are_held_in_40_mib(self):
        """By a fifth of them; bench/run has them all."""
        names = sorted(zone.MANY)[:int(os.environ.get("SLUICE_LEASED_NAMES", "20"))]
        with self.sidecar(harness.policy_text([f"allow tcp {name}:20000-20015" for name in names], REAL)) as sidecar:
            def memory():
                status = pathlib.Path(f"/proc/{sidecar.process.pid}/status").read_text()
                return [int(re.search(rf"{what}:\s+(\d+)", status)[1]) / 1024 for what in ("VmRSS", "RssAnon")]
            before, left = memory()[0], set(names)
            for _ in range(20):  # a thousand elements are not always in the kernel within 50 ms on a busy machine: then SERVFAIL
                asked = self.workload("dig", "+noall", "+answer", "+tries=1", "+time=5", *(part for name in sorted(left) for part in (name, "A")))
                left -= {line.split()[0].rstrip(".") for line in asked.out.splitlines() if line}
                if not left:
                    break
            self.assertEqual(left, set())
            held = self.sets().count(" . tcp . ")
            self.assertEqual(held, 1024 * len(names))
            resident, own = memory()
            print(f"{held} elements, {resident:.1f} MiB resident, {own:.1f} its own")
            if harness.SLOW == 1:
                self.assertLess(before + (resident - before) * 100_000 / held, 40)


class Packages(SidecarTest):
    def test_npm_installs_from_locks_several_at_once(self):
        # From a registry beside it, whatever the mode; a script of a package comes no further than the policy.
        wanted = [{"name": f"lab-{n}", "version": "1.0.0"} for n in range(12)]
        wanted.append({"name": "@corp/tool", "version": "2.0.0", "scripts": {"postinstall": "node -e \"fetch('https://b.test/').then(() => 0, () => 0)\""}})
        projects = [self.work / f"project-{n}" for n in range(3)]
        for project in projects:
            packages.npm_project(project, self.lab.folder / "site", "api/npm", wanted)
        rules = ["allow GET registry.corp.example/api/npm/**"]
        with self.sidecar(harness.policy_text(rules, REAL)):
            environment = {"NODE_EXTRA_CA_CERTS": str(self.ca), "npm_config_cafile": str(self.bundle)}
            running = [self.lab.popen([*WITHOUT_NET_ADMIN, "npm", "ci", "--no-fund", "--no-audit"], cwd=project, env=environment, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for project in projects]
            for process, project in zip(running, projects):
                out, _ = process.communicate(timeout=120 * harness.SLOW)
                self.assertEqual(process.returncode, 0, out)
                for package in wanted:
                    self.assertTrue((project / "node_modules" / package["name"] / "index.js").exists(), package["name"])
        self.assertNotIn("b.test", self.asked())
        self.assertEqual({entry["method"] for entry in self.served()}, {"GET"})


class LifeCycle(SidecarTest):
    def nothing_leaves(self, why):
        for command in (["curl", "-sS", "-m", "3", "-k", "https://151.101.1.10/echo/x"], ["ping", "-c", "1", "-W", "1", "151.101.1.10"],
                        ["dig", "+short", "+tries=1", "+time=1", "@8.8.8.8", "a.test"]):
            done = self.workload(*command, timeout=20)
            self.assertNotEqual((done.code, done.out.startswith("151.")), (0, True), f"{why}: {command} {done}")
            if command[0] != "dig":
                self.assertNotEqual(done.code, 0, f"{why}: {command} {done}")

    def test_the_fence_outlives_the_sidecar(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.sidecar(RULES) as sidecar:
                self.assertExit(self.curl("https://a.test/echo/x"), 0)
                sidecar.stop(number)
                self.nothing_leaves(f"after signal {number}")
            with self.sidecar(RULES):
                self.assertExit(self.curl("https://a.test/echo/x"), 0)
            self.nothing_leaves("after the second")

    def test_a_port_that_asked_before_a_restart_asks_the_next(self):
        """Connection tracking goes on leading a flow where its first packet went: to the port of a sidecar that is gone."""
        ports = [40001, 40002, 40003]
        for _ in range(3):
            with self.sidecar(RULES):
                self.assertEqual(self.ask_from(ports), [])

    def test_a_second_sidecar_is_told_off(self):
        with self.sidecar(RULES):
            authority = self.ca.read_text()
            done = self.lab.run(self.sidecar_command(None, []), cwd=self.work, timeout=60 * harness.SLOW)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("a sidecar runs in this network namespace already", done.stderr)
            self.assertEqual(self.ca.read_text(), authority)
            self.assertExit(self.curl("https://a.test/echo/x"), 0)

    def test_without_the_right_to_fence_it_says_so(self):
        done = self.lab.run(["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all", "--no-new-privs", *self.sidecar_command(RULES, [])],
                            cwd=self.work)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("NET_ADMIN", done.stderr)

    def test_a_machines_own_network_is_fenced_only_where_that_is_meant(self):
        # Without the right to fence it, so that a sidecar which asks nothing ends at that.
        unable = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all", "--no-new-privs"]
        with socket.socket(socket.AF_UNIX) as any_socket:
            cookie = struct.unpack("Q", any_socket.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8))[0]
        number = os.stat("/proc/self/ns/net").st_ino
        first = cookie == 1 or number < FIRST_DRAWN_NAMESPACE
        command = self.sidecar_command(RULES, [])
        refused = subprocess.run([*unable, *command], capture_output=True, text=True, timeout=60 * harness.SLOW)
        self.assertIn(("--host-network" if first else "NET_ADMIN"), refused.stderr, f"in network namespace {number} with the cookie {cookie}")
        self.assertEqual(refused.returncode, 2 if first else 4, refused.stderr)
        meant = subprocess.run([*unable, *command, "--host-network"], capture_output=True, text=True, timeout=60 * harness.SLOW)
        self.assertIn("NET_ADMIN", meant.stderr)
        self.assertEqual(subprocess.run(["nft", "list", "tables"], capture_output=True, text=True).stdout.count("sluice"), 0)

    def test_the_service_manager_is_told_of_start_reload_and_end(self):
        before = time.monotonic_ns() // 1000
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(str(self.folder / "notify"))
            told.settimeout(20 * harness.SLOW)
            with self.sidecar(RULES, environment={"NOTIFY_SOCKET": str(self.folder / "notify")}) as sidecar:
                self.assertEqual(told.recv(200), b"READY=1")
                for reload in (lambda: sidecar.process.send_signal(signal.SIGHUP),
                               lambda: self.policy.write_text("version: 1\nrules:\n  - allow: gti a.test\n")):
                    reload()
                    state = told.recv(200).decode().split("\n")
                    self.assertEqual(state[0], "RELOADING=1")
                    self.assertTrue(before < int(state[1].removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000, state)
                    self.assertEqual(told.recv(200), b"READY=1")
                self.assertEqual(sidecar.stop(), 0)
                self.assertEqual(told.recv(200), b"STOPPING=1")

    def test_dry_run_prints_what_nft_reads(self):
        done = self.lab.run(self.sidecar_command(harness.policy_text(["allow tcp 151.101.1.0/24:5432-5440"]), ["--dry-run"]), cwd=self.work)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("table inet sluice", done.stdout)
        rules = self.folder / "rules.nft"
        rules.write_text(done.stdout)
        checked = self.lab.run(["nft", "-c", "-f", rules])
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_without_a_word_on_the_policy_the_usual_file_is_read(self):
        own_etc = "mount -t tmpfs none /etc && mkdir /etc/sluice && printf '%s' \"$1\" >/etc/sluice/policy.yaml; [ -n \"$1\" ] || rm /etc/sluice/policy.yaml; shift; exec \"$@\""
        command = [lab_module.binary_for_anyone(self.lab.folder), "sidecar", "--dry-run"]
        for text, code, told in ((harness.policy_text(["allow tcp 151.101.1.0/24:5432"]), 0, "151.101.1.0"), ("version: 7\n", 2, "/etc/sluice/policy.yaml:1"),
                                 ("", 2, "write the policy to /etc/sluice/policy.yaml")):
            done = self.lab.run(["unshare", "-m", "sh", "-c", own_etc, "sh", text, *command])
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(told, done.stdout + done.stderr)


class Narrowing(SidecarTest):
    def reload(self, sidecar, rules):
        before = sidecar.errors().count("policy reloaded")
        self.policy.write_text(rules)
        self.assertEventually(lambda: sidecar.errors().count("policy reloaded") > before, "the reload")

    def check(self, settings):
        rules = ["allow tcp db.test:5432", "allow tcp a.test:5432", "allow GET a.test/drip"]
        with self.sidecar(harness.policy_text(rules, settings)) as sidecar, self.held("db.test", 5432) as revoked, self.held("a.test", 5432) as kept:
            self.reload(sidecar, harness.policy_text(rules[1:], settings))
            self.assertEqual(revoked.stdout.readline(), "cut\n")
            kept.stdin.write("\n")
            self.assertEqual(kept.stdout.readline(), "alive\n")
            self.assertNotEqual(self.echo("db.test", 5432).code, 0)
            self.assertEqual(self.echo("a.test", 5432).out, "hello\n")

    def test_what_the_proxy_carries_is_cut(self):
        self.check("settings: { dns: synthetic }")

    def test_what_the_kernel_carries_is_cut(self):
        self.check(REAL)

    def test_a_config_map_that_is_swapped_narrows_and_widens(self):
        # As the kubelet does it: a folder for each version, and the link `..data` renamed over.
        volume = self.folder / "volume"
        volume.mkdir()
        versions = iter(range(1, 10))

        def swap(rules):
            folder = volume / f"..2026_{next(versions)}"
            folder.mkdir()
            (folder / "policy.yaml").write_text(harness.policy_text(rules, REAL))
            (volume / "..data_tmp").symlink_to(folder.name)
            (volume / "..data_tmp").rename(volume / "..data")
            for old in volume.glob("..2026_*"):
                if old != folder:
                    shutil.rmtree(old)

        rules = ["allow tcp db.test:5432", "allow tcp a.test:5432"]
        swap(rules)
        (volume / "policy.yaml").symlink_to("..data/policy.yaml")
        self.policy = volume / "policy.yaml"
        with self.sidecar(None) as sidecar, self.held("db.test", 5432) as revoked, self.held("a.test", 5432) as kept:
            swap(rules[1:])
            self.assertEqual(revoked.stdout.readline(), "cut\n")
            self.assertNotEqual(self.echo("db.test", 5432).code, 0)
            swap(rules)
            # One swap is several events, and may be more than one reload.
            self.assertEventually(lambda: self.echo("db.test", 5432).out == "hello\n", "the second reload", 20)
            kept.stdin.write("\n")
            self.assertEqual(kept.stdout.readline(), "alive\n")

    def test_a_policy_that_does_not_load_changes_nothing(self):
        with self.sidecar(RULES) as sidecar:
            self.policy.write_text("version: 1\nrules:\n  - allow: gti a.test\n")
            self.assertEventually(lambda: "policy not reloaded" in sidecar.errors(), "the error")
            self.assertExit(self.curl("https://a.test/echo/x"), 0)


if __name__ == "__main__":
    harness.main()
