#!/usr/bin/python3
"""`sluice proxy` with absolute-form requests, and with the programs that are set to use a proxy: git, pip, requests, npm, Node, Java, apt."""
import json
import os
import subprocess

import harness
import packages
import proxy_harness
from proxy_harness import TOKEN

HOST = "registry.corp.example"


class Forward(proxy_harness.ProxyTest):
    READ = ["allow GET http://a.test/pub/**", "allow GET http://a.test/echo/**"]

    def request(self, target, host, method="GET", fields=()):
        return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n" + "".join(f + "\r\n" for f in fields) + "\r\n"

    def test_curl_and_wget_in_the_clear_are_judged_request_by_request(self):
        with self.proxy(self.READ) as proxy:
            self.assertIn("hello from the lab", self.curl(proxy, "http://a.test/pub/x").out)
            self.assertIn("hello from the lab", self.client_run("wget", "-q", "-O-", "http://a.test/pub/x", env=self.environment(proxy)).out)
            denied = self.curl(proxy, "-i", "-d", "x", "http://a.test/pub/x")
            self.assertRegex(denied.out, r'HTTP/1\.1 403 Egress denied: needs "POST http://a\.test/pub/x" \(d-\d+\)')
            other = self.curl(proxy, "-i", "http://b.test/pub/x")
            self.assertRegex(other.out, r'HTTP/1\.1 403 Egress denied: needs "GET http://b\.test/pub/x" \(d-\d+\)')
            wget = self.client_run("wget", "-O-", "http://b.test/pub/x", env=self.environment(proxy))
            self.assertIn("Egress denied", wget.err)
            self.assertNotIn("b.test", self.asked())
            self.assertEqual({e["method"] for e in self.served()}, {"GET"})

    def test_requests_to_two_hosts_on_one_connection_are_never_mixed_up(self):
        with self.proxy(["allow GET http://a.test", "allow GET http://x.wild.test"]) as proxy:
            pair = self.request("http://a.test/echo/1", "a.test") + self.request("http://x.wild.test/echo/2", "x.wild.test") + \
                self.request("http://b.test/echo/3", "b.test") + self.request("http://a.test/echo/4", "a.test", fields=["Connection: close"])
            answers = self.raw(proxy, pair)
            self.assertEqual(answers.count("HTTP/1.1 200 "), 3, answers)
            self.assertEqual(answers.count("HTTP/1.1 403 "), 1, answers)
            seen = [(e["host"], e["target"]) for e in self.served()]
            self.assertEqual(seen, [("a.test", "/echo/1"), ("x.wild.test", "/echo/2"), ("a.test", "/echo/4")])
            def records():
                return [(r["target"]["host"], r["target"]["path"], r["verdict"]) for r in proxy.audit if r.get("layer") == "request"]

            self.assertEventually(lambda: len(records()) >= 4, "a record of each")
            self.assertEqual(records(), [("a.test", "/echo/1", "allow"), ("x.wild.test", "/echo/2", "allow"), ("b.test", "/echo/3", "deny"), ("a.test", "/echo/4", "allow")])

    def test_a_client_that_stays_keeps_upstream_connections_of_each_host(self):
        with self.proxy(self.READ) as proxy:
            self.raw(proxy, *[self.request(f"http://a.test/echo/{n}", "a.test") for n in range(4)])
            self.assertEqual(len({e["connection"] for e in self.served() if "connection" in e}), 1 if "connection" in self.served()[0] else 0)

    def test_what_two_readers_could_understand_differently_is_refused(self):
        with self.proxy(["allow http http://**", "allow http **"]) as proxy:
            for target, host, status in (
                ("http://a.test/", "u@a.test", 400), ("http://a.test/", "a.test:x", 400), ("http://u@a.test/", "a.test", 400), ("http://a.test\\@b.test/", "a.test", 400),
                ("http://127.1/", "127.1", 400), ("http://2130706433/", "2130706433", 400), ("http://0x7f.1/", "a.test", 400), ("https://a.test/", "a.test", 400),
                ("ftp://a.test/", "a.test", 400), ("http:///x", "a.test", 400), ("http://a.test:0/", "a.test", 400), ("a.test", "a.test", 400),
                ("/x", "a.test", 403), ("*", "a.test", 405), ("http://a.test/#x", "a.test", 400), ("http://a.test/%2e%2e/%2e%2e/x", "a.test", 400),
            ):
                with self.subTest(target=target, host=host):
                    self.assertRegex(self.raw(proxy, self.request(target, host)), rf"^HTTP/1\.1 {status} ")
            self.assertRegex(self.raw(proxy, self.request("http://a.test/", "a.test", "TRACE")), r"^HTTP/1\.1 405 ")
            self.assertRegex(self.raw(proxy, self.request("http://a.test/", "a.test", "POST", ["Content-Length: 3", "Transfer-Encoding: chunked"])), r"^HTTP/1\.1 400 ")
            self.assertEqual(self.served(), [])

    def test_the_uri_wins_and_the_server_sees_a_path_and_no_proxy_fields(self):
        with self.proxy(["allow GET http://a.test"]) as proxy:
            fields = ["Proxy-Connection: keep-alive", "Proxy: http://evil.test", "Proxy-Foo: x", "Proxy-Authorization: Basic eDp5", "X-Mine: kept", "Connection: close"]
            answer = self.raw(proxy, self.request("HTTP://A.Test:80/echo//x/../y?q=1", "b.test:81", fields=fields))
            said = json.loads(answer.split("\r\n\r\n", 1)[1])
            self.assertEqual(said["target"], "/echo/y?q=1")
            names = {k.lower(): v for k, v in said["headers"]}
            self.assertEqual((names["host"], names["x-mine"]), ("a.test", "kept"))
            self.assertFalse([n for n in names if n.startswith("proxy") or n in ("via", "forwarded", "x-forwarded-for")], names)

    def test_the_proxy_and_special_addresses_are_not_reached(self):
        rules = [("allow http http://**:3128", {"ip": "[127.0.0.0/8, 93.184.216.34/32]"}), "allow http http://**"]
        with self.proxy(rules, listen=("127.0.0.1:3128",)) as proxy:
            for host in ("127.0.0.1:3128", "rebind.test:3128", "[::ffff:127.0.0.1]:3128", "169.254.169.254", "metadata.test", "private.test", "10.0.0.5", "127.0.0.1"):
                with self.subTest(host=host):
                    self.assertRegex(self.raw(proxy, self.request(f"http://{host}/", host)), r"^HTTP/1\.1 403 ")

    def test_a_token_is_asked_of_every_request_and_passed_to_nobody(self):
        with self.proxy(self.READ, "--tokens", self.tokens()) as proxy:
            refused = self.curl(proxy, "-i", "http://a.test/pub/x")
            self.assertIn("HTTP/1.1 407 Proxy Authentication Required", refused.out)
            self.assertIn('proxy-authenticate: Basic realm="sluice"', refused.out)
            result = self.curl(proxy, "-U", f"ci:{TOKEN}", "http://a.test/echo/x")
            self.assertNotIn("proxy", json.dumps(json.loads(result.out)["headers"]).lower())
            good = self.request("http://a.test/pub/1", "a.test", fields=[f"Proxy-Authorization: Bearer {TOKEN}"])
            answers = self.raw(proxy, good + self.request("http://a.test/pub/2", "a.test"))
            self.assertEqual((answers.count("HTTP/1.1 200 "), answers.count("HTTP/1.1 407 ")), (1, 1), answers)

    def test_a_large_upload_and_a_large_answer_come_through(self):
        with self.proxy(["allow http http://a.test"]) as proxy:
            (self.work / "big").write_bytes(os.urandom(8 << 20))
            sent = self.curl(proxy, "-T", self.work / "big", "http://a.test/echo/up")
            self.assertEqual(json.loads(sent.out)["length"], 8 << 20)
            got = self.curl(proxy, "-o", "/dev/null", "-w", "%{size_download}", "http://a.test/bytes/33554432")
            self.assertEqual(got.out, "33554432")

    def test_a_connect_after_another_request_wants_its_own_connection(self):
        with self.proxy(self.READ) as proxy:
            answers = self.raw(proxy, self.request("http://a.test/pub/1", "a.test"), "CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n")
            self.assertRegex(answers.split("HTTP/1.1 ", 2)[2], r"^400 ")


