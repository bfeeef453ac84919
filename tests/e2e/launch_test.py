#!/usr/bin/python3
"""The launch contract: a launch as a file, limits, transcript and result, and a run whose launcher is gone."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import jsonschema

import harness
import lab

READ = ["allow GET a.test/pub/**"]
NOTHING = ["allow GET nothing.test"]
SCHEMA = json.loads((lab.ROOT / "packaging/schema/launch.schema.json").read_text())


def processes_named(mark):
    """Live processes with `mark` among their arguments."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "cmdline").read_bytes().split(b"\0") and "State:\tZ" not in (path / "status").read_text():
                found.append(int(path.name))
        except OSError:
            pass
    return found


class Launch(harness.SluiceTest):
    def setUp(self):
        super().setUp()
        # What the supervisor writes lies outside of what the command may write.
        self.outside = self.folder / "outside"
        self.outside.mkdir()
        self.policy.write_text(harness.policy_text(READ))
        for path in (self.outside, self.policy):
            os.chown(path, self.lab.uid or 0, self.lab.uid or 0)
        self.result_path = self.outside / "result.json"

    def launch(self, spec, *flags, **more):
        path = self.folder / "launch.json"
        path.write_text(spec if isinstance(spec, str) else json.dumps(spec))
        if isinstance(spec, dict):
            jsonschema.validate(spec, SCHEMA)
        return self.plain_sluice("run", "--spec", path, *flags, **more)

    def spec(self, *command, **more):
        return {"version": 1, "command": list(command), "workspace": str(self.work), "policy": {"file": str(self.policy)},
                "result": str(self.result_path), "upstream": {"ca": [str(self.lab.ca)]}, **more}

    @property
    def result(self):
        return json.loads(self.result_path.read_text())


