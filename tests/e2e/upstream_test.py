#!/usr/bin/python3
"""The way upstream, with real proxies and servers: squid and microsocks between the host and the lab's internet, nginx that asks for
client certificates, a family that leads nowhere, pins, and an authority of the user's own."""
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess

import authority
import harness
import zone

LOGIN = "me:s3cret-word"
PROXY = zone.PROXY
SQUID_HTTP, SQUID_HTTPS, SOCKS = 3128, 3129, 1080


def in_world(lab, *command, **more):
    """A program on the lab's internet, with the lab's resolver; it ends with the lab."""
    prefix = ["nsenter", f"--net=/proc/{lab.world.pid}/ns/net", f"--mount=/proc/{lab.host.pid}/ns/mnt", "env", "-C", str(lab.folder)]
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *prefix, *map(str, command)], stdin=subprocess.DEVNULL, env=lab.environment(), **more)


def listens(lab, port):
    table = subprocess.run(["nsenter", f"--net=/proc/{lab.world.pid}/ns/net", "cat", "/proc/net/tcp", "/proc/net/tcp6"],
                           capture_output=True, text=True, check=True).stdout
    return any(f":{port:04X} " in line.split("rem")[0] and " 0A " in line for line in table.splitlines())


def spki_pin(pem):
    public = subprocess.run(["openssl", "x509", "-in", str(pem), "-noout", "-pubkey"], check=True, capture_output=True).stdout
    der = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "der"], input=public, check=True, capture_output=True).stdout
    return "sha256//" + base64.b64encode(hashlib.sha256(der).digest()).decode()


