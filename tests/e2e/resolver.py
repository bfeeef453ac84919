"""A small authoritative resolver over UDP and TCP that logs every query, so that "never asked upstream" can be asserted."""
import asyncio
import ipaddress
import os
import struct

import zone

TYPES = {1: "A", 2: "NS", 5: "CNAME", 6: "SOA", 12: "PTR", 15: "MX", 16: "TXT", 28: "AAAA", 33: "SRV", 64: "SVCB", 65: "HTTPS", 255: "ANY"}
NOERROR, FORMERR, NXDOMAIN = 0, 1, 3
TTL = int(os.environ.get("LAB_TTL", "60"))  # seconds


def encode_name(name):
    wire = b""
    for label in name.rstrip(".").split("."):
        if label:
            wire += bytes([len(label)]) + label.encode()
    return wire + b"\0"


def read_question(message):
    """(name as spelt, type, end of question)"""
    labels, at = [], 12
    while message[at]:
        size = message[at]
        if size > 63:
            raise ValueError("pointer in a question")
        labels.append(message[at + 1 : at + 1 + size].decode("latin-1"))
        at += 1 + size
    qtype, _ = struct.unpack_from(">HH", message, at + 1)
    return ".".join(labels), qtype, at + 5


def record(name, rtype, rdata):
    return encode_name(name) + struct.pack(">HHIH", rtype, 1, TTL, len(rdata)) + rdata


def https_rdata():
    """Priority 1, target ".", alpn h2 and http/1.1, an ipv4hint and an ech parameter that must never reach the workload."""
    params = b""
    for key, value in ((1, b"\x02h2\x08http/1.1"), (4, bytes([151, 101, 1, 10])), (5, b"ech-configuration")):
        params += struct.pack(">HH", key, len(value)) + value
    return struct.pack(">H", 1) + b"\0" + params


def answers(name, qtype):
    """(rcode, records)"""
    low = name.lower().rstrip(".")
    if low in zone.ALIASES:
        target = zone.ALIASES[low]
        rcode, rest = answers(target, qtype)
        return rcode, [record(name, 5, encode_name(target))] + rest
    if low not in zone.ADDRESSES:
        parent = any(known.endswith("." + low) for known in zone.ADDRESSES)
        return (NOERROR if parent else NXDOMAIN), []
    out = []
    for text in zone.ADDRESSES[low]:
        address = ipaddress.ip_address(text)
        if qtype == (1 if address.version == 4 else 28):
            out.append(record(name, qtype, address.packed))
    if qtype == 65:
        out.append(record(name, 65, https_rdata()))
    if qtype == 16:
        out.append(record(name, 16, b"\x0dhello, lookup"))
    return NOERROR, out


def respond(message, log, transport, port):
    if len(message) < 17 or message[2] & 0x80:
        return None
    (ident, flags) = struct.unpack_from(">HH", message)
    try:
        name, qtype, end = read_question(message)
    except (ValueError, IndexError, struct.error):
        return struct.pack(">HHHHHH", ident, 0x8000 | FORMERR, 0, 0, 0, 0)
    log({"name": name.lower().rstrip("."), "type": TYPES.get(qtype, str(qtype)), "transport": transport, "port": port})
    rcode, records = answers(name, qtype)
    soa = b""
    if not records:
        rdata = encode_name("ns.test") + encode_name("host.test") + struct.pack(">IIIII", 1, 60, 60, 60, 60)
        soa = record(name.split(".")[-1], 6, rdata)
    if transport == "udp" and sum(map(len, records)) > 1100:
        return struct.pack(">HHHHHH", ident, 0x8380 | (flags & 0x0100), 1, 0, 0, 0) + message[12:end]  # truncated: ask by TCP
    head = struct.pack(">HHHHHH", ident, 0x8180 | (flags & 0x0100) | rcode, 1, len(records), 1 if soa else 0, 0)
    return head + message[12:end] + b"".join(records) + soa


class Udp(asyncio.DatagramProtocol):
    def __init__(self, log):
        self.log = log

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        reply = respond(data, self.log, "udp", addr[1])
        if reply:
            self.transport.sendto(reply, addr)


async def serve_tcp(reader, writer, log):
    try:
        while True:
            (size,) = struct.unpack(">H", await reader.readexactly(2))
            reply = respond(await reader.readexactly(size), log, "tcp", writer.get_extra_info("peername")[1])
            if reply is None:
                break
            writer.write(struct.pack(">H", len(reply)) + reply)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def start(log):
    loop = asyncio.get_running_loop()
    for address in (zone.RESOLVER, zone.RESOLVER_V6, "8.8.8.8"):
        await loop.create_datagram_endpoint(lambda: Udp(log), local_addr=(address, 53))
        await asyncio.start_server(lambda r, w: serve_tcp(r, w, log), address, 53)
