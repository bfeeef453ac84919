#!/usr/bin/python3
"""A sidecar for minutes: lookups all the time, a reload a second, leases that end, flows that go on. Ten seconds of it in the suite;
SLUICE_SOAK_MINUTES says how long (./dev soak sidecar 10).

Every second another policy comes into force. Of the names that change, those that are in it must be reached by name at once, and
those that are not must neither resolve nor be reached at the address they had; so must one whose rule has run out. Beside that, three
processes do without pause what must always work or never. None may be denied wrongly or let through wrongly, no lookup may fail for a while
because rules are being replaced, and the sidecar's memory stays flat.
"""
import contextlib
import datetime
import json
import os
import subprocess
import time

import harness
import sidecar_test
import soak
import zone

os.environ["LAB_TTL"] = "1"  # told as 5 s, so a lease has 65 s
MINUTES = float(os.environ.get("SLUICE_SOAK_MINUTES", 1 / 6))
PORT = zone.PORT_TCP_ECHO
ALWAYS = [f"allow tcp a.test:{PORT}", f"allow udp db.test:{zone.PORT_UDP_ECHO}", f"allow tcp shared.test:{zone.PORT_HTTP}"]
CHANGING = [(name, zone.SITES[name][0], PORT) for name in ("b.test", "telemetry.example", "pinned.test", "github.com", "x.wild.test")]
ENDING = ("registry.corp.example", zone.SITES["registry.corp.example"][0], PORT)
QUIET = ("api.github.com", zone.SITES["api.github.com"][0], PORT)  # looked up once, then left until its lease has ended


class Workload:
    def __init__(self, test, role):
        self.process = test.lab.popen([*sidecar_test.WITHOUT_NET_ADMIN, harness.PYTHON, test.client("sidecar_workload.py"), role], cwd=test.work,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("the workload ended by itself")
        return json.loads(line)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        return self.read()

    def end(self):
        self.process.kill()
        self.process.communicate()


class Soak(sidecar_test.SidecarTest):
    @contextlib.contextmanager
    def workload(self, role):
        made = Workload(self, role)
        try:
            yield made
        finally:
            made.end()

    def policy_of(self, second, until):
        """Two of the changing names, the one that ends with its rule, and what is always there."""
        open_now = [CHANGING[second % len(CHANGING)], CHANGING[(second + 2) % len(CHANGING)]]
        rules = [f"allow tcp {name}:{port}" for name, _, port in open_now + [QUIET]]
        rules.append((f"allow tcp {ENDING[0]}:{ENDING[2]}", {"until": until.strftime("%Y-%m-%dT%H:%M:%SZ")}))
        shut = [target for target in CHANGING if target not in open_now]
        return harness.policy_text(ALWAYS + rules, sidecar_test.REAL), open_now, shut

    def put_in_force(self, sidecar, text):
        before = sidecar.errors().count("policy reloaded")
        fresh = self.policy.with_suffix(".fresh")
        fresh.write_text(text)
        os.replace(fresh, self.policy)
        def reloaded():
            said = sidecar.errors()
            self.assertNotIn("policy not reloaded", said)
            return said.count("policy reloaded") > before

        self.assertEventually(reloaded, "the reload", 10)

    def test_nothing_is_wrong_for_minutes(self):
        until = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + datetime.timedelta(seconds=4)
        denied, allowed, memory, leases_ended, told = [], [], [], 0, []
        text, _, _ = self.policy_of(0, until)
        with self.sidecar(text) as sidecar, self.workload("check") as checks, self.workload("steady") as steady, self.workload("intrude") as intruder:
            self.assertEqual(checks.ask(open=[QUIET], shut=[]), {"denied": [], "allowed": []})
            begun, second = time.monotonic(), 0
            while time.monotonic() - begun < MINUTES * 60:
                second += 1
                now = datetime.datetime.now(datetime.UTC)
                if now > until + datetime.timedelta(seconds=2):
                    until = now.replace(microsecond=0) + datetime.timedelta(seconds=4)  # as it is written
                text, open_now, shut = self.policy_of(second, until)
                self.put_in_force(sidecar, text)
                ends_in = (until - datetime.datetime.now(datetime.UTC)).total_seconds()
                # Not judged where the rule runs out about now.
                if ends_in > 2:
                    open_now = open_now + [ENDING]
                elif ends_in < -1:
                    shut = shut + [ENDING]
                result = checks.ask(open=open_now, shut=shut)
                if datetime.datetime.now(datetime.UTC) >= until:  # it ran out while the machine was busy
                    result["denied"] = [fault for fault in result["denied"] if not fault.startswith(ENDING[0])]
                denied += result["denied"]
                allowed += result["allowed"]
                memory.append(soak.resident(sidecar.process.pid))
                if QUIET[1] not in self.sets():
                    leases_ended += 1
                    # What the kernel no longer holds goes through the proxy, by the address alone, and is leased anew with the next lookup.
                    denied += checks.ask(direct=[QUIET], open=[QUIET], shut=[])["denied"]
                if second % 60 == 0:
                    print(f"  {second} reloads, {memory[-1] / 2**20:.1f} MiB, {len(denied)} wrong denials, {len(allowed)} wrong allows", flush=True)
                time.sleep(max(0, begun + second - time.monotonic()))
            told = [steady.ask(), intruder.ask()]
            said = [line for line in sidecar.errors().splitlines() if "policy reloaded" not in line]
            self.assertEqual(sidecar.process.poll(), None, sidecar.errors())
            # A C library that is told SERVFAIL asks again by itself: the sidecar's own word counts.
            self.assertNotIn("get SERVFAIL", sidecar.errors())
        for one in told:
            denied += one["denied"]
            allowed += one["allowed"]
        base = memory[len(memory) // 5]
        print(f"  {second} reloads in {MINUTES:.1f} minutes, {told[0]['rounds']} rounds that must work ({told[0]['packets']} first packets), {told[1]['rounds']} that must not, "
              f"{leases_ended} leases that ended; {len(denied)} wrong denials, {len(allowed)} wrong allows; resident {base / 2**20:.1f} MiB after a fifth, "
              f"{max(memory) / 2**20:.1f} MiB at most", flush=True)
        self.assertEqual((denied, allowed), ([], []), "the sidecar said: " + "\n".join(said[-40:]))
        self.assertLessEqual(max(memory[len(memory) // 5:]) - base, soak.MAY_GROW)
        self.assertGreater(told[0]["rounds"], 50 * MINUTES)
        self.assertGreater(told[1]["rounds"], 20 * MINUTES)
        if MINUTES >= 2:
            self.assertGreater(leases_ended, 0, "no lease ended")


if __name__ == "__main__":
    harness.main()
