#!/usr/bin/python3
"""Streams of WebSocket frames, good and broken, read by the proxy's reader and by python3-websockets: the same frames, and a
fault with the same close code or none.  Usage: websocket_oracle_test.py PROGRAM

Known to be different: a length not in its shortest form, which the other takes (not made here); a close frame between the
fragments of a message, which RFC 6455 section 5.4 allows and the other refuses; a fault that is told before its frame is whole,
where the other waits for the rest; a close frame that is wrong in two ways, which has one of two codes.
"""
import random
import struct
import subprocess
import sys

from websockets.connection import Connection, Side, State
from websockets.exceptions import ConnectionClosed
from websockets.frames import Opcode

STREAMS = 6000
TEXTS = [b"", b"Hello", "h\u00e9 \u20ac \U0001f600".encode(), b"\xe2\x82", b"\xac", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf0\x9f\x98", b"\x80", b"\xff"]
CODES = [0, 999, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 1015, 1016, 2999, 3000, 4999, 5000, 65535]


def frame(rng, masked, opcode, fin, payload, reserved=0):
    length = len(payload)
    second = 0x80 if masked else 0
    if length < 126:
        size = bytes([second | length])
    elif length < 65536:
        size = bytes([second | 126]) + struct.pack(">H", length)
    else:
        size = bytes([second | 127]) + struct.pack(">Q", length)
    if masked:
        mask = rng.randbytes(4)
        size += mask
        payload = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
    return bytes([(0x80 if fin else 0) | reserved | opcode]) + size + payload


def stream(rng):
    side = rng.choice(["client", "server"])
    out = b""
    for _ in range(rng.randint(1, 6)):
        masked = (side == "client") != (rng.random() < 0.02)
        opcode = rng.choice([0, 0, 1, 1, 2, 8, 9, 10] if rng.random() < 0.97 else list(range(16)))
        payload = rng.choice(TEXTS) if rng.random() < 0.8 else rng.randbytes(rng.choice([1, 124, 125, 126, 127, 300]))
        if opcode == 8 and rng.random() < 0.9:
            payload = struct.pack(">H", rng.choice(CODES)) + rng.choice(TEXTS)
        fin = rng.random() < (0.6 if opcode < 8 else 0.96)
        reserved = rng.choice([0x10, 0x20, 0x40, 0x70]) if rng.random() < 0.02 else 0
        out += frame(rng, masked, opcode, fin, payload, reserved)
    return side, out[: rng.randint(1, len(out))] if rng.random() < 0.1 else out


def utf8_fault(frames):
    """How many frames are good before the text of a message is not UTF-8, as soon as that can be told; None: all are."""
    import codecs
    decoder = None
    for index, (opcode, fin, data) in enumerate(frames):
        if opcode == 1:
            decoder = codecs.getincrementaldecoder("utf-8")()
        elif opcode == 2:
            decoder = None
        if opcode > 2 or decoder is None:
            continue
        try:
            decoder.decode(data, final=bool(fin))
        except UnicodeDecodeError:
            return index
    return None


def other(side, data):
    connection = Connection(Side.SERVER if side == "client" else Side.CLIENT, state=State.OPEN, max_size=None)
    try:
        connection.receive_data(data)
    except ConnectionClosed:
        pass
    frames = [(int(f.opcode), int(f.fin), f.data) for f in connection.events_received()]
    fault = None
    if connection.close_sent is not None and connection.close_sent.code not in (1000,) and (connection.close_rcvd is None):
        fault = connection.close_sent.code
    bad = utf8_fault(frames)
    if bad is not None:
        frames, fault = frames[:bad], 1007
    told = "".join(f"{o}:{f}:{d.hex()} " for o, f, d in frames)
    if fault is not None:
        return told + f"fault {fault}"
    if frames and frames[-1][0] == Opcode.CLOSE:
        return told + f"closed {struct.unpack('>H', frames[-1][2][:2])[0] if frames[-1][2] else 1005}"
    return told + "more"


def alike(mine, theirs, side, data):
    if mine == theirs:
        return True
    ours, others = mine.split(), theirs.split()
    if ours[-2:-1] == ["closed"] and not all(f.split(":")[1] == "1" for f in ours[:-2] if f.split(":")[0] in "012"):
        return ours[:-3] == others[:-1] or ours[:-3] == others[:-2]
    if ours[-2:-1] == ["fault"] and others[-1] == "more":
        # With what is missing of the last frame, the other sees it too.
        return other(side, data + bytes(70000)).split()[-2:] == ours[-2:]
    return ours[-2:] == ["fault", "1002"] and others[-2:] == ["fault", "1007"] and ours[:-1] == others[:-1] and b"\x88" in data


def main():
    rng = random.Random(20261129)
    streams = [stream(rng) for _ in range(STREAMS)]
    fed = "".join(f"{side} {data.hex()}\n" for side, data in streams)
    ours = subprocess.run([sys.argv[1]], input=fed, capture_output=True, text=True, check=True).stdout.splitlines()
    wrong, kinds = [], {}
    for (side, data), mine in zip(streams, ours, strict=True):
        theirs = other(side, data)
        kind = " ".join(mine.split()[-2:]) if "fault" in mine or "closed" in mine else "more"
        kinds[kind] = kinds.get(kind, 0) + 1
        if not alike(mine, theirs, side, data):
            wrong.append(f"{side} {data.hex()}\n  ours   {mine}\n  theirs {theirs}")
    print("\n".join(wrong[:10]))
    print(f"{len(ours)} streams, {len(wrong)} read differently; {kinds}")
    # Each outcome was met.
    return 1 if wrong or not {"more", "fault 1002", "fault 1007", "closed 1000", "closed 1005"} <= kinds.keys() else 0


sys.exit(main())
