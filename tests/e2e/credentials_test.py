#!/usr/bin/python3
"""Secrets that requests get and the command never sees: real clients, stand-ins that say what arrived, and a command that looks everywhere."""
import base64
import json
import os
import urllib.parse

import harness

TOKEN = "ghp_S3cret/Value+of=the.Supervisor"
MODEL = "sk-ant-api03-Real\"Key&of the-supervisor-0123456789abcdef"
ENVIRONMENT = {"HUB": TOKEN, "MODEL": MODEL, "PAIR": "octo:" + TOKEN, "AWS": "AKIDREAL:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY:tok/en==",
               "CLIENT": "client-s3cret"}

CREDENTIALS = """
credentials:
  hub: { from: env HUB, send: bearer, to: [a.test, github.com] }
  pair: { from: env PAIR, send: basic, to: [github.com] }
  key: { from: env HUB, send: header X-Api-Key, to: [a.test] }
  query: { from: env HUB, send: query api_key, to: [a.test] }
  model: { from: env MODEL, send: placeholder MODEL_KEY, to: [a.test] }
  aws: { from: env AWS, send: sigv4, to: [a.test] }
"""


def policy(*rules, credentials=CREDENTIALS):
    return harness.policy_text(rules, credentials.strip("\n"))


def needed(text):
    """Only the credentials that the rules name: the others' sources need not be there."""
    return {name: value for name, value in ENVIRONMENT.items() if f"env {name}" in text}


class Credentials(harness.SluiceTest):
    def run_with(self, text, *command, env=None, **more):
        return self.sluice(text, *command, env={**os.environ, **needed(text), **(env or {})}, **more)

    def arrived(self, index=-1):
        """Fields of a request as the stand-in got it, as lists by lower-case name."""
        fields = {}
        for name, value in self.served()[index]["headers"]:
            fields.setdefault(name.lower(), []).append(value)
        return fields

    def assertNoSecret(self, result):
        for secret in (TOKEN, MODEL, "wJalrXUtnFEMI"):
            self.assertNotIn(secret, result.out)
            self.assertNotIn(secret, result.err)
            self.assertNotIn(secret, result.audit_path.read_text() if result.audit_path.exists() else "")


