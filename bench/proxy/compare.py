#!/usr/bin/env python3
"""Sluice's engine beside nginx, and mitmproxy where it is installed, all terminating TLS and re-encrypting to one nginx origin.

    bench/proxy/compare.py build/bench/bench/proxy/proxy_front [SECONDS]

Needs nginx, wrk, curl, openssl and taskset; h2load and nghttpx for the rows of HTTP/2. The proxy has core 0; the load generator and the
origin share core 1. CPU per request is the proxy's own (utime and stime over the run). Everything listens on 127.0.0.1 and ends with the
script.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def certificates(folder):
    def run(*args):
        subprocess.run(args, cwd=folder, check=True, capture_output=True)

    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
        "/CN=bench root", "-keyout", "ca.key", "-out", "ca.pem")
    with open(f"{folder}/san", "w") as f:
        f.write("subjectAltName=IP:127.0.0.1,DNS:bench.test\n")
    run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=bench", "-keyout", "leaf.key",
        "-out", "leaf.csr")
    run("openssl", "x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile",
        "san", "-out", "leaf.pem")


def nginx_config(folder, name, body):
    path = f"{folder}/{name}.conf"
    with open(path, "w") as f:
        f.write(f"""daemon off; master_process off; worker_processes 1; pid {folder}/{name}.pid; error_log {folder}/{name}.err warn;
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 100000000; keepalive_timeout 300;
  client_body_temp_path {folder}/tmp; proxy_temp_path {folder}/tmp; fastcgi_temp_path {folder}/tmp; uwsgi_temp_path {folder}/tmp;
  scgi_temp_path {folder}/tmp;
  ssl_certificate {folder}/leaf.pem; ssl_certificate_key {folder}/leaf.key; ssl_protocols TLSv1.2 TLSv1.3;
  {body}
}}
""")
    return path


def cpu_of(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Process:
    def __init__(self, core, args, **kwargs):
        self.p = subprocess.Popen(["taskset", "-c", str(core), *args], **kwargs)

    def cpu(self):
        return sum(map(cpu_of, self.members()))

    def members(self):
        """The process that was started and its children."""
        found = subprocess.run(["pgrep", "-P", str(self.p.pid)], capture_output=True, text=True).stdout.split()
        return [self.p.pid, *map(int, found)]

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        self.p.wait()


def wait_port(port):
    for _ in range(1000):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    sys.exit(f"nothing listens on port {port}")


def wrk(port, origin, seconds, connections, script=None):
    more = ["-s", script] if script else []
    out = subprocess.run(["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", *more, "-H",
                          f"Host: 127.0.0.1:{origin}", f"https://127.0.0.1:{port}/{'rpc' if script else '1k'}"],
                         capture_output=True, text=True).stdout
    if "Non-2xx" in out or "Requests/sec" not in out:
        sys.exit(f"wrk failed:\n{out}")
    total = int(re.search(r"(\d+) requests in", out).group(1))
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))
    p50 = re.search(r"^ +50% +(\S+)", out, re.M).group(1)
    p99 = re.search(r"^ +99% +(\S+)", out, re.M).group(1)
    return total, rate, p50, p99


def measure(label, port, origin, process, seconds, connections, script=None):
    wrk(port, origin, 1, connections, script)
    before = process.cpu() if process else 0
    total, rate, p50, p99 = wrk(port, origin, seconds, connections, script)
    if total == 0:
        sys.exit(f"{label}: no request was answered in {seconds} s")
    cpu = (process.cpu() - before) / total * 1e6 if process else 0
    print(f"{label:28} {rate:10.0f} req/s  {cpu:7.1f} us CPU/req  p50 {p50:>8}  p99 {p99:>8}", flush=True)
    return rate, cpu


def h2load(port, origin, seconds, streams):
    out = subprocess.run(["taskset", "-c", "1", "h2load", "-t1", "-c4", f"-m{streams}", f"-D{seconds}", "--warm-up-time=1",
                          "--npn-list=h2", "-H", f":authority: 127.0.0.1:{origin}", f"https://127.0.0.1:{port}/1k"], capture_output=True,
                         text=True).stdout
    done = re.search(r"(\d+) done, (\d+) succeeded", out)
    if not done or int(done.group(2)) == 0 or int(done.group(1)) != int(done.group(2)):
        sys.exit(f"h2load failed:\n{out}")
    mean = re.search(r"time for request: +\S+ +(\S+) +(\S+)", out)
    return int(done.group(2)), int(done.group(2)) / seconds, mean.group(2), mean.group(1)


def measure_h2(label, port, origin, process, seconds, streams):
    # The warm-up's CPU counts; so do its requests, nearly: both sides of the comparison have it alike.
    before = process.cpu() if process else 0
    total, rate, mean, worst = h2load(port, origin, seconds, streams)
    cpu = (process.cpu() - before) / total * 1e6 * seconds / (seconds + 1) if process else 0
    print(f"{label:28} {rate:10.0f} req/s  {cpu:7.1f} us CPU/req  mean {mean:>8}  max {worst:>8}", flush=True)
    return rate, cpu


def bulk(label, url, process, origin=None):
    before = process.cpu() if process else 0
    rates = []
    for _ in range(3):
        out = subprocess.run(["taskset", "-c", "1", "curl", "-sk", "-o", "/dev/null", "-w", "%{speed_download} %{size_download}", "-H",
                              f"Host: 127.0.0.1:{origin}" if origin else "Accept: */*", url], capture_output=True, text=True).stdout.split()
        if int(out[1]) != 2**30:
            sys.exit(f"{label}: {out[1]} bytes came through")
        rates.append(float(out[0]) / 2**20)
    rate = sorted(rates)[1]
    cpu = (process.cpu() - before) / 3 if process else 0
    print(f"{label:28} {rate:10.0f} MiB/s  {cpu:7.2f} s CPU/GiB", flush=True)
    return rate


def judged_posts(folder, start, origin, seconds):
    """The same JSON-RPC call under a rule that looks at no body and under one that does."""
    with open(f"{folder}/call.lua", "w") as f:
        f.write("""wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search_issues","arguments":{"owner":"octo","repo":"hello",' ..
  '"query":"' ..
  string.rep("is:open ", 100) .. '","page":1,"labels":["bug","help wanted"]}}}'
