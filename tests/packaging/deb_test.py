#!/usr/bin/python3
"""The Debian packages: built twice they are the same files, installed into a root of their own they are what was built, and the units verify.

Usage: deb_test.py SOURCE_FOLDER SLUICE_BINARY BUILD_FOLDER
"""
import filecmp
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, BINARY, BUILD = (pathlib.Path(argument) for argument in sys.argv[1:4])


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True, **options).stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="sluice-deb-")
        base = pathlib.Path(cls.folder.name)
        # The level only makes the packages smaller, and takes two thirds of the time.
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
        for place in ("one", "two"):
            run(ROOT / "packaging/debian/build", BINARY, base / place, BUILD, env=environment)
        cls.package = next((base / "one").glob("sluice_*.deb"))
        cls.libraries = [next((base / "one").glob(f"{name}_*.deb")) for name in ("libsluice1", "libsluice-dev")]
        cls.root = base / "root"
        # dpkg itself unpacks it into a root that has nothing but a status file; dependencies are not there.
        (cls.root / "var/lib/dpkg/info").mkdir(parents=True)
        (cls.root / "var/lib/dpkg/updates").mkdir()
        (cls.root / "var/lib/dpkg/status").touch()
        (cls.root / "var/lib/dpkg/available").touch()
        if os.geteuid() == 0:
            run("dpkg", f"--root={cls.root}", "--force-depends", "--log=/dev/null", "--unpack", cls.package, *cls.libraries)
        else:
            for package in (cls.package, *cls.libraries):
                run("dpkg-deb", "-x", package, cls.root)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def field(self, name, package=None):
        return run("dpkg-deb", "--field", package or self.package, name).strip()

    def test_needs_what_it_loads_late(self):
        depends = self.field("Depends")
        for package in ("libc6", "libssl3", "libnghttp2-14", "zlib1g", "libidn2-0", "libpsl5", "libmnl0"):
            self.assertRegex(depends, rf"(^|, ){package}\b")

    def test_is_the_same_file_each_time(self):
        for package in (self.package, *self.libraries):
            self.assertTrue(filecmp.cmp(package, package.parent.parent / "two" / package.name, shallow=False), package.name)

    def test_the_librarys_packages_are_of_one_version_and_work_together(self):
        version = self.field("Version")
        library, development = self.libraries
        self.assertRegex(self.field("Depends", library), rf"libc6 .*, sluice \(= {re.escape(version)}\)")
        self.assertEqual(self.field("Depends", development), f"libsluice1 (= {version})")
        held = next(path for path in self.root.rglob("libsluice.so.1"))
        self.assertTrue((held.parent / "libsluice.so").exists())
        self.assertEqual(run("dpkg-deb", "--info", library, "shlibs"), f"libsluice 1 libsluice1 (>= {version})\n")
        self.assertEqual(run("dpkg-deb", "--info", library, "triggers"), "activate-noawait ldconfig\n")
        self.assertEqual(next(self.root.rglob("run_under.py")).read_bytes(), (ROOT / "examples/library/python/run_under.py").read_bytes())
        flags = run("pkg-config", "--cflags", "--libs", "sluice", env={**os.environ, "PKG_CONFIG_PATH": str(next(self.root.rglob("sluice.pc")).parent)}).split()
        self.assertTrue(all(str(self.root) in flag for flag in flags if flag.startswith(("-I", "-L"))), flags)

    def test_says_what_it_is(self):
        version = run(BINARY, "--version").split()[1]
        self.assertEqual(self.field("Package"), "sluice")
        self.assertEqual(self.field("Version"), version)
        self.assertRegex(self.field("Depends"), r"libssl3 \(>= 3")
        self.assertRegex(self.field("Depends"), r"libc6 \(>= ")

    def test_holds_the_program_pages_completions_and_units(self):
        self.assertEqual(run(self.root / "usr/bin/sluice", "--version"), run(BINARY, "--version"))
        for page in (ROOT / "packaging/man").glob("*.1"):
            packed = gzip.decompress((self.root / "usr/share/man/man1" / (page.name + ".gz")).read_bytes())
            self.assertEqual(packed, page.read_bytes())
        for shell, place in (("bash", "usr/share/bash-completion/completions/sluice"), ("zsh", "usr/share/zsh/vendor-completions/_sluice"),
                             ("fish", "usr/share/fish/vendor_completions.d/sluice.fish")):
            self.assertEqual((self.root / place).read_text(), (ROOT / f"packaging/completions/sluice.{shell}").read_text())
        self.assertEqual(sorted(p.name for p in (self.root / "lib/systemd/system").iterdir()),
                         ["sluice-agent.service", "sluice-proxy.service", "sluice-sidecar@.service"])

    def test_its_files_are_roots_and_nobody_elses_to_write(self):
        for line in "".join(run("dpkg-deb", "--contents", package) for package in (self.package, *self.libraries)).splitlines():
            if line.startswith("l"):
                continue
            mode, owner = line.split()[:2]
            self.assertEqual(owner, "root/root", line)
            self.assertNotEqual(mode[8], "w", line)
            self.assertNotEqual(mode[5], "w", line)

    def test_its_sums_are_right(self):
        control = pathlib.Path(self.folder.name) / "control"
        run("dpkg-deb", "--control", self.package, control)
        sums = (control / "md5sums").read_text().splitlines()
        self.assertGreater(len(sums), 10)
        unpacked = pathlib.Path(self.folder.name) / "unpacked"
        run("dpkg-deb", "-x", self.package, unpacked)
        run("md5sum", "--check", "--quiet", control / "md5sums", cwd=unpacked)

    def test_its_units_verify(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze on this machine")
        for unit in (self.root / "lib/systemd/system").iterdir():
            # The program where it is installed here, so that only what is wrong is told.
            place = pathlib.Path(self.folder.name) / "units" / unit.name
            place.parent.mkdir(exist_ok=True)
            text = unit.read_text().replace("/usr/bin/sluice", str(self.root / "usr/bin/sluice"))
            place.write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.M))
            done = subprocess.run(["systemd-analyze", "verify", "--recursive-errors=no", place], capture_output=True, text=True)
            told = [l for l in done.stderr.splitlines() if unit.name.split("@")[0].removesuffix(".service") in l]
            self.assertEqual(told, [], done.stderr)

    def test_its_unit_of_something_wrong_does_not_verify(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze on this machine")
        place = pathlib.Path(self.folder.name) / "sluice-broken.service"
        place.write_text("[Service]\nType=notify\nExecStart=/nowhere/sluice\nProtectSysten=strict\n")
        done = subprocess.run(["systemd-analyze", "verify", "--recursive-errors=no", place], capture_output=True, text=True)
        self.assertIn("sluice-broken", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