class Injection(Credentials):
    def test_curl_gets_a_bearer_token_in_place_of_its_own(self):
        text = policy(("allow GET a.test/pub/**", {"with": "hub"}))
        result = self.run_with(text, "curl", "-sS", "-H", "Authorization: Bearer mine", "-H", "authorization: Basic eA==", "https://a.test/pub/x")
        self.assertIn("hello from the lab", result.out, str(result))
        self.assertEqual(self.arrived()["authorization"], [f"Bearer {TOKEN}"])
        self.assertNoSecret(result)

    def test_over_http2_as_over_http1(self):
        text = policy(("allow GET a.test/pub/**", {"with": "hub"}))
        for version in ("--http1.1", "--http2"):
            result = self.run_with(text, "curl", "-sS", version, "-H", "Authorization: Bearer mine", "https://a.test/pub/x")
            self.assertIn("hello", result.out, str(result))
            self.assertEqual(self.arrived()["authorization"], [f"Bearer {TOKEN}"], version)

    def test_node_gets_a_header_in_every_spelling_of_which_its_own_is_gone(self):
        text = policy(("allow GET a.test/pub/**", {"with": "key"}))
        script = """fetch("https://a.test/pub/x", {headers: {"x_api_key": "mine", "X-API-KEY": "mine"}}).then(async r => console.log(r.status, await r.text()))"""
        result = self.run_with(text, "/usr/bin/node", "-e", script)
        self.assertIn("hello", result.out, str(result))
        fields = self.arrived()
        self.assertEqual(fields["x-api-key"], [TOKEN])
        self.assertNotIn("x_api_key", fields)
        self.assertNoSecret(result)

    def test_a_query_parameter_takes_the_place_of_the_workloads(self):
        text = policy(("allow GET a.test/pub/**", {"with": "query"}))
        self.run_with(text, "curl", "-sS", "-g", "https://a.test/pub/x?a=1&api%5Fkey=mine&API_KEY[]=mine&b=%20")
        self.assertEqual(self.served()[-1]["target"], "/pub/x?a=1&b=%20&api_key=" + urllib.parse.quote(TOKEN, safe=""))

    def test_git_clones_with_basic(self):
        text = policy(("allow git fetch-pack github.com/octo/*", {"with": "pair"}))
        result = self.run_with(text, "git", "clone", "-q", "https://github.com/octo/hello.git")
        self.assertExit(result, 0)
        self.assertTrue((self.work / "hello/README").exists())
        wanted = ["Basic " + base64.b64encode(f"octo:{TOKEN}".encode()).decode()]
        for index in range(len(self.served())):
            self.assertEqual(self.arrived(index).get("authorization"), wanted)
        self.assertNoSecret(result)

    def test_a_rule_without_it_sends_none_and_a_redirect_does_not_carry_it(self):
        text = policy(("allow GET a.test/redirect/**", {"with": "hub"}), "allow GET b.test/echo", "allow GET a.test/echo")
        result = self.run_with(text, "curl", "-sS", "-L", "--location-trusted", "https://a.test/redirect/b.test")
        self.assertNotIn(TOKEN, result.out)
        self.assertNotIn("authorization", self.arrived())
        self.assertEqual(self.arrived(-2)["authorization"], [f"Bearer {TOKEN}"])
        self.assertNotIn(TOKEN, self.run_with(text, "curl", "-sS", "-L", "https://a.test/redirect/a.test").out)

    def test_what_an_upstream_sends_back_in_its_head_is_redacted(self):
        text = policy(("allow GET a.test/reflect", {"with": "hub"}))
        for version in ("--http1.1", "--http2"):
            result = self.run_with(text, "curl", "-sS", "-i", "--raw", version, "https://a.test/reflect")
            self.assertIn("[redacted]", result.out, str(result))
            self.assertIn("kept", result.out)
            self.assertNotIn(urllib.parse.quote(TOKEN, safe=""), result.out)
            self.assertNotIn(base64.b64encode(f"user:{TOKEN}".encode()).decode(), result.out)
            self.assertNoSecret(result)


class Start(Credentials):
    def test_a_missing_secret_is_an_error_of_the_start_that_names_it(self):
        text = policy(("allow GET a.test", {"with": "hub"}), credentials="credentials:\n  hub: { from: env ABSENT, send: bearer, to: [a.test] }")
        result = self.sluice(text, "true")
        self.assertExit(result, 2)
        self.assertIn("credential hub (env ABSENT)", result.err)
        self.assertIn("policy.yaml:4", result.err)

    def test_a_secret_that_would_be_seen_is_refused(self):
        hub = "credentials:\n  hub: { from: %s, send: bearer, to: [a.test] }"
        with_env = policy(("allow GET a.test", {"with": "hub"}), credentials=hub % "env HUB")
        for flags, command in ((["--env", "HUB"], ["true"]), (["--env", f"OTHER=x{TOKEN}"], ["true"]), ([], ["echo", TOKEN])):
            result = self.run_with(with_env, *command, flags=flags)
            self.assertExit(result, 2)
            self.assertIn("credential hub", result.err)
            self.assertNotIn(TOKEN, result.err)
        (self.work / "token").write_text(TOKEN)
        result = self.sluice(policy(("allow GET a.test", {"with": "hub"}), credentials=hub % f"file {self.work}/token"), "true")
        self.assertExit(result, 2)
        self.assertIn("which the command sees", result.err)

    def test_a_command_that_fails_shows_its_complaint(self):
        text = policy(("allow GET a.test", {"with": "hub"}), credentials="credentials:\n  hub: { from: 'command \"ls /no/such/place\"', send: bearer, to: [a.test] }")
        result = self.sluice(text, "true")
        self.assertExit(result, 2)
        self.assertIn("/no/such/place", result.err)
        self.assertIn("exit code 2", result.err)


