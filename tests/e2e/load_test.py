#!/usr/bin/python3
"""A thousand connections at once from a hundred processes: every one decided, none lost, descriptors bounded."""
import os
import time

import harness

# A hundred processes, each with ten connections held open together; half of the names are denied by port.
CROWD = """
import os, socket, sys
start_r, start_w = os.pipe()
children = []
for index in range(100):
    pid = os.fork()
    if pid == 0:
        os.close(start_w)
        os.read(start_r, 1)
        held, refused, lost = [], 0, 0
        for n in range(10):
            try:
                s = socket.create_connection(("db.test", 5432), timeout=60)
                s.sendall(b"%04d" % (index * 10 + n))
                held.append((s, b"%04d" % (index * 10 + n)))
            except OSError as error:
                lost += 1
            try:
                socket.create_connection(("db.test", 22), timeout=60)
                lost += 100
            except PermissionError:
                refused += 1
            except OSError:
                lost += 1
        good = 0
        for s, sent in held:
            got = b""
            while len(got) < 4:
                block = s.recv(4)
                if not block: break
                got += block
            good += got == sent
        with open("done", "a") as f: f.write(f"{good} {refused} {lost}\\n")
        while len(open("done").readlines()) < 100:
            import time; time.sleep(0.05)
        os._exit(0)
    children.append(pid)
os.close(start_r)
os.close(start_w)
for pid in children: os.waitpid(pid, 0)
print(open("done").read())
"""


class Crowd(harness.SluiceTest):
    def test_a_thousand_connections_from_a_hundred_processes(self):
        most = 0
        said = open(self.folder / "stderr", "w+")
        self.addCleanup(said.close)
        with self.running(["allow tcp db.test:5432"], harness.PYTHON, "-c", CROWD, flags=["--quiet"], stderr=said) as process:
            while process.poll() is None and len(self.lines()) < 100:
                most = max(most, self.descriptors(process.pid))
                time.sleep(0.05)
            out, _ = process.communicate(timeout=120 * harness.SLOW)
        said.seek(0)
        err = said.read()
        rows = [tuple(map(int, line.split())) for line in out.split("\n") if line]
        self.assertEqual(rows, [(10, 10, 0)] * 100, err[-2000:])
        # Both ends and two pipes for each of the thousand, and a few of its own.
        self.assertLess(most, 7000, "descriptors of the supervisor")
        denials = harness.Result(0, out, err, self.audit).denials(port=22)
        self.assertEqual(len({record["process"]["pid"] for record in denials}), 100)
        # A name may have an address of each family, and a client tries both. Equal ones may share a record.
        self.assertIn(sum(record.get("count", 1) for record in denials), (1000, 2000))
        self.assertEqual(len([e for e in self.served() if e.get("port") == 5432]), 1000)

    def lines(self):
        path = self.work / "done"
        return path.read_text().splitlines() if path.exists() else []

    @staticmethod
    def descriptors(pid):
        try:
            return len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            return 0

    def test_two_hundred_curls_at_once(self):
        # Without TLS: loading its certificates keeps each curl busy for longer than its exchange takes.
        script = ("for i in $(seq 100); do curl -sS -m 60 -o /dev/null -w '%{http_code}\\n' http://a.test/pub/$i & "
                  "curl -sS -m 60 -o /dev/null -w '%{http_code}\\n' -X DELETE http://a.test/pub/$i & done; wait")
        result = self.sluice(["allow GET http://a.test"], "bash", "-c", script, timeout=180)
        codes = result.out.split()
        self.assertEqual((codes.count("200"), codes.count("403")), (100, 100), str(result))


if __name__ == "__main__":
    harness.main()
