#!/usr/bin/python3
"""`sluice run --control`: a run's policy, decisions and end over a UNIX socket, who may come in, and that the command never can."""
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import threading
import time

import control
import harness
import lab
import reload_test

ECHO = ["allow GET a.test/pub", "allow tcp db.test:5432"]
NARROW = ["allow GET a.test/pub"]
WAIT = ["/bin/sh", "-c", "echo up; exec sleep 600"]


class ControlTest(harness.SluiceTest):
    def setUp(self):
        super().setUp()
        self.socket = self.folder / "control.sock"

    def controlled(self, rules, *command, flags=()):
        return self.running(rules, *command, flags=["--control", self.socket, *flags])

    def ask(self, method, target, body=None, **headers):
        return control.ask(self.socket, method, target, body, **headers)

    def opened(self):
        self.assertEventually(self.socket.exists, "the socket", 20)


class Policy(ControlTest):
    def test_a_narrowing_put_cuts_open_flows_within_100_ms(self):
        self.assertSoon(self.cut_after_a_put, 0.1)

    def cut_after_a_put(self):
        with self.controlled(ECHO, harness.PYTHON, "-c", reload_test.HOLD, "tcp:") as process:
            self.assertEqual(process.stdout.readline().strip(), "open")
            code, text, tag = self.ask("GET", "/v1/policy")
            self.assertEqual((code, text, tag), (200, self.policy.read_text(), '"1"'))
            status = self.ask("GET", "/v1/status")[1]
            self.assertEqual((status["run"]["state"], status["open_connections"]), ("running", 1))
            self.assertNotIn("fence", status)
            begin = time.time()
            code, answer, _ = self.ask("PUT", "/v1/policy", harness.policy_text(NARROW), If_Match='"1"')
            self.assertEqual((code, answer["applied"], answer["revision"]), (200, True, 2), answer)
            line = process.stdout.readline()
            line = process.stdout.readline() if line.startswith("cut by") else line
            return float(line.split()[1]) - begin

    def test_a_change_is_of_the_revision_it_names_and_proved_where_asked(self):
        with self.controlled(ECHO, *WAIT) as process:
            self.assertEqual(process.stdout.readline(), "up\n")
            code, answer, _ = self.ask("PUT", "/v1/policy", harness.policy_text(NARROW), If_Match='"9"')
            self.assertEqual((code, answer["code"]), (412, "another_revision"))
            code, answer, _ = self.ask("PUT", "/v1/policy?prove=1", harness.policy_text(NARROW))
            self.assertEqual((code, answer["proof"]["verdict"], answer["applied"]), (200, "narrowed", False))
            code, answer, _ = self.ask("PUT", "/v1/policy?prove=1&apply=1", harness.policy_text(ECHO + ["allow GET b.test"]))
            self.assertEqual((code, answer["code"]), (409, "widens"))
            code, answer, _ = self.ask("PUT", "/v1/policy", harness.policy_text(["allow udp a.test:7007"]))
            self.assertEqual((code, answer["code"]), (422, "refused_policy"), "a run carries no UDP")
            refuse = {"add": [{"deny": "GET a.test/pub", "id": "no"}]}
            code, answer, _ = self.ask("PATCH", "/v1/policy", refuse, If_Match='"9"')
            self.assertEqual((code, answer["code"]), (412, "another_revision"))
            code, answer, _ = self.ask("POST", "/v1/explain", {"question": "GET https://a.test/pub"})
            self.assertEqual((code, answer["allowed"]), (200, True))
            code, answer, _ = self.ask("PATCH", "/v1/policy", refuse, If_Match='"1"')
            self.assertEqual((code, answer["revision"]), (200, 2), answer)
            code, answer, _ = self.ask("POST", "/v1/explain", {"question": "GET https://a.test/pub"})
            self.assertEqual((code, answer["allowed"]), (200, False))
            self.assertEqual(self.ask("GET", "/v1/sets")[0], 404)
            self.assertEqual(self.ask("GET", "/readyz")[0], 200)
            # The operator's own file speaks again.
            os.utime(self.policy)
            self.policy.write_text(harness.policy_text(NARROW))
            self.assertEventually(lambda: self.ask("GET", "/v1/status")[1]["policy"]["source"] == str(self.policy), "the file's policy")

    def test_a_change_in_place_of_a_revision_loses_to_the_file_or_comes_before_it(self):
        """The operator's file is written over and over, and each change by the API is one of the revision that it names."""
        texts = [harness.policy_text([f"allow GET a.test/{name}"]) for name in ("x", "y")]
        with self.controlled(ECHO, *WAIT) as process:
            self.assertEqual(process.stdout.readline(), "up\n")
            begin = time.monotonic()
            stop = threading.Event()

            def write():
                while not stop.wait(0.03):
                    os.utime(self.policy)
                    self.policy.write_text(texts[0])
            writer = threading.Thread(target=write)
            writer.start()
            try:
                set_by_api = 0
                # Longer where the file is always quicker.
                while time.monotonic() < begin + (4 if set_by_api else 40 * harness.SLOW):
                    code, policy, tag = self.ask("GET", "/v1/status")
                    revision = policy["policy"]["revision"]
                    code, answer, _ = self.ask("PUT", "/v1/policy", texts[1], If_Match=f'"{revision}"')
                    self.assertIn(code, (200, 412), answer)
                    set_by_api += code == 200
                    if code == 200:
                        self.assertEqual(answer["revision"], revision + 1)
            finally:
                stop.set()
                writer.join()
            self.assertGreater(set_by_api, 0)
            process.terminate()
            said = process.communicate(timeout=20 * harness.SLOW)[1]
            told = [int(n) for n in re.findall(r"policy (?:reloaded|set) .*revision (\d+)", said)]  # a thousand lines a second are not all written
            self.assertEqual(len(told), len(set(told)), "each revision is told once")
            self.assertIn("policy reloaded", said, "the file was never loaded")


