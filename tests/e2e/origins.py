#!/usr/bin/python3
"""Servers that other people wrote, on the lab's internet: nginx, Apache httpd, Node (strict and lenient) and Python's http.server,
each of which writes down the requests it understood. As sloppy as their options allow, since a sloppy reader is the one that an
attacker hopes for.

A line of the log is {"server", "method", "target", "path", "host", "body"}; path is what the server made of the target, where it says so;
nginx and Apache hand the body on, so that it is in the line of "behind nginx" or "behind apache".
"""
import http.server
import json
import pathlib
import subprocess
import sys
import threading
import time

ADDRESS = "151.101.1.10"  # a.test
PORTS = {"nginx": 9101, "apache": 9102, "node": 9103, "lenient node": 9104, "python": 9105}
TLS = 100  # so much higher is the port on which the same server is behind TLS
BEHIND = {"nginx": 9198, "apache": 9199}
HERE = pathlib.Path(__file__).resolve().parent

NGINX = """
user root; daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.err crit; worker_processes 1;
events {{ worker_connections 4096; }}
http {{
  underscores_in_headers on; ignore_invalid_headers off; large_client_header_buffers 8 64k; client_max_body_size 0;
  client_body_temp_path {folder}/nginx-body; proxy_temp_path {folder}/nginx-proxy; fastcgi_temp_path {folder}/nginx-f;
  uwsgi_temp_path {folder}/nginx-u; scgi_temp_path {folder}/nginx-s;
  log_format seen escape=json '{{"server":"nginx","method":"$request_method","target":"$request_uri","path":"$uri","host":"$http_host","unread":"$request"}}';
  server {{
    listen {address}:{port}; access_log {folder}/seen.jsonl seen;
    location / {{ proxy_pass http://127.0.0.1:{behind}; proxy_set_header Host $http_host; }}
  }}
}}
"""
TERMINATOR = """
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
user root; daemon off; master_process off; pid {folder}/tls.pid; error_log {folder}/tls.err crit; worker_processes 1;
events {{ worker_connections 4096; }}
stream {{
  ssl_certificate {certificate}; ssl_certificate_key {key};
  {servers}
}}
"""
APACHE = """
ServerRoot {folder}
ServerName a.test
Listen {address}:{port}
PidFile {folder}/apache.pid
DefaultRuntimeDir {folder}
ErrorLog {folder}/apache.err
LogLevel crit
User www-data
Group www-data
{modules}
HttpProtocolOptions Unsafe LenientMethods Allow0.9
AllowEncodedSlashes NoDecode
LimitRequestLine 100000
LimitRequestFieldSize 100000
StartServers 1
LogFormat "{{\\"server\\":\\"apache\\",\\"method\\":\\"%m\\",\\"line\\":\\"%r\\",\\"path\\":\\"%U\\",\\"host\\":\\"%{{Host}}i\\"}}" seen
CustomLog {folder}/seen.jsonl seen
ProxyPreserveHost On
ProxyPass / http://127.0.0.1:{behind}/ nocanon
"""


class Keeping(http.server.BaseHTTPRequestHandler):
    """Any method; the body by what http.server itself leaves to its user."""
    protocol_version = "HTTP/1.1"
    name, log, lock = "", None, threading.Lock()

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def body(self):
        if self.headers.get("Transfer-Encoding"):
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return data
        length = int(self.headers.get("Content-Length", 0))
        data = self.rfile.read(length)
        if len(data) < length:
            raise ConnectionError("cut short")
        return data

    def answer(self):
        if self.headers.get("Expect", "").lower() == "100-continue":
            pass  # http.server has answered it
        try:
            body = self.body()
        except (ValueError, ConnectionError):
            self.close_connection = True
            return
        line = json.dumps({"server": self.name, "method": self.command, "target": self.path, "host": self.headers.get("Host"), "body": body.decode("latin-1")})
        with self.lock:
            self.log.write(line + "\n")
        data = b"seen\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 1024

    def handle_error(self, *_):
        pass


def serve(log, *listeners):
    """NAME ADDRESS PORT each."""
    Keeping.log = open(log, "a", buffering=1)
    servers = [Server((address, int(port)), type("Named", (Keeping,), {"name": name}))
               for name, address, port in zip(listeners[::3], listeners[1::3], listeners[2::3])]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Event().wait()


class Origins:
    """Started in the lab's internet; ends with the lab, or when stopped."""

    def __init__(self, lab):
        self.folder = lab.folder / "origins"
        self.folder.mkdir(exist_ok=True)
        self.folder.chmod(0o777)
        self.inside = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{lab.world.pid}/ns/net"]
        self.log = self.folder / "seen.jsonl"
        self.log.touch()
        self.log.chmod(0o666)
        self.processes = []
        fill = {"folder": self.folder, "address": ADDRESS}
        self.write("nginx.conf", NGINX.format(port=PORTS["nginx"], behind=BEHIND["nginx"], **fill))
        modules = "".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n" for name in ("mpm_event", "authz_core", "proxy", "proxy_http"))
        self.write("apache.conf", APACHE.format(port=PORTS["apache"], behind=BEHIND["apache"], modules=modules, **fill))
        self.start("/usr/bin/python3", HERE / "origins.py", self.log, "python", ADDRESS, PORTS["python"], "behind nginx", "127.0.0.1", BEHIND["nginx"],
                   "behind apache", "127.0.0.1", BEHIND["apache"])
        self.start("/usr/sbin/nginx", "-c", self.folder / "nginx.conf")
        self.start("/usr/sbin/apache2", "-f", self.folder / "apache.conf", "-D", "FOREGROUND")
        self.start("node", HERE / "clients" / "origin.mjs", self.log, ADDRESS, PORTS["node"], "strict", PORTS["lenient node"], "lenient")
        servers = "\n  ".join(f"server {{ listen {ADDRESS}:{port + TLS} ssl; proxy_pass {ADDRESS}:{port}; }}" for port in PORTS.values())
        self.write("tls.conf", TERMINATOR.format(folder=self.folder, certificate=lab.folder / "good.pem", key=lab.folder / "good.key", servers=servers))
        self.start("/usr/sbin/nginx", "-c", self.folder / "tls.conf")
        for port in PORTS.values():
            self.wait_for(ADDRESS, port)
            self.wait_for(ADDRESS, port + TLS)
        for port in BEHIND.values():
            self.wait_for("127.0.0.1", port)

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def start(self, *command):
        said = self.folder / f"{pathlib.Path(str(command[0])).name}-{len(self.processes)}.out"
        with open(said, "w") as out:
            self.processes.append(subprocess.Popen(self.inside + [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/"))

    def wait_for(self, address, port):
        probe = f"import socket; socket.create_connection(('{address}', {port}), 1).close()"
        deadline = time.monotonic() + 60
        while subprocess.run(self.inside + ["/usr/bin/python3", "-c", probe], stderr=subprocess.DEVNULL).returncode:
            if time.monotonic() > deadline or any(p.poll() is not None for p in self.processes):
                raise SystemExit("origins: not all of them started: " + "".join(p.read_text() for p in self.folder.glob("*.out")))
            time.sleep(0.1)

    def seen(self):
        """Every request that a server understood."""
        return [json.loads(line) for line in self.log.read_text(errors="surrogateescape").splitlines()]

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


if __name__ == "__main__":
    serve(*sys.argv[1:])
