#!/usr/bin/python3
"""How much of the supervisor's memory stays when a great deal goes through one connection:  soak.py [GIB]

Three transfers of GIB each (180 where none is given): down and up through terminated TLS, and down through an opaque tunnel, each one
exchange on one connection, from nginx to curl. Prints resident memory as it goes. Fails where it grows by more than 16 MiB after
the first twentieth.
"""
import os
import pathlib
import socket
import ssl
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import lab as lab_module

TLS, PLAIN, SINK, ADDRESS = 9401, 9402, 9403, "151.101.1.10"  # a.test
MAY_GROW = (512 if os.environ.get("SLUICE_SANITIZED") else 16) << 20  # a sanitizer keeps what was freed
NGINX = """
user root; daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.err crit; worker_processes 1;
events {{ }}
http {{
  access_log off; client_max_body_size 0; sendfile on; keepalive_timeout 1d; send_timeout 1h; client_body_timeout 1h; ssl_buffer_size 16k;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen {address}:{tls} ssl; listen {address}:{plain};
    ssl_certificate {lab}/good.pem; ssl_certificate_key {lab}/good.key;
    root {folder};
    location /up {{ return 200 "taken\\n"; }}
  }}
}}
"""


def sink(certificate, key):
    """Takes one upload whole, and only then answers; a server that answers first ends the exchange."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server((ADDRESS, SINK))
    room = bytearray(1 << 18)
    while True:
        with context.wrap_socket(listener.accept()[0], server_side=True) as peer:
            head = b""
            while b"\r\n\r\n" not in head:
                head += peer.recv(65536)
            length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            left = length - len(head.partition(b"\r\n\r\n")[2])
            while left and (count := peer.recv_into(room)):
                left -= count
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ntaken\n")


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def descendants_of(pid):
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        more = children.get(todo.pop(), [])
        found += more
        todo += more
    return found


def moved(pid):
    """Bytes that the curl below `pid` has read or written."""
    most = 0
    for child in descendants_of(pid):
        try:
            if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "curl":
                io = dict(line.split(": ") for line in pathlib.Path(f"/proc/{child}/io").read_text().splitlines())
                most = max(most, int(io["rchar"]), int(io["wchar"]))
        except OSError:
            pass
    return most


def transfer(lab, name, rule, command, total):
    print(f"{name}: {total / 2**30:g} GiB in one exchange", flush=True)
    policy = lab.folder / "soak.yaml"
    policy.write_text(f"version: 1\nname: soak\nrules:\n  - allow: {rule}\n")
    sluice = [lab_module.binary_for_anyone(lab.folder), "run", "--quiet", "--policy", policy, "--upstream-ca", lab.ca, "--", *command]
    begun = time.monotonic()
    process = lab.popen(sluice, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    samples, told, base = [], 0.0, None
    while process.poll() is None:
        done, memory = moved(process.pid), resident(process.pid)
        if done > total / 20:
            samples.append(memory)
            base = base or memory
        if time.monotonic() - told > max(1.0, (told - begun) / 20 if told else 0):
            told = time.monotonic()
            print(f"  {told - begun:8.1f} s {done / 2**30:8.2f} GiB   resident {memory / 2**20:7.1f} MiB", flush=True)
        time.sleep(0.1)
    out, err = process.communicate()
    took = time.monotonic() - begun
    if process.returncode or out.split()[:2] != ["200", str(total)]:
        print(f"  failed, exit {process.returncode}: {out} {err}")
        return False
    if not samples:
        print("  too short to tell: ask for more GiB")
        return False
    grown = max(samples) - base
    print(f"  {total / 2**20 / took:.0f} MiB/s; resident {base / 2**20:.1f} MiB after a twentieth, {max(samples) / 2**20:.1f} MiB at most: "
          f"{'flat' if grown <= MAY_GROW else 'GROWN'}", flush=True)
    return grown <= MAY_GROW


def main():
    if sys.argv[1:2] == ["sink"]:
        return sink(*sys.argv[2:])
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else "180") * 2**30)
    lab_module.become_root_in_a_user_namespace()
    with lab_module.Lab() as lab:
        folder = lab.folder / "soak"
        folder.mkdir()
        folder.chmod(0o755)
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, lab=lab.folder, address=ADDRESS, tls=TLS, plain=PLAIN))
        for where in (folder, lab.work()):
            with open(where / "zeros", "wb") as file:
                file.truncate(size)  # sparse
        inside = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{lab.world.pid}/ns/net"]
        server = subprocess.Popen(inside + ["/usr/sbin/nginx", "-c", str(folder / "nginx.conf")], stdin=subprocess.DEVNULL, cwd="/")
        taker = subprocess.Popen(inside + ["/usr/bin/python3", __file__, "sink", str(lab.folder / "good.pem"), str(lab.folder / "good.key")], stdin=subprocess.DEVNULL)
        listening = inside + ["ss", "-Hltn"]  # the sink takes whoever connects for the upload
        for port in (TLS, PLAIN, SINK):
            lab.wait_for(lambda: f":{port} " in subprocess.run(listening, capture_output=True, text=True).stdout, f"port {port}")
        curl = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %{size_download} %{size_upload}\n"]
        up = [*curl[:-1], "%{http_code} %{size_upload}\n", "-H", "Expect:", "-T", str(lab.work() / "zeros")]
        good = [transfer(lab, "down, TLS terminated", f"GET a.test:{TLS}/zeros", [*curl, f"https://a.test:{TLS}/zeros"], size),
                transfer(lab, "up, TLS terminated", f"PUT a.test:{SINK}/up", [*up, f"https://a.test:{SINK}/up"], size),
                transfer(lab, "down, opaque tunnel", f"tcp a.test:{PLAIN}", [*curl, f"http://a.test:{PLAIN}/zeros"], size)]
        for process in (server, taker):
            process.terminate()
            process.wait()
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