SEARCH = r"""
import os, sys
needles = [bytes.fromhex(word) for word in sys.argv[1:]]
found = []
def look(path):
    try:
        with open(path, "rb") as file:
            data = file.read(1 << 20)
    except OSError:
        return
    if any(needle in data for needle in needles):
        found.append(path)
for name, value in os.environb.items():
    if any(needle in value for needle in needles):
        found.append("variable " + name.decode())
for top in ("/etc", "/run", "/tmp", "/var", "/home", "/root", "/dev/shm", os.getcwd()):
    for folder, _, files in os.walk(top):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                look(path)
for pid in os.listdir("/proc"):
    for name in ("environ", "cmdline", "maps", "auxv"):
        look(f"/proc/{pid}/{name}")
    if pid.isdigit() and int(pid) != os.getpid():
        try:
            spans = [line.split()[0].split("-") for line in open(f"/proc/{pid}/maps")]
            with open(f"/proc/{pid}/mem", "rb") as memory:
                for low, high in spans:
                    memory.seek(int(low, 16))
                    if any(needle in memory.read(min(int(high, 16) - int(low, 16), 8 << 20)) for needle in needles):
                        found.append(f"/proc/{pid}/mem")
        except (OSError, ValueError, OverflowError):
            pass
for number in range(3, 256):
    try:
        os.lseek(number, 0, 0)
        if any(needle in os.read(number, 1 << 20) for needle in needles):
            found.append(f"descriptor {number}")
    except OSError:
        pass
print("found", found)
"""


class Hostile(Credentials):
    def test_a_command_that_looks_everywhere_finds_no_secret(self):
        secret_file = self.folder / "token"
        secret_file.write_text(TOKEN)
        secret_file.chmod(0o600)
        if self.lab.uid:
            os.chown(secret_file, self.lab.uid, self.lab.uid)
        text = policy(("allow GET a.test/pub/**", {"with": "hub"}), ("allow GET a.test/repos/**", {"with": "file"}),
                      ("allow GET a.test/echo", {"with": "model"}), ("allow GET a.test/bytes/**", {"with": "printed"}), credentials=f"""
credentials:
  hub: {{ from: env HUB, send: bearer, to: [a.test] }}
  file: {{ from: file {secret_file}, send: bearer, to: [a.test] }}
  printed: {{ from: 'command "cat {secret_file}"', send: bearer, to: [a.test] }}
  model: {{ from: env MODEL, send: placeholder MODEL_KEY, to: [a.test] }}""")
        # The needles are not in the program's own arguments as they are.
        needles = [secret[4:].encode().hex() for secret in (TOKEN, MODEL)]
        result = self.run_with(text, harness.PYTHON, "-c", SEARCH, *needles)
        self.assertExit(result, 0)
        self.assertIn("found []", result.out, str(result))
        self.assertNoSecret(result)


