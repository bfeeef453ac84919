#!/usr/bin/python3
"""What comes out of a fenced host while its sidecar starts, reloads, crashes, starts again and ends, and a root workload attacks all
the time: taken on the far end of its only device, and compared with what the policy allows."""
import collections
import contextlib
import ipaddress
import signal
import struct
import subprocess
import threading
import time

import harness
import sidecar_test
import zone

# Writes each frame that comes out of the host, with its time, until it is told to end.
CAPTURE = r"""
import select, socket, struct, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
tap.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)  # SO_RCVBUFFORCE
tap.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS: when it came out, not when it is read
tap.bind(("link0", 3))
out = open(sys.argv[1], "wb")
print("up", flush=True)
while True:
    for ready in select.select([tap, sys.stdin], [], [])[0]:
        if ready is sys.stdin:
            dropped = struct.unpack("II", tap.getsockopt(263, 6, 8))[1]  # SOL_PACKET, PACKET_STATISTICS
            out.close()
            print(dropped, flush=True)
            sys.exit()
        frame, notes, _, address = tap.recvmsg(65536, 64)
        seconds, rest = struct.unpack("qq", notes[0][2])
        if address[2] != socket.PACKET_OUTGOING:
            out.write(struct.pack("=dI", seconds + rest / 1e9, len(frame)) + frame)
"""

# A root workload with every capability but those over the network's rules. Each round tries one way after the other.
WORKLOAD = r"""
import itertools, socket, struct, sys, time
V4, V6, PORT, PROXY, WORD = "151.101.1.20", "2a04:4e42::10", 7777, int(sys.argv[2]), b"ESCAPE"
RESOLVER, ALLOWED, OWN_PORT = sys.argv[3], sys.argv[4], int(sys.argv[5])
QUESTION = struct.pack(">HHHHHH", 9, 0x100, 1, 0, 0, 0) + b"\x06secret\x01b\x04test\0\0\1\0\1"

def ip4(protocol, payload, offset=0, source=sys.argv[1], destination=V4):
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 7, offset, 64, protocol, 0, socket.inet_aton(source), socket.inet_aton(destination))
    return head + payload

def raw4(protocol, payload, offset=0, **ends):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
        s.sendto(ip4(protocol, payload, offset, **ends), (ends.get("destination", V4), 0))

def tcp(source, port, destination, to, flags, payload=b""):
    head = struct.pack(">HHIIBBHHH", port, to, 1, 2, 0x50, flags, 1000, 0, 0) + payload
    whole = socket.inet_aton(source) + socket.inet_aton(destination) + struct.pack(">HH", 6, len(head)) + head
    total = sum(struct.unpack(f">{(len(whole) + 1) // 2}H", whole + b"\0" * (len(whole) % 2)))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    raw4(6, head[:16] + struct.pack(">H", ~total & 0xffff) + head[18:], source=source, destination=destination)

# The opening of a connection that claims to come from the world, and an answer to it that is made here.
def forged_answer():
    tcp(V4, PORT, "198.51.100.9", 443, 2)
    for own, port in (("127.0.0.1", PROXY), ("198.51.100.9", 443)):
        tcp(own, port, V4, PORT, 0x12, WORD)

def raw6(protocol, payload):
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol) as s:
        s.sendto(payload, (V6, 0))

def udp(payload):
    return struct.pack(">HHHH", 4000, PORT, 8 + len(payload), 0) + payload

def connect(family, address, port):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.setblocking(False)
        try:
            s.connect((address, port))
        except BlockingIOError:
            pass

# To an allowed host that only the proxy may dial.
def from_own_port():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((sys.argv[1], OWN_PORT))
        s.settimeout(0.05)
        s.connect((ALLOWED, 443))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

def ask_by_tcp():
    with socket.create_connection((RESOLVER, 53), 0.05) as s:
        s.sendall(struct.pack(">H", len(QUESTION)) + QUESTION)

def datagram(family, address, port, mark=0, word=WORD):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        if mark:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
            s.setsockopt(socket.SOL_SOCKET, 75, 1)
        s.sendto(word, (address, port))

def frame(kind, payload):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
        s.bind(("eth0", 0))
        s.send(b"\xff" * 6 + b"\2\2\2\2\2\2" + struct.pack(">H", kind) + payload)

WAYS = {
    "tcp": lambda: connect(socket.AF_INET, V4, PORT),
    "tcp6": lambda: connect(socket.AF_INET6, V6, PORT),
    "udp": lambda: datagram(socket.AF_INET, V4, PORT),
    "udp6": lambda: datagram(socket.AF_INET6, V6, PORT),
    "quic": lambda: datagram(socket.AF_INET, V4, 443),
    "mark": lambda: datagram(socket.AF_INET, V4, PORT, 0x51ce),
    "dot": lambda: connect(socket.AF_INET, "8.8.8.8", 853),
    "doq": lambda: datagram(socket.AF_INET, "8.8.8.8", 853),
    "doq before": lambda: datagram(socket.AF_INET, "8.8.8.8", 784),
    "doq before it": lambda: datagram(socket.AF_INET, "8.8.8.8", 8853),
    "llmnr": lambda: datagram(socket.AF_INET, "224.0.0.252", 5355),
    "netbios": lambda: datagram(socket.AF_INET, "8.8.8.8", 137),
    "denied lookup": lambda: datagram(socket.AF_INET, RESOLVER, 53, 0, QUESTION),
    "denied lookup by tcp": ask_by_tcp,
    "unjudged": from_own_port,
    "unjudged raw": lambda: tcp(sys.argv[1], OWN_PORT, ALLOWED, 443, 2),
    "mdns": lambda: datagram(socket.AF_INET, "224.0.0.251", 5353),
    "echo": lambda: raw4(1, b"\x08\0\0\0\0\1\0\1" + WORD),
    "echo6": lambda: raw6(58, b"\x80\0\0\0\0\1\0\1" + WORD),
    "sctp": lambda: raw4(132, WORD * 4),
    "sctp6": lambda: raw6(132, WORD * 4),
    "unknown": lambda: raw4(253, WORD),
    "raw": lambda: raw4(17, udp(WORD)),
    "answer": forged_answer,
    "fragment": lambda: raw4(17, WORD * 4, 100),
    "packet": lambda: frame(0x0800, ip4(17, udp(WORD))),
    "ethertype": lambda: frame(0x88b5, WORD * 10),
}
print("up", flush=True)
for way in itertools.cycle(WAYS):
    try:
        WAYS[way]()
    except OSError:
        pass
    time.sleep(0.001)
"""

