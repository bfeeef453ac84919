#!/usr/bin/python3
"""Each system call of the decision path is at a point of base/fault.h, or named here with the reason why it need not be.
Usage: fault_points_test.py ROOT"""
import pathlib
import re
import sys

FOLDERS = ("audit/io", "dns/io", "nft/io", "proxy/io", "supervisor/io")
FILES = ("base/send_descriptors.cc", "base/socket_seal.cc", "app/accept_loop.cc", "app/agent_server.cc", "app/container.cc", "app/nested.cc", "app/transparent_listener.cc")

# Reason: files that are no part of the path.
OFF_THE_PATH = {
    "what people see and type": "byte_channel shared_sink standard_streams user_terminal launch_terminal",
    "where the command's files are: every failure ends the start with its name": "folder_walk host_command launch_facts opened_folders tree_scan",
    "limits of the run: without a control group the other way is taken, and said": "workload_group",
    "the run as a whole, by process 1: its end is the end of all": "running_tree empty_process",
    "asks what this machine can do; `sluice doctor` says it": "notify_probe network_place neighbour_rights mesh_sight throw_away shielded_tree",
    "lets in what the command line published, and nothing out": "publisher",
    "a device that takes no guard is told as a weakness": "xdp_guard",
    "credentials and certificates: what cannot be read is told, and not sent": "secret_origin tls_client",
}
# Reason: calls that need no point in any file.
ANYWHERE = {
    "ends what is to end anyway": "kill shutdown waitpid",
    "of one or two descriptors it fails by a signal alone; the waits that others depend on have their points": "poll",
    "without a point they set speed alone: room, delays, the kind of an end": "setsockopt timer_settime",
}
# File: calls, and the reason. "*": all that has no point.
HERE = {
    "audit_file": ("lstat fstat ftruncate", "tells why, or tidies up behind what has failed"),
    "udp_pool": ("recv", "throws away what nobody asked for"),
    "session": ("recv", "throws away what nobody asked for"),
    "exchange": ("socket", "a member of that name"),
    "secret_store": ("read", "a function of that name"),
    "dial": ("getsockopt", "dial.outcome has it"),
    "flow_context": ("fcntl", "what is accepted does not block; a failure ends the flow"),
    "relay": ("fcntl", "the pipe's size"),
    "reactor": ("epoll_ctl write", "out of the set, as close does; a count that is full has rung"),
    "notifier": ("write read", "a count that is full, or empty, has rung"),
    "fence": ("bind", "fence.links is the same answer"),
    "signal_pipe": ("write read", "in a signal handler; a pipe that is full has rung"),
    "caller_path": ("fstat openat statx", "a failure refuses"),
    "host_socket_table": ("fstat", "without it a socket of the host's is known by its name alone"),
    "capture": ("setns", "the way in for an ordinary user, where capture.enter has failed: the same answer"),
    "capture_gate": ("open accept4", "when out of descriptors: closes what cannot be taken, whose approval then ends"),
    "client_process": ("faccessat", "of a process that is remembered: looked up anew"),
    "container_cgroup": ("open fstat ioctl", "without an answer the cgroup is not the container's alone"),
    "container_record": ("mkdir open fstat stat flock renameat unlinkat openat syscall", "at the agent's start, or with record.write: the same answers"),
    "handshake": ("write", "tells of a failure; without it the reader sees the end"),
    "launch": ("stat open", "each failure ends the start with its name"),
    "launch_child": ("*", "each failure ends the start with its name, or process 1 with all"),
    "launch_command": ("*", "each failure ends the start with its name"),
    "launch_relay": ("timer_create syscall read", "job control, and the end of what is told: with launch.watch the same answers"),
    "launch_view": ("*", "each failure ends the start with its name"),
    "light_process": ("stat prctl mmap", "another way is taken, or the start ends"),
    "mount_calls": ("fsconfig", "as mount.create"),
    "privileges": ("*", "each failure ends the start with its name; the rest cannot fail for who lowers a limit of its own"),
    "own_networks": ("fstat ioctl", "without an answer the network is somebody else's, and refused"),
    "process_identity": ("syscall fstat fstatat", "before Linux 6.9 its failure refuses; a program that is not found is not the one a rule names"),
    "redirect_sockets": ("listen", "as redirect.listen"),
    "seccomp_channel": ("ioctl syscall", "a faster wake-up; the end of a workload that nobody can answer"),
    "small_file": ("open", "as file.write"),
    "tcp_calls": ("fcntl", "after a refusal, to say which"),
    "agent_server": ("syscall recv read", "kills what was refused; what has not said that it is ready is not kept"),
    "container": ("stat write", "names a mount; who has not said that it is ready is not kept"),
    "nested": ("*", "each failure ends that run's start with its name; a count that is full has rung"),
    "transparent_listener": ("send", "a canary's answer: without it the operator is told that the proxy is not reached"),
}
CALLS = """accept4 bind clone close_range connect dup2 dup3 epoll_create1 epoll_ctl epoll_wait eventfd execve faccessat fcntl flock fork fsconfig fsmount
fsopen fstat fstatat fstatfs ftruncate getpeername getsockname getsockopt ioctl kill listen lstat mkdir mmap mnl_socket_bind mnl_socket_open2
mnl_socket_recvfrom mnl_socket_sendto mount_setattr move_mount open open_tree openat pipe2 poll prctl pread process_vm_readv pwritev2 read readlink
readlinkat recv recvmmsg recvmsg rename renameat sendfile sendmmsg sendmsg send sendto sethostname setns setpgid setrlimit setsid setsockopt shutdown
signalfd socket socketpair splice stat statx syscall timer_create timer_settime umount2 unlink unlinkat unshare waitid waitpid write""".split()
CALL = re.compile(r"(?<![\w.>:])(?:::)?\b(" + "|".join(CALLS) + r")\((?!\))")
POINT = re.compile(r'Faulty\(\s*"[^"]*",\s*(?:(\w+)\))?')
# Two words before the parenthesis: a declaration, such as `UniqueFd socket(`.
DECLARED = re.compile(r"(?:\b(?!return\b|co_return\b|else\b)\w+|[>*]|(?<!&)&)[ \t]+$")


