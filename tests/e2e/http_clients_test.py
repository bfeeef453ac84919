#!/usr/bin/python3
"""Real HTTP clients, no proxy variable set: each shows what is allowed, and says why when it is not."""
import glob
import json

import harness

READ = ["allow GET a.test/pub/**"]


class Curl(harness.SluiceTest):
    def test_an_allowed_get_is_answered(self):
        result = self.sluice(READ, "curl", "-sS", "https://a.test/pub/x")
        self.assertExit(result, 0)
        self.assertIn("hello from the lab", result.out)

    def test_a_denied_post_shows_the_missing_rule_in_reason_body_and_on_stderr(self):
        result = self.sluice(READ, "curl", "-sS", "-i", "-d", "{}", "https://a.test/pub/x")
        self.assertExit(result, 0)
        self.assertRegex(result.out, r'HTTP/1\.1 403 Egress denied: needs "POST a\.test/pub/x" \(d-\d+\)')
        body = json.loads(result.out.split("\n\n", 1)[1])
        self.assertIsInstance(body["error"], str)
        self.assertIn("POST a.test/pub/x", body["suggest"])
        self.assertEqual((body["method"], body["host"], body["path"]), ("POST", "a.test", "/pub/x"))
        self.assertIn("curl", json.dumps(body["process"]))
        self.assertDenialLine(result, "POST", "a.test/pub/x", "curl")
        self.assertEqual([e for e in self.served() if e.get("method") == "POST"], [])

    def test_the_denial_headers_name_the_denial(self):
        result = self.sluice(READ, "curl", "-sS", "-i", "https://a.test/other")
        self.assertRegex(result.out, r"(?i)proxy-status: sluice; error=http_request_denied")
        self.assertRegex(result.out, r"(?i)x-sluice-denied: ")

    def test_headers_that_look_like_a_denial_are_stripped_from_an_upstream_answer(self):
        result = self.sluice(["allow GET a.test"], "curl", "-sS", "-i", "https://a.test/forged")
        self.assertIn('"forged"', result.out)
        self.assertNotRegex(result.out, r"(?i)(proxy-status|x-sluice-denied)")

    def test_a_denied_name_does_not_resolve_and_is_never_asked_upstream(self):
        result = self.sluice(READ, "curl", "-sS", "https://b.test/pub/x")
        self.assertExit(result, 6)
        self.assertNotIn("b.test", self.asked())
        self.assertDenialLine(result, "b.test")

    def test_a_denied_literal_fails_to_connect_at_once(self):
        result = self.sluice(READ, "curl", "-sS", "-m", "20", "https://151.101.1.20/")
        self.assertExit(result, 7)
        self.assertDenialLine(result, "151.101.1.20")

    def test_cleartext_is_judged_likewise(self):
        rules = ["allow GET http://a.test/pub/**"]
        self.assertIn("hello from the lab", self.sluice(rules, "curl", "-sS", "http://a.test/pub/x").out)
        denied = self.sluice(rules, "curl", "-sS", "-i", "-X", "DELETE", "http://a.test/pub/x")
        self.assertRegex(denied.out, r"403 Egress denied")
        self.assertNotIn("DELETE", [e.get("method") for e in self.served()])

    def test_a_rule_for_https_does_not_open_cleartext(self):
        result = self.sluice(READ, "curl", "-sS", "-m", "20", "http://a.test/pub/x")
        self.assertNotIn("hello", result.out)
        self.assertEqual(self.served(), [])

    def test_ipv6_only_names_work(self):
        result = self.sluice(["allow GET v6only.test"], "curl", "-sS", "https://v6only.test/pub")
        self.assertIn("hello from the lab", result.out)

    def test_an_upstream_certificate_that_is_not_good_is_a_502_that_says_which_check_failed(self):
        for name, check in (("wrongname.test", "hostname mismatch"), ("selfsigned.test", "self-signed certificate"),
                            ("expired.test", "certificate has expired"), ("early.test", "certificate is not yet valid"),
                            ("sha1.test", "CA signature digest algorithm too weak"), ("rsa1024.test", "EE certificate key too weak")):
            result = self.sluice([f"allow GET {name}"], "curl", "-sS", "-i", "-m", "20", f"https://{name}/pub")
            self.assertRegex(result.out, r"^HTTP/(?:1\.1|2) 502 ", name)
            self.assertIn(f"the certificate of {name}:443: {check}", result.out, name)
            self.assertIn("tls_certificate_error", result.out, name)
            self.assertEqual([e for e in self.served() if e.get("host") == name], [])

    def test_an_allow_flag_is_a_rule(self):
        result = self.sluice(None, "curl", "-sS", "https://a.test/pub/x", flags=["--allow", "GET a.test/pub/*"])
        self.assertIn("hello from the lab", result.out)

    def test_query_and_path_reach_the_server_in_canonical_form(self):
        result = self.sluice(["allow GET a.test/echo/**"], "curl", "-sS", "--path-as-is", "https://a.test/x/../echo/%61//b?q=%2F&r=1")
        self.assertIn('"target": "/echo/a/b?q=%2F&r=1"', result.out)

    def test_a_deny_wins(self):
        rules = ["allow GET a.test", "deny GET a.test/pub/secret/**"]
        self.assertIn("hello", self.sluice(rules, "curl", "-sS", "https://a.test/pub/x").out)
        for path in ("/pub/secret/x", "/pub/%73ecret/x", "/pub/a/../secret/x", "//pub//secret/x"):
            self.assertRegex(self.sluice(rules, "curl", "-sS", "-i", "--path-as-is", f"https://a.test{path}").out, "403 Egress", path)

    def test_by_limits_a_rule_to_an_executable(self):
        rules = [("allow GET a.test", {"by": "[/usr/bin/curl]"})]
        self.assertIn("hello", self.sluice(rules, "curl", "-sS", "https://a.test/pub").out)
        other = self.sluice(rules, "wget", "-q", "-O-", "https://a.test/pub")
        self.assertNotIn("hello", other.out)


