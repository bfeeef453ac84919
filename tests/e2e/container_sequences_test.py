#!/usr/bin/python3
"""The sequences of connect(2) and the attacks of tests/attack/notify, by the same program, in containers of a real runtime.

Usage: container_sequences_test.py runc|crun|rootless_runc|rootless_crun
SLUICE_WORKLOAD is that program.
"""
import os
import shutil
import signal
import subprocess

import containers
import harness
import zone

PROGRAM = "/opt/workload"
RULES = [f"allow tcp {name}:{zone.PORT_GREETING}" for name in ("a.test", "b.test", "slow.test", "db.test")]
# Where the program's places are: names of the lab, by the addresses that the container's resolver gives them.
PLACES = {"198.18.0.1": ("a.test", "AF_INET"), "198.18.0.2": ("b.test", "AF_INET"), "198.18.0.3": ("db.test", "AF_INET"),
          "198.18.0.4": ("slow.test", "AF_INET"), "fd5c::1": ("a.test", "AF_INET6")}
FIND = f"""
import os, socket, sys
def address(name, family):
    return socket.getaddrinfo(name, 1, getattr(socket, family))[0][4][0]
os.environ["PLACES"] = " ".join(f"{{place}}={{address(*name)}}" for place, name in {PLACES!r}.items())
os.environ["PLACES_PORT"] = "{zone.PORT_GREETING}"
os.execv("{PROGRAM}", ["workload", *sys.argv[1:]])
"""
SEQUENCES = ("nonblocking_allowed", "blocking_allowed", "denied_name", "denied_literal", "closed_loopback_port", "upstream_refuses", "alarm_without_restart",
             "alarm_with_restart", "terminated_while_waiting", "already_connected", "epoll_registered_before", "duplicate_sees_the_peer",
             "fork_shares_the_socket", "vfork_child_connects", "options_are_kept", "bound_port_is_kept", "own_listener", "dissolved_then_listening",
             "mapped_denied", "mapped_allowed", "ipv6_allowed", "bad_arguments", "send_timeout", "nonblocking_while_waiting", "full_backlog_of_its_own")
ATTACKS = ("io_uring", "int80", "fast_open", "socket_families", "refused_calls", "options_that_hang", "udp", "linger", "thread_with_its_own_table",
           "second_filter", "race_address 20000")
# A handshake with slow.test takes the second after which the kernel asks again.
SLOW = f"""
table inet slow {{
    set asked {{ typeof ip saddr . tcp sport; flags dynamic,timeout; timeout 10s; }}
    chain in {{ type filter hook input priority 0;
        ip daddr {zone.SITES["slow.test"][0]} tcp dport {zone.PORT_GREETING} tcp flags syn ip saddr . tcp sport != @asked add @asked {{ ip saddr . tcp sport }} drop
    }}
}}
"""
KILLED = 128 + signal.SIGSYS


class Sequences(containers.ContainerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        subprocess.run(["nsenter", f"--net=/proc/{harness.THE_LAB.world.pid}/ns/net", "nft", "-f", "-"], input=SLOW, text=True, check=True)

    def case(self, words, literal=None):
        self.host_root()
        work = self.folder / "root-host/work"
        for left in work.iterdir():
            left.unlink()

        def change(config):
            config["process"]["cwd"] = "/work"
            config["mounts"].append(containers.bind(self.program, PROGRAM))

            if literal:
                config["process"]["env"] += ["PLACES=" + " ".join("=".join(pair) for pair in literal.items()), f"PLACES_PORT={zone.PORT_GREETING}"]

        program = [PROGRAM] if literal else [harness.PYTHON, "-c", FIND]
        result = self.contain(*program, *words.split(), change=change, timeout=90)
        report = work / "report"
        return result.code, report.read_text() if report.exists() else "", result

    def setUp(self):
        super().setUp()
        self.program = self.folder / "workload"
        shutil.copy(os.environ["SLUICE_WORKLOAD"], self.program)

    def assertAllPass(self, cases):
        with self.agent(RULES) as agent:
            for words in cases:
                with self.subTest(words):
                    code, report, result = self.case(words)
                    self.assertEqual((code, report), (0, ""), f"{result}\n{agent.errors()[-1500:]}")

    def test_each_sequence_behaves_as_without_a_supervisor(self):
        self.assertAllPass(SEQUENCES)

    def test_each_attack_comes_to_nothing(self):
        self.assertAllPass(ATTACKS)

    def test_a_call_of_another_abi_ends_the_program(self):
        with self.agent(RULES):
            self.assertEqual(self.case("x32")[0], KILLED)

    def test_a_descriptor_that_changes_under_a_call_reaches_nobody(self):
        # Without Landlock such a connect goes on: to the supervisor's listener, which ends what nobody approved.
        with self.agent([]) as agent:
            outside = {"198.18.0.9": zone.SITES["b.test"][0]}
            _, report, result = self.case("race_descriptor 5000", outside)
            self.assertIn(report.partition(" (")[0], ("", "connected to a forbidden place"), f"{result}\n{agent.errors()[-1500:]}")
            self.assertEqual([seen for seen in self.served() if seen.get("port") == zone.PORT_GREETING], [])


containers.main()