def end_of(text, start):
    """Behind the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in "({") - (text[at] in ")}")
        if depth == 0:
            return at + 1
    return len(text)


def at_points(text):
    """Where calls of a point stand: inside its parentheses, or in the lambda that they name."""
    spans = []
    for point in POINT.finditer(text):
        spans.append((point.start(), end_of(text, text.index("(", point.start()))))
        if point[1]:
            made = text.rfind(f"auto {point[1]} = [", 0, point.start())
            if made >= 0:
                spans.append((made, end_of(text, text.index("{", made))))
    return spans


def calls_without(path):
    text = re.sub(r"//[^\n]*", lambda m: " " * len(m[0]), path.read_text())
    spans = at_points(text)
    for call in CALL.finditer(text):
        before = text[text.rfind("\n", 0, call.start()) + 1:call.start()]
        if before.count('"') % 2 or (DECLARED.search(before) and "::" not in call[0]) or any(a <= call.start() < b for a, b in spans):
            continue
        yield text.count("\n", 0, call.start()) + 1, call[1]


def main():
    root = pathlib.Path(sys.argv[1])
    off = {name for names in OFF_THE_PATH.values() for name in names.split()}
    anywhere = {name for names in ANYWHERE.values() for name in names.split()}
    paths = [p for folder in FOLDERS for p in sorted((root / folder).glob("*.cc"))] + [root / file for file in FILES]
    faults, used, checked = [], set(), 0
    for path in paths:
        if path.stem in off:
            continue
        here = HERE.get(path.stem, ("", ""))[0].split()
        checked += 1
        for line, call in calls_without(path):
            if call in anywhere:
                continue
            known = call if call in here else "*"
            used.add((path.stem, known))
            if known not in here:
                faults.append(f"{path.relative_to(root)}:{line}: {call} is at no fault point (base/fault.h), and tests/house/fault_points_test.py says not why")
    faults += [f"fault_points_test.py excuses {call} of {name}, which has none without a point" for name, (calls, _) in HERE.items() for call in calls.split()
               if (name, call) not in used]
    faults += [f"fault_points_test.py leaves out {name}, which is no file" for name in sorted(off - {p.stem for p in paths})]
    print("\n".join(faults))
    print(f"{checked} files checked, {len(faults)} faults")
    return 1 if faults or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
