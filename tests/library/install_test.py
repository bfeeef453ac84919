#!/usr/bin/python3
"""libsluice as it is installed: its names, its binary interface, and the examples built against it with pkg-config and with find_package.

What it builds stays for the end-to-end test, which runs it. Usage: install_test.py SOURCE_FOLDER BUILD_FOLDER OUTPUT_FOLDER
"""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE, BUILD, OUT = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = SOURCE / "examples/library"
CC, CXX = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
SANITIZED = os.environ.get("SLUICE_SANITIZED", "")
# libsluice is C++, whose part of a sanitizer a program of C would not bring.
SANITIZE = [f"-fsanitize={SANITIZED}", "-fsanitize-link-c++-runtime", "-Wl,--no-as-needed", "-lstdc++"] if SANITIZED else []


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(OUT, ignore_errors=True)
        for component in ("program", "library", "development"):
            run("cmake", "--install", BUILD, "--prefix", "/usr", "--component", component, env={**os.environ, "DESTDIR": str(OUT / "root")})
        cls.prefix = OUT / "root/usr"
        cls.library = next(cls.prefix.rglob("libsluice.so.1"))
        cls.packages = next(cls.prefix.rglob("sluice.pc")).parent
        cls.environment = {**os.environ, "PKG_CONFIG_PATH": str(cls.packages), "LD_LIBRARY_PATH": str(cls.library.parent)}

    def cflags(self):
        return run("pkg-config", "--cflags", "--libs", "sluice", env=self.environment).split()

    def test_exports_what_the_committed_list_says_and_nothing_else(self):
        names = run("nm", "-D", "--defined-only", "--with-symbol-versions", self.library).splitlines()
        exported = sorted(line.split()[2] for line in names if line.split()[1] not in "Aa")
        self.assertEqual(exported, (HERE / "symbols-1.txt").read_text().splitlines())

    def test_has_its_soname_and_keeps_its_own_libraries_to_itself(self):
        dynamic = run("readelf", "-d", self.library)
        self.assertIn("Library soname: [libsluice.so.1]", dynamic)
        self.assertIn("NODELETE", dynamic)
        self.assertNotIn("RPATH", dynamic)
        self.assertNotIn("RUNPATH", dynamic)

    def test_every_name_of_the_header_is_exported(self):
        header = (self.prefix / "include/sluice/sluice.h").read_text()
        declared = sorted(set(re.findall(r"\b(sluice_[a-z_]+)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.S))))
        self.assertEqual([f"{name}@@SLUICE_1" for name in declared], (HERE / "symbols-1.txt").read_text().splitlines())

    def test_the_headers_compile_alone_as_old_c_and_as_cxx17(self):
        include = self.prefix / "include"
        for compiler, standard, name in ((CC, "c99", "sluice.h"), (CC, "c17", "sluice.h"), (CXX, "c++17", "sluice.h"), (CXX, "c++17", "sluice.hpp"),
                                         (CXX, "c++23", "sluice.hpp")):
            language = "c" if compiler == CC else "c++"
            run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", language, f"-I{include}", "-",
                input=f"#include <sluice/{name}>\n")

    def test_the_c_example_builds_with_pkg_config(self):
        run(CC, "-std=c11", "-Wall", "-Wextra", "-Werror", *SANITIZE, EXAMPLES / "c/run_under.c", "-o", OUT / "run_under_c", *self.cflags(),
            env=self.environment)
        self.assertIn("libsluice.so.1", run("readelf", "-d", OUT / "run_under_c"))

    def test_a_program_of_the_first_header_builds_and_works(self):
        flags = [flag for flag in self.cflags() if not flag.startswith("-I")]
        program = OUT / "run_under_v1"
        run(CC, "-std=c11", f"-I{HERE / 'v1'}", *SANITIZE, EXAMPLES / "c/run_under.c", "-o", program, *flags, env=self.environment)
        policy = OUT / "policy.yaml"
        policy.write_text("version: 1\nrules:\n  - allow: GET a.test\n")
        told = run(program, policy, "--ask", "GET https://a.test/", "--ask", "POST https://a.test/", env=self.environment)
        self.assertEqual(told, "GET https://a.test/: allowed\nPOST https://a.test/: denied\n")

    def test_the_first_header_is_a_part_of_this_one(self):
        """Declarations stay; constants, functions and last fields may be added."""
        def words(path):
            text = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S)
            return {re.sub(r"\s+", " ", part).strip() for part in re.split(r"[;,{}]", text) if part.strip()}
        gone = words(HERE / "v1/sluice/sluice.h") - words(self.prefix / "include/sluice/sluice.h")
        self.assertEqual(gone, set())

    def test_the_cxx_example_builds_with_find_package(self):
        build = OUT / "cpp"
        more = [f"-DCMAKE_CXX_FLAGS={' '.join(SANITIZE)}"] if SANITIZE else []
        run("cmake", "-S", EXAMPLES / "cpp", "-B", build, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={CXX}", f"-DCMAKE_PREFIX_PATH={self.prefix}", *more)
        run("cmake", "--build", build)
        self.assertIn("libsluice.so.1", run("readelf", "-d", build / "run_under"))
        # Installed for good, it would be found by the dynamic linker; here it lies elsewhere.
        shutil.copy(build / "run_under", OUT / "run_under_cpp")

    def test_loads_without_any_of_its_own_symbols_in_the_way(self):
        if SANITIZE:
            return
        library = ctypes.CDLL(str(self.library))
        library.sluice_version.restype = ctypes.c_char_p
        self.assertEqual(library.sluice_version().decode(), run(self.prefix / "bin/sluice", "--version").split()[1])
        self.assertFalse(hasattr(library, "_ZN6sluice5app3RunERKNS0_10RunOptionsE"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