""")
    print("-- terminating TLS and re-encrypting, keep-alive POST of 1 KiB of JSON-RPC, 32 connections")
    cpu = {}
    for label, rule in (("plain rule", f"POST 127.0.0.1:{origin}/rpc"),
                        ("judged by its body", f"mcp tools/call 127.0.0.1:{origin}/rpc\n    tool: [search_*]")):
        with open(f"{folder}/judged.yaml", "w") as f:
            f.write(f"version: 1\nname: bench\nrules:\n  - allow: {rule}\n")
        process, port = start(origin, "judged")
        cpu[label] = measure(label, port, origin, process, seconds, 32, f"{folder}/call.lua")[1]
    print(f"   judged/plain: {cpu['judged by its body'] / cpu['plain rule']:.2f} x CPU")


def h2_rows(folder, running, sluice, sluice_to_http11, nginx, ports, seconds):
    engine, engine_port = sluice
    older, older_port = sluice_to_http11
    origin = ports["origin"]
    nghttpx = None
    if shutil.which("nghttpx"):
        nghttpx = Process(0, ["nghttpx", "--workers=1", "--no-ocsp", f"--frontend=127.0.0.1,{ports['nghttpx']}",
                              f"--backend=127.0.0.1,{origin};;proto=h2;tls;sni=bench.test", f"--cacert={folder}/ca.pem",
                              "--log-level=FATAL", "--accesslog-file=/dev/null", f"--errorlog-file={folder}/nghttpx.err",
                              f"{folder}/leaf.key", f"{folder}/leaf.pem"])
        running.append(nghttpx)
        wait_port(ports["nghttpx"])
    for streams in (100, 1):
        print(f"-- HTTP/2, GET of 1 KiB, 4 connections of {streams} streams")
        measure_h2("direct HTTP/2 (no proxy)", origin, origin, None, seconds, streams)
        n_rate, n_cpu = measure_h2("nginx, HTTP/1.1 upstream", ports["nginx"], ports["nginx's origin"], nginx, seconds, streams)
        o_rate, o_cpu = measure_h2("sluice, HTTP/1.1 upstream", older_port, ports["nginx's origin"], older, seconds, streams)
        if nghttpx:
            x_rate, x_cpu = measure_h2("nghttpx, HTTP/2 upstream", ports["nghttpx"], origin, nghttpx, seconds, streams)
        s_rate, s_cpu = measure_h2("sluice, HTTP/2 upstream", engine_port, origin, engine, seconds, streams)
        print(f"   HTTP/1.1 upstream, sluice/nginx: {o_rate / n_rate:.2f} x requests/s, {o_cpu / max(n_cpu, 1e-3):.2f} x CPU")
        if nghttpx:
            print(f"   HTTP/2 upstream, sluice/nghttpx: {s_rate / x_rate:.2f} x requests/s, {s_cpu / max(x_cpu, 1e-3):.2f} x CPU")


def main():
    front = os.path.abspath(sys.argv[1])
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    folder = tempfile.mkdtemp(prefix="sluice-bench-")
    running = []
    try:
        certificates(folder)
        os.makedirs(f"{folder}/www")
        with open(f"{folder}/www/1k", "wb") as f:
            f.write(b"x" * 1024)
        with open(f"{folder}/www/1g", "wb") as f:
            f.truncate(2**30)
        tls, plain, terminating = free_port(), free_port(), free_port()
        tls2, terminating2, nghttpx_port = free_port(), free_port(), free_port()
        origin = nginx_config(folder, "origin", f"""
  server {{ listen 127.0.0.1:{tls} ssl; root {folder}/www; location /rpc {{ return 200 "{{}}"; }} }}
  http2_max_concurrent_streams 128;
  server {{ listen 127.0.0.1:{tls2} ssl http2; root {folder}/www; }}
  server {{ listen 127.0.0.1:{plain}; root {folder}/www; }}""")
        peer = nginx_config(folder, "peer", f"""
  proxy_buffering on; proxy_buffers 8 16k; proxy_max_temp_file_size 0;
  upstream origin {{ server 127.0.0.1:{tls}; keepalive 64; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{terminating} ssl; listen 127.0.0.1:{terminating2} ssl http2;
    location / {{ proxy_pass https://origin; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
      proxy_ssl_verify on; proxy_ssl_trusted_certificate {folder}/ca.pem; proxy_ssl_name bench.test; proxy_ssl_verify_depth 2;
      proxy_ssl_session_reuse on; }} }}""")
        with open(f"{folder}/policy.yaml", "w") as f:
            f.write(f"version: 1\nname: bench\nrules:\n  - allow: GET 127.0.0.1:{tls}/**\n  - allow: GET 127.0.0.1:{tls2}/**\n"
                    f"  - allow: tcp 127.0.0.1:{plain}\n")
        running.append(Process(1, ["nginx", "-p", folder, "-c", origin]))
        nginx = Process(0, ["nginx", "-p", folder, "-c", peer])
        running.append(nginx)
        for port in (tls, tls2, plain, terminating, terminating2):
            wait_port(port)

        def sluice(destination, policy="policy"):
            p = Process(0, [front, f"{folder}/{policy}.yaml", f"{folder}/ca.pem", str(destination), "1"], stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE)
            running.append(p)
            return p, int(p.p.stdout.readline())

        mitmproxy, mitmproxy_port = None, free_port()
        if shutil.which("mitmdump"):
            mitmproxy = Process(0, ["mitmdump", "-q", "--mode", f"reverse:https://127.0.0.1:{tls}", "--listen-host", "127.0.0.1",
                                    "--listen-port", str(mitmproxy_port), "--set", f"confdir={folder}/mitmproxy", "--set",
                                    f"ssl_verify_upstream_trusted_ca={folder}/ca.pem"])
            running.append(mitmproxy)
            wait_port(mitmproxy_port)
        engine, engine_port = sluice(tls)
        opaque, opaque_port = sluice(plain)
        for connections in (32, 1):
            print(f"-- terminating TLS and re-encrypting, keep-alive GET of 1 KiB, {connections} connections")
            direct, _ = measure("direct TLS (no proxy)", tls, tls, None, seconds, connections)
            n_rate, n_cpu = measure("nginx", terminating, tls, nginx, seconds, connections)
            s_rate, s_cpu = measure("sluice", engine_port, tls, engine, seconds, connections)
            print(f"   sluice/nginx: {s_rate / n_rate:.2f} x requests/s, {s_cpu / max(n_cpu, 1e-3):.2f} x CPU; "
                  f"sluice/direct {s_rate / direct:.2f} x")
            if mitmproxy:
                m_rate, _ = measure("mitmproxy", mitmproxy_port, tls, mitmproxy, max(seconds, 8), connections)
                print(f"   sluice/mitmproxy: {s_rate / m_rate:.2f} x requests/s")
        judged_posts(folder, sluice, tls, seconds)
        if shutil.which("h2load"):
            ports = {"origin": tls2, "nginx": terminating2, "nginx's origin": tls, "nghttpx": nghttpx_port}
            h2_rows(folder, running, sluice(tls2), sluice(tls), nginx, ports, seconds)
        print("-- 1 GiB")
        direct = bulk("direct", f"http://127.0.0.1:{plain}/1g", None)
        through = bulk("sluice, opaque rule", f"http://127.0.0.1:{opaque_port}/1g", opaque)
        print(f"   opaque/direct: {through / direct:.2f} x")
        n_bulk = bulk("nginx, terminated", f"https://127.0.0.1:{terminating}/1g", nginx, tls)
        s_bulk = bulk("sluice, terminated", f"https://127.0.0.1:{engine_port}/1g", engine, tls)
        print(f"   sluice/nginx: {s_bulk / n_bulk:.2f} x")
    finally:
        for process in running:
            process.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
