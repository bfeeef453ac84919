#!/usr/bin/python3
"""What a hostile program tries against the whole of sluice: its resolver, its listener, its patience, its processes."""
import os
import shutil
import time

import harness

NOTHING = []
READ = ["allow GET a.test/pub/**"]
TELEMETRY = "151.101.1.40"  # of a name that no rule here allows


class Datagrams(harness.SluiceTest):
    def test_an_address_or_descriptor_changed_during_the_call_sends_nothing_out(self):
        # The call is looked at while its address is the resolver's, or its socket a UNIX one, and goes on with another.
        script = """
import ctypes, mmap, os, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.mmap(-1, 4096)
where = ctypes.addressof(ctypes.c_char.from_buffer(page))
def address(ip, port): return struct.pack("=HHI8x", socket.AF_INET, socket.htons(port), struct.unpack("=I", socket.inet_aton(ip))[0])
good, bad = address("9.9.9.9", 53), address(sys.argv[1], 7007)
page[:16] = good
if os.fork() == 0:
    end = time.monotonic() + 6
    while time.monotonic() < end:
        for _ in range(1000):
            page[:16] = bad; page[:16] = good
    os._exit(0)
replies = 0
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.setblocking(False)
unix = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
slot = os.dup(udp.fileno())
stop = False
def swap():
    while not stop:
        os.dup2(unix.fileno(), slot); os.dup2(udp.fileno(), slot)
threading.Thread(target=swap, daemon=True).start()
class Msg(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint32), ("iov", ctypes.c_void_p), ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int)]
text = ctypes.create_string_buffer(b"escaped")
iov = (ctypes.c_size_t * 2)(ctypes.addressof(text), 7)
msg = Msg(where, 16, ctypes.addressof(iov), 1, None, 0, 0)
end = time.monotonic() + 5
sent = refused = 0
while time.monotonic() < end:
    for fd in (udp.fileno(), slot):
        for call in (lambda: libc.sendto(fd, text, 7, 0, ctypes.c_void_p(where), 16), lambda: libc.sendmsg(fd, ctypes.byref(msg), 0), lambda: libc.connect(fd, ctypes.c_void_p(where), 16)):
            if call() >= 0: sent += 1
            else: refused += 1
    try:
        while True:
            if udp.recvfrom(100)[1][1] == 7007: replies += 1
    except OSError: pass
stop = True
print("replies", replies, "raced", sent > 0 and refused > 0)
"""
        result = self.python(READ, script, TELEMETRY)
        self.assertEqual(result.out, "replies 0 raced True\n", str(result))

    def test_a_socket_that_a_service_passes_is_neither_connected_nor_addressed(self):
        # A service that a rule opens hands out a socket of the host's network.
        folder = self.folder / "service"
        folder.mkdir(mode=0o755)
        path = folder / "s"
        script = f"""
import array, socket
service = socket.socket(socket.AF_UNIX); service.connect("{path}")
_, control, _, _ = service.recvmsg(1, 100)
udp, tcp = [socket.socket(fileno=fd) for fd in array.array("i", control[0][2])]
for what, call in (("sendto", lambda: udp.sendto(b"x", ("{TELEMETRY}", 7007))), ("connect", lambda: udp.connect(("{TELEMETRY}", 7007))), ("tcp", lambda: tcp.connect(("{TELEMETRY}", 443)))):
    try: print(what, call())
    except OSError as e: print(what, e.errno)
"""
        server = self.lab.popen([harness.PYTHON, "-c", f"""
import array, os, socket
s = socket.socket(socket.AF_UNIX); s.bind("{path}"); os.chmod("{path}", 0o666); s.listen()
print("ready", flush=True)
c, _ = s.accept()
pair = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
c.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [p.fileno() for p in pair]))])
c.recv(1)"""], uid=0, stdout=-1, text=True)
        try:
            self.assertEqual(server.stdout.readline(), "ready\n")
            result = self.python([f"allow unix {path}"], script)
        finally:
            server.kill()
            server.communicate()
        self.assertEqual(result.out.split("\n")[:3], ["sendto 13", "connect 13", "tcp 13"], str(result))


