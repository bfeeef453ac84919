#!/usr/bin/python3
"""What a shell expects of `sluice run`: exit codes, signals, time limit, environment, files; and what it says about bad input."""
import json
import os
import pathlib
import shutil
import signal
import stat
import time

import harness
import lab

NOTHING = []
READ = ["allow GET a.test/pub/**"]


class ExitCodes(harness.SluiceTest):
    def test_the_commands_own_code_is_returned(self):
        for code in (0, 1, 7, 255):
            self.assertExit(self.sluice(NOTHING, "sh", "-c", f"exit {code}"), code)

    def test_a_command_killed_by_a_signal_is_128_and_the_signal(self):
        self.assertExit(self.sluice(NOTHING, "sh", "-c", "kill -TERM $$"), 128 + signal.SIGTERM)
        self.assertExit(self.sluice(NOTHING, "sh", "-c", "kill -KILL $$"), 128 + signal.SIGKILL)

    def test_a_missing_command_is_127_and_one_that_cannot_run_126(self):
        result = self.sluice(NOTHING, "no-such-command-here")
        self.assertExit(result, 127)
        self.assertIn("no-such-command-here", result.err)
        (self.work / "plain").write_text("not a program\n")
        self.assertExit(self.sluice(NOTHING, "./plain"), 126)
        self.assertExit(self.sluice(NOTHING, "./"), 126)

    def test_a_denial_is_3_only_when_asked_for(self):
        ask = ["getent", "hosts", "b.test"]
        self.assertExit(self.sluice(READ, "sh", "-c", "getent hosts b.test; true"), 0)
        self.assertExit(self.sluice(READ, "sh", "-c", "getent hosts b.test; true", flags=["--fail-on-deny"]), 3)
        self.assertExit(self.sluice(READ, "curl", "-sS", "https://a.test/pub/x", flags=["--fail-on-deny"]), 0)
        self.assertNotEqual(self.sluice(READ, *ask).code, 0)

    def test_a_bad_policy_names_file_line_and_column_and_is_2(self):
        for text, meant in (("version: 1\nname: x\nrules:\n  - alow: GET a.test\n", "allow"),
                            ("version: 1\nname: x\nrules:\n  - allow: GTE a.test\n    bye: [/usr/bin/curl]\n", "by"),
                            ("version: 1\nname: x\nmode: enfroce\nrules: []\n", "enforce")):
            result = self.sluice(text, "true")
            self.assertExit(result, 2)
            self.assertRegex(result.err, r"policy\.yaml:\d+:\d+: ", text)
            self.assertIn(meant, result.err)
        self.assertExit(self.plain_sluice("run", "--policy", "/nonexistent/p.yaml", "--", "true"), 2)
        self.assertExit(self.plain_sluice("run", "--no-such-flag", "--", "true"), 2)
        self.assertExit(self.plain_sluice("run"), 2)

    def test_a_file_or_folder_that_cannot_be_what_a_flag_says_is_2(self):
        (self.work / "plain").write_text("no folder\n")
        (self.work / "folder").mkdir()
        for arguments, words in ((["run", "--allow", "GET a.test", "--cwd", "plain", "--", "true"], "--cwd plain: it is no folder"),
                                 (["run", "--allow", "GET a.test", "--workspace", "plain", "--", "true"], "--workspace plain: it is no folder"),
                                 (["run", "--allow", "GET a.test", "--rw", "plain", "--", "true"], "--rw plain: it is no folder"),
                                 (["run", "--policy-fd", "77", "--", "true"], "--policy-fd 77: no descriptor was inherited"),
                                 (["run", "--allow", "GET a.test", "--max-open-files", "-3", "--", "true"], "--max-open-files -3: at least"),
                                 (["oci-seccomp", "--base", "folder"], "cannot read folder: Is a directory"),
                                 (["agent", "--allow", "GET a.test", "--listen", "a.sock", "--state-dir", "plain"], "plain: Not a directory"),
                                 (["proxy", "--allow", "GET a.test", "--listen", "127.0.0.1:0", "--ca-out", "folder"], "cannot write folder: Is a directory")):
            result = self.plain_sluice(*arguments)
            self.assertExit(result, 2)
            self.assertIn(words, result.err)

    def test_what_a_proxy_or_credential_lacks_is_an_error_with_its_line(self):
        for more, words in (("proxies:\n  corp: { url: http://proxy.test:3128, basic: env NO_LOGIN }\nrules: []\n", "NO_LOGIN"),
                            ("proxies:\n  corp: { url: https://proxy.test:3129, ca: /nonexistent/ca.pem }\nrules: []\n", "/nonexistent/ca.pem"),
                            ("credentials:\n  k: { from: env NO_KEY, send: client-certificate, to: [a.test] }\nrules: []\n", "NO_KEY")):
            result = self.sluice(f"version: 1\nname: x\n{more}", "true")
            self.assertExit(result, 2)
            self.assertIn("policy.yaml:4:", result.err, more)
            self.assertIn(words, result.err, more)

    def test_a_missing_kernel_feature_is_named_and_is_4(self):
        # No user or network namespace may be made where the limit is zero, so the capture namespace cannot be.
        script = ("unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_net_namespaces; exec \"$@\"' sh "
                  f"{self.command(READ, ['true'])[0]} run --policy {self.policy} -- true")
        result = self.lab.run(["sh", "-c", script], cwd=self.work)
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertRegex(result.stderr, r"namespace")

    def test_signals_reach_the_command(self):
        # Not a shell: dash itself now and then ends by the signal that it traps while it forks. os.write, as print() is not reentrant.
        script = ("import os, signal, time\n"
                  "def caught(*_): os.write(1, b'got-it'); os._exit(5)\n"
                  "signal.signal(signal.SIGTERM, caught)\n"
                  "os.write(1, b'ready\\n')\n"
                  "time.sleep(60)")
        with self.running(NOTHING, harness.PYTHON, "-c", script) as process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=20 * harness.SLOW)
            self.assertIn("got-it", out, err)
            self.assertEqual(process.returncode, 5)

    def test_the_time_limit_ends_it(self):
        begin = time.monotonic()
        result = self.sluice(NOTHING, "sleep", "60", flags=["--timeout", "500ms"])
        self.assertLess(time.monotonic() - begin, 15 * harness.SLOW)
        self.assertExit(result, 128 + signal.SIGTERM)
        self.assertRegex(result.err, r"sluice: timed out")

    def test_what_the_command_left_behind_is_ended(self):
        mark = f"4242{os.getpid()}"  # another test may do the same at this moment
        result = self.sluice(NOTHING, "sh", "-c", f"sleep {mark} & echo started")
        self.assertIn("started", result.out)
        left = [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in self.read(p)]
        self.assertEqual(left, [])

    @staticmethod
    def read(path):
        try:
            return path.read_bytes()
        except OSError:
            return b""

    def test_standard_input_and_output_pass(self):
        done = self.lab.run(self.command(NOTHING, ["cat"]), cwd=self.work, stdin=None, input="through\n")
        self.assertEqual(done.stdout, "through\n", done.stderr)


