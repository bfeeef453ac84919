"""The points of base/fault.h, where each is met, and the errors that it may meet there; and what the sweeps over them share."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("base", "dns", "nft", "proxy", "supervisor", "audit", "app")

# `sluice run`, before the command starts.
START = {
    "addresses.answer": ("ENOBUFS",),
    "addresses.ask": ("ENOBUFS",),
    "audit.flags": ("EINVAL",),
    "audit.kind": ("EIO",),
    "audit.last": ("EIO",),
    "audit.open": ("EMFILE", "ENOSPC"),
    "audit.reopen": ("EMFILE",),
    "audit.size": ("EIO",),
    "capture.bind": ("EACCES",),
    "capture.cookie": ("EINVAL",),
    "capture.dual": ("EINVAL",),
    "capture.dumpable": ("EINVAL",),
    "capture.fork": ("EAGAIN", "ENOMEM"),
    "capture.listen": ("ENOBUFS",),
    "capture.netlink": ("EMFILE",),
    "capture.network": ("EMFILE",),
    "capture.option": ("EPERM",),
    "capture.pktinfo": ("EINVAL",),
    "capture.route": ("ENOBUFS", "EPERM"),
    "capture.route.answer": ("ENOBUFS",),
    "capture.route.open": ("EMFILE",),
    "capture.socket": ("EMFILE",),
    "capture.unshare": ("EPERM", "ENOMEM"),
    "capture.user": ("EMFILE",),
    "descriptors.send": ("ENOBUFS", "EMFILE"),
    "diag.share": ("EMFILE",),
    "diag.timeout": ("EINVAL",),
    "dns.tcp.name": ("ENOBUFS",),
    "dns.udp.name": ("ENOBUFS",),
    "dns.udp.option": ("EINVAL",),
    "dns.upstream.epoll": ("EMFILE", "ENOMEM"),
    "file.open": ("EMFILE",),
    "file.read": ("EIO",),
    "file.write": ("EPERM",),
    "handshake.credentials": ("EINVAL",),
    "handshake.pair": ("EMFILE",),
    "handshake.receive": ("EIO", "ENOMEM"),
    "handshake.send": ("ENOBUFS",),
    "handshake.wait": ("ENOMEM",),
    "landlock.enter": ("EPERM",),
    "landlock.make": ("EMFILE",),
    "landlock.rule": ("EINVAL", "ENOMEM"),
    "launch.above": ("EMFILE",),
    "launch.capabilities": ("EPERM",),
    "launch.clone": ("EAGAIN", "ENOSPC"),
    "launch.close": ("EINVAL",),
    "launch.death-signal": ("EINVAL",),
    "launch.exec": ("EACCES", "ENOMEM"),
    "launch.filter": ("ENOMEM", "EINVAL"),
    "launch.fork": ("EAGAIN",),
    "launch.gate": ("EIO",),
    "launch.go-on": ("EIO",),
    "launch.group": ("EPERM",),
    "launch.inherited": ("EINVAL",),
    "launch.keyring": ("EACCES",),
    "launch.listener": ("EMFILE", "EPERM"),
    "launch.map-pipe": ("EMFILE",),
    "launch.mapped": ("EIO",),
    "launch.network": ("EPERM",),
    "launch.no-new-privs": ("EINVAL",),
    "launch.pidfd": ("EMFILE",),
    "launch.pipe": ("EMFILE",),
    "launch.place": ("EMFILE",),
    "launch.probe": ("EMFILE",),
    "launch.seal": ("EIO",),
    "launch.seal.wait": ("ENOMEM",),
    "launch.secure-bits": ("EPERM",),
    "launch.session": ("EPERM",),
    "launch.undumpable": ("EINVAL",),
    "launch.user": ("EPERM",),
    "mount.attach": ("ENOMEM",),
    "mount.attributes": ("EPERM",),
    "mount.create": ("ENOMEM",),
    "mount.mount": ("EPERM",),
    "mount.open": ("EMFILE",),
    "mount.tree": ("EMFILE", "EPERM"),
    "nft.answer": ("ENOBUFS", "ENOENT"),
    "nft.bind": ("ENOMEM",),
    "nft.open": ("EMFILE",),
    "nft.send": ("ENOBUFS",),
    "nft.timeout": ("EINVAL",),
    "notifier.thread": ("EAGAIN",),
    "notifier.wake": ("EMFILE",),
    "notify.sizes": ("EINVAL",),
    "reactor.bell": ("EMFILE",),
    "reactor.bell.watch": ("ENOSPC",),
    "reactor.epoll": ("EMFILE",),
    "timer.make": ("EAGAIN",),
    "view.leave": ("EPERM",),
    "view.root": ("EPERM",),
    "view.seal": ("EPERM",),
}
# One way or the other, as the supervisor finds itself.
EITHER = {"launch.borrow": ("EAGAIN",), "launch.copy": ("EAGAIN",)}
# `sluice run`, while the command runs.
RUNNING = {
    "audit.look": ("EIO",),
    "audit.stat": ("EIO",),
    "audit.write": ("ENOSPC", "EIO"),
    "caller.memory": ("EPERM", "EINVAL"),
    "diag.answer": ("ENOBUFS",),
    "diag.ask": ("ENOBUFS",),
    "dial.connect": ("ENETUNREACH", "ENOBUFS"),
    "dial.outcome": ("EINVAL",),
    "dial.socket": ("EMFILE", "ENOBUFS"),
    "dns.receive": ("ENOMEM",),
    "dns.reply": ("ENOBUFS",),
    "dns.tcp.accept": ("EMFILE",),
    "dns.upstream.connect": ("ENETUNREACH",),
    "dns.upstream.leave": ("ENOBUFS",),
    "dns.upstream.receive": ("ENOMEM", "EIO"),
    "dns.upstream.send": ("ENOBUFS", "EPERM"),
    "dns.upstream.socket": ("EMFILE",),
    "dns.upstream.wait": ("EINVAL",),
    "dns.upstream.watch": ("ENOSPC", "ENOMEM"),
    "exe.look": ("EIO",),
    "exe.open": ("EMFILE", "EACCES"),
    "exe.read": ("EIO",),
    "flow.flags": ("EBADF",),
    "gate.accept": ("EMFILE", "EAGAIN"),
    "launch.signals": ("EMFILE",),
    "launch.watch": ("ENOMEM", "EINTR"),
    "notifier.wait": ("ENOMEM", "EINTR"),
    "notify.id-valid": ("EIO",),
    "notify.receive": ("EINTR", "EIO"),
    "notify.reply": ("EINTR", "EIO"),
    "pidfd.getfd": ("EMFILE", "EPERM", "ESRCH"),
    "pidfd.open": ("EMFILE", "EPERM"),
    "proc.folder": ("EMFILE", "ENOENT"),
    "proc.link": ("EACCES",),
    "proc.open": ("EMFILE", "EACCES"),
    "proc.read": ("EIO", "ESRCH"),
    "reactor.wait": ("EINVAL", "EINTR"),
    "reactor.watch": ("ENOSPC", "ENOMEM"),
    "relay.drain": ("EPIPE", "EINVAL"),
    "relay.fill": ("EINVAL", "ENOMEM"),
    "relay.pipe": ("EMFILE",),
    "socket.connect": ("ENOBUFS", "EACCES"),
    "socket.flags": ("EINVAL",),
    "socket.name": ("ENOBUFS",),
    "socket.option": ("EINVAL",),
    "socket.peer": ("EINVAL",),
    "stream.receive": ("ENOMEM", "EIO"),
    "stream.send": ("ENOBUFS", "EPIPE"),
    "udp.bind": ("EADDRINUSE",),
    "unix.link": ("EIO",),
    "unix.name": ("ENOENT",),
    "unix.path": ("EMFILE", "EACCES"),
    "unix.root": ("EMFILE",),
    "unix.system": ("EIO",),
}
# `sluice run --allow-nested`.
NESTED = {
    "nested.accept": ("EMFILE",),
    "nested.pidfd": ("EMFILE",),
    "nested.records": ("EAGAIN",),
    "nested.spawn": ("EAGAIN",),
    "nested.wait": ("ENOMEM", "EINTR"),
    "spawner.receive": ("ENOMEM",),
}
# `sluice proxy`, with TLS to it and on a UNIX socket.
PROXY_START = {"accept.stop": ("EMFILE",), "diag.open": ("EMFILE",)}
PROXY = {
    "accept.take": ("EMFILE", "ENOMEM"),
    "accept.wait": ("ENOMEM",),
    "client.credentials": ("EINVAL",),
    "client.pair": ("EMFILE",),
    "client.pidfd": ("EMFILE",),
    "owner.descriptor": ("EACCES",),
    "owner.folder": ("EMFILE",),
    "owner.namespace": ("EACCES",),
    "owner.process": ("EMFILE",),
    "unix.refuse-descriptors": ("EINVAL",),
}
SIDECAR_START = {
    "fence.links": ("EMFILE",),
    "fence.stop": ("EMFILE",),
    "nft.session.ask": ("ENOBUFS",),
    "nft.session.bind": ("ENOMEM",),
    "nft.session.open": ("EMFILE",),
    "nft.session.receive": ("ENOMEM",),
    "nft.session.send": ("ENOBUFS", "EPERM"),
    "nft.session.timeout": ("EINVAL",),
    "purge.answer": ("ENOBUFS",),
    "purge.ask": ("ENOBUFS",),
    "purge.open": ("EMFILE",),
    "purge.timeout": ("EINVAL",),
    "redirect.bind": ("EACCES",),
    "redirect.family": ("EINVAL",),
    "redirect.here": ("ENOBUFS",),
    "redirect.listen": ("ENOBUFS",),
    "redirect.option": ("EINVAL",),
    "redirect.original": ("EINVAL",),
    "redirect.port": ("ENOBUFS",),
    "redirect.socket": ("EMFILE",),
}
SIDECAR = {
    "diag.list.answer": ("ENOBUFS",),
    "diag.list.ask": ("ENOBUFS",),
    "fence.link": ("ENOMEM",),
    "fence.wait": ("ENOMEM",),
    "nft.notice": ("ENOMEM",),
    "purge.end": ("ENOBUFS",),
    "seal.set": ("EPERM",),
}
AGENT_START = {"agent.signals": ("EMFILE",), "agent.wait": ("ENOMEM",)}
# Where a container's program must not start.
AGENT_REFUSES = {
    "agent.death-signal": ("EINVAL",),
    "agent.fork": ("EAGAIN",),
    "agent.hear": ("EAGAIN",),
    "agent.listener": ("EMFILE",),
    "agent.peer": ("EINVAL",),
    "capture.enter": ("EINVAL",),
    "capture.links.answer": ("ENOBUFS",),
    "capture.links.ask": ("ENOBUFS",),
    "capture.links.open": ("EMFILE",),
    "capture.owner": ("EPERM",),
    "capture.probe.accept": ("EMFILE",),
    "capture.probe.connect": ("ENETUNREACH",),
    "capture.probe.socket": ("EMFILE",),
    "carried.kind": ("EIO",),
    "carried.link": ("EACCES",),
    "carried.take": ("EMFILE",),
    "container.copy": ("EMFILE",),
    "container.folder": ("EMFILE",),
    "container.namespace": ("EACCES",),
    "container.network": ("EMFILE",),
    "container.owner": ("EPERM",),
    "container.pids": ("EMFILE",),
    "container.uid": ("EINVAL",),
    "handoff.kind": ("EACCES",),
    "handoff.receive": ("ENOMEM",),
    "record.open": ("EMFILE", "ENOSPC"),
    "record.write": ("ENOSPC",),
}
AGENT = {
    "agent.accept": ("EMFILE",),
    "container.wait": ("ENOMEM",),
    "proc.namespace": ("EACCES",),
    "record.process": ("EMFILE",),
}
ALL = (START, EITHER, RUNNING, NESTED, PROXY_START, PROXY, SIDECAR_START, SIDECAR, AGENT_START, AGENT_REFUSES, AGENT)


def of_the_code():
    text = "\n".join(p.read_text() for room in ROOMS for p in (ROOT / room).rglob("*.cc"))
    return re.findall(r'Faulty\(\s*"([a-z0-9.-]+)"', text)


def spelled(points):
    """Each for good, but that what is interrupted is asked again: no kernel interrupts it for ever."""
    return [f"{point}:{error}{':64' if error == 'EINTR' else ''}" for point, errors in points.items() for error in errors]


def met(fault, text):
    """Whether a process came to the point."""
    point, error = fault.split(":")[:2]
    return f"fault {point} {error}\n" in text


def check_nothing_left(test):
    """But what the policy of these tests allows."""
    for entry in test.served():
        if entry["scheme"] == "tcp":
            test.assertEqual(entry["port"], 5432)
        else:
            test.assertEqual((entry["host"], entry["target"]), ("a.test", "/pub/x"), entry)


def told(result):
    """What the operator is told beside what the policy allows and denies: kinds of records and of lines."""
    kinds = set()
    for record in result.audit:
        why = record.get("error") or record.get("detail") or ""
        kinds.add((record.get("verdict"), record.get("reason"), record.get("status"), re.sub(r"[\d.]+", "#", why)))
    lines = {re.sub(r"[\d.]+", "#", line) for line in result.err.splitlines() if line.startswith("sluice: ")}
    return kinds | {line for line in lines if not line.startswith(("sluice: enforcing", "sluice: exit"))}
