#!/usr/bin/env python3
"""`sluice proxy` beside nginx, haproxy, squid and mitmproxy: forwarding in the clear, tunnels, and TLS terminated and opened anew.

    bench/proxy/explicit.py build/bench/sluice build/bench/bench/proxy/proxy_load [SECONDS]

Needs nginx with its stream module, haproxy, squid built with OpenSSL, curl, openssl and taskset; mitmdump for its rows. The proxy has core
0; the load and the origin share core 1. nginx and haproxy take no CONNECT: their rows for tunnels are plain relays of TCP and their TLS
rows show one certificate they were given, a floor. squid reads an address in a certificate as a name: neither its leaves nor the origin's
are verified in its rows. Everything listens on 127.0.0.1 and ends with the script.
"""
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time

from compare import Process, certificates, free_port, nginx_config, wait_port

TERMINATED_IDLE = 1000  # connections held open to see what each costs


def anonymous_kib(process):
    total = 0
    for pid in process.members():
        with open(f"/proc/{pid}/status") as f:
            total += int(re.search(r"RssAnon:\s+(\d+)", f.read())[1])
    return total


class Load:
    def __init__(self, program, origin, seconds):
        self.program, self.origin, self.seconds = program, origin, seconds

    def command(self, port, *flags):
        return ["taskset", "-c", "1", self.program, str(port), str(self.origin), *map(str, flags)]

    def once(self, port, seconds, flags):
        out = subprocess.run(self.command(port, *flags, "--seconds", seconds), capture_output=True, text=True)
        if out.returncode != 0:
            return None, out.stderr.strip()
        total, rate, p50, p99 = map(float, out.stdout.split())
        return (total, rate, p50, p99), None

    def row(self, label, process, port, *flags):
        """Requests/s and CPU µs per request; None where the proxy did not carry it."""
        _, failed = self.once(port, 1, flags)
        before = process.cpu() if process else 0
        if not failed:
            figures, failed = self.once(port, self.seconds, flags)
        if failed:
            print(f"{label:28} failed: {failed}", flush=True)
            return None
        total, rate, p50, p99 = figures
        cpu = (process.cpu() - before) / total * 1e6 if process else 0
        print(f"{label:28} {rate:10.0f} /s  {cpu:7.1f} us CPU  p50 {p50:6.0f} us  p99 {p99:6.0f} us", flush=True)
        return rate, cpu, p50, p99

    def verdict(self, own, peers, slow):
        peers = [peer for peer in peers if peer]
        if not own or not peers:
            return
        line = f"   sluice/best peer: {own[0] / max(p[0] for p in peers):.2f} x requests/s, {own[1] / min(p[1] for p in peers):.2f} x CPU"
        for name, figures in slow:
            if figures:
                line += f"; sluice/{name}: {own[0] / figures[0]:.2f} x, {own[1] / figures[1]:.2f} x CPU"
        print(line, flush=True)


def bulk(label, process, url, arguments):
    before = process.cpu() if process else 0
    rates = []
    for _ in range(3):
        out = subprocess.run(["taskset", "-c", "1", "curl", "-s", "-o", "/dev/null", "-w", "%{speed_download} %{size_download}",
                              *arguments, url],
                             capture_output=True, text=True).stdout.split()
        if int(out[1]) != 2**30:
            print(f"{label:28} failed: {out[1]} octets came through", flush=True)
            return None
        rates.append(float(out[0]) / 2**20)
    cpu = (process.cpu() - before) / 3 if process else 0
    print(f"{label:28} {sorted(rates)[1]:10.0f} MiB/s  {cpu:6.2f} s CPU/GiB", flush=True)
    return sorted(rates)[1]


def idle_memory(load, label, process, port, *flags):
    """What one idle connection adds to the proxy's own memory, in KiB, after the proxy is warm."""
    load.once(port, 1, [*flags, "--connections", 64])
    time.sleep(0.5)
    before = anonymous_kib(process)
    held = subprocess.Popen(load.command(port, *flags, "--hold", "--connections", TERMINATED_IDLE), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE,
                            text=True)
    try:
        if held.stdout.readline() != "held\n":
            print(f"{label:28} failed: the connections were not held", flush=True)
            return
        time.sleep(6)  # what was free in between is the kernel's again
        print(f"{label:28} {(anonymous_kib(process) - before) / TERMINATED_IDLE:10.1f} KiB/connection", flush=True)
    finally:
        held.stdin.close()
        held.wait()