class StandIns(Credentials):
    MODEL_RULES = [("allow http a.test/echo", {"with": "model"}), ("allow http a.test/bot*", {"with": "model"}), "allow http b.test/echo", "allow http a.test/upload"]
    TEXT = policy(*MODEL_RULES)

    def shell(self, script, text=None):
        return self.run_with(text or self.TEXT, "sh", "-c", script)

    def test_the_command_has_a_stand_in_of_the_usual_look(self):
        result = self.shell('echo "$MODEL_KEY"')
        stand_in = result.out.strip()
        self.assertTrue(stand_in.startswith("sk-ant-api03-"), str(result))
        self.assertEqual(len(stand_in), len(MODEL))
        self.assertNotEqual(stand_in, self.shell('echo "$MODEL_KEY"').out.strip())

    def test_it_is_replaced_in_head_url_and_bodies(self):
        self.shell('curl -sS -H "x-api-key: $MODEL_KEY" https://a.test/echo')
        self.assertEqual(self.arrived()["x-api-key"], [MODEL])
        self.shell('curl -sS -u "octo:$MODEL_KEY" https://a.test/echo')
        self.assertEqual(base64.b64decode(self.arrived()["authorization"][0].split()[1]).decode(), f"octo:{MODEL}")
        self.shell('curl -sS "https://a.test/echo?key=$MODEL_KEY&x=1"')
        self.assertEqual(self.served()[-1]["target"], f"/echo?key={urllib.parse.quote(MODEL, safe='')}&x=1")
        self.shell('curl -sS "https://a.test/bot$MODEL_KEY"')
        self.assertEqual(self.served()[-1]["target"], f"/bot{urllib.parse.quote(MODEL, safe='')}")

    def test_it_is_replaced_in_bodies_as_each_needs_it(self):
        rows = [("application/json", '{\\"key\\": \\"$MODEL_KEY\\", \\"n\\": 1}', json.dumps({"key": MODEL, "n": 1})),
                ("application/x-www-form-urlencoded", "a=1&key=$MODEL_KEY", "a=1&key=" + urllib.parse.quote(MODEL, safe="")),
                ("text/plain", "my $MODEL_KEY", f"my {MODEL}")]
        for kind, body, expected in rows:
            for transfer in ("", '-H "Transfer-Encoding: chunked"'):
                for version in ("--http1.1", "--http2"):
                    result = self.shell(f'curl -sS {version} {transfer} -H "Content-Type: {kind}" -d "{body}" https://a.test/echo')
                    self.assertEqual(json.loads(result.out)["body"], expected, f"{kind} {version} {transfer}\n{result}")
        other = self.shell('curl -sS -H "Content-Type: application/octet-stream" -d "x $MODEL_KEY" https://a.test/echo')
        self.assertNotIn(MODEL, other.out)

    def test_a_long_body_is_replaced_wherever_its_pieces_end(self):
        script = r"""
import http.client, os, json
stand_in = os.environ["MODEL_KEY"]
body = json.dumps([("x" * 4093 + stand_in) for _ in range(100)])
for piece in (len(body), 1000, 4093):
    connection = http.client.HTTPSConnection("a.test")
    pieces = (body[i:i + piece].encode() for i in range(0, len(body), piece))
    connection.request("POST", "/echo", body=pieces, headers={"Content-Type": "application/json", "Content-Length": str(len(body))})
    answer = json.loads(connection.getresponse().read())
    print(answer["length"] - len(body), stand_in in answer["body"])
"""
        result = self.run_with(self.TEXT, harness.PYTHON, "-c", script)
        grown = 100 * (len(json.dumps(MODEL)) - 2 - len(MODEL))
        self.assertEqual(result.out.splitlines(), [f"{grown} False"] * 3, str(result))

    def test_anywhere_else_it_is_refused_and_recorded(self):
        attempts = ['-H "x-api-key: $MODEL_KEY" https://b.test/echo', '-u "octo:$MODEL_KEY" https://b.test/echo', '"https://b.test/echo?k=$MODEL_KEY"',
                    '-d "k=$MODEL_KEY" https://b.test/echo', '-H "Transfer-Encoding: chunked" -d "k=$MODEL_KEY" https://b.test/echo',
                    '-d "k=$MODEL_KEY" https://a.test/upload']
        for attempt in attempts:
            for version in ("--http1.1", "--http2"):
                before = len(self.served())
                result = self.shell(f"curl -sS -i {version} {attempt}")
                self.assertRegex(result.out, r"HTTP/[12](\.1)? 403", f"{attempt}\n{result}")
                self.assertIn("stand-in of credential model", result.out)
                self.assertTrue([r for r in result.denials() if "stand-in of credential model" in r.get("detail", "")], str(result))
                self.assertNotIn(MODEL, json.dumps(self.served()[before:]))

    def test_python_requests_are_none_the_wiser(self):
        script = """
import os, requests
answer = requests.post("https://a.test/echo", json={"k": os.environ["MODEL_KEY"]}, headers={"x-api-key": os.environ["MODEL_KEY"]})
print(answer.status_code, os.environ["MODEL_KEY"] in answer.text)
"""
        self.assertEqual(self.run_with(self.TEXT, harness.PYTHON, "-c", script).out.strip(), "200 False")


