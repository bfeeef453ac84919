#!/usr/bin/python3
"""What is shipped for continuous integration, run as it runs there: an ordinary user, a repository, no network.

Usage: ci_test.py SOURCE_FOLDER SLUICE_BINARY
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT, BINARY = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
ACTION = ROOT / "packaging/github-action"
USER = 1000
WIDER = "  - allow: POST api.github.com/repos/octo/*/issues\n"


class Repository(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="sluice-ci-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.folder.chmod(0o755)
        (self.folder / "bin").mkdir()
        shutil.copy(BINARY, self.folder / "bin/sluice")
        (self.folder / "bin/sluice").chmod(0o755)
        shutil.copy(ACTION / "check.sh", self.folder / "check.sh")
        self.repository = self.folder / "repository"
        shutil.copytree(ROOT / "examples/ci", self.repository)
        self.policy = self.repository / "policies/agent.yaml"
        if os.geteuid() == 0:
            for path in [self.folder, *self.folder.rglob("*")]:
                os.chown(path, USER, USER)
        self.assertEqual(self.run_there("git", "init", "-q", "-b", "main").returncode, 0)
        self.commit()

    def commit(self):
        for command in (["add", "-A"], ["-c", "user.name=ci", "-c", "user.email=ci@a.test", "commit", "-qm", "a change"]):
            self.assertEqual(self.run_there("git", *command).returncode, 0)

    def run_there(self, *command, **environment):
        """As an ordinary user, in a network namespace that holds nothing."""
        if os.geteuid() == 0:
            prefix = ["unshare", "--net", "--", "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
        else:
            prefix = ["unshare", "--user", "--map-current-user", "--net", "--"]
        # As on a runner: nothing of this machine's environment but the path.
        env = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "HOME": str(self.folder), **environment}
        return subprocess.run([*prefix, *command], cwd=self.repository, env=env, capture_output=True, text=True)

    def append(self, text, path=None):
        path = path or self.policy
        content = path.read_text()
        path.write_text(content.replace("\nassert:", f"{text}\nassert:") if path == self.policy else content + text)


class Action(Repository):
    def check(self, **environment):
        self.summary, self.outputs, self.sarif = (self.folder / name for name in ("summary.md", "outputs", "out"))
        for name in (self.summary, self.outputs):
            name.write_text("")
            if os.geteuid() == 0:
                os.chown(name, USER, USER)
        variables = {"SLUICE_POLICIES": "policies\n", "SLUICE_TESTS": "policies\n", "SLUICE_BASE": "main", "SLUICE_FAIL_ON": "error", "SLUICE_ACCEPT": "",
                     "SLUICE_OUT": str(self.sarif), "GITHUB_STEP_SUMMARY": str(self.summary), "GITHUB_OUTPUT": str(self.outputs)}
        return self.run_there("sh", str(self.folder / "check.sh"), **{**variables, **environment})

    def logs(self):
        logs = {name: json.loads((self.sarif / f"{name}.sarif").read_text()) for name in ("lint", "prove")}
        for log in logs.values():
            self.assertEqual((log["version"], len(log["runs"])), ("2.1.0", 1))
        return logs

    def output(self):
        return dict(line.split("=", 1) for line in self.outputs.read_text().splitlines())

    def test_passes_what_did_not_change_or_lets_out_less(self):
        for change in ("", "  - deny: GET api.github.com/repos/octo/private/**\n"):
            self.append(change)
            done = self.check()
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(self.output(), {"verdict": "equal-or-narrowed", "sarif": str(self.sarif)})
            self.assertEqual(self.logs()["prove"]["runs"][0]["results"], [])

    def test_fails_what_lets_out_more_and_puts_it_on_the_line(self):
        self.append(WIDER)
        line = 1 + self.policy.read_text().splitlines().index(WIDER.rstrip())
        done = self.check(SLUICE_TESTS="")
        self.assertEqual(done.returncode, 1, done)
        self.assertEqual(self.output()["verdict"], "widened")
        self.assertRegex(done.stdout, rf"(?m)^::error file=policies/agent\.yaml,line={line}\b")
        self.assertIn("POST", self.summary.read_text())
        place = self.logs()["prove"]["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
        self.assertEqual((place["artifactLocation"]["uri"], place["region"]["startLine"]), ("policies/agent.yaml", line))

    def test_an_accepted_gain_passes(self):
        self.append(WIDER)
        accepted = self.repository / "accepted.yaml"
        accepted.write_text("version: 1\naccepted:\n  - allow: POST api.github.com/repos/octo/*/issues\n    owner: octo\n    reason: triage\n"
                            "    expires: 2099-01-01\n")
        done = self.check(SLUICE_TESTS="", SLUICE_ACCEPT="accepted.yaml")
        self.assertEqual(done.returncode, 0, done)

    def test_fails_a_broken_unit_test_assertion_or_file(self):
        self.append("  - allow: POST https://api.github.com/x\n", self.repository / "policies/agent.test.yaml")
        self.assertEqual(self.check().returncode, 1)
        self.append("  - allow: git receive-pack github.com/octo/hello\n")
        # Compared with itself, nothing is gained: it is the included file's assertion that refuses.
        self.commit()
        done = self.check(SLUICE_TESTS="", SLUICE_BASE="")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("common.yaml", done.stdout)
        self.append("  - allow: gti fetch-pack a.test/x\n")
        done = self.check(SLUICE_TESTS="")
        self.assertEqual(done.returncode, 2, done)
        (result,) = self.logs()["prove"]["runs"][0]["results"]
        self.assertEqual(result["ruleId"], "sluice/does-not-load")

    def test_takes_no_input_for_an_option_or_a_command(self):
        self.assertEqual(self.check(SLUICE_BASE="--help").returncode, 2)
        self.assertEqual(self.check(SLUICE_BASE="0000000000000000000000000000000000000000").returncode, 2)
        marker = self.folder / "marker"
        self.assertEqual(self.check(SLUICE_POLICIES=f"--help\npolicies; touch {marker}\n$(touch {marker})\n").returncode, 2)
        self.assertFalse(marker.exists())
        shutil.copytree(self.repository / "policies", self.repository / "two words")
        self.assertEqual(self.check(SLUICE_POLICIES="two words", SLUICE_BASE="").returncode, 1)  # a new policy is a gain
        self.commit()
        self.assertEqual(self.check(SLUICE_POLICIES="policies\n\n  \ntwo words\n", SLUICE_BASE="").returncode, 0)


class Hooks(Repository):
    def test_pass_the_example_and_stop_a_commit_that_widens(self):
        hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
        used = yaml.safe_load((self.repository / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
        self.assertEqual([hook["id"] for hook in used], list(hooks))
        for hook in hooks.values():
            self.assertLessEqual({"id", "name", "entry", "language", "files"}, set(hook))
            self.assertEqual(hook["language"], "system")
            files = self.matching(hook)
            self.assertTrue(files, hook["id"])
            done = self.called(hook, files)
            self.assertEqual(done.returncode, 0, f"{hook['id']}: {done}")
        self.append(WIDER)
        done = self.called(hooks["sluice-prove"], self.matching(hooks["sluice-prove"]))
        self.assertEqual(done.returncode, 1, done)

    def test_a_policy_that_changed_is_tested_though_its_tests_did_not(self):
        (hook,) = [hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()) if hook["id"] == "sluice-test"]
        self.assertIn("policies/agent.yaml", self.matching(hook))
        self.policy.write_text("version: 1\n")
        done = self.called(hook, ["policies/agent.yaml"])
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("policies/agent.test.yaml", done.stdout)

    def test_a_change_of_an_included_file_is_proved_with_its_includers(self):
        (hook,) = [hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()) if hook["id"] == "sluice-prove"]
        common = self.repository / "policies/common.yaml"
        text = common.read_text()
        common.write_text(text[:text.index("rules:")] + text[text.index("assert:"):])
        done = self.called(hook, ["policies/common.yaml"])
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("policies/agent.yaml", done.stdout)

    def called(self, hook, changed):
        """As pre-commit does it."""
        return self.run_there(*hook["entry"].split(), *hook.get("args", []), *(changed if hook.get("pass_filenames", True) else []))

    def matching(self, hook):
        import re
        names = [str(path.relative_to(self.repository)) for path in sorted(self.repository.rglob("*.yaml"))]
        return [name for name in names if re.search(hook["files"], name) and not re.search(hook.get("exclude", "^$"), name)]


class Gitlab(Repository):
    def test_the_job_passes_the_example_and_fails_what_widens(self):
        job = yaml.safe_load((ROOT / "packaging/gitlab/sluice.gitlab-ci.yml").read_text())[".sluice"]
        mine = yaml.safe_load((self.repository / ".gitlab-ci.yml").read_text())["egress"]
        self.assertEqual(mine["extends"], ".sluice")
        variables = {**job["variables"], **mine["variables"]}
        script = "set -e\n" + "\n".join(job["script"])
        base = self.run_there("git", "rev-parse", "HEAD").stdout.strip()
        for change, code in (("", 0), (WIDER, 1)):
            self.append(change)
            for environment in ({}, {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base}):
                done = self.run_there("sh", "-c", script.replace("sluice test", "true sluice test") if change else script, **variables, **environment)
                self.assertEqual(done.returncode, code, done)
            self.assertEqual(json.loads((self.repository / "sluice-prove.sarif").read_text())["version"], "2.1.0")


class Files(unittest.TestCase):
    def test_the_action_documents_its_inputs_and_pastes_none_into_a_script(self):
        action = yaml.safe_load((ACTION / "action.yml").read_text())
        self.assertEqual(action["runs"]["using"], "composite")
        text = (ACTION / "action.yml").read_text()
        for name, entry in action["inputs"].items():
            self.assertTrue(entry["description"], name)
            self.assertIn(f"inputs.{name}", text)
        for step in action["runs"]["steps"]:
            self.assertEqual("run" in step, "shell" in step)
            self.assertNotIn("${{", step.get("run", ""))
        script = (ACTION / "check.sh").read_text()
        for name in action["runs"]["steps"][0]["env"]:
            self.assertIn(f"${{{name}:", script)
        with_keys = yaml.safe_load((ROOT / "examples/ci/.github/workflows/egress.yml").read_text())["jobs"]["policies"]["steps"][-1]["with"]
        self.assertLessEqual(set(with_keys), set(action["inputs"]))
        self.assertTrue(os.access(ACTION / "check.sh", os.X_OK))

    def test_shell_parts_parse(self):
        self.assertEqual(subprocess.run(["sh", "-n", ACTION / "check.sh"]).returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