class Surroundings(harness.SluiceTest):
    def test_credential_looking_variables_are_dropped_and_reported(self):
        secrets = {"GITHUB_TOKEN": "ghp_1", "AWS_SECRET_ACCESS_KEY": "k", "MY_PASSWORD": "p", "SSH_AUTH_SOCK": "/run/x", "DOCKER_HOST": "unix:///x"}
        result = self.sluice(NOTHING, "env", env=secrets)
        for name in secrets:
            self.assertNotIn(name + "=", result.out)
        self.assertIn("GITHUB_TOKEN", result.err)
        self.assertNotIn("ghp_1", result.err)

    def test_a_variable_that_looks_like_a_credential_is_refused_by_name(self):
        for variable in ("GITHUB_TOKEN", "API_KEY=k3y", "DB=postgres://me:hunter2@db/x"):
            result = self.sluice(NOTHING, "env", env={"GITHUB_TOKEN": "ghp_1"}, flags=["--env", variable])
            self.assertExit(result, 2)
            name = variable.partition("=")[0]
            self.assertRegex(result.err, f"--env {name}: it looks like a credential.*--unsafe-env {name}")
            self.assertNotRegex(result.err, "ghp_1|hunter2|k3y")

    def test_env_passes_what_is_named(self):
        result = self.sluice(NOTHING, "env", env={"WANTED": "1", "GITHUB_TOKEN": "t"},
                             flags=["--env", "WANTED", "--env", "SET=2", "--unsafe-env", "GITHUB_TOKEN"])
        for line in ("WANTED=1", "SET=2", "GITHUB_TOKEN=t"):
            self.assertIn(line, result.out.splitlines())

    def test_no_proxy_variable_is_set(self):
        result = self.sluice(NOTHING, "env")
        self.assertNotRegex(result.out, r"(?i)_proxy=")

    def test_the_work_folder_is_writable_and_the_system_is_not(self):
        for path in ("/etc/sluice-test", "/usr/sluice-test"):
            self.addCleanup(pathlib.Path(path).unlink, missing_ok=True)
        result = self.sluice(NOTHING, "sh", "-c", "echo x > inside && echo x > /tmp/t && cat /tmp/t; echo x > /etc/sluice-test; echo x > /usr/sluice-test")
        self.assertIn("x", result.out, str(result))
        self.assertTrue((self.work / "inside").exists())
        self.assertFalse(pathlib.Path("/etc/sluice-test").exists() or pathlib.Path("/usr/sluice-test").exists())

    def test_paths_are_the_same_inside_and_outside(self):
        # The lab lies below /var/tmp, which is a private folder of its own in the view.
        result = self.sluice(NOTHING, "sh", "-c", "pwd; test -d /var/tmp && test ! -L /var/tmp && echo folder; echo x > /var/tmp/mine && echo writable")
        self.assertEqual(result.out.split(), [str(self.work), "folder", "writable"], str(result))
        self.assertFalse(pathlib.Path("/var/tmp/mine").exists())

    def test_sockets_of_its_own_need_no_rule_wherever_it_may_write(self):
        script = """
import os, socket
for folder in (os.environ["HOME"], "/run", "/dev/shm", "/tmp", "/var/tmp", os.getcwd()):
    server = socket.socket(socket.AF_UNIX); server.bind(folder + "/own.sock"); server.listen()
    socket.socket(socket.AF_UNIX).connect(folder + "/own.sock")
    print("connected")
"""
        result = self.python(NOTHING, script, env={"HOME": "/home/of-nobody"})
        self.assertEqual(result.out.split(), ["connected"] * 6, str(result))

    def test_system_folders_list_what_they_hold(self):
        folders = [folder for folder in ("/etc", "/etc/ssl", "/usr", "/usr/bin", "/opt") if os.path.isdir(folder)]
        script = "import json, os, sys; print(json.dumps([sorted(os.listdir(folder)) for folder in sys.argv[1:]]))"
        result = self.python([], script, *folders)
        self.assertExit(result, 0)
        for folder, names in zip(folders, json.loads(result.out)):
            # What only root may read is hidden from a run that root started.
            for_all = {name for name in os.listdir(folder) if os.lstat(f"{folder}/{name}").st_mode & stat.S_IROTH}
            self.assertLessEqual(for_all, set(names), folder)
            self.assertLessEqual(set(names), set(os.listdir(folder)), folder)

    def test_rw_and_ro_open_other_folders(self):
        for name in ("writable", "readable", "closed"):
            folder = self.folder / name
            folder.mkdir()
            (folder / "f").write_text(name)
            if self.lab.uid:
                os.chown(folder, self.lab.uid, self.lab.uid)
        script = f"cat {self.folder}/readable/f; echo new > {self.folder}/writable/g; echo new > {self.folder}/readable/g; cat {self.folder}/closed/f"
        result = self.sluice(NOTHING, "sh", "-c", script, flags=["--rw", self.folder / "writable", "--ro", self.folder / "readable"])
        self.assertEqual(result.out.strip(), "readable", str(result))
        self.assertTrue((self.folder / "writable/g").exists())
        self.assertFalse((self.folder / "readable/g").exists())

    def test_cwd_is_where_the_command_starts(self):
        (self.work / "deep").mkdir()
        if self.lab.uid:
            os.chown(self.work / "deep", self.lab.uid, self.lab.uid)
        self.assertRegex(self.sluice(NOTHING, "pwd", flags=["--cwd", self.work / "deep"]).out, rf"^{self.work}/deep\n$")

    def test_a_policy_in_the_work_folder_cannot_be_edited(self):
        inside = self.work / "p.yaml"
        inside.write_text(harness.policy_text(READ))
        if self.lab.uid:
            os.chown(inside, self.lab.uid, self.lab.uid)
        result = self.plain_sluice("run", "--policy", inside, "--", "sh", "-c", f"echo 'rules: []' > {inside}; rm -f {inside}; mv {inside} gone; true")
        self.assertEqual(inside.read_text(), harness.policy_text(READ), str(result))

    def test_sluice_starts_from_within_the_work_folder_and_cannot_be_edited(self):
        copy = self.work / "bin" / "sluice"
        copy.parent.mkdir()
        shutil.copy(lab.sluice_binary(), copy)
        if self.lab.uid:
            for path in (copy, copy.parent):
                os.chown(path, self.lab.uid, self.lab.uid)
        script = f"(echo x >> {copy}) 2>&1; rm -f {copy}; mv {copy.parent} elsewhere; echo ran"
        done = self.lab.run([copy, "run", "--allow", "GET a.test", "--", "sh", "-c", script], cwd=self.work)
        self.assertEqual(done.stdout.splitlines()[-1:], ["ran"], done.stderr)
        self.assertEqual(copy.read_bytes(), pathlib.Path(lab.sluice_binary()).read_bytes())

    def test_only_its_own_processes_are_seen(self):
        result = self.sluice(NOTHING, "sh", "-c", "ls /proc | grep -c '^[0-9]'")
        self.assertLess(int(result.out), 8, str(result))

    def test_the_hosts_runtime_folders_and_shared_memory_are_not_seen(self):
        result = self.sluice(NOTHING, "sh", "-c", "ls /run /tmp /dev/shm /var; ipcs -m | grep -c '^0x'; ls /net /home/* /root /boot /sys/fs /mnt /srv 2>/dev/null; true")
        for folder, inside in (("/run", r"sluice"), ("/tmp", r""), ("/dev/shm", r""), ("/var", r"run\ntmp")):
            self.assertRegex(result.out, rf"{folder}:\n{inside}\n?(\n|\Z|0)", str(result))
        self.assertTrue(result.out.endswith("\n0\n"), str(result))

    def test_no_capability_and_no_new_privileges(self):
        result = self.sluice(NOTHING, "cat", "/proc/self/status")
        for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertRegex(result.out, field + r":\s+0{16}")
        self.assertRegex(result.out, r"NoNewPrivs:\s+1")

    def test_descriptors_are_not_inherited(self):
        with open("/etc/hostname") as spare:
            os.set_inheritable(spare.fileno(), True)
            result = self.sluice(NOTHING, "sh", "-c", "ls /proc/self/fd", pass_fds=[spare.fileno()])
        self.assertEqual(sorted(result.out.split()), ["0", "1", "2", "3"], str(result))

    def test_only_loopback_exists(self):
        result = self.python(NOTHING, "import socket; print([n for _, n in socket.if_nameindex()])")
        self.assertEqual(result.out.strip(), "['lo']")

    def test_loopback_is_the_workloads_own(self):
        script = """
import socket, threading
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.socket(family); server.bind((address, 0)); server.listen()
    threading.Thread(target=lambda s=server: s.accept()[0].sendall(b"own"), daemon=True).start()
    print(socket.create_connection(server.getsockname()[:2], timeout=5).recv(3).decode())
"""
        self.assertEqual(self.python(NOTHING, script).out.split(), ["own", "own"])


