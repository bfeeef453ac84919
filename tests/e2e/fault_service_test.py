#!/usr/bin/python3
"""What fault_test.py asks of `sluice run`, of `sluice proxy`, `sluice sidecar` and `sluice agent`: at the points that only these meet, nothing that
the policy forbids leaves, nothing hangs, and the operator is told. Needs a build with fault injection (base/fault.h), as `dev` is."""
import concurrent.futures
import contextlib
import os
import re
import signal
import socket
import subprocess
import time

import containers
import fault_points
import harness
import lab as lab_module
import proxy_harness
import sidecar_test

RULES = ["allow GET a.test/pub/**", "allow tcp db.test:5432"]
FAULT = "SLUICE_FAULT"
# That a sidecar meets as it starts, and again for each connection.
ENDING = {"purge.end": fault_points.SIDECAR.pop("purge.end")}
LATER = {point: fault_points.SIDECAR_START[point] for point in ("redirect.here", "redirect.original")}


class Serving:
    """What the sweeps over a service share: `stderr` is where it writes."""

    def told(self, service):
        """Beside what no rule allows."""
        result = harness.Result(0, "", service.errors(), self.audit)
        return re.search(r"(?m)^sluice: (error: )?cannot ", result.err) or [r for r in result.audit if r.get("verdict") == "deny" and r.get("reason") != "no-rule" or r.get("error")]

    def assertMet(self, fault, text):
        self.assertTrue(fault_points.met(fault, text), f"{fault}: never came to that\n{text}")

    def check_start(self, points, command):
        for fault in fault_points.spelled(points):
            with self.subTest(fault):
                done = self.lab.run(command, cwd=self.work, env={FAULT: fault}, timeout=30 * harness.SLOW)
                self.assertIn(done.returncode, (2, 4, 5), f"{fault}\n{done.stderr}")
                self.assertMet(fault, done.stderr)
                self.assertRegex(done.stderr, r"(?m)^sluice: (?!ready|enforcing)\S", fault)
        fault_points.check_nothing_left(self)