class Specification(Launch):
    def test_a_file_says_all_of_it_and_the_result_tells_what_came_of_it(self):
        script = "pwd; echo $MODE $CI $OTHER; echo new > made; curl -sS https://a.test/pub/x; curl -sS -d x https://a.test/pub/x; exit 7"
        done = self.launch(self.spec("sh", "-c", script, environment={"pass": ["CI"], "set": {"MODE": "test"}}, name="job 7", labels={"job": "7"},
                                     transcript="outside/out.txt", limits={"wall-time": "1m", "open-files": 256, "output": "1MiB"}),
                           env={"CI": "yes", "OTHER": "no"})
        self.assertExit(done, 7)
        self.assertEqual(done.out.splitlines()[:2], [str(self.work), "test yes"], str(done))
        self.assertTrue((self.work / "made").exists())
        result = self.result
        self.assertEqual((result["version"], result["name"], result["labels"], result["exit_code"], result["command_exit"], result["command_signal"],
                          result["ended_by"], result["timed_out"], result["killed_by_policy"]), (1, "job 7", {"job": "7"}, 7, 7, None, "command", False, False))
        self.assertEqual(result["denied"], 1)
        self.assertEqual([(d["target"]["method"], d["target"]["host"], d["verdict"]) for d in result["denials"]], [("POST", "a.test", "deny")])
        self.assertEqual(result["denials"][0]["sandbox"], "job 7")
        self.assertGreater(result["bytes_down"], 0)
        self.assertRegex(result["policy_digest"], r"^[0-9a-f]{64}$")
        self.assertEqual(result["limits"]["open_files"], {"value": 256, "by": "each process"})
        self.assertEqual(result["limits"]["wall_time_ms"], {"value": 60000, "by": "supervisor"})
        self.assertGreater(result["duration_ms"], 0)
        # What it printed, in its order, is in the transcript as it was passed on.
        self.assertEqual((self.outside / "out.txt").read_text(), done.out)
        self.assertEqual(result["output_octets"], len(done.out))
        self.assertTrue(result["transcript_complete"])
        self.assertRegex(done.err, r"sluice: limits: wall time 60 s by the supervisor; 256 open files each process, by its resource limit; output 1 MiB by the supervisor")

    def test_flags_win_and_lists_grow(self):
        done = self.launch(self.spec("false", name="from-file", labels={"a": "1"}), "--name", "from-flag", "--label", "b=2", "--", "true")
        self.assertExit(done, 0)
        self.assertEqual((self.result["name"], self.result["labels"], self.result["command"]), ("from-flag", {"a": "1", "b": "2"}, ["true"]))

    def test_standard_input_is_a_file_too(self):
        done = self.lab.run([lab.binary_for_anyone(self.lab.folder), "run", "--spec", "-"], cwd=self.work, stdin=None,
                            input=json.dumps(self.spec("echo", "through")))
        self.assertEqual(done.stdout, "through\n", done.stderr)

    def test_a_mistake_is_told_with_its_place_and_the_nearest_name(self):
        for text, place, words in (('{"version": 1,\n "comand": ["true"]}', "launch.json:2:2", "did you mean `command`"),
                                   ('{"version": 1,\n "limits": {"memory": "lots"}, "command": ["true"], "policy": {"allow": ["GET a.test"]}}', "", "--max-memory lots"),
                                   ('{"version": 1, "command": ["true"],}', "launch.json:1:36", ""),
                                   ('{"version": 1, "quiet": 1}', "launch.json:1:25", "true or false")):
            done = self.launch(text)
            self.assertExit(done, 2)
            self.assertIn(place, done.err)
            self.assertIn(words, done.err)

    def test_the_schema_refuses_what_sluice_refuses(self):
        for wrong in ({"comand": ["x"]}, {"limits": {"memry": 1}}, {"command": "ls"}, {"version": 2}, {"name": ""}, {"on-disconnect": "stop"},
                      {"pid-namespace": False}, {"limits": {"processes": -1}}, {"environment": {"set": {"A=B": "x"}}}, {"quiet": "yes"}):
            spec = {"version": 1, **wrong}
            with self.assertRaises(jsonschema.ValidationError, msg=spec):
                jsonschema.validate(spec, SCHEMA)
            done = self.launch(json.dumps(spec))
            self.assertExit(done, 2)
            self.assertIn("launch.json:1:", done.err, spec)

    def test_a_variable_that_looks_like_a_credential_is_refused_by_name(self):
        for environment in ({"pass": ["GITHUB_TOKEN"]}, {"set": {"API_KEY": "k"}}, {"set": {"DB": "postgres://me:hunter2@db/x"}}):
            done = self.launch(self.spec("env", environment=environment), env={"GITHUB_TOKEN": "ghp_1"})
            self.assertExit(done, 2)
            self.assertRegex(done.err, r"--env (GITHUB_TOKEN|API_KEY|DB): it looks like a credential.*--unsafe-env")
            self.assertNotRegex(done.err, "ghp_1|hunter2")
            self.assertIn("looks like a credential", self.result["error"])
        done = self.launch(self.spec("env", environment={"inherit": "none", "unsafe-pass": ["GITHUB_TOKEN"]}), env={"GITHUB_TOKEN": "ghp_1"})
        self.assertIn("GITHUB_TOKEN=ghp_1", done.out.splitlines())
        self.assertNotIn("HOME=", done.out)

    def test_a_login_in_a_file_that_the_command_sees_is_remarked_on(self):
        (self.work / ".git").mkdir()
        config = "[remote \"origin\"]\n\turl = https://%sgithub.com/octo/x\n"
        (self.work / ".git/config").write_text(config % "")
        (self.work / ".npmrc").write_text("registry=https://registry.example/\n")
        (self.work / "_netrc").symlink_to("/etc/hostname")
        done = self.launch(self.spec("true"))
        self.assertExit(done, 0)
        self.assertNotIn("credentials", done.err)
        (self.work / ".git/config").write_text(config % "x-access-token:hunter2@")
        (self.work / ".npmrc").write_text("//registry.example/:_authToken=npm_1\n")
        (self.work / ".netrc").write_text("machine a.test login me password hunter2\n")
        done = self.launch(self.spec("true"))
        self.assertExit(done, 0)
        names = " ".join(f"{self.work}/{name}" for name in (".git/config", ".netrc", ".npmrc"))
        self.assertIn(f"the command sees files that hold credentials: {names} (", done.err)
        self.assertNotIn("hunter2", done.err)

    def test_what_it_writes_is_out_of_the_commands_reach(self):
        done = self.launch(self.spec("sh", "-c", "(echo x >> out.txt; rm -f out.txt result.json; mv result.json y) 2>/dev/null; echo said",
                                     transcript="work/out.txt", result="work/result.json"))
        self.assertExit(done, 0)
        self.assertEqual((self.work / "out.txt").read_text(), "said\n")
        self.assertEqual(json.loads((self.work / "result.json").read_text())["exit_code"], 0)
        (self.work / "link").symlink_to(self.outside / "other")
        done = self.launch(self.spec("true", result="work/link"))
        self.assertExit(done, 2)
        self.assertIn("--result", done.err)

    def test_no_link_in_its_folder_leads_what_the_supervisor_writes_elsewhere(self):
        (self.outside / "out.txt").write_text("kept")
        (self.work / "logs").symlink_to(self.outside)
        (self.work / "far").symlink_to("logs")
        for member, path in (("transcript", "work/logs/out.txt"), ("transcript", "work/far/out.txt"), ("audit", "work/logs/audit.jsonl"),
                             ("result", "work/logs/out.txt")):
            done = self.launch({**self.spec("true"), member: path})
            self.assertExit(done, 2)
            self.assertIn(f"--{member}: {self.work}/", done.err)
            self.assertIn("is a link in a tree the workload may write", done.err)
            self.assertEqual((self.outside / "out.txt").read_text(), "kept")
            self.assertFalse((self.outside / "audit.jsonl").exists())

    def test_a_result_can_go_to_a_descriptor(self):
        reader, writer = os.pipe()
        done = self.launch(self.spec("sh", "-c", "ls /proc/self/fd", result=f"fd:{writer}"), pass_fds=[writer])
        os.close(writer)
        with open(reader) as result:
            self.assertEqual(json.load(result)["exit_code"], 0)
        self.assertEqual(sorted(done.out.split()), ["0", "1", "2", "3"], str(done))

    def test_roots_that_are_none_start_nothing(self):
        """They are read while the sandbox is being built, and told of before its command begins."""
        roots = self.outside / "roots.pem"
        roots.write_text("hello")
        done = self.launch(self.spec("touch", "ran", upstream={"ca": [str(roots)]}))
        self.assertExit(done, 2)
        self.assertIn(f"cannot read certificates from {roots}: no certificate", done.err)
        self.assertFalse((self.work / "ran").exists())

    def test_a_start_that_fails_has_a_result_too(self):
        self.assertExit(self.launch(self.spec("no-such-command")), 127)
        self.assertIn("command not found", self.result["error"])
        self.assertEqual(self.result["exit_code"], 127)
        self.assertNotIn("ended_by", self.result)


