#!/usr/bin/python3
"""apt as its own sandbox user: what fetches for it is `_apt`, which must be judged as everybody is, and work."""
import os
import pwd

import harness
import packages
import sidecar_test

HOST, NAME = "registry.corp.example", "lab-hello"
APT = pwd.getpwnam("_apt")
RULES = [f"allow GET {scheme}{HOST}/debian/{part}/**" for scheme in ("", "http://") for part in ("dists", "pool")]


class Apt:
    """What both ways have in common: apt-get in folders of its own, all of which `_apt` may write."""

    def prepare(self):
        self.here = self.work / "apt"
        for folder in ("state/lists/partial", "cache/archives/partial", "etc/trusted.gpg.d", "etc/empty"):
            (self.here / folder).mkdir(parents=True, exist_ok=True)
        packages.write(self.here / "status", "")
        packages.apt_repository(self.lab.folder / "site", NAME)

    def source(self, line):
        packages.write(self.here / "sources.list", f"deb [trusted=yes] {line} stable main\n")
        for path in [self.here, *self.here.rglob("*")]:
            os.chown(path, APT.pw_uid, APT.pw_gid)

    def apt_get(self, *arguments, **more):
        options = {"Dir::State": self.here / "state", "Dir::State::status": self.here / "status", "Dir::Cache": self.here / "cache",
                   "Dir::Etc::sourcelist": self.here / "sources.list", "Dir::Etc::sourceparts": "-", "Dir::Etc::parts": self.here / "etc/empty",
                   "Dir::Etc::trustedparts": self.here / "etc/trusted.gpg.d", "Dir::Log": self.here, "Acquire::Languages": "none",
                   "Acquire::Retries": "0", "APT::Update::Error-Mode": "any", **more}
        return ["apt-get", "-y", *[f"-o{key}={value}" for key, value in options.items()], *arguments]

    def expect_a_package(self):
        package = next((self.here / "cache/archives").glob(f"{NAME}_*.deb"))
        self.assertGreater(package.stat().st_size, 100)
        package.unlink()

    def uids(self, verdict):
        return {r["process"]["uid"] for r in harness.Result(0, "", "", self.audit).audit if r.get("verdict") == verdict and r["layer"] == "request"}


class InASidecar(sidecar_test.SidecarTest, Apt):
    def test_it_drops_to_its_user_and_is_served_and_refused_as_that(self):
        self.prepare()
        with self.sidecar(RULES, "--processes", "seen"):
            trust = {"Acquire::https::CAInfo": self.bundle}
            for scheme in ("http", "https"):
                self.source(f"{scheme}://{HOST}/debian")
                self.assertExit(self.workload(*self.apt_get("update", **trust), timeout=120), 0)
                self.assertExit(self.workload(*self.apt_get("install", "--download-only", NAME, **trust), timeout=120), 0)
                self.expect_a_package()
            self.assertEqual(self.uids("allow"), {APT.pw_uid})
            self.source(f"http://{HOST}/other")
            other = self.workload(*self.apt_get("update", **trust), timeout=120)
            self.assertNotEqual(other.code, 0, str(other))
            self.assertIn("403  Egress denied", other.out + other.err)
            self.assertEqual(self.uids("deny"), {APT.pw_uid})


class AsTheUserThatRunsSluice(harness.SluiceTest, Apt):
    def run_as_apt(self, *command):
        done = self.lab.run(self.command(RULES, command), uid=APT.pw_uid, cwd=self.here, timeout=120 * harness.SLOW)
        return harness.Result(done.returncode, done.stdout, done.stderr, self.audit)

    def test_it_is_served_and_refused(self):
        self.prepare()
        for folder in (self.folder, self.work):
            os.chown(folder, APT.pw_uid, APT.pw_gid)
        for scheme in ("http", "https"):
            self.source(f"{scheme}://{HOST}/debian")
            self.assertExit(self.run_as_apt(*self.apt_get("update")), 0)
            self.assertExit(self.run_as_apt(*self.apt_get("install", "--download-only", NAME)), 0)
            self.expect_a_package()
        self.assertEqual(self.uids("allow"), {APT.pw_uid})
        self.source(f"http://{HOST}/other")
        other = self.run_as_apt(*self.apt_get("update"))
        self.assertNotEqual(other.code, 0, str(other))
        self.assertIn("403  Egress denied", other.out + other.err)
        self.assertEqual(self.uids("deny"), {APT.pw_uid})


if __name__ == "__main__":
    harness.main()
