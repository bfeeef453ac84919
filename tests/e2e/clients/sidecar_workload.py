#!/usr/bin/python3
"""What the soak of a sidecar runs beside it:  sidecar_workload.py check | steady | intrude

Each reads lines from standard input and ends with it, answering in JSON. `check`: for each line {"open": [[host, address, port]…], "shut": […]}
what was denied or let through against it; `direct` are open too, and dialled without a lookup. `steady`: lookups, first packets, connections and flows that must all work, all the time.
`intrude`: names and addresses that are never allowed. Both of the latter tell what they saw for each line.
"""
import json
import select
import socket
import sys
import threading
import time

PORT, UDP_PORT = 5432, 7007
PATIENCE = 10


def talk(connection, word):
    """Whether it comes back."""
    connection.settimeout(PATIENCE)
    connection.sendall(word + b"\n")
    got = b""
    while not got.endswith(b"\n"):
        block = connection.recv(100)
        if not block:
            raise ConnectionError("ended without an answer")
        got += block
    if got != word + b"\n":
        raise ConnectionError(f"other bytes came back: {got!r}")


def reach(address, port):
    with socket.create_connection((address, port), PATIENCE) as connection:
        talk(connection, b"hello")


def addresses_of(host):
    return sorted({info[4][0] for info in socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)})


def fault_of(body, *arguments):
    """What went wrong, or nothing."""
    try:
        body(*arguments)
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return None


def open_fault(host, address, port):
    fault = fault_of(addresses_of, host)
    if fault:
        return f"{host}: {fault}"
    if addresses_of(host) != [address]:
        return f"{host} is {addresses_of(host)}"
    # By its address, as a program does that looked it up.
    fault = fault_of(reach, address, port)
    return f"{host}:{port}: {fault}" if fault else None


def shut_fault(host, address, port):
    if not fault_of(addresses_of, host):
        return f"{host} was resolved"
    if not fault_of(reach, address, port):
        return f"{host}, {address}:{port}, was reached"
    return None


def direct_fault(host, address, port):
    """Without a lookup."""
    fault = fault_of(reach, address, port)
    return f"{host}, {address}:{port}: {fault}" if fault else None


def check(line):
    asked = json.loads(line)
    faults = [direct_fault(*target) for target in asked.get("direct", [])] + [open_fault(*target) for target in asked["open"]]
    return {"denied": [f for f in faults if f],
            "allowed": [f for f in (shut_fault(*target) for target in asked["shut"]) if f]}


class Steady:
    """Connections of long ago that are used again and again, and new ones beside them."""

    def __init__(self):
        self.faults, self.rounds, self.packets, self.lock = [], 0, 0, threading.Lock()
        self.flows = [socket.create_connection((addresses_of("a.test")[0], PORT), PATIENCE) for _ in range(4)]
        for body in (self.new_connections, self.first_packets, self.old_flows):
            threading.Thread(target=self.go_on, args=(body,), daemon=True).start()

    def go_on(self, body):
        while True:
            fault = fault_of(body)
            with self.lock:
                self.rounds += 1
                if fault:
                    self.faults.append(f"{body.__name__}, {time.strftime('%H:%M:%S')}: {fault}")
            time.sleep(0.02)

    def new_connections(self):
        reach(addresses_of("a.test")[0], PORT)

    def first_packets(self):
        address = addresses_of("db.test")[0]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packet:
            packet.settimeout(PATIENCE)
            packet.connect((address, UDP_PORT))
            packet.send(b"first")
            packet.recv(100)
        self.packets += 1

    def old_flows(self):
        for flow in self.flows:
            talk(flow, b"still here")

    def told(self, _):
        with self.lock:
            return {"denied": self.faults[:20], "allowed": [], "rounds": self.rounds, "packets": self.packets}


class Intrude:
    """Names that are not in the policy, an address that nobody named, another resolver."""

    def __init__(self):
        self.allowed, self.rounds = [], 0
        threading.Thread(target=self.go_on, daemon=True).start()

    def go_on(self):
        while True:
            for fault in (shut_fault("proxy.corp.example", "151.101.1.90", PORT), shut_fault(f"n{self.rounds}.proxy.corp.example", "151.101.1.90", PORT),
                          "UDP to another port was answered" if self.answered("151.101.1.50", UDP_PORT + 1) else None):
                if fault:
                    self.allowed.append(fault)
            self.rounds += 1
            time.sleep(0.05)

    @staticmethod
    def answered(address, port):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packet:
            packet.settimeout(0.05)
            try:
                packet.sendto(b"x", (address, port))
                return bool(packet.recv(100))
            except OSError:
                return False

    def told(self, _):
        return {"denied": [], "allowed": self.allowed[:20], "rounds": self.rounds}


def main():
    answer = {"check": lambda: check, "steady": lambda: Steady().told, "intrude": lambda: Intrude().told}[sys.argv[1]]()
    print(json.dumps({"ready": True}), flush=True)
    while select.select([sys.stdin], [], [])[0]:
        line = sys.stdin.readline()
        if not line:
            break
        print(json.dumps(answer(line)), flush=True)


main()
