#!/usr/bin/env python3
"""`sluice proxy` beside nginx, haproxy and squid, in the clear: forwarding by absolute form, a CONNECT for each request, and bulk
through a tunnel.

    bench/proxy/explicit.py build/bench/sluice build/bench/bench/proxy/connect_load [SECONDS]

Needs nginx with its stream module, haproxy, squid, wrk, curl and taskset. The proxy has core 0; the load and the origin share core 1. nginx and
haproxy take no CONNECT: their rows for tunnels are plain relays of TCP, a floor. Everything listens on 127.0.0.1 and ends with the script.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from compare import Process, free_port, nginx_config, wait_port


def wrk(folder, port, origin, seconds, connections, absolute):
    target = f"http://127.0.0.1:{origin}/1k" if absolute else "/1k"
    script = f"{folder}/target-{absolute}.lua"
    with open(script, "w") as f:
        f.write(f'request = function() return "GET {target} HTTP/1.1\\r\\nHost: 127.0.0.1:{origin}\\r\\n\\r\\n" end\n')
    out = subprocess.run(["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", script, f"http://127.0.0.1:{port}/"],
                         capture_output=True, text=True).stdout
    if "Non-2xx" in out or "Requests/sec" not in out:
        sys.exit(f"wrk failed:\n{out}")
    return (int(re.search(r"(\d+) requests in", out)[1]), float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]),
            re.search(r"^ +50% +(\S+)", out, re.M)[1], re.search(r"^ +99% +(\S+)", out, re.M)[1])


def tunnels(load, port, origin, seconds, connections, mode):
    out = subprocess.run(["taskset", "-c", "1", load, str(port), str(origin), str(connections), str(seconds), mode], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"connect_load failed: {out.stderr}")
    total, rate, p50, p99 = out.stdout.split()
    return int(total), float(rate), f"{p50}us", f"{p99}us"


def row(label, process, measure):
    measure(1)
    before = process.cpu() if process else 0
    total, rate, p50, p99 = measure(None)
    cpu = (process.cpu() - before) / total * 1e6 if process else 0
    print(f"{label:28} {rate:10.0f} /s  {cpu:7.1f} us CPU  p50 {p50:>8}  p99 {p99:>8}", flush=True)
    return rate, cpu


def bulk(label, process, url, arguments):
    before = process.cpu() if process else 0
    rates = []
    for _ in range(3):
        out = subprocess.run(["taskset", "-c", "1", "curl", "-s", "-o", "/dev/null", "-w", "%{speed_download} %{size_download}", *arguments, url],
                             capture_output=True, text=True).stdout.split()
        if int(out[1]) != 2**30:
            sys.exit(f"{label}: {out[1]} bytes came through")
        rates.append(float(out[0]) / 2**20)
    cpu = (process.cpu() - before) / 3 if process else 0
    print(f"{label:28} {sorted(rates)[1]:10.0f} MiB/s  {cpu:6.2f} s CPU/GiB", flush=True)
    return sorted(rates)[1]


class Squid(Process):
    """Its worker is a child of the process that was started."""

    def cpu(self):
        total = 0.0
        for pid in [self.p.pid, *map(int, subprocess.run(["pgrep", "-P", str(self.p.pid)], capture_output=True, text=True).stdout.split())]:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total


def main():
    sluice, load = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 8
    folder = tempfile.mkdtemp(prefix="sluice-bench-")
    os.chmod(folder, 0o777)
    running = []
    try:
        os.makedirs(f"{folder}/www")
        with open(f"{folder}/www/1k", "wb") as f:
            f.write(b"x" * 1024)
        with open(f"{folder}/www/1g", "wb") as f:
            f.truncate(2**30)
        plain, forward, stream, haproxy_http, haproxy_tcp, squid_port, sluice_port = (free_port() for _ in range(7))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=x", "-keyout",
                        f"{folder}/leaf.key", "-out", f"{folder}/leaf.pem"], check=True, capture_output=True)
        origin = nginx_config(folder, "origin", f"server {{ listen 127.0.0.1:{plain}; root {folder}/www; }}")
        peer = nginx_config(folder, "peer", f"""
  upstream origin {{ server 127.0.0.1:{plain}; keepalive 64; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{forward}; location / {{ proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection "";
    proxy_set_header Host $http_host; }} }}""")
        module = "/usr/lib/nginx/modules/ngx_stream_module.so"
        with open(peer) as f:
            text = f.read()
        with open(peer, "w") as f:
            f.write((f"load_module {module};\n" if os.path.exists(module) else "") + text +
                    f"stream {{ server {{ listen 127.0.0.1:{stream}; proxy_pass 127.0.0.1:{plain}; }} }}\n")
        with open(f"{folder}/haproxy.cfg", "w") as f:
            f.write(f"""global
  nbthread 1
