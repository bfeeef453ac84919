"""What the test files of `sluice proxy` share: one proxy in the lab's host namespace, and clients of it."""
import contextlib
import hashlib
import re
import signal
import subprocess

import harness
import lab as lab_module

TOKEN = "5f0f3e9d-a-long-random-token"
TOKEN_LINE = f"ci sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()} team=build\n"

# Speaks to the proxy byte by byte: connects to argv[1] (a port of 127.0.0.1), sends each of the hexadecimal arguments after
# reading what answers the one before, and prints what it was sent.
RAW = r"""
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20)
s.settimeout(20)
out = b""
for n, piece in enumerate(sys.argv[2:]):
    s.sendall(bytes.fromhex(piece))
    if n + 3 < len(sys.argv): out += s.recv(65536)
try:
    try: s.shutdown(socket.SHUT_WR)
    except OSError: raise ConnectionResetError  # it was closed and reset before
    while True:
        piece = s.recv(65536)
        if not piece: break
        out += piece
except ConnectionResetError: out += b"[reset]"
except TimeoutError: out += b"[late]"
sys.stdout.buffer.write(out)
"""


class Proxy:
    def __init__(self, test, process, port, ready):
        self.test, self.process, self.port, self.ready = test, process, port, ready
        self.url = f"http://127.0.0.1:{port}"
        self.socks = f"socks5h://127.0.0.1:{port}"

    @property
    def audit(self):
        return lab_module.records(self.test.audit)

    def denials(self, **target):
        return [r for r in self.audit if r.get("verdict") == "deny" and target.items() <= r["target"].items()]

    def errors(self):
        return self.test.stderr.read_text()

    def stop(self, number=signal.SIGTERM, timeout=30):
        self.process.send_signal(number)
        return self.process.wait(timeout * harness.SLOW)


class ProxyTest(harness.SluiceTest):
    def setUp(self):
        super().setUp()
        self.ca, self.bundle = self.folder / "ca.pem", self.folder / "bundle.pem"
        self.stderr = self.folder / "stderr"

    def proxy_command(self, rules, flags, listen):
        if rules is not None:
            self.policy.write_text(rules if isinstance(rules, str) else harness.policy_text(rules))
        command = [lab_module.binary_for_anyone(self.lab.folder), "proxy", "--policy", self.policy, "--audit", self.audit,
                   "--upstream-ca", self.lab.ca, "--ca-out", self.ca, "--bundle-out", self.bundle]
        for address in listen:
            command += ["--listen", address]
        return command + list(flags)

    @contextlib.contextmanager
    def proxy(self, rules, *flags, listen=("127.0.0.1:0",), env=None):
        with open(self.stderr, "w") as stderr:
            process = self.lab.popen(self.proxy_command(rules, flags, listen), cwd=self.work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=stderr, text=True)
        try:
            self.assertEventually(lambda: "ready  policy" in self.stderr.read_text() or process.poll() is not None, "the proxy to be ready", 20)
            text = self.stderr.read_text()
            self.assertIsNone(process.poll(), text)
            ready = next(line for line in text.splitlines() if "ready  policy" in line)
            found = re.search(r"://[^ ]*:(\d+)", ready)
            yield Proxy(self, process, int(found[1]) if found else 0, ready)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    # -- clients

    def curl(self, proxy, *arguments, via=None, **more):
        """curl through the proxy, trusting the authority and nothing else beside the system's."""
        return self.client_run("curl", "-sS", "-m", "30", "-x", via or proxy.url, "--cacert", self.bundle, *arguments, **more)

    def client_run(self, *command, timeout=60, **more):
        done = self.lab.run(command, cwd=self.work, timeout=timeout * harness.SLOW, **more)
        return harness.Result(done.returncode, done.stdout, done.stderr, self.audit)

    def environment(self, proxy):
        names = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
        bundles = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "npm_config_cafile")
        return {**{n: proxy.url for n in names}, **{n: str(self.bundle) for n in bundles}, "NODE_EXTRA_CA_CERTS": str(self.ca),
                "NODE_USE_ENV_PROXY": "1", "GIT_TERMINAL_PROMPT": "0"}

    def raw(self, proxy, *pieces):
        """Sends bytes to the proxy and gives what came back, as text."""
        pieces = [p.encode("latin-1") if isinstance(p, str) else p for p in pieces]
        done = self.lab.run([harness.PYTHON, "-c", RAW, str(proxy.port), *[p.hex() for p in pieces]], cwd=self.work, text=False, timeout=90 * harness.SLOW)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode("latin-1")

    def connect(self, proxy, target, fields=None, version="1.1"):
        fields = [f"Host: {target}"] if fields is None else fields
        return self.raw(proxy, f"CONNECT {target} HTTP/{version}\r\n" + "".join(f + "\r\n" for f in fields) + "\r\n")

    def tokens(self):
        path = self.folder / "tokens"
        path.write_text(TOKEN_LINE)
        return path