class BareMachine(Launch):
    """What images made from nothing leave out of /etc."""

    SCRIPT = "cat /etc/hosts; cat /etc/resolv.conf; curl -sS https://a.test/pub/x; ls -l /etc | grep -c :"

    def without(self, *names):
        """A run on a machine whose /etc has none of these."""
        etc = self.folder / f"etc-{len(list(self.folder.glob('etc-*')))}"
        shutil.copytree("/etc", etc, symlinks=True)
        for name in names:
            path = etc / name
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        path = self.folder / "launch.json"
        upstream = {"ca": [str(self.lab.ca)], "resolvers": [lab.zone.RESOLVER]}
        path.write_text(json.dumps({**self.spec("sh", "-c", self.SCRIPT), "upstream": upstream}))
        # The lab has mounts in there.
        enter = "awk '$5 ~ \"^/etc/\" {print $5}' /proc/self/mountinfo | xargs -r umount; mount --bind \"$0\" /etc; exec \"$@\""
        return self.lab.run(["unshare", "--mount", "sh", "-ec", enter, etc, lab.binary_for_anyone(self.lab.folder), "run",
                             "--spec", path], cwd=self.work)

    def test_a_run_starts_without_them(self):
        if self.lab.uid:
            self.skipTest("an ordinary user has no other /etc")
        everything = ("hosts", "hostname", "resolv.conf", "nsswitch.conf", "passwd", "group", "host.conf", "gai.conf", "ssl", "pki", "services", "protocols")
        for names in (("hosts",), ("resolv.conf",), ("nsswitch.conf",), ("ssl",), ("passwd", "group"), everything):
            with self.subTest(missing=names):
                done = self.without(*names)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("127.0.0.1 localhost", done.stdout)
                self.assertIn("nameserver 198.18.0.0", done.stdout)
                self.assertIn("hello from the lab", done.stdout, done.stderr)


class Sealed(Launch):
    def test_no_access_time_is_written_to_the_root(self):
        """Who follows a link in it while it is made read-only would write one, and the start would fail now and then."""
        done = self.launch(self.spec("awk", '$5 == "/" {print $6}', "/proc/self/mountinfo"))
        self.assertExit(done, 0)
        self.assertLessEqual({"ro", "noatime"}, set(done.out.split()[-1].split(",")), str(done))