class Resolver(harness.SluiceTest):
    def test_its_port_is_a_way_to_nowhere_else(self):
        script = """
import socket, struct, time
def query(name): return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\\0" + struct.pack(">HH", 1, 1)
def attempt(what, f):
    try: print(what, f())
    except OSError as e: print(what, "refused")
def rcode(data): return data[3] & 15
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.settimeout(2)
udp.connect(("9.9.9.9", 53))
udp.send(query("b.test")); print("denied name", rcode(udp.recv(512)))
attempt("elsewhere", lambda: udp.sendto(b"x", ("TELEMETRY", 7007)))
attempt("another port of it", lambda: udp.sendto(b"x", ("9.9.9.9", 7007)))
strangers = {}
for server in ("8.8.8.8", "151.101.1.40", "93.184.216.34", "127.0.0.53", "169.254.169.254"):
    other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); other.settimeout(2)
    other.sendto(query("b.test"), (server, 53)); print(server, rcode(other.recv(512)))
    tcp = socket.create_connection((server, 53), timeout=3)
    q = query("b.test"); tcp.sendall(struct.pack(">H", len(q)) + q); print(server, "tcp", rcode(tcp.recv(600)[2:]))
    strangers[server] = socket.create_connection((server, 53), timeout=3)
    strangers[server].sendall(b"GET / HTTP/1.1\\r\\nHost: b.test\\r\\n\\r\\n" * 40)
time.sleep(3)  # for all of them to say something
for server, tcp in strangers.items():
    tcp.setblocking(False)
    try: answer = tcp.recv(600)
    except OSError: answer = b""
    print(server, "speaks HTTP" if b"HTTP" in answer else "no HTTP")
""".replace("TELEMETRY", TELEMETRY)
        result = self.python(READ, script)
        expected = ["denied name 3", "elsewhere refused", "another port of it refused"]
        servers = ("8.8.8.8", "151.101.1.40", "93.184.216.34", "127.0.0.53", "169.254.169.254")
        expected += [f"{server} {answer}" for server in servers for answer in ("3", "tcp 3")] + [f"{server} no HTTP" for server in servers]
        self.assertEqual(result.out.splitlines(), expected, str(result))
        self.assertNotIn("b.test", self.asked())

    def test_nobody_answers_in_its_place(self):
        script = """
import socket
for family, addresses in ((socket.AF_INET, ("0.0.0.0", "127.0.0.1", "127.0.0.53", "9.9.9.9", "198.18.0.0", "255.255.255.255")), (socket.AF_INET6, ("::", "::1", "::ffff:9.9.9.9", "2620:fe::fe"))):
    for address in addresses:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            for option in (None, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                s = socket.socket(family, kind)
                if option: s.setsockopt(socket.SOL_SOCKET, option, 1)
                try:
                    s.bind((address, 53)); print("bound", address, kind)
                except OSError: pass
print("tried")
"""
        result = self.python(READ, script)
        self.assertEqual(result.out, "tried\n", str(result))

    def test_a_flood_of_names_under_a_wildcard_is_bounded_and_others_are_served(self):
        script = """
import socket, struct, sys, time, urllib.request
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("9.9.9.9", 53)); s.settimeout(0.001)
tail = b"\\4wild\\4test\\0" + struct.pack(">HH", 1, 1)
codes = {}
def drain():
    try:
        while True:
            code = s.recv(600)[3] & 15; codes[code] = codes.get(code, 0) + 1
    except OSError: pass
for n in range(int(sys.argv[1])):
    label = b"n%d" % n
    try: s.send(struct.pack(">HHHHHH", n & 0xffff, 0x100, 1, 0, 0, 0) + bytes([len(label)]) + label + tail)
    except OSError: pass
    if n % 50 == 0: drain()
begin = time.monotonic()
print(urllib.request.urlopen("https://a.test/pub/x", timeout=20).status)
print(sum(codes.values()) > 0, file=sys.stderr)
"""
        before = len(self.lab.dns_log())
        result = self.python(["allow GET *.wild.test", *READ], script, "100000", timeout=240)
        self.assertEqual(result.out, "200\n", str(result)[:3000])
        self.assertLess(len(self.lab.dns_log()) - before, 20000, "names that left")


class Listener(harness.SluiceTest):
    def test_no_port_of_any_spelling_of_this_machine_reaches_it(self):
        # Whatever connects says so; what was accepted must not be sluice's.
        script = """
import ctypes, os, socket, struct
own = []
for address in ("127.0.0.1", "127.9.9.9", "0.0.0.0", "100.64.0.2", "10.0.2.100", "198.18.0.0", "93.184.216.34", "169.254.1.1", "224.0.0.1", "255.255.255.255",
                "::1", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0", "::127.0.0.1", "fe80::1", "64:ff9b::7f00:1", "2002:7f00:1::", "2606:2800:220:1::34"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in list(range(1, 1025)):
        if port == 53: continue
        s = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        code = s.connect_ex((address, port))
        if code in (0, 115):
            import select
            _, ready, _ = select.select([], [s], [], 0.2)
            if ready and s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0: print("connected", address, port)
        s.close()
print("tried")
"""
        result = self.python(READ, script, timeout=240)
        self.assertEqual(result.out, "tried\n", str(result)[:2000])