class Wget(harness.SluiceTest):
    def test_an_allowed_file_is_saved(self):
        result = self.sluice(READ, "wget", "-q", "https://a.test/pub/x", "-O", "saved")
        self.assertExit(result, 0)
        self.assertIn("hello", (self.work / "saved").read_text())

    def test_a_denial_shows_the_reason_phrase(self):
        result = self.sluice(READ, "wget", "--tries=1", "https://a.test/other", "-O", "-")
        self.assertRegex(result.err, r"ERROR 403: Egress denied: needs .GET a\.test/other")
        self.assertExit(result, 8)


class Node(harness.SluiceTest):
    def node(self, *arguments, rules=READ):
        return self.sluice(rules, "/usr/bin/node", self.client("fetch.mjs"), *arguments)

    def test_fetch_and_http_work_without_a_proxy_variable(self):
        for mode in ("fetch", "http"):
            self.assertRegex(self.node(mode, "GET", "https://a.test/pub/x").out, r"^200 .*hello from the lab", mode)

    def test_fetch_shows_the_body_and_http_the_reason(self):
        self.assertRegex(self.node("fetch", "POST", "https://a.test/pub/x").out, r"^403 .*POST a\.test/pub/x")
        self.assertRegex(self.node("http", "POST", "https://a.test/pub/x").out, r"^403 Egress denied: needs")

    def test_a_denied_name_is_enotfound_and_a_denied_address_eacces(self):
        self.assertIn("error ENOTFOUND", self.node("fetch", "GET", "https://b.test/").out)
        self.assertIn("error EACCES", self.node("connect", "151.101.1.20", "443").out)


class Python(harness.SluiceTest):
    def fetch(self, *arguments, rules=READ):
        return self.sluice(rules, harness.PYTHON, self.client("fetch.py"), *arguments)

    def test_urllib_and_asyncio_work_without_a_proxy_variable(self):
        self.assertRegex(self.fetch("urllib", "GET", "https://a.test/pub/x").out, r"^200 .*hello from the lab")
        self.assertRegex(self.fetch("asyncio", "GET", "https://a.test/pub/x").out, r"(?s)^HTTP/1.1 200 OK.*hello from the lab")

    def test_urllib_shows_reason_and_body(self):
        result = self.fetch("urllib", "POST", "https://a.test/pub/x")
        self.assertRegex(result.out, r"^error 403 Egress denied: needs .*suggest")
        self.assertRegex(self.fetch("asyncio", "POST", "https://a.test/pub/x").out, r"^HTTP/1.1 403 Egress denied: needs")

    def test_a_denied_name_is_unknown_and_a_denied_address_permission_denied(self):
        self.assertRegex(self.fetch("urllib", "GET", "https://b.test/").out, r"^error gaierror .*not known")
        self.assertRegex(self.fetch("urllib", "GET", "https://151.101.1.20/").out, r"^error PermissionError EACCES")
        self.assertRegex(self.fetch("asyncio", "GET", "https://151.101.1.20/").out, r"^error PermissionError EACCES")


class Requests(harness.SluiceTest):
    SCRIPT = """
import requests, sys
for method, url in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        answer = requests.request(method, url, timeout=20)
        print(answer.status_code, answer.reason, answer.text.strip())
    except requests.ConnectionError as error:
        print("error", error)
"""

    def test_requests_works_and_shows_reason_and_body(self):
        result = self.python(READ, self.SCRIPT, "GET", "https://a.test/pub/x", "POST", "https://a.test/pub/x", "GET", "https://b.test/", "GET", "https://151.101.1.20/")
        allowed, denied, name, address = result.out.splitlines()
        self.assertIn("hello from the lab", allowed)
        self.assertRegex(denied, r'^403 Egress denied: needs "POST a\.test/pub/x" \(d-\d+\) \{.*"suggest":"POST a\.test/pub/x"')
        self.assertRegex(name, r"(?i)name or service not known|no address|resolve")
        self.assertIn("Permission denied", address)