class Limits(Launch):
    def test_a_timeout_ends_everything_that_was_started(self):
        mark = f"left-{os.getpid()}-{id(self)}"
        script = ("import os, signal, sys, time\n"
                  "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                  "if os.fork() == 0:\n"
                  "    os.setsid()\n"
                  "    if os.fork() == 0: time.sleep(1000)\n"
                  "    os._exit(0)\n"
                  "time.sleep(1000)\n")
        done = self.launch(self.spec(harness.PYTHON, "-c", script, mark, limits={"wall-time": "500ms"}))
        self.assertExit(done, 128 + signal.SIGKILL)
        self.assertEqual((self.result["timed_out"], self.result["ended_by"]), (True, "timeout"))
        self.assertEqual(processes_named(mark), [])

    # After an odd size a pipe has room in the end for less than what is to be written.
    POUR = "import os, time\nos.write(1, b'x' * 1000)\ntime.sleep(0.2)\nwhile True: os.write(1, b'y' * 65536)"

    def test_a_timeout_waits_for_no_reader_of_its_output(self):
        for members in ({"limits": {"wall-time": "2s", "output": "1GiB"}}, {"limits": {"wall-time": "2s"}, "transcript": "outside/out.txt"}):
            reader, writer = os.pipe()
            done = self.launch(self.spec(harness.PYTHON, "-c", self.POUR, **members), "-q", capture_output=False, stdout=writer, stderr=subprocess.PIPE,
                               timeout=15 * harness.SLOW)
            os.close(writer)
            os.close(reader)
            self.assertEqual((self.result["timed_out"], self.result["ended_by"]), (True, "timeout"), done.err)

    def test_a_timeout_waits_for_no_reader_of_a_transcript(self):
        reader, writer = os.pipe()
        done = self.launch(self.spec(harness.PYTHON, "-c", self.POUR, limits={"wall-time": "2s"}), "--transcript", f"fd:{writer}", pass_fds=[writer],
                           timeout=15 * harness.SLOW)
        os.close(writer)
        self.assertEqual((self.result["timed_out"], self.result["transcript_complete"]), (True, False), done.err)
        with open(reader, "rb") as transcript:
            kept = transcript.read()
        # It is the output as far as it goes.
        self.assertGreaterEqual(len(kept), 60000)
        self.assertTrue(done.out.encode().startswith(kept))

    def test_a_command_that_stops_its_supervisor_does_not_outlive_its_time(self):
        # On a terminal a command that stops itself stops the job, as a shell expects.
        import pty
        master, slave = pty.openpty()
        path = self.folder / "launch.json"
        path.write_text(json.dumps(self.spec("sh", "-c", "kill -STOP $$; sleep 1000", limits={"wall-time": "700ms"})))
        words = [str(w) for w in [*self.lab.enter(cwd=self.work), lab.binary_for_anyone(self.lab.folder), "run", "--spec", path]]
        process = subprocess.Popen(["setsid", "--ctty", *words], stdin=slave, stdout=slave, stderr=slave, env=self.lab.environment({}))
        try:
            process.wait(15 * harness.SLOW)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            os.close(slave)
            os.close(master)
        self.assertEqual((self.result["timed_out"], self.result["ended_by"]), (True, "timeout"))

    def test_memory_runs_out_and_it_is_said_what_holds_it(self):
        script = "data = []\nwhile True: data.append(bytearray(16 << 20))"
        done = self.launch(self.spec(harness.PYTHON, "-c", script, limits={"memory": "96MiB", "wall-time": "30s"}))
        limit = self.result["limits"]["memory"]
        self.assertEqual(limit["value"], 96 << 20)
        if limit["by"].startswith("cgroup"):
            self.assertExit(done, 128 + signal.SIGKILL)
            self.assertEqual(self.result["ended_by"], "memory")
            self.assertIn(f"memory 96 MiB by {limit['by']}", done.err)
        else:
            self.assertEqual(limit["by"], "each process")
            self.assertIn("MemoryError", done.err)
            self.assertRegex(done.err, r"no control group holds the limits.*\n(.*\n)*.*memory 96 MiB each process")

    def test_processes_run_out(self):
        script = ("import os, signal, time\n"
                  "count = 0\n"
                  "try:\n"
                  "    while count < 500:\n"
                  "        if os.fork() == 0: time.sleep(60); os._exit(0)\n"
                  "        count += 1\n"
                  "except OSError as error: print(count, error.errno)\n")
        done = self.launch(self.spec(harness.PYTHON, "-c", script, limits={"processes": 24}))
        if done.code == 4:  # root is exempt from the resource limit, so that without a group there is no run
            self.assertIn("cannot hold root without a control group", done.err)
            return
        self.assertExit(done, 0)
        count, error = map(int, done.out.split())
        self.assertEqual(error, 11, str(done))
        self.assertLessEqual(count, 23)
        self.assertIn(self.result["limits"]["processes"]["by"], ("cgroup 2", "cgroup 1", "user"))

    def test_open_files_run_out(self):
        script = "import os\nn = 0\ntry:\n    while True: os.dup(0); n += 1\nexcept OSError as error: print(n, error.errno)\n"
        done = self.launch(self.spec(harness.PYTHON, "-c", script, limits={"open-files": 64}))
        self.assertEqual(done.out.split(), ["61", "24"], str(done))

    def test_output_is_bounded_and_the_transcript_has_what_passed(self):
        done = self.launch(self.spec("yes", limits={"output": 100000}, transcript="outside/out.txt"))
        self.assertExit(done, 128 + signal.SIGKILL)
        self.assertEqual((self.result["ended_by"], self.result["output_octets"]), ("output", 100000))
        self.assertEqual(len(done.out), 100000)
        self.assertEqual((self.outside / "out.txt").read_text(), done.out)
        self.assertIn("--max-output", done.err)

    def test_both_streams_keep_their_order_where_they_are_one_file(self):
        script = "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"
        done = self.launch(self.spec("sh", "-c", script, transcript="outside/out.txt"), "-q", stderr=subprocess.STDOUT, capture_output=False, stdout=subprocess.PIPE)
        wanted = "".join(f"out {i}\nerr {i}\n" for i in range(200))
        self.assertEqual(done.out, wanted)
        self.assertEqual((self.outside / "out.txt").read_text(), wanted)

    def test_a_limit_that_means_nothing_is_refused(self):
        for limits in ({"memory": "1KiB"}, {"processes": 1}, {"open-files": 3}, {"memory": "0"}, {"wall-time": "0"}, {"output": "1GB"}):
            self.assertExit(self.launch(self.spec("true", limits=limits)), 2)

    def test_no_control_group_is_left(self):
        def left():
            """Of supervisors that have ended: each is named for its own, and other tests run at this moment."""
            names = (os.path.join(folder, name) for folder, inner, _ in os.walk("/sys/fs/cgroup") for name in inner)
            made = [found for found in (re.search(r"/sluice-(\d+)-\d+$", name) for name in names) if found]
            return {found.string for found in made if not os.path.exists(f"/proc/{found[1]}")}

        before = left()
        self.launch(self.spec("true", limits={"memory": "64MiB"}))
        self.assertEventually(lambda: left() <= before, "no group to be left")