class Rotation(Credentials):
    def test_a_file_is_read_again_and_one_that_is_gone_stops_its_requests(self):
        secret_file = self.folder / "token"

        def write(text):
            fresh = self.folder / "fresh"
            fresh.write_text(text)
            fresh.chmod(0o600)
            if self.lab.uid:
                os.chown(fresh, self.lab.uid, self.lab.uid)
            fresh.rename(secret_file)

        write("first-token")
        text = policy(("allow GET a.test/echo", {"with": "file"}), credentials=f"credentials:\n  file: {{ from: file {secret_file}, send: bearer, to: [a.test] }}")
        script = "while read line; do curl -sS -i https://a.test/echo | tr '\\r\\n' '  '; echo; done"
        with self.running(text, "sh", "-c", script) as process:
            def ask():
                process.stdin.write("\n")
                process.stdin.flush()
                return process.stdout.readline()

            self.assertIn("Bearer first-token", ask())
            write("second-token")
            self.assertEventually(lambda: "Bearer second-token" in ask(), "the new token", 10)
            secret_file.unlink()
            self.assertEventually(lambda: "502" in ask(), "no token", 15)
            self.assertIn("credential file: cannot read", ask())
            before = len(self.served())
            ask()
            self.assertEqual(len(self.served()), before)


class Oauth(Credentials):
    def text(self, life):
        return policy(("allow GET a.test/echo", {"with": "orders"}), credentials=f"""
credentials:
  orders:
    from: oauth
    token-url: https://b.test/token/{life}
    client-id: sluice
    client-secret: env CLIENT
    scope: "read write"
    send: bearer
    to: [a.test]""")

    def asked_for_tokens(self):
        return [e for e in self.served() if e.get("host") == "b.test"]

    def test_many_requests_at_once_share_one_token(self):
        script = "for i in 1 2 3 4 5 6 7 8; do curl -sS https://a.test/echo & done; wait"
        result = self.run_with(self.text(3600), "sh", "-c", script)
        self.assertEqual(result.out.count("Bearer token-"), 8, str(result))
        self.assertEqual(len(self.asked_for_tokens()), 1)
        self.assertNotIn("client-s3cret", result.out + result.err)

    def test_a_token_is_replaced_ahead_of_its_end(self):
        script = "for i in 1 2 3 4 5 6 7 8; do curl -sS https://a.test/echo; sleep 0.5; done"
        result = self.run_with(self.text(2), "sh", "-c", script)
        self.assertEqual(result.out.count("Bearer token-"), 8, str(result))
        self.assertGreaterEqual(len(self.asked_for_tokens()), 2)

    def test_an_endpoint_that_fails_is_a_502_that_says_so(self):
        result = self.run_with(self.text("fail"), "sh", "-c", "curl -sS -i https://a.test/echo; curl -sS -i https://a.test/echo")
        self.assertEqual(result.out.count("HTTP/"), 2)
        self.assertRegex(result.out, r"HTTP/[12](\.1)? 502")
        self.assertIn("credential orders: no token from https://b.test/token/fail: it answered 401: invalid_client", result.out)
        self.assertEqual([e for e in self.served() if e.get("host") == "a.test"], [])
        self.assertLessEqual(len(self.asked_for_tokens()), 2)