class Programs(proxy_harness.ProxyTest):
    WHO = ["-c", "user.name=octo", "-c", "user.email=octo@a.test"]

    def setUp(self):
        super().setUp()
        self.site = self.lab.folder / "site"

    def run_with(self, proxy, *command, **more):
        environment = {**self.environment(proxy), "HOME": str(self.work), **more.pop("env", {})}
        return self.client_run(*command, env=environment, timeout=120, **more)

    def written(self):
        return [e["target"] for e in self.served() if e.get("method") in ("PUT", "POST", "DELETE")]

    def test_git_clones_and_a_push_is_refused_on_its_remote_line(self):
        with self.proxy(["allow git fetch-pack github.com/octo/*"]) as proxy:
            self.assertExit(self.run_with(proxy, "git", "clone", "-q", "https://github.com/octo/hello.git"), 0)
            self.assertExit(self.run_with(proxy, "git", "-C", "hello", *self.WHO, "commit", "-q", "--allow-empty", "-m", "mine"), 0)
            push = self.run_with(proxy, "git", "-C", "hello", "push", "-q", "origin", "HEAD:refs/heads/x")
            self.assertNotEqual(push.code, 0)
            self.assertRegex(push.err, r"remote: .*git receive-pack github\.com/octo/hello")
            other = self.run_with(proxy, "git", "clone", "-q", "https://b.test/x.git")
            self.assertIn("403", other.err)

    def test_pip_and_requests(self):
        packages.python_index(self.site, "labthing")
        with self.proxy([f"allow GET {HOST}/simple/**", f"allow GET {HOST}/packages/**"]) as proxy:
            result = self.run_with(proxy, harness.PYTHON, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check", "--index-url", f"https://{HOST}/simple",
                                   "--target", "out", "labthing")
            self.assertExit(result, 0)
            self.assertIn("from the index", (self.work / "out/labthing.py").read_text())
            script = "import requests, sys\ntry: r = requests.request(sys.argv[1], sys.argv[2], data=b'x'); print(r.status_code, r.reason, r.json()['suggest'])\nexcept Exception as e: print(e)"
            self.assertRegex(self.run_with(proxy, harness.PYTHON, "-c", script, "POST", f"https://{HOST}/legacy/").out, r"403 Egress denied.* POST ")
            self.assertIn("Egress denied", self.run_with(proxy, harness.PYTHON, "-c", script, "GET", "https://b.test/").out)
            self.assertEqual(self.written(), [])

    def test_npm_installs_from_its_lock_and_cannot_publish(self):
        packages.npm_project(self.work, self.site, "api/npm", [{"name": "lab-plain", "version": "1.0.0"}])
        with self.proxy([f"allow GET {HOST}/api/npm/**"]) as proxy:
            self.assertExit(self.run_with(proxy, "npm", "ci", "--no-fund", "--no-audit"), 0)
            self.assertTrue((self.work / "node_modules/lab-plain/index.js").exists())
            published = self.run_with(proxy, "npm", "publish")
            self.assertNotEqual(published.code, 0)
            self.assertRegex(published.err, r"(?s)E403.*Egress denied.*PUT")
            self.assertEqual(self.written(), [])

    def test_node_by_connect_as_its_agents_do(self):
        # Node 20's fetch asks no proxy; what proxy agents do is http.request with CONNECT and TLS in the tunnel.
        script = """
import http from "node:http"; import https from "node:https"; import tls from "node:tls";
const [url, method, proxy] = process.argv.slice(2); const to = new URL(url); const by = new URL(proxy);
http.request({ host: by.hostname, port: by.port, method: "CONNECT", path: `${to.hostname}:443` }).on("connect", (answer, socket) => {
  if (answer.statusCode !== 200) { console.log("connect", answer.statusCode, answer.statusMessage); return socket.end(); }
  const secure = tls.connect({ socket, servername: to.hostname });
  https.request(url, { method, headers: { host: to.hostname }, createConnection: () => secure }, (r) => { let b = ""; r.on("data", (d) => b += d); r.on("end", () => { console.log(r.statusCode, r.statusMessage, b); secure.end(); }); }).end();
}).end();
"""
        (self.work / "agent.mjs").write_text(script)
        with self.proxy(["allow GET a.test/pub/**"]) as proxy:
            run = lambda url, method: self.run_with(proxy, "node", "agent.mjs", url, method, proxy.url).out
            self.assertRegex(run("https://a.test/pub/x", "GET"), r"^200 .*hello from the lab")
            self.assertRegex(run("https://a.test/pub/x", "DELETE"), r'^403 Egress denied: needs "DELETE a\.test/pub/x"')
            self.assertRegex(run("https://b.test/pub/x", "GET"), r"^connect 403 Egress denied")

    def test_java_by_its_proxy_properties(self):
        store = self.work / "trust.p12"
        subprocess.run(["keytool", "-importcert", "-noprompt", "-alias", "x", "-file", self.lab.ca, "-keystore", store, "-storepass", "changeit"], check=True, capture_output=True)
        with self.proxy(["allow GET a.test/pub/**", "allow GET http://a.test/pub/**"]) as proxy:
            subprocess.run(["keytool", "-importcert", "-noprompt", "-alias", "sluice", "-file", self.ca, "-keystore", store, "-storepass", "changeit"], check=True, capture_output=True)
            os.chmod(store, 0o644)
            flags = [f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={proxy.port} -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={proxy.port} -Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=changeit"]
            java = lambda method, url: self.run_with(proxy, "java", "-XX:TieredStopAtLevel=1", *self.java_client("Fetch"), method, url, env={"JAVA_TOOL_OPTIONS": flags[0]}).out
            self.assertRegex(java("GET", "https://a.test/pub/x"), r"200 .*hello from the lab")
            self.assertRegex(java("GET", "http://a.test/pub/x"), r"200 .*hello from the lab")
            self.assertRegex(java("DELETE", "https://a.test/pub/x"), r"403 .*DELETE a\.test/pub/x")
            self.assertRegex(java("GET", "https://b.test/pub/x"), r"403|error ")

    def test_apt_by_its_own_setting(self):
        packages.apt_repository(self.site, "lab-hello")
        here = self.work / "apt"
        for folder in ("state/lists/partial", "cache/archives/partial", "etc/trusted.gpg.d"):
            (here / folder).mkdir(parents=True, exist_ok=True)
        packages.write(here / "status", "")
        with self.proxy([f"allow GET http://{HOST}/debian/**", f"allow GET {HOST}/debian/**"]) as proxy:
            options = {"Dir::State": here / "state", "Dir::State::status": here / "status", "Dir::Cache": here / "cache", "Dir::Etc::sourcelist": here / "sources.list",
                       "Dir::Etc::sourceparts": "-", "Dir::Etc::trustedparts": here / "etc/trusted.gpg.d", "Dir::Log": here, "APT::Sandbox::User": "root",
                       "Acquire::Languages": "none", "Acquire::Retries": "0", "Acquire::http::Proxy": proxy.url, "Acquire::https::Proxy": proxy.url,
                       "Acquire::https::CAInfo": self.bundle}
            apt = lambda *arguments: self.client_run("apt-get", "-y", *[f"-o{k}={v}" for k, v in options.items()], *arguments, timeout=120)
            for scheme in ("http", "https"):
                packages.write(here / "sources.list", f"deb [trusted=yes] {scheme}://{HOST}/debian stable main\n")
                self.assertExit(apt("update"), 0)
                self.assertExit(apt("install", "--download-only", "lab-hello"), 0)
                next((here / "cache/archives").glob("*.deb")).unlink()
            packages.write(here / "sources.list", f"deb [trusted=yes] http://{HOST}/other stable main\n")
            other = apt("update")
            self.assertIn("403  Egress denied", other.out + other.err)


if __name__ == "__main__":
    harness.main()