class Ended(Launch):
    def test_the_first_denial_ends_it_where_that_is_asked_for(self):
        done = self.launch(self.spec("sh", "-c", "curl -sS https://b.test/; sleep 60", **{"kill-on-deny": True}))
        self.assertExit(done, 128 + signal.SIGKILL)
        self.assertEqual((self.result["ended_by"], self.result["killed_by_policy"]), ("policy", True))
        self.assertIn("--kill-on-deny", done.err)

    def test_denials_are_quoted_up_to_a_bound(self):
        script = "import socket\nfor i in range(150):\n    try: socket.getaddrinfo(f'n{i}.no.test', 443, type=socket.SOCK_STREAM)\n    except OSError: pass"
        done = self.launch(self.spec(harness.PYTHON, "-c", script, "x"))
        self.assertExit(done, 0)
        self.assertEqual(len(self.result["denials"]), 100)
        quoted = sum(d.get("count", 1) for d in self.result["denials"])
        self.assertEqual(quoted + self.result["denials_omitted"], self.result["denied"])

    def test_a_result_that_is_read_at_the_end_alone_ends_the_run(self):
        # Denials as long as a command can make them: all of them would be more than a pipe holds.
        deep = self.work.joinpath(*["d" * 250] * 15)
        deep.mkdir(parents=True)
        shell = deep / "sh"
        shutil.copy("/bin/busybox", shell)
        names = [f"n{i}.no.test" for i in range(120)]
        (self.work / "deny.py").write_text("import socket\nfor name in %r:\n    try: socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)\n"
                                           "    except OSError: pass\n" % names)
        (self.work / "3.sh").write_text(f"{harness.PYTHON} deny.py; true\n")
        for number in (2, 1):
            (self.work / f"{number}.sh").write_text(f"'{shell}' {number + 1}.sh; true\n")
        reader, writer = os.pipe()
        done = self.launch(self.spec(str(shell), "1.sh", result=f"fd:{writer}"), pass_fds=[writer], timeout=60 * harness.SLOW)
        os.close(writer)
        with open(reader) as file:
            result = json.load(file)
        self.assertExit(done, 0)
        self.assertGreater(len(json.dumps(result["denials"][0])), 10000)
        self.assertEqual(sum(d.get("count", 1) for d in result["denials"]) + result["denials_omitted"], result["denied"])

    def started(self, how, *command):
        """A run with a lifeline, and the end that keeps it alive."""
        keep, give = os.pipe()
        path = self.folder / "launch.json"
        path.write_text(json.dumps(self.spec(*command, lifeline=keep, **{"on-disconnect": how})))
        process = self.lab.popen([lab.binary_for_anyone(self.lab.folder), "run", "--spec", path], cwd=self.work, pass_fds=[keep],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        os.close(keep)
        self.addCleanup(lambda: (process.kill(), process.communicate()) if process.poll() is None else None)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process, give

    def test_a_launcher_that_is_gone_takes_the_run_with_it(self):
        process, give = self.started("kill", "sh", "-c", "echo ready; sleep 1000")
        os.write(give, b"still here")
        time.sleep(0.1)
        self.assertIsNone(process.poll())
        os.close(give)
        _, err = process.communicate(timeout=20 * harness.SLOW)
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, err)
        self.assertEqual(self.result["ended_by"], "disconnect")
        self.assertIn("the launcher is gone", err)

    def test_a_command_whose_launcher_is_gone_by_then_is_not_started(self):
        # The kernel would refuse it.
        (self.work / "none").write_text("#!/no/such/program\n")
        (self.work / "none").chmod(0o755)
        keep, give = os.pipe()
        os.close(give)
        done = self.launch(self.spec(str(self.work / "none"), lifeline=keep), pass_fds=[keep])
        os.close(keep)
        self.assertExit(done, 128 + signal.SIGKILL)
        self.assertEqual(self.result["ended_by"], "disconnect")

    def test_or_leaves_it_frozen_until_it_goes_on_or_is_ended(self):
        process, give = self.started("freeze", "sh", "-c", harness.TICKING)
        self.assertEventually(lambda: self.ticks() > 4, "ticks")
        os.close(give)
        self.assertEventually(self.ticks_stand, "the ticks end")
        self.assertIsNone(process.poll())
        before = self.ticks()
        process.send_signal(signal.SIGCONT)
        self.assertEventually(lambda: self.ticks() > before, "ticks again")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20 * harness.SLOW)
        self.assertIn("frozen", err)

    # Stands in vfork until somebody writes to the pipe.
    FORKING = """
import os
os.mkfifo("pipe")
print("ready", flush=True)
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 3, "pipe", os.O_RDONLY, 0)])
open("went-on", "w")
"""

    def test_one_that_waits_for_its_vfork_child_is_frozen_too(self):
        process, give = self.started("freeze", harness.PYTHON, "-c", self.FORKING)
        time.sleep(0.3 * harness.SLOW)
        os.close(give)
        said = next(line for line in iter(process.stderr.readline, "") if "frozen" in line)
        self.assertNotIn("could not", said)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGCONT)
        with open(self.work / "pipe", "w"):
            self.assertEventually((self.work / "went-on").exists, "it to go on")
        process.communicate(timeout=20 * harness.SLOW)
        self.assertEqual(process.returncode, 0)

    def test_a_frozen_run_can_be_ended(self):
        process, give = self.started("freeze", "sh", "-c", harness.TICKING)
        os.close(give)
        self.assertTrue(any("frozen" in line for line in iter(process.stderr.readline, "")))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20 * harness.SLOW)
        self.assertEqual(self.result["ended_by"], "disconnect")

    def test_a_lifeline_that_is_none_is_refused(self):
        for lifeline in (2, 99):
            self.assertExit(self.launch(self.spec("true", lifeline=lifeline)), 2)
        with open("/etc/hostname") as file:
            done = self.launch(self.spec("true", lifeline=file.fileno()), pass_fds=[file.fileno()])
        self.assertIn("no pipe and no socket", done.err)


if __name__ == "__main__":
    harness.main()
