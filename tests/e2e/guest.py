"""A guest under QEMU: a kernel, an initramfs of busybox and a shell on its serial line."""
import gzip
import os
import pathlib
import select
import socket
import stat
import time

NETWORK_MODULES = ("failover", "net_failover", "virtio_net")
BUSYBOX = "/usr/bin/busybox"
# What it is told on its serial line it runs, and says when it is done.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc p /proc; mount -t devtmpfs d /dev
exec </dev/ttyS0 >/dev/ttyS0 2>&1
stty -echo
for m in {modules}; do insmod /mod/$m.ko; done
ip link set lo up
{setup}
echo "guest up"
while read -r line; do eval "$line"; echo "done $?"; done
"""
NETWORK = """ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up; ip route add default via 10.0.2.2
echo nameserver 10.0.2.3 > /etc/resolv.conf"""
APPEND = "console=ttyS0 quiet panic=-1 tsc=unstable mitigations=off nokaslr"


def archive(files):
    """The cpio archive (newc) of an initramfs."""
    out = b""
    for number, (name, (mode, data)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))], 1):
        path = name.encode() + b"\0"
        out += b"070701" + b"".join(b"%08X" % value for value in (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)) + path
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return out


def make_initramfs(kernel_folder, path, modules=NETWORK_MODULES, setup=NETWORK, more=()):
    """`more`: pairs of a path in the guest and a file of this machine."""
    files = {folder: (stat.S_IFDIR | 0o755, b"") for folder in ("bin", "proc", "dev", "etc", "mod")}
    files["bin/busybox"] = (stat.S_IFREG | 0o755, pathlib.Path(BUSYBOX).read_bytes())
    files |= {f"mod/{m}.ko": (stat.S_IFREG | 0o644, (kernel_folder / f"{m}.ko").read_bytes()) for m in modules}
    for name, source in more:
        files |= {str(folder): (stat.S_IFDIR | 0o755, b"") for folder in reversed(pathlib.PurePath(name).parents) if folder.name}
        files[name] = (stat.S_IFREG | 0o755, pathlib.Path(source).read_bytes())
    files["init"] = (stat.S_IFREG | 0o755, INIT.format(modules=" ".join(modules), setup=setup).encode())
    path.write_bytes(gzip.compress(archive(files), 1))


def machine(memory, *more):
    """QEMU without disks, in software. Paths are of its work directory."""
    return ["qemu-system-x86_64", "-M", "pc,accel=tcg", "-nodefaults", "-no-user-config", "-cpu", "max", "-m", str(memory), "-kernel", "vmlinuz",
            "-initrd", "initrd", "-append", APPEND, "-serial", "stdio", "-display", "none", "-no-reboot", *more]


def command(*more):
    """One with QEMU's own network, and a monitor."""
    return machine(96, "-netdev", "user,id=n0", "-device", "virtio-net-pci,netdev=n0,romfile=", "-monitor", "unix:monitor.sock,server=on,wait=off", *more)


class Guest:
    """Its serial line: the pipes of the process that QEMU, or sluice around it, is."""

    def __init__(self, process, patience):
        self.process, self.patience, self.seen = process, patience, ""

    def until(self, word, patience=None):
        """What came until a line that begins with this word, that line left out."""
        deadline = time.monotonic() + (patience or self.patience)
        begin = len(self.seen)
        out = self.process.stdout.fileno()
        while not any(line.startswith(word) for line in self.seen[begin:].splitlines()[: None if self.seen.endswith("\n") else -1]):
            if not select.select([out], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"no `{word}` within {self.patience} s:\n{self.seen}")
            piece = os.read(out, 65536)
            if not piece:
                raise EOFError(f"it ended before `{word}`:\n{self.seen}")
            self.seen += piece.decode(errors="replace").replace("\r", "")
        return self.seen[begin:]

    def wake(self):
        """Until it answers: what comes while a resumed guest's serial line comes up may be lost, or lose its beginning."""
        for attempt in range(60):
            self.process.stdin.write(f"echo awake{attempt}.\n")
            self.process.stdin.flush()
            try:
                answer = self.until(f"awake{attempt}.", self.patience / 60)
            except TimeoutError:
                continue
            if "\ndone " not in answer.split(f"awake{attempt}.")[-1]:
                self.until("done ")
            return
        raise TimeoutError(f"it does not wake:\n{self.seen}")

    def run(self, line):
        """The output of a shell command, its status in the last line."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.until("done ")


class Monitor:
    """QEMU's monitor for people."""

    def __init__(self, path):
        # A path is 107 bytes at most; a folder's descriptor makes any path short.
        folder = os.open(path.parent, os.O_PATH)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
        self.answer()

    def answer(self):
        text = b""
        while not text.endswith(b"(qemu) "):
            piece = self.socket.recv(65536)
            if not piece:
                break
            text += piece
        return text.decode(errors="replace")

    def tell(self, line):
        self.socket.sendall(line.encode() + b"\n")
        return self.answer()