class Words(harness.SluiceTest):
    def test_quiet_says_nothing_when_nothing_is_denied(self):
        result = self.sluice(READ, "curl", "-sS", "https://a.test/pub/x", flags=["--quiet"])
        self.assertEqual(result.err, "")

    def test_quiet_leaves_warnings_and_nothing_else(self):
        told = self.sluice(READ, "true", env={"SOME_TOKEN": "x"}).err
        self.assertIn("not passed on, since they look like credentials", told)
        self.assertEqual(self.sluice(READ, "true", flags=["--quiet"], env={"SOME_TOKEN": "x"}).err, "")
        (self.work / ".netrc").write_text("machine a.test login x password y\n")
        self.assertRegex(self.sluice(READ, "true", flags=["-q"]).err, r"\Asluice: warning: the command sees files that hold credentials: [^\n]*\n\Z")

    def test_what_a_policy_does_not_do_is_said_once(self):
        # Written just before, so that the watcher looks whether it has changed meanwhile.
        osb = self.folder / "osb.json"
        for text, said in (('{"defaultAction":"deny","egress":[{"action":"allow","target":"a.test"}]}', "osb.json is "),
                           ("version: 1\nrules:\n  - allow: FOO a.test/pub\n", "osb.json:3: "),
                           ("version: 1\nrules:\n  - allow: GET a.test/pub/**\n    by: /usr/bin/nope\n", "there is no `/usr/bin/nope` on this machine")):
            osb.write_text(text)
            result = self.plain_sluice("run", "--policy", osb, "--", "sleep", "0.5")
            self.assertExit(result, 0)
            self.assertEqual(result.err.count(said), 1, result.err)
            self.assertEqual(result.err.count("reloaded"), 0, result.err)

    def test_a_program_that_is_missing_is_no_error_and_one_of_several_is_enough(self):
        def ran(*by):
            return self.sluice(harness.policy_text(["allow GET a.test/pub/**"]) + f"    by: [{', '.join(by)}]\n", "true").err
        self.assertIn("`by`: there is no `/usr/bin/nope`, `/usr/bin/nor` on this machine", ran("/usr/bin/nope", "/usr/bin/nor"))
        self.assertNotIn("there is no", ran("/usr/bin/nope", "/usr/bin/curl*"))

    def test_verbose_says_what_the_command_gets(self):
        result = self.sluice(READ, "true", flags=["--verbose"])
        self.assertIn(f"debug: writable: {self.work}", result.err)
        self.assertRegex(result.err, r"debug: variables: .*NODE_EXTRA_CA_CERTS")
        self.assertNotIn("debug:", self.sluice(READ, "true").err)

    def test_the_first_line_says_what_holds_and_who_trusts_the_authority(self):
        self.assertRegex(self.sluice(READ, "true").err,
                         r"^sluice: enforcing: no interface, seccomp notifications, Landlock; authority trusted by curl git node python java chromium; 1 rule, digest")

    def test_an_unknown_option_or_command_is_named(self):
        for arguments, named in ((["run", "--polcy=p.yaml", "--", "true"], "unknown option `--polcy=p.yaml`; did you mean `--policy`?"),
                                 (["frob"], "unknown command `frob`"), (["lnit", "p.yaml"], "unknown command `lnit`; did you mean `lint`?"),
                                 (["--frob"], "unknown option `--frob`"), (["run", "true"], "put `--` before the command"),
                                 (["lint", "p.yaml", "--fail-no", "note"], "unknown option `--fail-no`; did you mean `--fail-on`?"),
                                 (["preset", "shwo", "npm"], "unknown command `shwo`; did you mean `show`?"), ([], "no command is named"),
                                 (["lint", "p.yaml", "--frob"], "unknown option `--frob`"),
                                 (["doctor", "here"], "`here` is one argument too many"),
                                 (["agent", "--peer", "bob"], "--peer: `bob` is no number"),
                                 (["sidecar", "--proxy-port", "99999"], "--proxy-port: `99999` is no number, or not one that it takes")):
            result = self.plain_sluice(*arguments)
            self.assertExit(result, 2)
            self.assertIn(named, result.err.splitlines()[0])
        self.assertIn("sluice run [OPTIONS] -- COMMAND", self.plain_sluice("run", "--help").out)

    def test_the_name_and_labels_stand_in_every_record(self):
        result = self.sluice(READ, "getent", "hosts", "b.test", flags=["--name", "ci 42", "--label", "job=build", "--label", "empty="])
        self.assertTrue(result.audit)
        for record in result.audit:
            self.assertEqual((record["sandbox"], record["labels"]), ("ci 42", {"job": "build", "empty": ""}))

    def test_the_summary_counts(self):
        result = self.sluice(READ, "sh", "-c", "curl -sS https://a.test/pub/x; curl -sS https://a.test/no")
        self.assertRegex(result.err, r"sluice: exit 0 .*allowed .*1 denied")

    def test_help_and_version(self):
        self.assertRegex(self.plain_sluice("--version").out, r"^sluice \d+\.\d+\.\d+")
        for command in ("run", "lint", "explain", "completion"):
            result = self.plain_sluice(command, "--help")
            self.assertExit(result, 0)
            self.assertRegex(result.out, r"(?i)example", command)

    def test_lint_reports_every_file_and_is_2_on_an_error(self):
        good, bad = self.folder / "good.yaml", self.folder / "bad.yaml"
        good.write_text(harness.policy_text(READ))
        bad.write_text("version: 1\nname: x\nrules:\n  - allow: GET a.test\n  - alow: GET b.test\n")
        self.assertExit(self.plain_sluice("lint", good), 0)
        result = self.plain_sluice("lint", good, bad)
        self.assertExit(result, 2)
        self.assertRegex(result.out + result.err, r"bad\.yaml:5:\d+: ")

    def test_explain_names_the_rule_or_the_one_that_is_missing(self):
        self.policy.write_text(harness.policy_text(READ))
        allowed = self.plain_sluice("explain", self.policy, "GET https://a.test/pub/x")
        self.assertIn("policy.yaml:4", allowed.out)
        denied = self.plain_sluice("explain", self.policy, "POST https://a.test/pub/x")
        self.assertIn("POST a.test/pub/x", denied.out)

    def test_completion_prints_a_script(self):
        for shell in ("bash", "zsh", "fish"):
            self.assertIn("fail-on-deny", self.plain_sluice("completion", shell).out, shell)


if __name__ == "__main__":
    harness.main()