class Patience(harness.SluiceTest):
    """Others are served while one program uses up what it can."""

    def with_nuisance(self, rules, script, kill_first=False):
        """Runs the nuisance; when it says so, asks for a page from another process."""
        wrap = f"""
import subprocess, sys, time
nuisance = subprocess.Popen([sys.executable, "-c", {script!r}], stdout=subprocess.PIPE)
print(nuisance.stdout.readline().decode().strip(), flush=True)
if {kill_first}: nuisance.kill(); nuisance.wait()
for attempt in range(30 if {kill_first} else 1):
    answer = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{{http_code}}", "--max-time", "30", "https://a.test/pub/x"], stdout=subprocess.PIPE).stdout.decode()
    if answer == "200": break
    time.sleep(1)
print(answer)
nuisance.kill()
"""
        return self.python(rules, wrap, timeout=120)

    def test_a_thousand_threads_that_wait_for_a_silent_host(self):
        script = """
import socket, sys, threading, time
threading.stack_size(65536 * 2)
name = socket.gethostbyname("blackhole.test")
started = threading.Semaphore(0)
def dial():
    started.release()
    try: socket.create_connection((name, 443), timeout=None)
    except OSError: pass
made = 0
for _ in range(1000):
    try: threading.Thread(target=dial, daemon=True).start(); made += 1
    except RuntimeError: break
for _ in range(made): started.acquire()
time.sleep(1)
print("waiting", made, flush=True)
time.sleep(60)
"""
        result = self.with_nuisance(["allow tcp blackhole.test:443", *READ], script)
        self.assertEqual(result.out, "waiting 1000\n200\n", str(result)[:3000])

    def test_as_many_connections_as_descriptors_allow(self):
        script = """
import resource, socket, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
address = socket.gethostbyname("db.test")
kept = []
while len(kept) < 7000:
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError:
        break
    s.connect_ex((address, 5432))
    kept.append(s)
time.sleep(1)
print("held", flush=True)
time.sleep(60)
"""
        # The supervisor has descriptors for so many; the rest is refused. Once they are gone, all is as before.
        result = self.with_nuisance(["allow tcp db.test:5432", *READ], script, kill_first=True)
        self.assertEqual(result.out, "held\n200\n", str(result)[:3000])

    def test_as_many_processes_as_it_may_have(self):
        script = """
import os, time
made = 0
for _ in range(3000):
    try: pid = os.fork()
    except OSError: break
    if pid == 0: time.sleep(60); os._exit(0)
    made += 1
print("forked", flush=True)
time.sleep(60)
"""
        result = self.with_nuisance(READ, script)
        self.assertEqual(result.out, "forked\n200\n", str(result)[:3000])


class Processes(harness.SluiceTest):
    def test_stopping_and_killing_all_it_sees_leaves_the_supervisor(self):
        script = """
import os, signal, sys
os.setsid() if os.getpid() != os.getsid(0) and os.getpgid(0) != os.getpid() else None
me = os.getpid()
for number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
    for pid in [int(p) for p in os.listdir("/proc") if p.isdigit()]:
        if pid == me: continue
        try: os.kill(pid, number)
        except OSError: pass
    for target in (-1, -1000, 0):
        if target == 0 and number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTSTP): continue
        signal.signal(number, signal.SIG_IGN) if number not in (signal.SIGSTOP, signal.SIGKILL) else None
        try: os.kill(target, number)
        except OSError: pass
import urllib.request
print(urllib.request.urlopen("https://a.test/pub/x", timeout=10).status)
"""
        result = self.python(READ, script)
        self.assertEqual(result.out, "200\n", str(result))

    def test_a_command_that_stops_itself_is_still_under_the_time_limit(self):
        begin = time.monotonic()
        result = self.sluice(NOTHING, "sh", "-c", "kill -STOP $$; echo on", flags=["--timeout", "1s"])
        self.assertLess(time.monotonic() - begin, 20 * harness.SLOW)
        self.assertIn("timed out", result.err)

    def test_a_setuid_program_gives_nothing(self):
        program = self.work / "id"
        shutil.copy("/usr/bin/id", program)
        os.chown(program, 0, 0)
        program.chmod(0o6755)
        mine = self.lab.uid or 0
        result = self.sluice(NOTHING, "sh", "-c", "./id -u; ./id -ru; cat /proc/self/status | grep CapEff")
        self.assertEqual(result.out.split(), [str(mine), str(mine), "CapEff:", "0" * 16], str(result))

    def test_nothing_dumps_core(self):
        with self.running(NOTHING, "sh", "-c", "ulimit -c unlimited 2>/dev/null; sh -c 'kill -SEGV $$'; ls; ulimit -Hc; echo done; sleep 20") as process:
            lines = [process.stdout.readline() for _ in range(2)]
            self.assertEqual(lines[-1], "done\n", lines)
            self.assertLessEqual(int(lines[0]), 1, lines)
            # Not dumpable: its memory and descriptors belong to root, whoever it runs as. The leak checker traces its own process.
            if harness.SLOW == 1:
                self.assertEqual(os.stat(f"/proc/{process.pid}/mem").st_uid, 0)

    def test_preloading_into_an_allowed_program_stays_within_its_rule(self):
        # `by` is attribution: it is entered, and gets no further than that rule.
        (self.work / "p.c").write_text('#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { unsetenv("LD_PRELOAD"); system("curl -sS -o /dev/null -w %{http_code} https://b.test/pub/x; echo"); }\n')
        result = self.sluice([("allow GET a.test/pub/**", {"by": "[/usr/bin/curl]"})], "sh", "-c",
                             "cc -shared -fPIC -o p.so p.c && LD_PRELOAD=$PWD/p.so curl -sS -o /dev/null -w '%{http_code}' https://a.test/pub/x", env={"PATH": "/usr/bin:/bin"})
        self.assertEqual(result.out.split(), ["000", "200"], str(result))


if __name__ == "__main__":
    harness.main()
