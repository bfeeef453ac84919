#!/usr/bin/python3
"""Flows that are held until somebody ends them:  sidecar_cuts.py NAME=KIND:HOST:PORT… with the bundle in SSL_CERT_FILE.

KIND: tcp, udp (an echo each), drip (a body that never ends, over TLS), ws (a WebSocket, over TLS). "open" once all are; then a line of
JSON for each that ends, {"name", "monotonic", "wall", "how"}, the moment it does. For each line on standard input, {"alive": [NAME…]}.
"""
import json
import select
import socket
import ssl
import sys
import time

PATIENCE = 10


class Flow:
    def __init__(self, name, kind, host, port):
        self.name, self.kind = name, kind
        family, _, _, _, address = socket.getaddrinfo(host, int(port), socket.AF_INET)[0]
        self.socket = socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(address)
        if kind in ("drip", "ws"):
            self.socket = ssl.create_default_context().wrap_socket(self.socket, server_hostname=host)
            upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            path, fields = ("/drip", "") if kind == "drip" else ("/echo", upgrade)
            self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}{'' if port == '443' else ':' + port}\r\n{fields}\r\n".encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += self.must(self.socket.recv(4096))
            if head.split()[1] != (b"200" if kind == "drip" else b"101"):
                raise SystemExit(f"{name}: {head!r}")
        else:
            self.echo()

    @staticmethod
    def must(data):
        if not data:
            raise ConnectionError("ended")
        return data

    def echo(self):
        self.socket.settimeout(PATIENCE)
        self.socket.send(b"word\n")
        self.must(self.socket.recv(100))

    def ended(self):
        """How, where it has; what arrives besides is passed over."""
        self.socket.settimeout(0)
        try:
            while True:
                data = self.socket.recv(65536)
                if self.kind != "udp" and not data:
                    return "closed"
                if self.kind == "ws":
                    return f"frame {data[:4].hex()}"
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except OSError as error:
            return type(error).__name__


def main():
    flows = []
    for argument in sys.argv[1:]:
        name, _, target = argument.partition("=")
        flows.append(Flow(name, *target.split(":")))
    print("open", flush=True)
    while True:
        ready = select.select([*(flow.socket for flow in flows), sys.stdin], [], [])[0]
        monotonic, wall = time.monotonic(), time.time()
        if sys.stdin in ready:
            if not sys.stdin.readline():
                return
            alive = []
            for flow in flows:
                try:
                    flow.echo()
                    alive.append(flow.name)
                except OSError:
                    pass
            print(json.dumps({"alive": alive}), flush=True)
        for flow in list(flows):
            how = flow.ended() if flow.socket in ready else None
            if how is not None:
                print(json.dumps({"name": flow.name, "monotonic": monotonic, "wall": wall, "how": how}), flush=True)
                flows.remove(flow)


main()