def start_peers(folder, running, ports):
    """The origin and the peers; by name, what runs them."""
    certificates(folder)
    with open(f"{folder}/both.pem", "w") as f:
        for part in ("leaf.pem", "leaf.key"):
            f.write(open(f"{folder}/{part}").read())
    with open(f"{folder}/ca-both.pem", "w") as f:
        for part in ("ca.pem", "ca.key"):
            f.write(open(f"{folder}/{part}").read())
    os.makedirs(f"{folder}/www")
    with open(f"{folder}/www/1k", "wb") as f:
        f.write(b"x" * 1024)
    with open(f"{folder}/www/1g", "wb") as f:
        f.truncate(2**30)
    origin = nginx_config(folder, "origin", f"""server {{ listen 127.0.0.1:{ports['plain']}; root {folder}/www; }}
  server {{ listen 127.0.0.1:{ports['tls']} ssl; root {folder}/www; }}""")
    peer = nginx_config(folder, "peer", f"""
  proxy_buffering on; proxy_buffers 8 16k; proxy_max_temp_file_size 0;
  upstream plain {{ server 127.0.0.1:{ports['plain']}; keepalive 64; keepalive_requests 100000000; }}
  upstream tls {{ server 127.0.0.1:{ports['tls']}; keepalive 64; keepalive_requests 100000000; }}
  proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
  proxy_ssl_verify on; proxy_ssl_trusted_certificate {folder}/ca.pem; proxy_ssl_name bench.test; proxy_ssl_verify_depth 2;
  server {{ listen 127.0.0.1:{ports['nginx']}; location / {{ proxy_pass http://plain; }} }}
  server {{ listen 127.0.0.1:{ports['nginx tls']} ssl; location / {{ proxy_pass https://tls; }} }}""")
    module = "/usr/lib/nginx/modules/ngx_stream_module.so"
    with open(peer) as f:
        text = f.read()
    with open(peer, "w") as f:
        f.write((f"load_module {module};\n" if os.path.exists(module) else "") + text +
                f"stream {{ server {{ listen 127.0.0.1:{ports['nginx stream']}; proxy_pass 127.0.0.1:{ports['plain']}; }} }}\n")
    with open(f"{folder}/haproxy.cfg", "w") as f:
        f.write(f"""global
  nbthread 1
  maxconn 8000
defaults
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen http
  mode http
  http-reuse always
  bind 127.0.0.1:{ports['haproxy']}
  server s 127.0.0.1:{ports['plain']}
listen tls
  mode http
  http-reuse always
  bind 127.0.0.1:{ports['haproxy tls']} ssl crt {folder}/both.pem alpn http/1.1
  server s 127.0.0.1:{ports['tls']} ssl verify required ca-file {folder}/ca.pem verifyhost bench.test sni str(bench.test)
listen tcp
  mode tcp
  bind 127.0.0.1:{ports['haproxy tcp']}
  server s 127.0.0.1:{ports['plain']}
""")
    with open(f"{folder}/squid.conf", "w") as f:
        f.write(f"""http_port 127.0.0.1:{ports['squid']}
http_port 127.0.0.1:{ports['squid bump']} ssl-bump cert={folder}/ca-both.pem generate-host-certificates=on dynamic_cert_mem_cache_size=4MB
sslcrtd_program /usr/lib/squid/security_file_certgen -s {folder}/certgen -M 4MB
acl bumped localport {ports['squid bump']}
ssl_bump bump bumped
tls_outgoing_options cafile={folder}/ca.pem
sslproxy_cert_error allow all
http_access allow all
cache deny all
access_log none
cache_log {folder}/squid.log
pid_filename {folder}/squid.pid
coredump_dir {folder}
shutdown_lifetime 0 seconds
""")
    subprocess.run(["/usr/lib/squid/security_file_certgen", "-c", "-s", f"{folder}/certgen", "-M", "4MB"], check=True, capture_output=True)
    subprocess.run(["chown", "-R", "proxy", f"{folder}/certgen"], check=False, capture_output=True)
    os.makedirs(f"{folder}/mitmproxy")
    with open(f"{folder}/mitmproxy/mitmproxy-ca.pem", "w") as f:
        for part in ("ca.key", "ca.pem"):
            f.write(open(f"{folder}/{part}").read())
    running.append(Process(1, ["nginx", "-p", folder, "-c", origin]))
    peers = {"nginx": Process(0, ["nginx", "-p", folder, "-c", peer])}
    running.append(peers["nginx"])
    peers["haproxy"] = Process(0, ["haproxy", "-f", f"{folder}/haproxy.cfg"])
    running.append(peers["haproxy"])
    peers["squid"] = Process(0, ["squid", "-N", "-f", f"{folder}/squid.conf"], stderr=subprocess.DEVNULL)
    running.append(peers["squid"])
    if shutil.which("mitmdump"):
        for name, flags in (("mitmproxy", []), ("mitmproxy tunnel", ["--ignore-hosts", "."])):
            peers[name] = Process(0, ["mitmdump", "-q", "--listen-host", "127.0.0.1", "--listen-port", str(ports[name]), "--set",
                                      f"confdir={folder}/mitmproxy", "--set", f"ssl_verify_upstream_trusted_ca={folder}/ca.pem", *flags])
            running.append(peers[name])
            wait_port(ports[name])
    for name, port in ports.items():
        if name not in ("mitmproxy", "mitmproxy tunnel", "sluice"):
            wait_port(port)
    return peers