class Proxied(harness.SluiceTest):
    """squid with a login, cleartext and under TLS, and microsocks with one."""
    started = None

    def setUp(self):
        super().setUp()
        if Proxied.started is None:
            Proxied.started = self.start()
        self.logged = self.squid_log()

    def start(self):
        folder = self.lab.folder / "squid"
        folder.mkdir()
        folder.chmod(0o777)
        word = subprocess.run(["openssl", "passwd", "-apr1", LOGIN.split(":")[1]], check=True, capture_output=True, text=True).stdout.strip()
        (folder / "users").write_text(f"me:{word}\n")
        (folder / "hosts").write_text(f"151.101.1.10 inner.test\n")
        (folder / "squid.conf").write_text(f"""
http_port {PROXY}:{SQUID_HTTP}
https_port {PROXY}:{SQUID_HTTPS} tls-cert={self.lab.folder}/good.pem tls-key={self.lab.folder}/good.key
auth_param basic program /usr/lib/squid/basic_ncsa_auth {folder}/users
auth_param basic realm lab
acl known proxy_auth REQUIRED
acl closed dstdomain shared.test
http_access deny closed
http_access allow known
http_access deny all
cache deny all
cache_mem 8 MB
hosts_file {folder}/hosts
dns_nameservers {zone.RESOLVER}
access_log stdio:{folder}/access.log
cache_log {folder}/cache.log
pid_filename none
coredump_dir {folder}
visible_hostname squid.lab
shutdown_lifetime 0 seconds
""")
        processes = [in_world(self.lab, "squid", "-N", "-f", folder / "squid.conf", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
                     in_world(self.lab, "microsocks", "-i", PROXY, "-p", SOCKS, "-u", "me", "-P", LOGIN.split(":")[1], stderr=subprocess.DEVNULL)]
        for port in (SQUID_HTTP, SQUID_HTTPS, SOCKS):
            self.lab.wait_for(lambda: listens(self.lab, port), f"a proxy on port {port}")
        return processes

    def squid_log(self):
        log = self.lab.folder / "squid" / "access.log"
        return log.read_text().splitlines() if log.exists() else []

    def new_squid_lines(self):
        return self.squid_log()[len(self.logged):]

    KINDS = {"http": f"http://proxy.corp.example:{SQUID_HTTP}", "https": f"https://proxy.corp.example:{SQUID_HTTPS}",
             "socks5": f"socks5://{PROXY}:{SOCKS}"}

    def through(self, url, rules, *command, login=LOGIN, flags=(), **more):
        more_flags = ["--via-auth", "basic env PROXY_LOGIN"] if login else []
        return self.sluice(rules, *command, flags=["--via", url, *more_flags, *flags], env={"PROXY_LOGIN": login or ""}, **more)


class Via(Proxied):
    def test_https_goes_by_name_through_each_kind(self):
        for kind, url in self.KINDS.items():
            result = self.through(url, ["allow GET a.test/pub/**"], "curl", "-sS", "https://a.test/pub/x")
            self.assertIn("hello from the lab", result.out, f"{kind}\n{result}")
            self.assertEqual({e["peer"] for e in self.served()} & {zone.HOST_V4, zone.HOST_V6}, set(), kind)
        self.assertEqual(len([line for line in self.new_squid_lines() if "CONNECT a.test:443" in line]), 2)

    def test_cleartext_is_forwarded_by_squid_and_tunnelled_by_socks(self):
        for kind, url in self.KINDS.items():
            result = self.through(url, ["allow GET http://a.test/pub/**"], "curl", "-sS", "http://a.test/pub/x?q=1")
            self.assertIn("hello from the lab", result.out, f"{kind}\n{result}")
        self.assertEqual(len([line for line in self.new_squid_lines() if "GET http://a.test/pub/x" in line]), 2)

    def test_a_name_that_only_the_proxy_knows_is_reached(self):
        result = self.through(self.KINDS["http"], ["allow GET http://inner.test/pub/**"], "curl", "-sS", "http://inner.test/pub/x")
        self.assertIn("hello from the lab", result.out, str(result))
        self.assertNotIn("inner.test", self.asked())

    def test_opaque_tcp_and_tls_are_relayed(self):
        script = ("import socket, threading\ns = socket.create_connection(('db.test', 5432))\nthreading.Thread(target=s.sendall, args=(b'x' * 300000,)).start()\n"
                  # squid ends a tunnel with its first FIN.
                  "n = 0\nwhile n < 300000 and (block := s.recv(65536)): n += len(block)\nprint(n)")
        for kind, url in self.KINDS.items():
            flags = ["--via", url, "--via-auth", "basic env PROXY_LOGIN"]
            # squid lets CONNECT go to any port here.
            result = self.python(["allow tcp db.test:5432"], script, flags=flags, env={"PROXY_LOGIN": LOGIN})
            self.assertEqual(result.out.strip(), "300000", f"{kind}\n{result}")
            result = self.sluice(["allow tls pinned.test"], "curl", "-sS", "--cacert", self.lab.ca, "https://pinned.test/pub", flags=[*flags, "--ro", self.lab.ca],
                                 env={"PROXY_LOGIN": LOGIN})
            self.assertIn("hello from the lab", result.out, f"{kind}\n{result}")

    def test_a_wrong_login_is_a_502_that_names_the_proxy_and_not_the_secret(self):
        for kind, url in self.KINDS.items():
            result = self.through(url, ["allow GET a.test"], "curl", "-sS", "-i", "https://a.test/pub", login="me:wr0ng-word")
            self.assertRegex(result.out, r"^HTTP/(1\.1|2) 502 ", kind)
            self.assertIn("the upstream proxy --via", result.out, kind)
            everything = result.out + result.err + self.audit.read_text()
            self.assertNotIn("wr0ng-word", everything)
            self.assertNotIn(base64.b64encode(b"me:wr0ng-word").decode(), everything)

    def test_no_login_says_what_is_asked_for(self):
        result = self.through(self.KINDS["http"], ["allow GET a.test"], "curl", "-sS", "https://a.test/pub", login=None)
        self.assertIn("407 Proxy Authentication Required; it asks for Basic; no credential is configured for it", result.out)
        clear = self.through(self.KINDS["http"], ["allow GET http://a.test"], "curl", "-sS", "-i", "http://a.test/pub", login=None)
        self.assertRegex(clear.out, r"^HTTP/(1\.1|2) 502 ")
        self.assertNotIn("squid", clear.out.lower())

    def test_what_the_proxy_refuses_is_told(self):
        result = self.through(self.KINDS["http"], ["allow GET shared.test"], "curl", "-sS", "https://shared.test/pub")
        self.assertIn("refused CONNECT to shared.test:443: 403 Forbidden", result.out)

    def test_the_secret_is_not_the_workloads(self):
        result = self.through(self.KINDS["http"], ["allow GET a.test"], "env")
        self.assertNotIn("s3cret-word", result.out)

    def test_exceptions_go_directly(self):
        result = self.through(self.KINDS["http"], ["allow GET a.test", "allow GET b.test"], "sh", "-c",
                              "curl -sS https://a.test/pub/direct; curl -sS https://b.test/pub/proxied", flags=["--via-except", "a.test"])
        self.assertEqual(result.out.count("hello from the lab"), 2, str(result))
        peers = {e["target"]: e["peer"] for e in self.served()}
        self.assertIn(peers["/pub/direct"], (zone.HOST_V4, zone.HOST_V6))
        self.assertNotIn(peers["/pub/proxied"], (zone.HOST_V4, zone.HOST_V6))

    def test_denials_stay_what_they_are_and_a_literal_is_judged_here(self):
        for version, words in (("--http1.1", r'HTTP/1\.1 403 Egress denied: needs "POST a\.test/pub/x"'), ("--http2", r"HTTP/2 403")):
            denied = self.through(self.KINDS["http"], ["allow GET a.test/pub/**"], "curl", "-sS", "-i", version, "-d", "x", "https://a.test/pub/x")
            self.assertRegex(denied.out, words)
            self.assertIn('"suggest":"POST a.test/pub/x"', denied.out)
        literal = self.through(self.KINDS["http"], ["allow http **"], "curl", "-sS", "-m", "10", "http://169.254.169.254/latest")
        self.assertDenialLine(literal, "169.254.169.254")
        # Not even to ask what the origin speaks.
        self.assertEqual(self.new_squid_lines(), [])
        self.assertEqual(self.served(), [])

    def test_a_policy_names_its_proxies(self):
        policy = f"""version: 1
proxies:
  corp: {{ url: "{self.KINDS['https']}", basic: env PROXY_LOGIN, except: [b.test] }}
  socks: {{ url: "{self.KINDS['socks5']}", basic: env PROXY_LOGIN }}
settings: {{ via: corp }}
rules:
  - allow: GET a.test
  - allow: GET b.test
  - allow: GET telemetry.example
    via: socks
"""
        result = self.sluice(policy, "sh", "-c", "for h in a.test b.test telemetry.example; do curl -sS https://$h/pub/$h; done", env={"PROXY_LOGIN": LOGIN})
        self.assertEqual(result.out.count("hello from the lab"), 3, str(result))
        self.assertEqual(len([line for line in self.new_squid_lines() if "CONNECT" in line]), 1)
        peers = {e["host"]: e["peer"] for e in self.served()}
        self.assertEqual(peers["b.test"] in (zone.HOST_V4, zone.HOST_V6), True)

    def test_tokens_are_fetched_through_the_proxy_and_a_reload_changes_the_way(self):
        text = f"""version: 1
proxies:
  corp: {{ url: "{self.KINDS['http']}", basic: env PROXY_LOGIN }}
settings: {{ via: corp }}
credentials:
  orders:
    from: oauth
    token-url: https://b.test/token/3600
    client-id: sluice
    client-secret: env CLIENT
    send: bearer
    to: [a.test]
rules:
  - allow: GET a.test/echo
    with: orders
"""
        script = "while read line; do curl -sS https://a.test/echo | tr '\\n' ' '; echo; done"
        with self.running(text, "sh", "-c", script, env={**os.environ, "PROXY_LOGIN": LOGIN, "CLIENT": "client-s3cret"}) as process:
            def ask():
                process.stdin.write("\n")
                process.stdin.flush()
                return process.stdout.readline()

            def tunnels():  # that have ended: squid writes a line then
                return {line.split("CONNECT ")[1].split()[0] for line in self.new_squid_lines() if "CONNECT" in line}

            self.assertIn("Bearer token-", ask())
            self.assertEventually(lambda: "b.test:443" in tunnels(), "the tunnel to the token endpoint")
            self.assertEqual({e["peer"] for e in self.served()} & {zone.HOST_V4, zone.HOST_V6}, set())
            # The same credential without a proxy: requests go directly, with the token that is there.
            self.policy.write_text(text.replace("settings: { via: corp }\n", ""))
            self.assertEventually(lambda: "Bearer token-" in ask() and self.served()[-1]["peer"] in (zone.HOST_V4, zone.HOST_V6), "the new way")
            self.assertEqual(len([e for e in self.served() if e["host"] == "b.test"]), 1)
            self.assertEventually(lambda: "a.test:443" in tunnels(), "the end of what went the old way")

    def test_git_clones_through_each_kind(self):
        for kind, url in self.KINDS.items():
            result = self.through(url, ["allow git fetch-pack github.com/octo/*"], "git", "clone", "-q", "https://github.com/octo/hello.git", kind)
            self.assertExit(result, 0)
            self.assertIn("line 3", (self.work / kind / "README").read_text())
        self.assertEqual({e["peer"] for e in self.served()} & {zone.HOST_V4, zone.HOST_V6}, set())

    def test_another_sluice_is_a_proxy_like_any_other(self):
        policy = self.folder / "upper.yaml"
        # It runs where the sites are, so that their addresses are its own host's.
        here = {"ip": "[" + ", ".join(a + ("/128" if ":" in a else "/32") for a in zone.ADDRESSES["a.test"]) + "]"}
        policy.write_text(harness.policy_text([("allow tls a.test", here), ("allow GET http://a.test/pub/**", here)]))
        upper = in_world(self.lab, harness.lab_module.binary_for_anyone(self.lab.folder), "proxy", "--listen", f"{PROXY}:3130", "--policy", policy,
                         "--allow-open", "--quiet", stderr=subprocess.DEVNULL)
        try:
            self.lab.wait_for(lambda: listens(self.lab, 3130), "the other sluice")
            for scheme in ("http", "socks5"):
                # What the upper one refuses is told by the lower one, with the way it went.
                result = self.through(f"{scheme}://{PROXY}:3130", ["allow GET a.test", "allow GET b.test", "allow GET http://a.test"], "sh", "-c",
                                      "curl -sS https://a.test/pub/x; curl -sS http://a.test/pub/y; curl -sS https://b.test/pub", login=None)
                self.assertEqual(result.out.count("hello from the lab"), 2, str(result))
                self.assertIn("the upstream proxy --via", result.out)
                self.assertIn("403" if scheme == "http" else "not allowed by its rules", result.out)
        finally:
            upper.kill()
            upper.wait()

    def test_records_name_the_proxy(self):
        result = self.through(self.KINDS["http"], ["allow GET a.test"], "curl", "-sS", "https://a.test/pub")
        exchanges = [r for r in result.audit if r["type"] == "exchange"]
        self.assertEqual([r["target"]["via"] for r in exchanges], ["--via"])
        self.assertNotIn("address", exchanges[0]["target"])

    def test_a_bad_flag_is_told(self):
        for flags, words in ((["--via", "ftp://x:1"], "http://HOST:PORT"), (["--via", "http://x:1", "--via-auth", "basic s3cret"], "write where it is"),
                             (["--via-auth", "basic env X"], "--via")):
            result = self.sluice(["allow GET a.test"], "true", flags=flags)
            self.assertExit(result, 2)
            self.assertIn(words, result.err)
            self.assertNotIn("s3cret", result.err)


class Families(harness.SluiceTest):
    def test_a_family_that_leads_nowhere_costs_a_quarter_of_a_second_once(self):
        script = ("import socket, time, sys\nfor i in range(3):\n  t = time.monotonic(); s = socket.create_connection(('half.test', 5432)); s.sendall(b'x'); s.recv(1)\n"
                  "  print(round(time.monotonic() - t, 3)); s.close()")
        result = self.python(["allow tcp half.test:5432"], script)
        self.assertExit(result, 0)
        first, *later = map(float, result.out.split())
        self.assertLess(first, 1.0 * harness.SLOW, result.out)
        self.assertGreater(first, 0.2)
        print(f"first {first} s, later {later}")


class ClientCertificates(harness.SluiceTest):
    started = None

    def setUp(self):
        super().setUp()
        if ClientCertificates.started is None:
            folder = self.lab.folder / "mtls"
            folder.mkdir()
            authority.leaf(self.lab.folder, "client", ["client.test"], usage="clientAuth")
            (self.lab.folder / "client.both").write_text((self.lab.folder / "client.pem").read_text() + (self.lab.folder / "client.key").read_text())
            (folder / "nginx.conf").write_text(f"""
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{
    listen 4443 ssl; ssl_certificate {self.lab.folder}/good.pem; ssl_certificate_key {self.lab.folder}/good.key;
    ssl_client_certificate {self.lab.ca}; ssl_verify_client on;
    location / {{ return 200 "you are $ssl_client_s_dn\\n"; }}
  }}
}}
""")
            ClientCertificates.started = in_world(self.lab, "nginx", "-c", folder / "nginx.conf", stderr=subprocess.DEVNULL)
            self.lab.wait_for(lambda: listens(self.lab, 4443), "nginx")

    def mutual(self, pins=""):
        return f"""version: 1
credentials:
  me: {{ from: file {self.lab.folder}/client.both, send: client-certificate, to: ["a.test:4443"] }}
rules:
  - allow: GET a.test:4443/me/**
    with: me
{pins}
  - allow: GET a.test:4443/nobody
"""

    def test_nginx_sees_the_rules_certificate_and_no_other_request_has_it(self):
        result = self.sluice(self.mutual(), "sh", "-c", "curl -sS https://a.test:4443/me/x; curl -sS https://a.test:4443/nobody")
        self.assertIn("you are CN=client.test", result.out, str(result))
        self.assertIn("No required SSL certificate was sent", result.out)
        self.assertNotIn("PRIVATE KEY", result.out + result.err + self.audit.read_text())

    def test_a_program_shows_its_own_certificate_through_a_tls_rule(self):
        own = self.work / "own.pem"
        own.write_text((self.lab.folder / "client.both").read_text())
        roots = self.work / "roots.pem"
        roots.write_text(pathlib.Path(self.lab.ca).read_text())
        for file in (own, roots):
            file.chmod(0o644)
        ask = ["curl", "-sS", "--cacert", str(roots), "--cert", str(own), "https://a.test:4443/x"]
        passed = self.sluice(["allow tls a.test:4443"], *ask)
        self.assertIn("you are CN=client.test", passed.out, str(passed))
        # Read by Sluice, the connection to nginx would be Sluice's own, which has none.
        self.assertNotIn("you are", self.sluice(["allow GET a.test:4443"], *ask).out)


class Pins(harness.SluiceTest):
    def fetch(self, *pins):
        rules = [("allow GET a.test", {"pins": "[" + ", ".join(f'"{p}"' for p in pins) + "]"})]
        return self.sluice(rules, "curl", "-sS", "-i", "https://a.test/pub")

    def test_the_servers_own_key_or_its_authoritys_fits(self):
        for name in ("good", "ca"):
            self.assertIn("hello from the lab", self.fetch(spki_pin(self.lab.folder / f"{name}.pem")).out, name)

    def test_any_other_key_is_a_502_and_nothing_is_sent(self):
        result = self.fetch(spki_pin(self.lab.folder / "expired.pem"))
        self.assertRegex(result.out, r"^HTTP/(1\.1|2) 502 ")
        said = "no key of its chain is one that the rule pins; its own is " + spki_pin(self.lab.folder / "good.pem")
        self.assertIn(said, result.out)
        self.assertIn(said, result.err, "a pin is public")
        self.assertEqual(self.served(), [])


class OwnAuthority(harness.SluiceTest):
    def make(self, *more):
        folder = self.lab.folder / f"own-{os.urandom(4).hex()}"
        folder.mkdir(mode=0o755)
        authority.key(folder / "key.pem")
        authority.openssl("req", "-x509", "-new", "-key", str(folder / "key.pem"), "-subj", "/CN=Own", "-days", "30", *more, "-out", str(folder / "ca.pem"))
        if self.lab.uid:
            os.chown(folder / "key.pem", self.lab.uid, self.lab.uid)
        return folder

    CA = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")

    def test_curl_believes_it_alone(self):
        folder = self.make(*self.CA)
        result = self.sluice(["allow GET a.test"], "curl", "-sS", "-v", "--cacert", folder / "ca.pem", "https://a.test/pub",
                             flags=["--ca-cert", folder / "ca.pem", "--ca-key", folder / "key.pem", "--ro", folder / "ca.pem"])
        self.assertIn("hello from the lab", result.out, str(result))
        self.assertIn("CN=Own", result.err)

    def test_a_key_that_the_workload_could_read_is_refused(self):
        folder = self.make(*self.CA)
        shutil.copy(folder / "key.pem", self.work / "key.pem")
        result = self.sluice(["allow GET a.test"], "true", flags=["--ca-cert", folder / "ca.pem", "--ca-key", self.work / "key.pem"])
        self.assertExit(result, 2)
        self.assertIn("--ca-key", result.err)

    def test_a_key_elsewhere_is_hidden_from_the_command(self):
        folder = self.make(*self.CA)
        result = self.sluice(["allow GET a.test"], "cat", folder / "key.pem", flags=["--ca-cert", folder / "ca.pem", "--ca-key", folder / "key.pem"])
        self.assertNotIn("PRIVATE KEY", result.out)

    def test_the_explicit_proxy_signs_with_it_too(self):
        folder = self.make(*self.CA)
        out = self.folder / "out.pem"
        self.policy.write_text(harness.policy_text(["allow GET a.test"]))
        bad = self.plain_sluice("proxy", "--listen", "127.0.0.1:0", "--policy", self.policy, "--ca-cert", folder / "ca.pem", "--ca-key", self.policy)
        self.assertExit(bad, 2)
        self.assertIn("holds no PEM key", bad.err)
        process = self.lab.popen([harness.lab_module.binary_for_anyone(self.lab.folder), "proxy", "--listen", "127.0.0.1:0", "--policy", self.policy,
                                  "--ca-cert", folder / "ca.pem", "--ca-key", folder / "key.pem", "--ca-out", out, "--upstream-ca", self.lab.ca],
                                 cwd=self.work, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            line = process.stderr.readline()
            while "ready  policy" not in line and line:
                line = process.stderr.readline()
            port = re.search(r":(\d+)$", line.strip())[1]
            self.assertEqual(out.read_text().strip(), (folder / "ca.pem").read_text().strip())
            done = self.lab.run(["curl", "-sS", "-x", f"http://127.0.0.1:{port}", "--cacert", folder / "ca.pem", "https://a.test/pub"], cwd=self.work)
            self.assertIn("hello from the lab", done.stdout, done.stderr + line)
        finally:
            process.kill()
            process.communicate()

    def test_what_is_no_authority_is_refused(self):
        folder = self.make("-addext", "basicConstraints=critical,CA:FALSE")
        result = self.sluice(["allow GET a.test"], "true", flags=["--ca-cert", folder / "ca.pem", "--ca-key", folder / "key.pem"])
        self.assertExit(result, 2)
        self.assertIn("CA:TRUE", result.err)


class MirroredCertificates(harness.SluiceTest):
    """For clients that compare more than the name they dialled. Every good site of the lab shows one certificate, of CN=github.com."""
    SUBJECT = "CN=github.com"

    def shown(self, *flags, host="a.test", rule="allow GET a.test"):
        script = f"openssl s_client -connect {host}:443 -servername {host} -verify_return_error </dev/null 2>/dev/null >shown.pem; " \
                 "openssl x509 -in shown.pem -noout -subject -issuer -ext subjectAltName,keyUsage,extendedKeyUsage,basicConstraints"
        return self.sluice([rule], "sh", "-c", script, flags=flags)

    def test_openssl_sees_the_upstreams_subject_and_no_name_but_the_asked_one(self):
        plain, mirrored = self.shown(), self.shown("--mirror-certificates")
        self.assertRegex(plain.out, r"(?m)^subject=O = Sluice, CN = a\.test$", str(plain))
        self.assertRegex(mirrored.out, r"(?m)^subject=CN = github\.com$", str(mirrored))
        for result in (plain, mirrored):
            self.assertRegex(result.out, r"(?m)^issuer=O = Sluice, CN = Sluice sandbox ")
            self.assertRegex(result.out, r"Subject Alternative Name: *\n +DNS:a\.test\n")
            self.assertRegex(result.out, r"Key Usage: critical\n +Digital Signature\n")
            self.assertRegex(result.out, r"Extended Key Usage: *\n +TLS Web Server Authentication\n")
            self.assertIn("CA:FALSE", result.out)

    def test_curl_is_served_over_either_protocol(self):
        for version in ("--http1.1", "--http2"):
            result = self.sluice(["allow GET a.test"], "curl", "-sS", "-v", version, "https://a.test/pub", "https://a.test/pub", flags=["--mirror-certificates"])
            self.assertEqual(result.out.count("hello from the lab"), 2, str(result))
            self.assertIn(f"subject: {self.SUBJECT}", result.err)

    def test_a_java_client_that_pins_the_subject_goes_on(self):
        java = ("java", "-XX:TieredStopAtLevel=1", *self.java_client("PinnedNames"), "https://a.test/pub", self.SUBJECT)
        refused = self.sluice(["allow GET a.test"], *java, timeout=120)
        self.assertRegex(refused.out, r"^refused: CN=a\.test, O=Sluice", str(refused))
        served = self.sluice(["allow GET a.test"], *java, flags=["--mirror-certificates"], timeout=120)
        self.assertRegex(served.out, r"^200 \[\[2, a\.test\]\]", str(served))

    def test_a_certificate_that_does_not_verify_is_not_mirrored(self):
        result = self.shown("--mirror-certificates", host="wrongname.test", rule="allow GET wrongname.test")
        self.assertRegex(result.out, r"(?m)^subject=O = Sluice, CN = wrongname\.test$", str(result))
        result = self.sluice(["allow GET wrongname.test"], "curl", "-sS", "-i", "https://wrongname.test/", flags=["--mirror-certificates"])
        self.assertRegex(result.out, r"^HTTP/(1\.1|2) 502 ", str(result))


if __name__ == "__main__":
    harness.main()