PROXY_PORT = 15001  # known to the workload, which could read it from /proc
OWN_PORT = 20001  # of the workload, below those that the kernel gives
NAMES = {"a.test", "db.test"}  # that the resolver may ask for
Packet = collections.namedtuple("Packet", "time kind protocol source destination port text own payload")


def packets(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        when, size = struct.unpack_from("=dI", data, at)
        yield when, data[at + 12:at + 12 + size]
        at += 12 + size


def read(when, frame):
    kind = struct.unpack_from(">H", frame, 12)[0]
    if kind == 0x0800:
        start = 14 + (frame[14] & 15) * 4
        fragment = struct.unpack_from(">H", frame, 20)[0] & 0x3fff
        protocol, source, destination = frame[23], ipaddress.ip_address(frame[26:30]), ipaddress.ip_address(frame[30:34])
        protocol = protocol if not fragment else -protocol
    elif kind == 0x86dd:
        start, protocol = 54, frame[20]
        source, destination = ipaddress.ip_address(frame[22:38]), ipaddress.ip_address(frame[38:54])
        if protocol == 0:  # hop-by-hop options, which multicast listener reports have (RFC 3810)
            protocol, start = frame[54], 62 + frame[55] * 8
    else:
        return Packet(when, kind, 0, None, None, 0, frame, 0, b"")
    port = struct.unpack_from(">H", frame, start + 2)[0] if protocol in (6, 17) else frame[start] if protocol == 58 else 0
    own = struct.unpack_from(">H", frame, start)[0] if protocol in (6, 17) else 0
    head = (frame[start + 12] >> 4) * 4 if protocol == 6 else 8
    total = struct.unpack_from(">H", frame, 16)[0] + 14 if kind == 0x0800 else len(frame)  # without what pads a short frame
    return Packet(when, kind, protocol, str(source), str(destination), port, frame, own, frame[start + head:total])


def asks_for(packet):
    """The name in a question, as the resolver spells it; nothing where there is none, and "?" where it cannot be read."""
    message = packet.payload[2:] if packet.protocol == 6 else packet.payload
    if not packet.payload:
        return None
    labels, at = [], 12
    while at < len(message) and message[at]:
        labels.append(message[at + 1:at + 1 + message[at]].decode("latin-1"))
        at += 1 + message[at]
    return ".".join(labels).lower() if labels and at < len(message) else "?"


def is_allowed(packet):
    """What the policy of this test lets out, the resolver's own questions, and what a kernel says to its neighbours."""
    if b"ESCAPE" in packet.text:
        return False
    if packet.kind == 0x0806:
        return True
    if packet.protocol == 58:
        return packet.port in (131, 132, 133, 135, 136, 143)
    places = {(6, address, 443) for address in zone.SITES["a.test"]} | {(6, zone.SITES["db.test"][0], 5432)}
    places |= {(17, zone.RESOLVER, 53), (6, zone.RESOLVER, 53)}
    if packet.port == 53 and asks_for(packet) not in {None} | NAMES:
        return False
    # The proxy alone dials where it must look inside.
    if packet.port == 443 and packet.own == OWN_PORT:
        return False
    return (packet.protocol, packet.destination, packet.port) in places


class Outside(sidecar_test.SidecarTest):
    RULES = ["allow GET a.test/echo/**", "allow tcp db.test:5432"]

    def in_the_world(self, *command, **more):
        return subprocess.Popen(["nsenter", f"--net=/proc/{self.lab.world.pid}/ns/net", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                text=True, **more)

    @contextlib.contextmanager
    def captured(self, path):
        process = self.in_the_world(harness.PYTHON, "-c", CAPTURE, path)
        try:
            self.assertEqual(process.stdout.readline(), "up\n")
            yield
            process.stdin.write("\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "0\n", "no frame was lost")
        finally:
            process.kill()
            process.communicate()

    @contextlib.contextmanager
    def attacking(self):
        process = self.lab.popen([*sidecar_test.WITHOUT_NET_ADMIN, harness.PYTHON, "-c", WORKLOAD, zone.HOST_V4, str(PROXY_PORT), zone.RESOLVER,
                                  zone.SITES["a.test"][0], str(OWN_PORT)], cwd=self.work,
                                 stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(process.stdout.readline(), "up\n")
            yield process
        finally:
            process.kill()
            process.communicate()

    def fence_begins(self):
        """The time from which the tables were there."""
        while "inet sluice" not in self.lab.run(["nft", "list", "tables"]).stdout:
            time.sleep(0.005)
        return time.time()

    def test_only_what_is_allowed_leaves_at_any_moment(self):
        taken = self.folder / "taken"
        flags = ("--proxy-port", str(PROXY_PORT))
        policy = harness.policy_text(self.RULES, sidecar_test.REAL)
        with self.captured(taken), self.attacking() as workload:
            time.sleep(0.3)
            begins = []
            watch = threading.Thread(target=lambda: begins.append(self.fence_begins()))
            watch.start()
            with self.sidecar(policy, *flags) as sidecar:
                watch.join()
                self.works()
                for count in range(6):
                    self.policy.write_text(policy + f"# {count}\n" if count % 2 else harness.policy_text(self.RULES[:1], sidecar_test.REAL))
                    sidecar.process.send_signal(signal.SIGHUP)
                    self.assertEventually(lambda: sidecar.errors().count("policy reloaded") > count, "the reload")
                self.assertEventually(lambda: self.echo("db.test", 5432).code == 0, "the last reload")
                self.works()
                sidecar.stop(signal.SIGKILL)
                time.sleep(0.3)
            with self.sidecar(policy, *flags) as sidecar:
                self.works()
                self.assertEqual(sidecar.stop(), 0)
                time.sleep(0.3)
            self.assertIsNone(workload.poll(), "the attacks went on to the end")
        seen = [read(when, frame) for when, frame in packets(taken)]
        before = [packet for packet in seen if packet.time < begins[0] and not is_allowed(packet)]
        kinds = {(packet.kind, packet.protocol, packet.port if packet.protocol == 17 else 0) for packet in before}
        self.assertGreaterEqual(len(kinds), 18, f"without a fence they get out: {sorted(kinds)}")
        self.assertIn("secret.b.test", {asks_for(packet) for packet in before if packet.port == 53 and packet.protocol == 17})
        self.assertIn("secret.b.test", {asks_for(packet) for packet in before if packet.port == 53 and packet.protocol == 6})
        self.assertIn((6, OWN_PORT), {(packet.protocol, packet.own) for packet in before})
        escaped = [packet for packet in seen if packet.time > begins[0] and not is_allowed(packet)]
        self.assertEqual(escaped[:5], [], f"{len(escaped)} of {len(seen)} frames")
        self.assertTrue([packet for packet in seen if packet.time > begins[0] and packet.protocol == 6], "what is allowed was seen")

    def works(self):
        self.assertExit(self.curl("https://a.test/echo/x"), 0)
        self.assertEqual(self.echo("db.test", 5432).out, "hello\n")


if __name__ == "__main__":
    harness.main()