defaults
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen http
  mode http
  http-reuse always
  bind 127.0.0.1:{haproxy_http}
  server s 127.0.0.1:{plain}
listen tcp
  mode tcp
  bind 127.0.0.1:{haproxy_tcp}
  server s 127.0.0.1:{plain}
""")
        with open(f"{folder}/squid.conf", "w") as f:
            f.write(f"""http_port 127.0.0.1:{squid_port}
acl tunnels port {plain}
http_access allow all
cache deny all
access_log none
cache_log {folder}/squid.log
pid_filename {folder}/squid.pid
coredump_dir {folder}
shutdown_lifetime 0 seconds
""")
        with open(f"{folder}/inspect.yaml", "w") as f:
            f.write(f"version: 1\nrules:\n  - allow: GET http://127.0.0.1:{plain}/**\n    ip: [127.0.0.1]\n")
        with open(f"{folder}/opaque.yaml", "w") as f:
            f.write(f"version: 1\nrules:\n  - allow: tcp 127.0.0.1:{plain}\n    ip: [127.0.0.1]\n")
        running.append(Process(1, ["nginx", "-p", folder, "-c", origin]))
        nginx = Process(0, ["nginx", "-p", folder, "-c", peer])
        haproxy = Process(0, ["haproxy", "-f", f"{folder}/haproxy.cfg"])
        squid = Squid(0, ["squid", "-N", "-f", f"{folder}/squid.conf"], stderr=subprocess.DEVNULL)
        running += [nginx, haproxy, squid]

        def start(policy):
            process = Process(0, [sluice, "proxy", "-q", "--listen", f"127.0.0.1:{sluice_port}", "--policy", f"{folder}/{policy}.yaml"])
            running.append(process)
            wait_port(sluice_port)
            return process

        for port in (plain, forward, stream, haproxy_http, haproxy_tcp, squid_port):
            wait_port(port)
        ours = start("inspect")
        for connections in (32, 1):
            print(f"-- (a) forward, keep-alive GET of 1 KiB, {connections} connections")
            measure = lambda port, absolute: lambda short: wrk(folder, port, plain, short or seconds, connections, absolute)
            row("direct", None, measure(plain, False))
            peers = [row("nginx", nginx, measure(forward, False)), row("haproxy", haproxy, measure(haproxy_http, False)), row("squid", squid, measure(squid_port, True))]
            rate, cpu = row("sluice proxy", ours, measure(sluice_port, True))
            print(f"   sluice/best peer: {rate / max(p[0] for p in peers):.2f} x requests/s, {cpu / min(p[1] for p in peers):.2f} x CPU")
        ours.stop()
        running.remove(ours)
        ours = start("opaque")
        for connections in (16, 1):
            print(f"-- (b) a tunnel for each GET, {connections} at a time")
            measure = lambda port, mode: lambda short: tunnels(load, port, plain, short or seconds, connections, mode)
            row("direct", None, measure(plain, "direct"))
            peers = [row("nginx stream", nginx, measure(stream, "direct")), row("haproxy tcp", haproxy, measure(haproxy_tcp, "direct"))]
            squids = row("squid CONNECT", squid, measure(squid_port, "connect"))
            rate, cpu = row("sluice proxy CONNECT", ours, measure(sluice_port, "connect"))
            print(f"   sluice/best relay: {rate / max(p[0] for p in peers):.2f} x requests/s, {cpu / min(p[1] for p in peers):.2f} x CPU; "
                  f"sluice/squid {rate / squids[0]:.2f} x, {cpu / squids[1]:.2f} x CPU")
        print("-- (c) 1 GiB through a tunnel")
        direct = bulk("direct", None, f"http://127.0.0.1:{plain}/1g", [])
        bulk("nginx stream", nginx, f"http://127.0.0.1:{stream}/1g", [])
        bulk("haproxy tcp", haproxy, f"http://127.0.0.1:{haproxy_tcp}/1g", [])
        bulk("squid CONNECT", squid, f"http://127.0.0.1:{plain}/1g", ["-p", "-x", f"http://127.0.0.1:{squid_port}"])
        own = bulk("sluice proxy CONNECT", ours, f"http://127.0.0.1:{plain}/1g", ["-p", "-x", f"http://127.0.0.1:{sluice_port}"])
        print(f"   sluice/direct: {own / direct:.2f} x")
    finally:
        for process in running:
            process.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