def in_the_clear(load, peers, ports, ours):
    for connections in (32, 1):
        print(f"-- (a) forward in the clear, keep-alive GET of 1 KiB, {connections} connections")
        load.row("direct", None, ports["plain"], "--connections", connections)
        rows = {name: load.row(name, peers[name], ports[name], "--connections", connections) for name in ("nginx", "haproxy")}
        squid = load.row("squid", peers["squid"], ports["squid"], "--absolute", "--connections", connections)
        slow = [("squid", squid)]
        if "mitmproxy" in peers:
            slow.append(("mitmproxy", load.row("mitmproxy", peers["mitmproxy"], ports["mitmproxy"], "--absolute", "--connections", connections)))
        own = load.row("sluice proxy", ours, ports["sluice"], "--absolute", "--connections", connections)
        load.verdict(own, [*rows.values(), squid], slow)


def tunnels(load, peers, ports, ours):
    for connections in (16, 1):
        print(f"-- (b) a tunnel for each GET, {connections} at a time")
        flags = ("--one", "--connections", connections)
        load.row("direct", None, ports["plain"], *flags)
        relays = [load.row("nginx stream", peers["nginx"], ports["nginx stream"], *flags),
                  load.row("haproxy tcp", peers["haproxy"], ports["haproxy tcp"], *flags)]
        slow = [("squid", load.row("squid CONNECT", peers["squid"], ports["squid"], "--connect", *flags))]
        if "mitmproxy" in peers:
            slow.append(("mitmproxy", load.row("mitmproxy CONNECT", peers["mitmproxy tunnel"], ports["mitmproxy tunnel"], "--connect", *flags)))
        own = load.row("sluice proxy CONNECT", ours, ports["sluice"], "--connect", *flags)
        load.verdict(own, relays, slow)
    print("-- (c) 1 GiB through a tunnel")
    url = f"http://127.0.0.1:{ports['plain']}/1g"
    direct = bulk("direct", None, url, [])
    bulk("nginx stream", peers["nginx"], f"http://127.0.0.1:{ports['nginx stream']}/1g", [])
    bulk("haproxy tcp", peers["haproxy"], f"http://127.0.0.1:{ports['haproxy tcp']}/1g", [])
    bulk("squid CONNECT", peers["squid"], url, ["-p", "-x", f"http://127.0.0.1:{ports['squid']}"])
    if "mitmproxy" in peers:
        bulk("mitmproxy CONNECT", peers["mitmproxy tunnel"], url, ["-p", "-x", f"http://127.0.0.1:{ports['mitmproxy tunnel']}"])
    own = bulk("sluice proxy CONNECT", ours, url, ["-p", "-x", f"http://127.0.0.1:{ports['sluice']}"])
    if own and direct:
        print(f"   sluice/direct: {own / direct:.2f} x")


