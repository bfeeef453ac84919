#!/usr/bin/python3
"""Limits by control groups of version 2, in a guest whose kernel has all controllers there: for root in the root group, for root alone in
a group of its own, and for an ordinary user in a tree that was delegated to it."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import guest

KERNEL = pathlib.Path(os.environ["SLUICE_GUEST_KERNEL"])
SLUICE = pathlib.Path(os.environ["SLUICE_BINARY"])
PATIENCE = 240
MODULES = ("libcrc32c", "nfnetlink", "nf_tables", "nf_defrag_ipv4", "nf_defrag_ipv6", "nf_tproxy_ipv4", "nf_tproxy_ipv6", "nft_tproxy", "nf_socket_ipv4",
           "nf_socket_ipv6", "nft_socket", "nf_reject_ipv4", "nf_reject_ipv6", "nft_reject", "nft_reject_inet")
LATE_CALLS = pathlib.Path(__file__).resolve().parents[2] / "app/late_calls.txt"
# From the initramfs, whose root cannot be pivoted, into one of the usual kind.
SETUP = """
if [ ! -e /moved ]; then
  mkdir /new; mount -t tmpfs t /new
  for each in bin etc lib lib64 usr mod init; do cp -a /$each /new/ 2>/dev/null; done
  mkdir /new/proc /new/dev /new/sys /new/tmp /new/run /new/var /new/root /new/home; chmod 1777 /new/tmp; touch /new/moved
  umount /proc; umount /dev
  exec switch_root /new /init
fi
mkdir -p /sys/fs; mount -t sysfs s /sys; mount -t cgroup2 c /sys/fs/cgroup
echo nameserver 127.0.0.1 > /etc/resolv.conf
echo root:x:0:0::/root:/bin/sh > /etc/passwd; echo me:x:1000:1000::/home:/bin/sh >> /etc/passwd; echo root:x:0: > /etc/group; echo me:x:1000: >> /etc/group
echo 127.0.0.1 localhost > /etc/hosts; chown 1000:1000 /home
cat > /bin/run <<'END'
#!/bin/sh
# run USER GROUP ARGUMENT...: sluice alone in that group; its result and exit code.
user=$1 group=$2; shift 2
sh -c 'cd /home; echo $$ > "$0/cgroup.procs"; exec su -c '"'"'exec /usr/bin/sluice run --quiet --allow "GET a.test" --result /tmp/result "$@"'"'"' -- '$user' sluice "$@"' "/sys/fs/cgroup$group" "$@"
code=$?; cat /tmp/result; rm -f /tmp/result; echo; echo "exit $code"
END
chmod 755 /bin/run
"""


def libraries():
    """Those that the program names, those that it loads when it first calls them, and what they name."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    late = [re.search(rf"^\s+{name}\.so\.\d+ \(libc6,x86-64\) => (\S+)$", known, re.M)[1] for name in re.findall(r"^\[(\S+)\]$", LATE_CALLS.read_text(), re.M)]
    named = subprocess.run(["ldd", SLUICE, *late], capture_output=True, text=True, check=True).stdout
    return sorted({pathlib.Path(path) for path in late + re.findall(r"(?:=>|^\t(?=/))\s*(/\S+) \(0x", named, re.M)})


class Limits(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        shutil.copy(KERNEL / "vmlinuz", self.folder)
        small = self.folder / "sluice"
        subprocess.run(["strip", "-o", small, SLUICE], check=True)
        more = [("usr/bin/sluice", small), *((str(path).lstrip("/"), path) for path in libraries())]
        guest.make_initramfs(KERNEL, self.folder / "initrd", MODULES, SETUP, more)
        process = subprocess.Popen(guest.machine(768), cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, bufsize=1)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.vm = guest.Guest(process, PATIENCE)
        self.vm.until("guest up")

    def run_there(self, line):
        """The result file and the exit code of a run."""
        out = self.vm.run(line)
        match = re.search(r"^(\{.*?^\})\s*exit (\d+)", out, re.S | re.M)
        self.assertIsNotNone(match, out)
        result = json.loads(match[1])
        self.assertNotIn("error", result, out)
        return result, int(match[2])

    def holds(self, run):
        """A command that eats memory is killed and its supervisor says so; one that forks without end is told EAGAIN."""
        result, code = self.run_there(f"{run} --max-memory 48MiB -- tail /dev/zero")
        self.assertEqual((result["limits"]["memory"]["by"], result["ended_by"], code), ("cgroup 2", "memory", 137), self.vm.seen)
        result, code = self.run_there(f"{run} --max-processes 12 -- sh -c 'for i in $(seq 40); do sleep 9 & done 2>&1'")
        self.assertEqual(result["limits"]["processes"]["by"], "cgroup 2", self.vm.seen)
        self.assertIn("can't fork", self.vm.seen)
        # Nothing is left of either, and the next run has what it needs.
        self.assertIn("done 1", self.vm.run("find /sys/fs/cgroup -name 'sluice-*' | grep ."))
        result, code = self.run_there(f"{run} --max-memory 48MiB --max-processes 12 -- true")
        self.assertEqual((code, result["ended_by"]), (0, "command"), self.vm.seen)

    # One boot, which takes most of the time.
    def test_a_group_of_version_2_holds_the_run(self):
        self.assertRegex(self.vm.run("cat /sys/fs/cgroup/cgroup.controllers"), r"memory.*pids")
        with self.subTest("root in the root group"):
            self.holds("run root /")
        with self.subTest("root, alone in a group of its own"):
            self.vm.run("mkdir /sys/fs/cgroup/own; echo '+memory +pids' > /sys/fs/cgroup/cgroup.subtree_control")
            self.holds("run root /own")
        with self.subTest("an ordinary user, alone in a group that was delegated to it"):
            self.vm.run("cd /sys/fs/cgroup; mkdir user; echo '+memory +pids' > user/cgroup.subtree_control; mkdir user/job; chown 1000 user/job user/job/*; cd /")
            self.holds("run me /user/job")


if __name__ == "__main__":
    unittest.main(argv=[__file__], verbosity=2)
