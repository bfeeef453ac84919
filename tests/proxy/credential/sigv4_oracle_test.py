#!/usr/bin/python3
"""Compares re-signed requests with what botocore signs: many requests, each signed by the workload with keys that mean nothing.

Usage: sigv4_oracle_test.py SIGN_TOOL
"""
import datetime
import hashlib
import json
import random
import subprocess
import sys
import types
import urllib.parse

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

NOW = datetime.datetime(2026, 11, 29, 14, 16, 18)
EPOCH = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())


class Frozen(datetime.datetime):
    @classmethod
    def utcnow(cls):
        return NOW


# Stands where botocore.auth looks for the module datetime.
CLOCK = types.SimpleNamespace(datetime=Frozen, timedelta=datetime.timedelta)


REAL = ("AKIDREAL", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
FAKE = ("AKIDFAKE", "nothing")
S3 = {"s3"}


def signer(kind, service, keys, token, region):
    credentials = Credentials(keys[0], keys[1], token or None)
    if kind == "query":
        if service in S3:
            return botocore.auth.S3SigV4QueryAuth(credentials, service, region, expires=900)
        return botocore.auth.SigV4QueryAuth(credentials, service, region, expires=900)
    if service in S3:
        return botocore.auth.S3SigV4Auth(credentials, service, region)
    return botocore.auth.SigV4Auth(credentials, service, region)


def make(rng):
    """A request before anything was signed."""
    service = rng.choice(["s3", "dynamodb", "execute-api", "bedrock", "iam"])
    region = rng.choice(["us-east-1", "eu-central-1"])
    pieces = ["a", "b c", "ü", "x-1", "model:2", "a+b", "k=v", "~t_.", "100%"]
    path = "/" + "/".join(urllib.parse.quote(rng.choice(pieces), safe="~") for _ in range(rng.randrange(0, 4)))
    pairs = [(rng.choice(pieces), rng.choice(pieces + [""])) for _ in range(rng.randrange(0, 4))]
    query = "&".join(f"{urllib.parse.quote(k, safe='~')}={urllib.parse.quote(v, safe='~')}" for k, v in pairs)
    headers = {"accept": "*/*"}
    if rng.random() < 0.5:
        headers["content-type"] = "application/x-amz-json-1.0"
    if rng.random() < 0.5:
        headers["x-amz-target"] = "  Thing.List   All "
    if rng.random() < 0.3:
        headers["x-amz-meta-b"] = "2"
        headers["x-amz-meta-a"] = "1"
    kind = rng.choice(["header", "header", "query"])
    method = rng.choice(["GET", "PUT", "POST", "DELETE"] if kind == "header" else ["GET", "DELETE"])
    body = rng.choice([b"", b'{"a":1}', rng.randbytes(200)]) if method in ("PUT", "POST") else b""
    return {"service": service, "region": region, "path": path, "query": query, "headers": headers, "method": method, "body": body,
            "host": f"{service}.{region}.amazonaws.test", "kind": kind,
            "token": rng.choice(["", "tok/en+=="]), "unsigned": rng.random() < 0.3}


def sign(case, keys, token):
    url = f"https://{case['host']}{case['path']}" + (f"?{case['query']}" if case["query"] else "")
    request = AWSRequest(case["method"], url, headers=dict(case["headers"]), data=case["body"])
    if case["service"] in S3 and case["unsigned"]:
        request.context["payload_signing_enabled"] = False
    signer(case["kind"], case["service"], keys, token, case["region"]).add_auth(request)
    split = urllib.parse.urlsplit(request.url)
    target = split.path + (f"?{split.query}" if split.query else "")
    fields = [[name.lower(), value.strip()] for name, value in request.headers.items() if name.lower() not in ("host", "content-length")]
    return target, fields


def tool_answers(tool, questions):
    done = subprocess.run([tool], input="".join(json.dumps(q) + "\n" for q in questions), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def signature_of(target, fields):
    for name, value in fields:
        if name == "authorization":
            return value.split("Signature=")[1], value
    query = dict(urllib.parse.parse_qsl(target.partition("?")[2], keep_blank_values=True))
    return query["X-Amz-Signature"], target


def compare(tool):
    rng = random.Random(4)
    cases = [make(rng) for _ in range(600)]
    questions = []
    for case in cases:
        target, fields = sign(case, FAKE, "wrong-token" if rng.random() < 0.5 else "")
        secret = ":".join(filter(None, [*REAL, case["token"]]))
        questions.append({"method": case["method"], "target": target, "host": case["host"], "fields": fields, "secret": secret,
                          "region": "", "service": "", "now": EPOCH, "hash": hashlib.sha256(case["body"]).hexdigest()})
    for case, question, answer in zip(cases, questions, tool_answers(tool, questions)):
        assert "error" not in answer, (case, answer)
        expected, whole = signature_of(*sign(case, REAL, case["token"]))
        got, got_whole = signature_of(answer["target"], answer["fields"])
        assert got == expected, f"{case}\nasked {question}\nexpected {whole}\ngot {got_whole}"
        text = json.dumps(answer)
        assert FAKE[0] not in text and "wrong-token" not in text, text
    return len(cases)


def refusals(tool):
    base = {"method": "PUT", "target": "/b/k", "host": "s3.test", "fields": [], "secret": "id:key", "region": "", "service": "",
            "now": EPOCH, "hash": "0" * 64}
    scope = "Credential=a/20261129/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
    rows = [
        ({}, "names no region and service"),
        ({"fields": [["authorization", f"AWS4-HMAC-SHA256 {scope}"],
                     ["x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"]]}, "chunk by chunk"),
        ({"fields": [["authorization", f"AWS4-ECDSA-P256-SHA256 {scope}"]]}, "AWS4-ECDSA-P256-SHA256"),
        ({"fields": [["authorization", "AWS4-HMAC-SHA256 Credential=a/b, Signature=0"]]}, "no scope"),
        ({"fields": [["authorization", f"AWS4-HMAC-SHA256 {scope}"]], "target": "/?X-Amz-Algorithm=AWS4-HMAC-SHA256"}, "two AWS"),
        ({"target": "/?x-amz-algorithm=AWS4-ECDSA-P256-SHA256"}, "another kind"),
        ({"secret": "id"}, "key id"),
        ({"secret": "id:"}, "no secret key"),
    ]
    for (change, expected), answer in zip(rows, tool_answers(tool, [base | change for change, _ in rows])):
        assert expected in answer.get("error", ""), (change, answer)
    return len(rows)


def main():
    botocore.auth.datetime = CLOCK
    print(f"{compare(sys.argv[1])} requests compared with botocore, {refusals(sys.argv[1])} refused")


main()
