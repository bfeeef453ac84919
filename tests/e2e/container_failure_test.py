#!/usr/bin/python3
"""What is left of a container when its agent, its supervisor or a disk is lost: a program in it goes on trying.

Usage: container_failure_test.py runc|crun|rootless_runc|rootless_crun
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import containers
import harness
import lab as lab_module

# Holds a relay and tries again and again: when each round began (the machine's clock), what is allowed, what is not, its own
# loopback, the relay. Starts no program, which would be another notified call.
RESIDENT = """
import errno, socket, time
own = socket.create_server(("127.0.0.1", 0))
held = socket.create_connection(("151.101.1.50", 5432), 10)
def dial(place):
    try:
        socket.create_connection(place, 10).close()
        return "connected"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
def dial_own():
    said = dial(own.getsockname())
    if said == "connected":
        own.accept()[0].close()
    return said
def relay():
    try:
        held.sendall(b"x")
        return "echoed" if held.recv(100) else "ended"
    except OSError:
        return "ended"
while True:
    print(time.monotonic(), dial(("151.101.1.50", 5432)), dial(("8.8.8.8", 853)), dial_own(), relay(), flush=True)
    time.sleep(0.02)
"""
SUPERVISED, UNSUPERVISED = "connected EACCES connected echoed", "ENOSYS ENOSYS ENOSYS ended"


class ResidentTest(containers.ContainerTest):
    def assertRounds(self, process, wanted, since=0.0, count=5):
        """The rounds of RESIDENT that began after `since` are as wanted; no other is let through meanwhile."""
        seen = []
        while len(seen) < count:
            line = process.stdout.readline()
            self.assertTrue(line, f"it ended: {seen}")
            begun, said = line.rstrip().split(" ", 1)
            if float(begun) > since:
                seen.append(said)
        self.assertEqual(seen, [wanted] * count)


class Reload(ResidentTest):
    def test_a_policy_that_changes_holds_at_once_for_what_runs(self):
        rules = ["allow tcp 151.101.1.50:5432"]
        with self.agent(rules) as agent, self.contained(harness.PYTHON, "-c", RESIDENT) as (_, process):
            self.assertRounds(process, SUPERVISED)
            self.policy.write_text(harness.policy_text(["allow tcp 151.101.1.50:22"]))
            self.assertEventually(lambda: "policy reloaded (file changed)" in agent.errors(), "the change to be seen")
            self.assertRounds(process, "EACCES EACCES connected ended", since=time.monotonic())
            self.policy.write_text(harness.policy_text(rules))
            agent.process.send_signal(signal.SIGHUP)
            self.assertEventually(lambda: "policy reloaded (SIGHUP)" in agent.errors(), "the signal to come to it")
            self.assertRounds(process, "connected EACCES connected ended", since=time.monotonic())


class Failure(ResidentTest):
    def gone(self, name):
        pid = self.first_process(name)
        return pid == 0 or not pathlib.Path(f"/proc/{pid}").exists()

    def test_a_killed_agent_leaves_nothing_open_and_the_next_one_kills_what_it_finds(self):
        with self.agent(["allow tcp 151.101.1.50:5432"]) as agent, self.contained(harness.PYTHON, "-c", RESIDENT) as (name, process):
            self.assertRounds(process, SUPERVISED)
            self.assertIn("connected", self.enter(name, harness.PYTHON, "-c", containers.DIAL, "151.101.1.50:5432").out)
            supervisors = agent.supervisors()
            agent.stop(signal.SIGKILL)
            self.assertEventually(lambda: not set(supervisors) & set(lab_module.descendants()), "its supervisors to end with it")
            self.assertRounds(process, UNSUPERVISED, since=time.monotonic())
            self.assertFalse(self.gone(name))
            # Nobody answers: no agent to enter by, and no program starts in there.
            self.assertNotIn("connected", self.enter(name, harness.PYTHON, "-c", containers.DIAL, "151.101.1.50:5432").out)
            agent.start()
            self.assertSaid(agent, f"container {name} had lost its supervisor: killed")
            self.assertEventually(lambda: self.gone(name), "it to be killed")
            self.assertExit(self.contain("/bin/true"), 0)

    @containers.root_alone("a cgroup of its own")
    def test_on_restart_freeze_freezes(self):
        with self.agent(["allow tcp 151.101.1.50:5432"], "--on-restart", "freeze") as agent, self.contained(*containers.WAIT) as (name, process):
            self.assertEqual(process.stdout.readline(), "up\n", agent.errors())
            agent.stop(signal.SIGKILL)
            pid = self.first_process(name)
            cgroup = next(line[3:] for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::"))
            agent.start()
            self.assertSaid(agent, f"container {name} has lost its supervisor: frozen")
            events = self.lab.run(["cat", f"/sys/fs/cgroup{cgroup}/cgroup.events"]).stdout
            self.assertIn("frozen 1", events)
            self.lab.run(["sh", "-c", f"echo 0 > /sys/fs/cgroup{cgroup}/cgroup.freeze"])

    @containers.root_alone("a cgroup of its own")
    def test_what_else_is_in_its_cgroup_goes_on(self):
        for flags in ((), ("--on-restart", "freeze")):
            with self.agent(["allow tcp 151.101.1.50:5432"], *flags) as agent, self.contained(*containers.WAIT) as (name, process):
                self.assertEqual(process.stdout.readline(), "up\n", agent.errors())
                agent.stop(signal.SIGKILL)
                pid = self.first_process(name)
                cgroup = next(line[3:] for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::"))
                self.assertEqual([json.loads(f.read_text())["cgroup"] for f in agent.state.glob("*.json")], [cgroup])
                enter = f"mkdir -p /sys/fs/cgroup{cgroup}/below && echo $$ > /sys/fs/cgroup{cgroup}/below/cgroup.procs && echo in && exec sleep 600"
                other = self.lab.popen(["sh", "-c", enter], stdout=subprocess.PIPE, text=True)
                try:
                    self.assertEqual(other.stdout.readline(), "in\n")
                    process.kill()  # crun, which kills whatever its cgroup holds as soon as its container has ended
                    agent.start()
                    self.assertSaid(agent, f"container {name} had lost its supervisor: killed")
                    self.assertEventually(lambda: self.gone(name), "it to be killed")
                    self.assertIsNone(other.poll())
                    self.assertIn("frozen 0", self.lab.run(["cat", f"/sys/fs/cgroup{cgroup}/cgroup.events"]).stdout)
                finally:
                    other.kill()
                    other.communicate()
                    self.lab.run(["rmdir", f"/sys/fs/cgroup{cgroup}/below"])

    @containers.root_alone("cgroups")
    def test_a_cgroup_that_it_was_started_in_is_not_its_own(self):
        if self.runtime != "crun":
            self.skipTest("runc makes one in any case")
        group = f"/sys/fs/cgroup/sluice-session-{os.getpid()}"
        with self.agent(["allow tcp 151.101.1.50:5432"]) as agent:
            name, bundle = self.name(), self.bundle(containers.WAIT, change=lambda config: config["linux"].pop("cgroupsPath"))
            run = f"mkdir {group} && echo $$ > {group}/cgroup.procs && {self.runtime} --cgroup-manager=disabled --root {self.folder}/runtime run -b {bundle} {name}; echo alive"
            session = self.lab.popen(["sh", "-c", run], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                self.assertEqual(session.stdout.readline(), "up\n", agent.errors())
                self.assertEqual([json.loads(f.read_text())["cgroup"] for f in agent.state.glob("*.json")], [""])
                agent.stop()
                self.assertEqual(session.communicate(timeout=20 * harness.SLOW)[0], "alive\n")
            finally:
                session.kill()
                session.communicate()
                self.lab.run(["rmdir", group])

    def supervisor_of(self, agent, name):
        """The agent's child that holds that container's network namespace."""
        record = next(r for r in map(lambda f: json.loads(f.read_text()), agent.state.glob("*.json")) if r["id"] == name)
        home = "net:[{}]".format(os.stat("/proc/{pid}/ns/net".format(**record)).st_ino)

        def holds(pid):
            for link in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{link}") == home:
                        return True
            return False

        return next(pid for pid in agent.supervisors() if holds(pid))

    def test_a_container_whose_supervisor_dies_is_killed_and_no_other(self):
        resident = (harness.PYTHON, "-c", RESIDENT)
        with self.agent(["allow tcp 151.101.1.50:5432"]) as agent, self.contained(*resident) as (one, first), self.contained(*resident) as (two, second):
            for process in (first, second):
                self.assertRounds(process, SUPERVISED)
            supervisor = self.supervisor_of(agent, one)
            os.kill(supervisor, signal.SIGKILL)
            self.assertEventually(lambda: supervisor not in lab_module.descendants(), "its supervisor to end")
            killed = time.monotonic()
            self.assertEventually(lambda: self.gone(one), "the first to be killed")
            for line in first.stdout:
                self.assertTrue(float(line.split()[0]) < killed or line.rstrip().endswith(UNSUPERVISED), line)
            self.assertSaid(agent, "its supervisor was ended by signal 9: killed")
            self.assertRounds(second, SUPERVISED, since=killed)
            self.assertIn("connected", self.enter(two, harness.PYTHON, "-c", containers.DIAL, "151.101.1.50:5432").out)
            self.assertEqual(agent.stop(), 0)
            self.assertEventually(lambda: self.gone(two), "the second to end with the agent")
            self.assertFalse(agent.socket.exists())

    def test_also_where_whoever_started_the_agent_ignores_the_end_of_children(self):
        ignores = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])"
        self.wrapper = lambda: [harness.PYTHON, "-c", ignores]
        self.test_a_container_whose_supervisor_dies_is_killed_and_no_other()

    def test_a_hook_in_the_container_is_not_taken_for_it(self):
        def hooked(config):
            config["hooks"] = {"startContainer": [{"path": "/usr/bin/true"}]}

        with self.agent(["allow tcp 151.101.1.50:5432"]) as agent, self.contained(*containers.WAIT, change=hooked) as (name, process):
            self.assertEqual(process.stdout.readline(), "up\n", agent.errors())
            [supervisor] = agent.supervisors()
            os.kill(supervisor, signal.SIGKILL)
            self.assertEventually(lambda: self.gone(name), "the container to be killed")
            self.assertSaid(agent, "its supervisor was ended by signal 9: killed")

    def test_an_agent_killed_at_any_moment_of_a_start_lets_nothing_out(self):
        with self.agent(["allow tcp 151.101.1.50:5432"]) as agent:
            for step in range(10):
                with self.contained(harness.PYTHON, "-c", RESIDENT) as (name, process):
                    time.sleep(0.02 * step * harness.SLOW)
                    supervisors = agent.supervisors()
                    agent.stop(signal.SIGKILL)
                    self.assertEventually(lambda: not set(supervisors) & set(lab_module.descendants()), "its supervisors to end with it")
                    killed = time.monotonic()
                    # Its runtime gives up, or the program that runs already is answered by nobody.
                    hung = threading.Timer(20 * harness.SLOW, process.kill)
                    hung.start()
                    seen = []
                    for line in process.stdout:
                        seen.append(line.rstrip())
                        if line.rstrip().endswith(UNSUPERVISED):
                            break
                    self.assertTrue(hung.is_alive(), f"it hung, step {step}")
                    hung.cancel()
                    late = [line for line in seen if float(line.split()[0]) > killed and ("connected" in line or "echoed" in line)]
                    self.assertEqual(late, [], step)
                    agent.start()
                    self.assertEventually(lambda: process.poll() is not None or self.gone(name), f"its container to end, step {step}", 20)
            self.assertExit(self.contain("/bin/true"), 0)

    def test_a_full_disk_for_records_refuses_everything(self):
        self.audit = pathlib.Path("/dev/full")
        with self.agent(["allow tcp 151.101.1.50:5432"]) as agent, self.contained(harness.PYTHON, "-c", RESIDENT) as (_, process):
            for line in process.stdout:
                if line.split(" ", 1)[1].startswith("EACCES EACCES"):
                    break
            self.assertSaid(agent, "No space left on device; from now on everything is refused")
            self.assertNotIn("connected EACCES", process.stdout.readline())

    def test_a_full_state_folder_starts_nothing_until_there_is_room(self):
        state = self.folder / "state"
        state.mkdir()
        self.lab.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "state", state])
        self.addCleanup(self.lab.run, ["umount", "-l", state])
        with self.agent(["allow tcp 151.101.1.50:5432"]) as agent:
            self.lab.run(["sh", "-c", f"cat /dev/zero > {state}/fill"])
            result = self.contain("/bin/sh", "-c", "echo it ran")
            self.assertNotEqual(result.code, 0)
            self.assertNotIn("it ran", result.out)
            self.assertSaid(agent, f"cannot record a container in {state}: No space left on device")
            self.lab.run(["rm", state / "fill"])
            self.assertExit(self.contain("/bin/true"), 0)

    def test_a_runtime_without_its_agent_starts_nothing(self):
        with self.agent(["allow GET a.test"]) as agent:
            agent.stop()
            result = self.contain("/bin/sh", "-c", "echo it ran")
            self.assertNotEqual(result.code, 0)
            self.assertNotIn("it ran", result.out)


class UnderItsUnit(containers.UnderItsUnit):
    gone, assertRounds = Failure.gone, Failure.assertRounds
    test_the_next_one_kills_what_it_finds = containers.root_alone("a unit of the system's")(
        Failure.test_a_killed_agent_leaves_nothing_open_and_the_next_one_kills_what_it_finds)
    test_it_freezes = containers.root_alone("a unit of the system's")(Failure.test_on_restart_freeze_freezes)


containers.main()
