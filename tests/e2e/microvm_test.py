#!/usr/bin/python3
"""A micro-VM monitor under sluice: what the guest asks of QEMU's user-mode network is a connect or a lookup of QEMU's, and judged."""
import os
import pathlib
import shutil

import guest
import harness

KERNEL = pathlib.Path(os.environ["SLUICE_GUEST_KERNEL"])
RULES = ["allow GET http://a.test/pub/**", "allow tcp db.test:5432"]
PATIENCE = 120 * harness.SLOW


class MicroVm(harness.SluiceTest):
    # One boot, which takes most of the time: the guest's life, in order.
    def test_a_guest_is_judged_attributed_answered_and_resumed(self):
        shutil.copy(KERNEL / "vmlinuz", self.work)
        guest.make_initramfs(KERNEL, self.work / "initrd")
        with self.running(RULES, *guest.command(), flags=["--name", "vm"]) as process:
            vm = guest.Guest(process, PATIENCE)
            vm.until("guest up")
            self.allowed(vm)
            self.denied(vm)
            self.attributed()
            self.leaves_stale_and_stops(vm)
        # A new sandbox, with a resolver, addresses and processes of its own.
        with self.running(RULES, *guest.command("-incoming", "exec:cat state"), flags=["--name", "resumed"]) as process:
            vm = guest.Guest(process, PATIENCE)
            self.still_resolves(vm)
            vm.process.stdin.write("reboot -f\n")
            vm.process.stdin.flush()
            out, err = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0, vm.seen + out + err)
            self.assertIn("sluice: exit 0", err)

    def requests(self):
        return {(entry["host"], entry["target"]) for entry in self.served() if entry["scheme"] != "tcp"}

    def allowed(self, vm):
        self.assertIn("done 0", vm.run("nslookup a.test"), vm.seen)
        self.assertIn("done 0", vm.run("wget -q -O - http://a.test/pub/hello"), vm.seen)
        self.assertIn("done 0", vm.run("echo hi | nc -w 5 db.test 5432 | grep hi"), vm.seen)
        self.assertEqual(self.requests(), {("a.test", "/pub/hello")})

    def denied(self, vm):
        before = len(self.served())
        self.assertIn("403", vm.run("wget -O - http://a.test/private"), vm.seen)
        self.assertIn("NXDOMAIN", vm.run("nslookup b.test"), vm.seen)  # the name does not exist
        self.assertNotIn("done 0", vm.run("nc -w 5 151.101.1.20 80 </dev/null"), vm.seen)  # nor does its address help
        self.assertNotIn("done 0", vm.run("nc -w 5 10.0.2.2 22 </dev/null"), vm.seen)  # 10.0.2.2 is the sandbox's own loopback
        vm.run("timeout 2 tftp -g -r x -l /x 151.101.1.20 7007")  # a datagram
        self.assertNotIn("done 0", vm.run("nslookup b.test 8.8.8.8"), vm.seen)
        self.assertEqual(len(self.served()), before)
        self.assertNotIn("b.test", self.asked())

    def attributed(self):
        records = harness.Result(0, "", "", self.audit).audit
        allowed = [r for r in records if r.get("verdict") == "allow" and r["target"].get("host") == "a.test"]
        refused = [r for r in records if r.get("verdict") == "deny"]
        self.assertTrue(allowed and refused, records)
        for record in allowed + refused:
            self.assertEqual(pathlib.Path(record["process"]["exe"]).name, "qemu-system-x86_64", record)
        self.assertTrue([r for r in refused if r["target"].get("path") == "/private"], refused)
        self.assertTrue([r for r in refused if r["target"].get("host") == "b.test"], refused)
        self.assertTrue([r for r in refused if r["target"].get("address") == "151.101.1.20" and r["target"].get("port") == 7007], refused)

    # As a snapshot taken on another machine: its resolver is one of that network.
    def leaves_stale_and_stops(self, vm):
        vm.run("echo nameserver 192.168.77.1 > /etc/resolv.conf")
        monitor = guest.Monitor(self.work / "monitor.sock")
        monitor.tell('migrate "exec:cat > state"')
        self.assertIn("completed", monitor.tell("info migrate"), "the snapshot was written")
        monitor.socket.sendall(b"quit\n")
        vm.process.communicate(timeout=PATIENCE)

    def still_resolves(self, vm):
        vm.wake()
        self.assertIn("done 0", vm.run("wget -q -O - http://a.test/pub/again"), vm.seen)
        self.assertNotIn("done 0", vm.run("wget -T 5 -O - http://b.test/"), vm.seen)
        self.assertIn(("a.test", "/pub/again"), self.requests())
        self.assertNotIn("b.test", self.asked())


if __name__ == "__main__":
    harness.main()