class Decisions(ControlTest):
    def test_every_decision_of_a_held_run_is_streamed_and_the_last_line_says_how_it_ended(self):
        script = "input()\nimport socket\nfor i in range(9):\n  try: socket.create_connection(('192.0.2.%d' % (i+1), 80), 5)\n  except OSError: pass"
        with self.controlled(NARROW, harness.PYTHON, "-c", script, flags=["--await-hold"]) as process:
            self.opened()
            decisions = control.Lines(self.socket, "/v1/decisions")
            self.assertEqual(self.ask("GET", "/v1/status")[1]["run"]["state"], "waiting")
            hold = control.Lines(self.socket, "/v1/hold")
            self.assertIsNotNone(hold.until(lambda line: line["state"] == "running"))
            self.assertEqual(control.Lines(self.socket, "/v1/hold").answer.status, 409)
            process.stdin.write("\n")
            process.stdin.flush()
            self.assertTrue(hold.join() and decisions.join(), "both streams end with the run")
            self.assertEqual([d["target"]["address"] for d in decisions.all], [f"192.0.2.{i}" for i in range(1, 10)])
            self.assertEqual([line["state"] for line in hold.all], ["waiting", "running", "ended"])
            last = hold.all[-1]
            self.assertEqual((last["exit_code"], last["denied"], last["command_exit"]["signal"]), (0, 9, 0))
            process.wait(10 * harness.SLOW)
            self.assertFalse(self.socket.exists())

    def test_what_a_run_in_the_sandbox_is_refused_is_streamed_too(self):
        shutil.copy(lab.sluice_binary(), self.work / "sluice")
        inner = "./sluice run --name inner --allow 'GET a.test/pub' -- curl -sS -o /dev/null https://a.test/pub https://a.test/no"
        with self.controlled(NARROW, "sh", "-c", f"read go; {inner}; read end", flags=["--allow-nested", "--name", "outer"]) as process:
            self.opened()
            all_of_them = control.Lines(self.socket, "/v1/decisions?layer=request")
            refused = control.Lines(self.socket, "/v1/decisions?verdict=denied")
            process.stdin.write("go\n")
            process.stdin.flush()
            record = refused.until(lambda line: line.get("sandbox") == "outer/inner")
            self.assertEqual((record["verdict"], record["target"]["path"]), ("deny", "/no"), refused.all)
            process.stdin.write("end\n")
            process.stdin.flush()
            self.assertTrue(all_of_them.join() and refused.join(), "both streams end with the run")
            self.assertEqual([(line["sandbox"], line["target"]["path"]) for line in all_of_them.all],
                             [("outer/inner", "/pub"), ("outer/inner", "/no")])
            self.assertEqual({line["verdict"] for line in refused.all}, {"deny"})

    def test_on_the_word_that_it_ended_the_result_is_there(self):
        """Beside a stream that nobody takes from, so that the run ends a while after that word."""
        result = self.folder / "result.json"
        script = "input()\nimport socket\nfor port in range(1, 2001):\n  try: socket.create_connection(('192.0.2.1', port), 5)\n  except OSError: pass"
        for command, state, code in (([harness.PYTHON, "-c", script], "ended", 0), (["no-such-command"], "failed", 127)):
            flags = ["--control", self.socket, "--await-hold", "--result", result]
            with self.running(NARROW, *command, flags=flags, stderr=subprocess.DEVNULL) as process:
                self.opened()
                idle = control.Connection(self.socket)
                idle.request("GET", "/v1/decisions")
                hold = control.Lines(self.socket, "/v1/hold")
                process.stdin.write("\n")
                process.stdin.flush()
                told = hold.until(lambda line: line["state"] == state, 60 * harness.SLOW)
                text = result.read_text()
                self.assertIsNotNone(told, hold.all)
                self.assertEqual((told["exit_code"], json.loads(text or "{}").get("exit_code")), (code, code))
                idle.close()
                self.assertEqual(process.wait(10 * harness.SLOW), code)

    def test_a_run_that_nobody_reads_ends_all_the_same(self):
        with self.controlled(NARROW, "/bin/sh", "-c", "echo up; read line; exit 5") as process:
            process.stdout.readline()
            idle = control.Connection(self.socket)
            idle.request("GET", "/v1/decisions")
            process.stdin.write("\n")
            process.stdin.flush()
            self.assertEqual(process.wait(10 * harness.SLOW), 5)
            idle.close()