class Crowd(harness.SluiceTest):
    """Programs that register a socket before they connect it, and many at once."""

    def test_fifty_connections_of_asyncio_at_once(self):
        script = """
import asyncio, ssl, collections
trust = ssl.create_default_context()  # once: reading the whole bundle for each would be most of the time
async def one(number):
    reader, writer = await asyncio.open_connection("a.test", 443, ssl=trust)
    writer.write(f"{'POST' if number % 5 == 0 else 'GET'} /pub/{number} HTTP/1.1\\r\\nHost: a.test\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n".encode())
    answer = (await reader.read()).decode()
    return answer.split()[1], f'/pub/{number}"' in answer
async def main():
    print(sorted(collections.Counter(await asyncio.gather(*(one(n) for n in range(50)))).items()))
asyncio.run(main())
"""
        result = self.python(READ, script)
        self.assertEqual(result.out.strip(), "[(('200', True), 40), (('403', True), 10)]", str(result))

    def test_nginx_reaches_its_upstreams(self):
        (self.work / "nginx.conf").write_text("""
user root;
daemon off;
master_process off;
error_log stderr error;
pid /tmp/nginx.pid;
events { worker_connections 256; }
http {
  access_log off;
  client_body_temp_path /tmp/n1; proxy_temp_path /tmp/n2; fastcgi_temp_path /tmp/n3; uwsgi_temp_path /tmp/n4; scgi_temp_path /tmp/n5;
  server {
    listen 127.0.0.1:8085;
    location /plain/ { proxy_pass http://a.test/pub/; }
    location / {
      proxy_pass https://a.test; proxy_ssl_name a.test; proxy_ssl_server_name on; proxy_http_version 1.1;
      proxy_ssl_verify on; proxy_ssl_trusted_certificate /etc/ssl/certs/ca-certificates.crt;
    }
  }
}
""")
        script = f"""
/usr/sbin/nginx -c {self.work}/nginx.conf & server=$!
for try in $(seq 100); do curl -s -o /dev/null http://127.0.0.1:8085/ && break; sleep 0.05; done
curl -sS http://127.0.0.1:8085/pub/tls; curl -sS http://127.0.0.1:8085/plain/clear; curl -sS -o /dev/null -w '%{{http_code}}\\n' -d x http://127.0.0.1:8085/pub/x
kill $server; wait
"""
        result = self.sluice([*READ, "allow GET http://a.test/pub/**"], "sh", "-c", script)
        self.assertRegex(result.out, r'"/pub/tls".*hello from the lab[^\0]*"/pub/clear".*hello from the lab[^\0]*403\n$', str(result))
        self.assertDenialLine(result, "POST", "a.test/pub/x", "nginx")


class Java(harness.SluiceTest):
    def java(self, *arguments, rules=READ):
        found = sorted(glob.glob("/usr/lib/jvm/java-17-openjdk-*/bin/java"))
        self.assertTrue(found, "Debian's default-jdk-headless is not installed")
        return self.sluice(rules, found[0], "-XX:TieredStopAtLevel=1", *self.java_client("Fetch"), *arguments, timeout=120)

    def test_httpclient_works_without_a_proxy_setting(self):
        self.assertRegex(self.java("GET", "https://a.test/pub/x").out, r"(?m)^200 .*hello from the lab")

    def test_in_the_clear_its_offer_of_h2c_is_stripped_and_the_request_served(self):
        result = self.java("GET", "http://a.test/echo", rules=["allow GET http://a.test"])
        self.assertRegex(result.out, r"(?m)^200 HTTP_1_1 ", str(result))
        sent = {field.lower() for field, _ in self.served()[-1]["headers"]}
        self.assertFalse({"upgrade", "http2-settings", "connection"} & sent, str(sent))

    def test_httpclient_shows_the_denial_body(self):
        self.assertRegex(self.java("POST", "https://a.test/pub/x").out, r"(?m)^403 .*POST a\.test/pub/x")

    def test_a_denied_name_and_a_denied_address_are_errors_at_once(self):
        self.assertRegex(self.java("GET", "https://b.test/").out, r"(?m)^error .*(Unresolved|ConnectException)")
        self.assertRegex(self.java("CONNECT", "151.101.1.20:443").out, r"(?m)^error .*(Permission denied|BindException|AccessDenied)")


if __name__ == "__main__":
    harness.main()