class Signatures(Credentials):
    SCRIPT = r"""
import sys, http.client, urllib.parse
import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
service, kind, method, path, body = sys.argv[1:6]
body = body.encode()
classes = {("s3", "header"): botocore.auth.S3SigV4Auth, ("s3", "query"): botocore.auth.S3SigV4QueryAuth}
sign = classes.get((service, kind), botocore.auth.SigV4Auth)(Credentials("AKIDFAKE", "nothing", "fake-token"), service, "eu-central-1")
request = AWSRequest(method, "https://a.test" + path, headers={"x-amz-meta-a": "1", "content-type": "text/x"}, data=body)
sign.add_auth(request)
url = urllib.parse.urlsplit(request.url)
connection = http.client.HTTPSConnection("a.test")
connection.request(method, url.path + ("?" + url.query if url.query else ""), body=body, headers=dict(request.headers.items()))
print(connection.getresponse().status)
"""

    def verify(self, entry, body):
        """Recomputes the signature of what arrived with the real keys, by botocore."""
        import botocore.auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials as Keys
        fields = {name.lower(): value for name, value in entry["headers"]}
        id_, key, token = ENVIRONMENT["AWS"].split(":")
        self.assertNotIn("FAKE", json.dumps(entry).upper().replace("AKIDREAL", ""))
        parameters = dict(urllib.parse.parse_qsl(entry["target"].partition("?")[2], keep_blank_values=True))
        presigned = "X-Amz-Signature" in parameters
        if presigned:
            signature, credential, names = parameters["X-Amz-Signature"], parameters["X-Amz-Credential"], parameters["X-Amz-SignedHeaders"]
            stamp = parameters["X-Amz-Date"]
            self.assertEqual(parameters["X-Amz-Security-Token"], token)
        else:
            parts = dict(p.strip().split("=", 1) for p in fields["authorization"].split(" ", 1)[1].split(","))
            signature, credential, names = parts["Signature"], parts["Credential"], parts["SignedHeaders"]
            stamp = fields["x-amz-date"]
            self.assertEqual(fields["x-amz-security-token"], token)
        _, _, region, service, _ = credential.split("/")
        self.assertTrue(credential.startswith(id_))
        path, _, query = entry["target"].partition("?")
        query = "&".join(p for p in query.split("&") if not p.startswith("X-Amz-Signature="))
        request = AWSRequest("GET", f"https://a.test{path}" + (f"?{query}" if query else ""), data=body)
        request.method = entry["method"]
        for name in names.split(";"):
            if name != "host":
                request.headers[name] = fields[name]
        if presigned and service == "s3":
            request.context["payload_signing_enabled"] = False
        if "x-amz-content-sha256" in fields and "x-amz-content-sha256" not in request.headers:
            request.headers["x-amz-content-sha256"] = fields["x-amz-content-sha256"]
        request.context["timestamp"] = stamp
        auth = (botocore.auth.S3SigV4QueryAuth if presigned else botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth)(Keys(id_, key, token), service, region)
        canonical = auth.canonical_request(request) if not presigned or service == "s3" else None
        self.assertEqual(auth.signature(auth.string_to_sign(request, canonical), request), signature, f"{entry}\n{canonical}")

    def test_requests_arrive_signed_with_the_real_keys(self):
        text = policy(("allow http a.test", {"with": "aws"}))
        rows = [("s3", "header", "GET", "/echo/a%20b?list-type=2&prefix=x%2Fy", ""), ("s3", "header", "PUT", "/echo/key", "payload"),
                ("s3", "query", "GET", "/echo/key?versionId=1", ""), ("dynamodb", "header", "POST", "/echo", '{"a": 1}'),
                ("execute-api", "header", "GET", "/echo/m:1", "")]
        for row in rows:
            result = self.run_with(text, harness.PYTHON, "-c", self.SCRIPT, *row)
            self.assertEqual(result.out.strip(), "200", f"{row}\n{result}")
            self.verify(self.served()[-1], row[4].encode())
            self.assertNoSecret(result)

    def test_what_cannot_be_signed_anew_is_refused_with_the_reason(self):
        text = policy(("allow http a.test", {"with": "aws"}))
        scope = "Credential=A/20261129/r/s3/aws4_request, SignedHeaders=host, Signature=0"
        rows = [(["-H", f"Authorization: AWS4-HMAC-SHA256 {scope}", "-H", "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "-X", "PUT", "-d", "x"], "chunk by chunk"),
                (["-H", f"Authorization: AWS4-ECDSA-P256-SHA256 {scope}"], "AWS4-ECDSA-P256-SHA256"), ([], "names no region and service")]
        for flags, why in rows:
            result = self.run_with(text, "curl", "-sS", "-i", *flags, "https://a.test/echo")
            self.assertRegex(result.out, r"HTTP/[12](\.1)? 403", str(result))
            self.assertIn(why, result.out)
        self.assertEqual(self.served(), [])


if __name__ == "__main__":
    harness.main()