class Ending(ControlTest):
    def test_a_command_that_has_taken_all_threads_of_its_user_is_stopped_too(self):
        if not self.lab.uid:
            self.skipTest("root has as many as it likes")
        script = """
import signal, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
try:
    while True: threading.Thread(target=signal.pause).start()
except RuntimeError: print("all", flush=True)
signal.pause()
"""
        words = self.command(ECHO, [harness.PYTHON, "-c", script], ["--control", self.socket])
        process = self.lab.popen(["prlimit", "--nproc=300", *words], cwd=self.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        self.assertEqual(process.stdout.readline(), "all\n")
        self.assertEqual(self.ask("POST", "/v1/stop?grace_ms=50")[0], 202)
        self.assertEqual(process.wait(20 * harness.SLOW), 128 + signal.SIGKILL)

    def test_stop_is_polite_and_then_is_not(self):
        for trap, code in (("exit 3", 3), ("", 128 + signal.SIGKILL)):
            with self.controlled(NARROW, "/bin/sh", "-c", f"trap '{trap}' TERM; echo up; while :; do sleep 0.05; done") as process:
                process.stdout.readline()
                answer = self.ask("POST", f"/v1/stop?grace_ms={20000 if code == 3 else 50}")
                self.assertEqual(answer[0], 202, answer)
                self.assertEqual(process.wait(10 * harness.SLOW), code)
        with self.controlled(NARROW, *WAIT, flags=["--await-hold"]) as process:
            self.opened()
            self.assertEqual(self.ask("POST", "/v1/stop")[0], 202)
            said = process.communicate(timeout=10 * harness.SLOW)
            self.assertIn("the command was not started: it was stopped before", said[1])
            self.assertEqual((said[0], process.returncode), ("", 5))
        with self.controlled(NARROW, *WAIT) as process:
            process.stdout.readline()
            self.assertEqual(self.ask("POST", "/v1/stop?grace_ms=soon")[0], 400)
            self.assertEqual(self.ask("GET", "/v1/stop")[0], 405)

    def test_a_run_whose_holder_is_lost_dies(self):
        with self.controlled(NARROW, *WAIT) as process:
            process.stdout.readline()
            hold = control.Lines(self.socket, "/v1/hold")
            self.assertIsNotNone(hold.until(lambda line: line["state"] == "running"))
            begin = time.monotonic()
            hold.drop()
            self.assertEqual(process.wait(10 * harness.SLOW), 128 + signal.SIGKILL)
            self.assertLess(time.monotonic() - begin, 5 * harness.SLOW)

    def freezable(self):
        return self.controlled(NARROW, "/bin/sh", "-c", harness.TICKING, flags=["--on-disconnect", "freeze"])

    def lose_holder(self, process):
        self.assertEqual(process.stdout.readline(), "ready\n")
        hold = control.Lines(self.socket, "/v1/hold")
        self.assertIsNotNone(hold.until(lambda line: line["state"] == "running"))
        hold.drop()
        self.assertEventually(self.ticks_stand, "the ticks to end")
        self.assertIsNone(process.poll())

    def test_or_freezes_until_somebody_holds_it_again(self):
        with self.freezable() as process:
            self.lose_holder(process)
            before = self.ticks()
            tried = []
            # Refused until the other's end is seen.
            self.assertEventually(lambda: tried.append(control.Lines(self.socket, "/v1/hold")) or tried[-1].answer.status == 200, "to hold it")
            self.assertEventually(lambda: self.ticks() > before, "ticks again")
            tried[-1].drop()
            self.assertEventually(self.ticks_stand, "the ticks to end once more")

    def test_a_run_that_is_frozen_for_its_holder_can_be_ended(self):
        with self.freezable() as process:
            self.lose_holder(process)
            self.assertEqual(self.ask("POST", "/v1/stop?grace_ms=50")[0], 202)
            process.communicate(timeout=20 * harness.SLOW)
            self.assertEqual(process.returncode, 128 + signal.SIGKILL)

    def test_a_run_that_nobody_held_outlives_its_callers(self):
        with self.controlled(NARROW, *WAIT) as process:
            process.stdout.readline()
            self.ask("GET", "/v1/status")
            control.Lines(self.socket, "/v1/decisions").drop()
            time.sleep(0.2)
            self.assertIsNone(process.poll())

    def test_why_a_command_did_not_start(self):
        with self.controlled(NARROW, "no-such-command", flags=["--await-hold"]) as process:
            self.opened()
            hold = control.Lines(self.socket, "/v1/hold")
            failed = hold.until(lambda line: line["state"] == "failed")
            self.assertIsNotNone(failed, hold.all)
            self.assertIn("no-such-command", failed["error"])
            self.assertEqual((failed["exit_code"], process.wait(10 * harness.SLOW)), (127, 127))


# Tries each path and abstract name of its arguments, as itself and as a child whose parent is gone by the time it speaks.
KNOCK = r"""
import os, socket, sys, time
def knock(address, orphan):
    s = socket.socket(socket.AF_UNIX); s.settimeout(10)
    try:
        s.connect(address)
    except OSError:
        return "no way"
    try:
        if orphan and os.fork() != 0:
            os._exit(0)
        if orphan: time.sleep(0.05)
        s.sendall(b"PUT /v1/policy HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nversion: 1")
        return "answered" if s.recv(100) else "turned away"
    except TimeoutError:
        return "hangs"
    except OSError:
        return "turned away"
for address in sys.argv[1:]:
    for orphan in (False, True):
        read, write = os.pipe()
        if os.fork() == 0:
            if not orphan or os.fork() == 0:
                os.write(write, knock(address.replace("@", "\0", 1) if address.startswith("@") else address, orphan).encode())
            os._exit(0)
        os.close(write)
        print("said", os.read(read, 1000).decode(), flush=True)
"""


class Attack(ControlTest):
    def test_the_command_finds_no_way_in(self):
        # The path itself, the same socket under a name in its own work directory, and the name as an abstract one.
        inside = self.work / "link.sock"
        with self.controlled(NARROW, "/bin/sh", "-c", 'echo up; read line; exec "$@"', "sh", harness.PYTHON, "-c", KNOCK,
                             str(self.socket), str(inside), f"@{self.socket}", "@sluice", "@control.sock") as process:
            process.stdout.readline()
            os.link(self.socket, inside)
            self.assertEqual(self.ask("GET", "/v1/status")[0], 200, "the operator gets in")
            self.assertEqual(control.ask(inside, "GET", "/v1/status")[0], 200, "by that name as well")
            out, err = process.communicate("go\n", timeout=60 * harness.SLOW)
        lines = [line for line in out.splitlines() if line.startswith("said")]
        # It reaches the socket by the link alone, and is turned away by what it is.
        self.assertEqual(lines, ["said no way"] * 2 + ["said turned away"] * 2 + ["said no way"] * 6, out + err)

    def test_its_socket_is_its_users_and_lies_where_the_command_sees_nothing(self):
        with self.controlled(NARROW, *WAIT) as process:
            process.stdout.readline()
            about = os.stat(self.socket)
            self.assertEqual((stat.S_IMODE(about.st_mode), about.st_uid), (0o600, self.lab.uid or 0))
            os.chmod(self.socket, 0o777)
            os.chmod(self.folder, 0o755)
            stranger = self.lab.run(["curl", "-sS", "-m", "10", "--unix-socket", self.socket, "http://x/v1/status"], uid=12345)
            self.assertNotEqual(stranger.returncode, 0, stranger.stdout)
        shown = self.folder / "shown"
        shown.mkdir()
        if self.lab.uid:
            os.chown(shown, self.lab.uid, self.lab.uid)
        for path, flags in ((self.work / "c.sock", []), (shown / "c.sock", ["--rw", shown]), (shown / "c.sock", ["--ro", shown])):
            result = self.sluice(NARROW, "/bin/true", flags=["--control", path, *flags])
            self.assertExit(result, 2)
            self.assertIn("would find the socket", result.err)
        for wrong in ("@abstract", "unix:@abstract", "127.0.0.1:9090", "fd:0", "fd:99", "fd:x", "relative.sock", "/nowhere/at/all.sock"):
            self.assertExit(self.sluice(NARROW, "/bin/true", flags=["--control", wrong]), 2)
        self.assertExit(self.sluice(NARROW, "/bin/true", flags=["--await-hold"]), 2)


if __name__ == "__main__":
    harness.main()