def terminating(load, folder, peers, ports, ours):
    own_ca, bench_ca = f"{folder}/own-ca.pem", f"{folder}/ca.pem"

    def rows(*flags, with_mitmproxy):
        load.row("direct TLS", None, ports["tls"], "--tls", bench_ca, *flags)
        floor = [load.row(name, peers[name], ports[f"{name} tls"], "--tls", bench_ca, *flags) for name in ("nginx", "haproxy")]
        slow = [("squid", load.row("squid ssl-bump", peers["squid"], ports["squid bump"], "--connect", "--tls", "any", *flags))]
        if with_mitmproxy and "mitmproxy" in peers:
            slow.append(("mitmproxy", load.row("mitmproxy", peers["mitmproxy"], ports["mitmproxy"], "--connect", "--tls", bench_ca,
                                               *flags)))
        own = load.row("sluice proxy", ours, ports["sluice"], "--connect", "--tls", own_ca, *flags)
        load.verdict(own, floor, slow)
        return own

    for connections in (32, 1):
        print(f"-- (d) TLS terminated and opened anew, keep-alive GET of 1 KiB, {connections} connections")
        own = rows("--connections", connections, with_mitmproxy=True)
        if connections == 32 and own:
            rate = int(own[0] / 2)
            print(f"-- (g) the same at half of Sluice's rate, {rate} requests/s offered")
            direct = load.row("direct TLS", None, ports["tls"], "--tls", bench_ca, "--connections", 32, "--rate", rate)
            load.row("nginx", peers["nginx"], ports["nginx tls"], "--tls", bench_ca, "--connections", 32, "--rate", rate)
            half = load.row("sluice proxy", ours, ports["sluice"], "--connect", "--tls", own_ca, "--connections", 32, "--rate", rate)
            if direct and half:
                print(f"   sluice adds {half[3] - direct[3]:.0f} us at p99 (aim: 200 at most), {half[2] - direct[2]:.0f} us at p50")
    print("-- (e) 1 GiB, TLS terminated and opened anew")
    url = f"https://127.0.0.1:{ports['tls']}/1g"
    bulk("direct TLS", None, url, ["--cacert", bench_ca])
    best = [bulk(name, peers[name], f"https://127.0.0.1:{ports[f'{name} tls']}/1g", ["--cacert", bench_ca])
            for name in ("nginx", "haproxy")]
    bulk("squid ssl-bump", peers["squid"], url, ["-k", "-p", "-x", f"http://127.0.0.1:{ports['squid bump']}"])
    own = bulk("sluice proxy", ours, url, ["--cacert", own_ca, "-p", "-x", f"http://127.0.0.1:{ports['sluice']}"])
    if own and all(best):
        print(f"   sluice/best peer: {own / max(best):.2f} x")
    print("-- (f) a new connection, its TLS terminated, for each GET, 16 at a time")
    rows("--one", "--connections", 16, with_mitmproxy=True)
    print(f"-- (h) memory of {TERMINATED_IDLE} idle connections, TLS terminated")
    for name in ("nginx", "haproxy"):
        idle_memory(load, name, peers[name], ports[f"{name} tls"], "--tls", bench_ca)
    idle_memory(load, "squid ssl-bump", peers["squid"], ports["squid bump"], "--connect", "--tls", "any")
    idle_memory(load, "sluice proxy", ours, ports["sluice"], "--connect", "--tls", own_ca)


def leaves(ports, count=200):
    """How many certificates the connections to one name are shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    shown = set()
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", ports["sluice"])) as s:
            s.sendall(f"CONNECT 127.0.0.1:{ports['tls']} HTTP/1.1\r\nHost: 127.0.0.1:{ports['tls']}\r\n\r\n".encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += s.recv(4096)
            with context.wrap_socket(s) as tls:
                shown.add(tls.getpeercert(binary_form=True))
    print(f"-- (i) certificates made for {count} connections to one name")
    print(f"   sluice made {len(shown)}", flush=True)


def main():
    sluice, program = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 8
    folder = tempfile.mkdtemp(prefix="sluice-bench-")
    os.chmod(folder, 0o777)
    running = []
    names = ("plain", "tls", "nginx", "nginx tls", "nginx stream", "haproxy", "haproxy tls", "haproxy tcp", "squid", "squid bump",
             "mitmproxy", "mitmproxy tunnel", "sluice")
    ports = {name: free_port() for name in names}
    try:
        peers = start_peers(folder, running, ports)
        policies = {"inspect": f"GET http://127.0.0.1:{ports['plain']}/**", "opaque": f"tcp 127.0.0.1:{ports['plain']}",
                    "terminate": f"GET 127.0.0.1:{ports['tls']}/**"}

        def start(policy):
            with open(f"{folder}/{policy}.yaml", "w") as f:
                f.write(f"version: 1\nrules:\n  - allow: {policies[policy]}\n    ip: [127.0.0.1]\n")
            process = Process(0, [sluice, "proxy", "-q", "--listen", f"127.0.0.1:{ports['sluice']}", "--policy",
                                 f"{folder}/{policy}.yaml", "--upstream-ca", f"{folder}/ca.pem", "--ca-out", f"{folder}/own-ca.pem"])
            running.append(process)
            wait_port(ports["sluice"])
            return process

        def stop(process):
            process.stop()
            running.remove(process)

        plain, tls = Load(program, ports["plain"], seconds), Load(program, ports["tls"], seconds)
        ours = start("inspect")
        in_the_clear(plain, peers, ports, ours)
        stop(ours)
        ours = start("opaque")
        tunnels(plain, peers, ports, ours)
        stop(ours)
        terminating(tls, folder, peers, ports, start("terminate"))
        leaves(ports)
    finally:
        for process in running:
            process.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