class Proxy(Serving, proxy_harness.ProxyTest):
    PROBE = ("-o", "/dev/null", "-w", "%{http_code}")

    def judge(self, proxy, *flags, via=None):
        """What came of a request that is allowed, and of one that is not, at the same time."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            got = list(pool.map(lambda path: self.curl(proxy, *self.PROBE, "-m", "6", *flags, f"https://a.test/{path}", via=via), ("pub/x", "private")))
        self.assertNotIn("200", got[1].out, str(got[1]))
        return got[0].out == "200"

    def sweep(self, points, flags=(), listen=("127.0.0.1:0",), curl=(), via=None, rules=RULES):
        for fault in fault_points.spelled(points):
            with self.subTest(fault), self.proxy(rules, *flags, listen=listen, env={FAULT: fault}) as proxy:
                through = self.judge(proxy, *curl, via=via and via(proxy))
                self.assertMet(fault, proxy.errors())
                self.assertEventually(lambda: through or self.told(proxy), f"somebody to be told\n{proxy.errors()}")
                self.assertEqual(proxy.stop(), 0, proxy.errors())
            self.audit.unlink(missing_ok=True)
        fault_points.check_nothing_left(self)

    def test_the_start(self):
        self.check_start(fault_points.PROXY_START, self.proxy_command([("allow GET a.test/pub/**", {"by": "[/usr/bin/curl]"})], [], ["127.0.0.1:0"]))

    def test_connections_that_cannot_be_taken(self):
        # Neither gets a word, which needs no long patience to see.
        self.sweep({point: errors for point, errors in fault_points.PROXY.items() if point.startswith("accept.")}, curl=("-m", "2"))

    def test_tls_to_the_proxy(self):
        certificate = ("--listen-tls-cert", self.lab.folder / "good.pem", "--listen-tls-key", self.lab.folder / "good.key")
        self.sweep({"client.pair": fault_points.PROXY["client.pair"]}, certificate,
                   curl=("--proxy-insecure",), via=lambda proxy: f"https://127.0.0.1:{proxy.port}")

    def test_who_a_client_is(self):
        rules = [("allow GET a.test/pub/**", {"by": "[/usr/bin/curl]"})]
        socket = self.folder / "proxy.sock"
        self.sweep({point: errors for point, errors in fault_points.PROXY.items() if point.startswith("owner.")}, rules=rules)
        of_peers = {point: fault_points.PROXY[point] for point in ("client.credentials", "client.pidfd", "unix.refuse-descriptors")}
        self.sweep(of_peers, listen=(f"unix:{socket}",), rules=rules, via=lambda _: f"socks5h://localhost{socket}")


class Sidecar(Serving, sidecar_test.SidecarTest):
    def test_the_start(self):
        self.check_start(fault_points.SIDECAR_START, self.sidecar_command(RULES, []))

    @contextlib.contextmanager
    def holding(self):
        """A connection that the policy takes back later, where it comes to be."""
        process = self.lab.popen([*sidecar_test.WITHOUT_NET_ADMIN, harness.PYTHON, "-c", sidecar_test.HOLD, "db.test", "5432"], cwd=self.work, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1)
        try:
            self.was = process.stdout.readline()
            yield process
        finally:
            process.kill()
            process.communicate()

    def test_what_fails_for_good(self):
        # With true addresses, of which the kernel lets some through: flows that a policy takes back are ended there.
        rules = {rules: harness.policy_text(RULES[:rules], sidecar_test.REAL) for rules in (1, 2)}
        for fault in [*fault_points.spelled(fault_points.SIDECAR), *(f"{fault}:1000:3" for fault in fault_points.spelled(LATER))]:
            with self.subTest(fault), self.sidecar(rules[2], environment={FAULT: fault}) as sidecar, self.holding() as held:
                # Whoever may, changes what is the sidecar's to watch.
                self.lab.run(["ip", "link", "add", "fault0", "type", "veth", "peer", "name", "fault1"])
                self.lab.run(["nft", "add", "table", "inet", "fault"])
                through = self.curl("-m", "8", "-o", "/dev/null", "-w", "%{http_code}", "https://a.test/pub/x").out == "200"
                self.assertNotIn("200", self.curl("-m", "8", "-o", "/dev/null", "-w", "%{http_code}", "https://a.test/private").out)
                self.assertNotEqual(self.echo("151.101.1.40", 443).code, 0)
                self.policy.write_text(rules[1])
                sidecar.process.send_signal(signal.SIGHUP)
                self.assertEventually(lambda: "policy reloaded" in sidecar.errors(), "the reload")
                self.assertEventually(lambda: fault_points.met(fault, sidecar.errors()), f"{fault} to be met", 10)
                self.assertEqual(held.communicate("again\n")[0], "cut\n" if self.was else "")
                self.lab.run(["nft", "delete", "table", "inet", "fault"])
                self.lab.run(["ip", "link", "delete", "fault0"])
                self.assertTrue(through or self.told(sidecar), f"nobody was told\n{sidecar.errors()}")
                self.assertEqual(sidecar.stop(), 0, sidecar.errors())
            self.audit.unlink(missing_ok=True)
        fault_points.check_nothing_left(self)

    def test_a_flow_that_cannot_be_ended_keeps_the_next_one_from_starting(self):
        with self.sidecar(harness.policy_text(RULES, sidecar_test.REAL)) as sidecar, self.holding():
            self.assertEqual(self.was, "open\n")
            sidecar.stop(signal.SIGKILL)
            self.check_start(ENDING, self.sidecar_command(harness.policy_text(RULES[:1], sidecar_test.REAL), []))


class Agent(Serving, containers.ContainerTest):
    runtime = "crun"  # which hands on the standard streams as they are
    fault = ""
    SAID = "151.101.1.50:5432 connected\n151.101.1.40:443 EACCES\n"

    def wrapper(self):
        return ["env", f"{FAULT}={self.fault}"]

    def dial(self, stdin=subprocess.DEVNULL):
        """From a program that another has started."""
        script = f"{harness.PYTHON} -c '{containers.DIAL}' 151.101.1.50:5432 151.101.1.40:443; exit 0"
        done = self.lab.run([*self.tool(), "run", "-b", self.bundle(["/bin/sh", "-c", script]), self.name()], stdin=stdin, timeout=60 * harness.SLOW)
        return harness.Result(done.returncode, done.stdout, done.stderr, self.audit)

    def serving(self, fault):
        self.fault = fault
        return self.agent(["allow tcp 151.101.1.50:5432"])

    def test_the_start(self):
        self.policy.write_text(harness.policy_text(RULES))
        self.check_start(fault_points.AGENT_START, [lab_module.binary_for_anyone(self.lab.folder), "agent", "--listen", self.folder / "a.sock", "--state-dir",
                                                    self.folder / "s", "--policy", self.policy])

    def test_a_container_that_cannot_be_held_does_not_start(self):
        # One of its descriptors is a socket.
        stdin, other = socket.socketpair()
        self.addCleanup(stdin.close)
        self.addCleanup(other.close)
        for fault in fault_points.spelled(fault_points.AGENT_REFUSES):
            with self.subTest(fault), self.serving(fault) as agent:
                result = self.dial(stdin)
                self.assertEqual(result.out, "", f"{fault}\n{result}\n{agent.errors()}")
                self.assertMet(fault, agent.errors())
                self.assertEventually(lambda: re.search(r"(?m)^sluice: (?!ready)\S", agent.errors()), "a word about it")
                self.assertEqual(agent.stop(), 0, agent.errors())
            agent.log.unlink()
        self.assertEqual(self.served(), [])

    def test_what_is_over_then(self):
        for fault in ("agent.accept:EMFILE:2", "proc.namespace:EACCES"):
            with self.subTest(fault), self.serving(fault) as agent:
                result = self.dial()
                self.assertEqual(result.out, self.SAID, f"{fault}\n{result}\n{agent.errors()}")
                self.assertMet(fault, agent.errors())

    def test_a_container_that_can_no_longer_be_watched_is_killed(self):
        with self.serving("container.wait:ENOMEM:1:0") as agent:
            before = time.monotonic()
            self.contain("/bin/sleep", "60")
            self.assertLess(time.monotonic() - before, 30 * harness.SLOW)
            self.assertMet(self.fault, agent.errors())
            self.assertIn("killed", agent.errors())

    def test_one_that_cannot_be_found_again_stays_on_record(self):
        with contextlib.ExitStack() as kept:
            with self.serving("record.process:EMFILE") as agent:
                _, process = kept.enter_context(self.contained(*containers.WAIT))
                self.assertEqual(process.stdout.readline(), "up\n")
                for supervisor in agent.supervisors():
                    os.kill(supervisor, signal.SIGKILL)
                self.assertEventually(lambda: "cannot look at process" in agent.errors(), "the agent to say so")
                self.assertEqual(len(list(agent.state.glob("*.json"))), 1)
                self.assertMet(self.fault, agent.errors())
            # It lives on until somebody finds it.
            self.assertIsNone(process.poll())
            with self.serving("") as agent:
                self.assertIn("had lost its supervisor: killed", agent.errors())


if __name__ == "__main__":
    harness.main()
