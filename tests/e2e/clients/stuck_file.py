"""A file of a file system that never answers when it is closed (FUSE), sent as user UID to the UNIX socket at PATH beside a container
runtime's message. Usage: stuck_file.py PATH UID COUNT; as root, in a mount namespace of its own."""
import contextlib
import ctypes
import os
import select
import socket
import struct
import sys
import tempfile

LOOKUP, GETATTR, OPEN, FLUSH, INIT, FORGET, BATCH_FORGET = 1, 3, 14, 25, 26, 2, 42
FOLDER, FILE = 0o40777, 0o100666


def attributes(node):
    return struct.pack("<QQQQQQIIIIIIIIII", node, *[0] * 8, FOLDER if node == 1 else FILE, 1, 0, 0, 0, 512, 0)


def answer(op, node):
    """None: never."""
    if op == INIT:
        return struct.pack("<IIIIHHI", 7, 31, 65536, 0, 0, 0, 65536)
    if op == LOOKUP:
        return struct.pack("<QQQQII", 2, 0, 3600, 3600, 0, 0) + attributes(2)
    if op == GETATTR:
        return struct.pack("<QII", 3600, 0, 0) + attributes(node)
    if op == OPEN:
        return struct.pack("<QII", 1, 0, 0)
    return None if op in (FLUSH, FORGET, BATCH_FORGET) else b""


def serve(device):
    """Until standard input ends: with the last descriptor of the device every request of the file system's ends."""
    while sys.stdin not in select.select([device, sys.stdin], [], [])[0]:
        _, op, unique, node = struct.unpack("<IIQQ", os.read(device, 1 << 17)[:24])
        said = answer(op, node)
        if said is not None:
            os.write(device, struct.pack("<IiQ", 16 + len(said), 0, unique) + said)


device = os.open("/dev/fuse", os.O_RDWR)
folder = tempfile.mkdtemp(dir=os.getcwd())
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
if ctypes.CDLL(None).mount(b"stuck", folder.encode(), b"fuse", 0, options.encode()) != 0:
    sys.exit("cannot mount")
if os.fork() != 0:
    serve(device)
    os._exit(0)
os.close(device)
stuck = os.open(folder + "/file", os.O_RDONLY)
os.seteuid(int(sys.argv[2]))
kept = []
for _ in range(int(sys.argv[3])):
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].connect(sys.argv[1])
    socket.send_fds(kept[-1], [b"[]"], [stuck])
print("sent", flush=True)
with contextlib.suppress(OSError):
    os.close(stuck)  # waits until the file system is gone
