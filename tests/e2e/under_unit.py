#!/usr/bin/python3
"""Runs a command under what a systemd unit says of capabilities, new privileges, namespaces, system calls, mounts and executable memory, without systemd.

Usage: under_unit.py UNIT FOLDER... -- COMMAND [ARGUMENT...]

FOLDERs stand for those that the unit makes for its service: with ProtectSystem=strict they alone are written to. What needs systemd itself
(users, cgroups, devices) is left out. Needs root, and x86-64 for SystemCallFilter.
"""
import ctypes
import os
import pathlib
import re
import struct
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_MDWE = 24, 38, 22, 2, 65
MS_RDONLY, MS_REC, MS_PRIVATE, MS_BIND, MS_REMOUNT = 1, 0x4000, 0x40000, 0x1000, 0x20
AT_RECURSIVE, MOUNT_ATTR_RDONLY, NR_MOUNT_SETATTR = 0x8000, 1, 442
ALLOW, EPERM, KILL = 0x7FFF0000, 0x00050001, 0x80000000
AUDIT_ARCH_X86_64 = 0xC000003E
NAMESPACES = {"net": 0x40000000, "user": 0x10000000, "mnt": 0x20000, "pid": 0x20000000, "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000}


def check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def read_unit(path):
    return dict(re.findall(r"^(\w+)=(.*)$", pathlib.Path(path).read_text(), re.M))


def capability_numbers():
    text = pathlib.Path("/usr/include/linux/capability.h").read_text()
    return {name: int(number) for name, number in re.findall(r"^#define (CAP_\w+)\s+(\d+)$", text, re.M)}


def call_numbers():
    text = next(pathlib.Path("/usr/include").glob("**/asm/unistd_64.h")).read_text()
    return {name: int(number) for name, number in re.findall(r"^#define __NR_(\w+)\s+(\d+)$", text, re.M)}


def named_calls(words):
    for word in words:
        if word.startswith("@"):
            listed = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True).stdout
            yield from named_calls(re.findall(r"^ {4}([@\w-]+)$", listed, re.M))
        else:
            yield word


def statement(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)


def filter_of(unit):
    """Calls that are listed pass; setns(2) with the unit's kinds of namespaces alone."""
    load, equal, answer = 0x20, 0x15, 0x06
    numbers = call_numbers()
    allowed = sorted({numbers[name] for name in named_calls(unit["SystemCallFilter"].split()) if name in numbers})
    program = statement(load, 4) + statement(equal, AUDIT_ARCH_X86_64, 1, 0) + statement(answer, KILL) + statement(load, 0)
    if "RestrictNamespaces" in unit:
        kinds = [NAMESPACES[kind] for kind in unit["RestrictNamespaces"].split()]
        program += statement(equal, numbers["setns"], 0, 2 * len(kinds) + 2) + statement(load, 24)
        for kind in kinds:
            program += statement(equal, kind, 0, 1) + statement(answer, ALLOW)
        program += statement(answer, EPERM)
    for number in allowed:
        program += statement(equal, number, 0, 1) + statement(answer, ALLOW)
    return program + statement(answer, EPERM)


def protect_system(folders):
    check(LIBC.unshare(NAMESPACES["mnt"]), "a mount namespace")
    check(LIBC.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    for folder in folders:
        path = os.fsencode(folder)
        check(LIBC.mount(path, path, None, MS_BIND, None), folder)
    read_only = struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    writable = struct.pack("QQQQ", 0, MOUNT_ATTR_RDONLY, 0, 0)
    check(LIBC.syscall(NR_MOUNT_SETATTR, -100, b"/", AT_RECURSIVE, read_only, len(read_only)), "read-only mounts")
    for folder in (*folders, "/proc", "/sys", "/dev"):
        check(LIBC.syscall(NR_MOUNT_SETATTR, -100, os.fsencode(folder), AT_RECURSIVE, writable, len(writable)), folder)


def main():
    split = sys.argv.index("--")
    unit, folders, command = read_unit(sys.argv[1]), sys.argv[2:split], sys.argv[split + 1 :]
    where = os.getcwd()
    program = filter_of(unit)  # before /usr/include and the like matter to nobody any more
    if unit.get("ProtectSystem") == "strict":
        protect_system(folders)
        os.chdir(where)
    kept = set(unit["CapabilityBoundingSet"].split())
    for name, number in capability_numbers().items():
        if name not in kept and name != "CAP_LAST_CAP":
            check(LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0), name)
    if unit.get("NoNewPrivileges") == "yes":
        check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    if unit.get("MemoryDenyWriteExecute") == "yes":
        LIBC.prctl(PR_SET_MDWE, 1, 0, 0, 0)  # Linux 6.3; kept over execve
    buffer = ctypes.create_string_buffer(program)
    check(LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer)), 0, 0), "the filter")
    os.execvp(command[0], command)


main()
