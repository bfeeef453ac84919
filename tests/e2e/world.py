#!/usr/bin/python3
"""The lab's internet: an HTTPS and HTTP API, git over smart HTTP, TCP, TLS and UDP echoes, and the resolver.

Runs inside the internet namespace:  world.py FOLDER
FOLDER holds the certificates and repos/, and receives dns.jsonl, http.jsonl and, when everything listens, world.ready.
"""
import asyncio
import base64
import hashlib
import itertools
import json
import os
import pathlib
import ssl
import sys
import time
import urllib.parse

import resolver
import zone

CONNECTIONS = itertools.count(1)
TOKENS = itertools.count(1)
SITE_ORIGINS = ("github.com",)


class Log:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def __call__(self, entry):
        self.file.write(json.dumps({"time": time.time(), **entry}) + "\n")


class Request:
    def __init__(self, method, target, version, headers):
        self.method, self.target, self.version, self.headers = method, target, version, headers
        self.path, _, self.query = target.partition("?")

    def get(self, name, default=""):
        return next((v for k, v in self.headers if k.lower() == name.lower()), default)


async def read_head(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    method, target, version = lines[0].split(" ", 2)
    headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:] if line]
    return Request(method, target, version, headers)


async def body_chunks(request, reader):
    if request.get("transfer-encoding").lower() == "chunked":
        while True:
            size = int((await reader.readline()).split(b";")[0], 16)
            if size == 0:
                while (await reader.readline()).strip():
                    pass
                return
            while size:
                block = await reader.read(min(size, 1 << 16))
                if not block:
                    raise ConnectionError("body cut short")
                size -= len(block)
                yield block
            await reader.readline()
    else:
        left = int(request.get("content-length", "0") or 0)
        while left:
            block = await reader.read(min(left, 1 << 16))
            if not block:
                raise ConnectionError("body cut short")
            left -= len(block)
            yield block


def head(status, reason, headers):
    return (f"HTTP/1.1 {status} {reason}\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers) + "\r\n").encode("latin-1")


class Exchange:
    """One request and its answer."""

    def __init__(self, world, request, reader, writer, connection, number):
        self.world, self.request, self.reader, self.writer = world, request, reader, writer
        self.connection, self.number = connection, number
        self.close = request.get("connection").lower() == "close"

    async def body(self):
        return b"".join([block async for block in body_chunks(self.request, self.reader)])

    async def send(self, status, reason, body=b"", content_type="application/json", extra=()):
        headers = [("Server", "lab"), ("Content-Type", content_type), ("Content-Length", str(len(body))), *extra]
        self.writer.write(head(status, reason, headers))
        if self.request.method != "HEAD":
            self.writer.write(body)
        await self.writer.drain()

    async def json(self, value, status=200, reason="OK", extra=()):
        await self.send(status, reason, (json.dumps(value) + "\n").encode(), extra=extra)

    async def chunked(self, blocks, headers=(), trailers=()):
        self.writer.write(head(200, "OK", [("Server", "lab"), ("Transfer-Encoding", "chunked"), *headers]))
        async for block in blocks:
            self.writer.write(b"%x\r\n%s\r\n" % (len(block), block))
            await self.writer.drain()
        self.writer.write(b"0\r\n" + b"".join(f"{k}: {v}\r\n".encode() for k, v in trailers) + b"\r\n")
        await self.writer.drain()

    # Each page is a method; its name after page_ is the first segment of the path.
    async def page_repos(self, rest):
        await self.body()
        await self.json({"full_name": "/".join(rest[:2]), "description": "from the stand-in API", "path": self.request.path})

    async def page_echo(self, rest):
        body = await self.body()
        await self.json({"method": self.request.method, "target": self.request.target, "headers": self.request.headers,
                         "body": body[:4096].decode("latin-1"), "length": len(body), "connection": self.connection, "number": self.number})

    async def page_bytes(self, rest):
        await self.body()
        size = int(rest[0])
        self.writer.write(head(200, "OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(size))]))
        if self.request.method == "HEAD":
            return
        block = bytes(range(256)) * 256
        while size:
            part = block[: min(size, len(block))]
            self.writer.write(part)
            size -= len(part)
            await self.writer.drain()

    async def page_chunked(self, rest):
        await self.body()

        async def blocks():
            left = int(rest[0])
            while left:
                size = min(left, 10007)
                yield b"x" * size
                left -= size

        await self.chunked(blocks(), [("Content-Type", "application/octet-stream")])

    async def page_trailers(self, rest):
        async def blocks():
            yield b"body before the trailers\n"

        await self.chunked(blocks(), [("Trailer", "X-Checksum")], [("X-Checksum", "abc123")])

    async def page_sse(self, rest):
        count, gap = int(rest[0]) if rest else 3, float(rest[1]) if len(rest) > 1 else 0.3

        async def blocks():
            for index in range(count):
                yield f"data: {index} {time.time()}\n\n".encode()
                if index + 1 < count:
                    await asyncio.sleep(gap)

        await self.chunked(blocks(), [("Content-Type", "text/event-stream")])

    async def page_upload(self, rest):
        digest, length = hashlib.sha256(), 0
        async for block in body_chunks(self.request, self.reader):
            digest.update(block)
            length += len(block)
        await self.json({"length": length, "sha256": digest.hexdigest()})

    async def page_status(self, rest):
        await self.body()
        status = int(rest[0])
        if status in (204, 304):
            self.writer.write(head(status, "Lab", [("Server", "lab"), ("ETag", '"1"')]))
            await self.writer.drain()
        else:
            await self.json({"status": status}, status, "Lab")

    async def page_hints(self, rest):
        self.writer.write(head(103, "Early Hints", [("Link", "</style.css>; rel=preload")]))
        await self.writer.drain()
        await self.json({"hints": True})

    async def page_slow(self, rest):
        await asyncio.sleep(float(rest[0]))
        await self.json({"slept": rest[0]})

    async def page_drip(self, rest):
        """A body that never ends by itself: a tick each tenth of a second."""

        async def blocks():
            for _ in range(600):
                yield b"tick\n"
                await asyncio.sleep(0.1)

        await self.chunked(blocks())

    async def page_close(self, rest):
        self.writer.write(head(200, "OK", [("Content-Type", "text/plain")]))
        self.writer.write(b"until the end of the connection\n")
        await self.writer.drain()
        self.close = True

    async def page_reflect(self, rest):
        """Shows the caller its own credential wherever a head or a trailer can."""
        await self.body()
        value = self.request.get("authorization")
        secret = value.split(" ")[-1]
        fields = [("X-Plain", f"you sent {value}"), ("Location", "https://a.test/?t=" + urllib.parse.quote(secret, safe="")),
                  ("X-Base64", base64.b64encode(f"user:{secret}".encode()).decode()), ("Trailer", "X-Sum"), ("X-Harmless", "kept")]

        async def blocks():
            yield b"reflected\n"

        self.writer.write(head(200, f"OK {secret}", [("Transfer-Encoding", "chunked"), *fields]))
        async for block in blocks():
            self.writer.write(b"%x\r\n%s\r\n" % (len(block), block))
        self.writer.write(f"0\r\nX-Sum: {secret}\r\n\r\n".encode())
        await self.writer.drain()

    async def page_redirect(self, rest):
        await self.body()
        await self.json({"to": rest[0]}, 302, "Found", extra=[("Location", f"https://{rest[0]}/echo")])

    async def page_token(self, rest):
        """OAuth client credentials. The first segment behind it says how long tokens live, or "fail"."""
        body = urllib.parse.parse_qs((await self.body()).decode())
        pair = base64.b64decode(self.request.get("authorization").split(" ")[-1]).decode()
        if rest[0] == "fail" or pair != "sluice:client-s3cret" or body.get("grant_type") != ["client_credentials"]:
            return await self.json({"error": "invalid_client"}, 401, "Unauthorized")
        await asyncio.sleep(0.1)
        await self.json({"access_token": f"token-{next(TOKENS)}", "token_type": "Bearer", "expires_in": float(rest[0])})

    async def page_forged(self, rest):
        await self.json({"forged": True}, extra=[("X-Sluice-Denied", "d-1"), ("Proxy-Status", "sluice; error=http_request_denied")])

    async def page_graphql(self, rest):
        body = await self.body()
        await self.json({"data": {"served": True}, "length": len(body), "sha256": hashlib.sha256(body).hexdigest()})

    async def page_mcp(self, rest):
        """An MCP server over Streamable HTTP: results as JSON, those of tools as an event stream."""
        body = await self.body()
        if self.request.method != "POST":
            return await self.json({"error": "no stream of its own"}, 405, "Method Not Allowed", [("Allow", "POST")])
        messages = json.loads(body)
        answers = [self.mcp_result(m) for m in (messages if isinstance(messages, list) else [messages]) if "id" in m and "method" in m]
        if not answers:
            return await self.send(202, "Accepted")
        if any("content" in a["result"] for a in answers):
            async def events():
                for answer in answers:
                    yield f"event: message\ndata: {json.dumps(answer)}\n\n".encode()
            return await self.chunked(events(), [("Content-Type", "text/event-stream")])
        await self.json(answers if isinstance(messages, list) else answers[0], extra=[("Mcp-Session-Id", "lab-1")])

    @staticmethod
    def mcp_result(message):
        method, params = message["method"], message.get("params", {})
        result = {"tools/call": lambda: {"content": [{"type": "text", "text": f"called {params['name']}"}]},
                  "tools/list": lambda: {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("read", "delete")]},
                  "initialize": lambda: {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                                         "serverInfo": {"name": "lab", "version": "1"}}}.get(method, dict)()
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    async def lfs(self, repository, service):
        """A git LFS server that keeps objects as files."""
        body = await self.body()
        store = self.world.folder / "lfs"
        if service == "objects/batch":
            batch = json.loads(body)
            base = f"https://{self.request.get('host')}/{repository}.git/info/lfs/objects/"
            objects = [{**o, "authenticated": True, "actions": {batch["operation"]: {"href": base + o["oid"]}}} for o in batch["objects"]]
            answer = json.dumps({"transfer": "basic", "objects": objects}).encode()
            return await self.send(200, "OK", answer, "application/vnd.git-lfs+json")
        if not service.startswith("objects/"):
            return await self.send(200, "OK", b'{"ours":[],"theirs":[]}', "application/vnd.git-lfs+json")
        path = store / service.removeprefix("objects/")
        if self.request.method == "PUT":
            store.mkdir(exist_ok=True)
            path.write_bytes(body)
            return await self.send(200, "OK")
        await self.send(200, "OK", path.read_bytes(), "application/octet-stream")

    async def git(self, repository, service):
        if service.startswith("info/lfs/"):
            return await self.lfs(repository, service.removeprefix("info/lfs/"))
        environment = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.world.folder / "repos"), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{repository}.git/{service}", "REQUEST_METHOD": self.request.method, "QUERY_STRING": self.request.query,
            "CONTENT_TYPE": self.request.get("content-type"), "REMOTE_USER": "lab", "REMOTE_ADDR": "lab",
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        if self.request.get("git-protocol"):
            environment["GIT_PROTOCOL"] = self.request.get("git-protocol")
        if self.request.get("content-encoding"):
            environment["HTTP_CONTENT_ENCODING"] = self.request.get("content-encoding")
        body = await self.body()
        environment["CONTENT_LENGTH"] = str(len(body))
        process = await asyncio.create_subprocess_exec("git", "http-backend", stdin=asyncio.subprocess.PIPE,
                                                       stdout=asyncio.subprocess.PIPE, env=environment)
        output, _ = await process.communicate(body)
        raw, _, content = output.partition(b"\r\n\r\n")
        status, reason, headers = 200, "OK", []
        for line in raw.decode("latin-1").split("\r\n"):
            name, _, value = line.partition(":")
            if name.lower() == "status":
                status, _, reason = value.strip().partition(" ")
            elif name:
                headers.append((name, value.strip()))
        self.writer.write(head(status, reason, headers + [("Content-Length", str(len(content)))]) + content)
        await self.writer.drain()

    async def file(self, parts):
        """A registry as a folder of files: what is asked for exists or not, and what is sent is taken."""
        body = await self.body()
        if self.request.method not in ("GET", "HEAD"):
            return await self.json({"ok": True, "length": len(body)}, 201, "Created")
        path = self.world.folder.joinpath("site", *parts)
        for candidate in (path, path / "index.json", path / "index.html"):
            if ".." not in parts and candidate.is_file():
                kind = {".json": "application/json", ".html": "text/html"}.get(candidate.suffix, "application/octet-stream")
                return await self.send(200, "OK", candidate.read_bytes(), kind)
        await self.json({"error": "not found"}, 404, "Not Found")

    async def answer(self):
        parts = [p for p in urllib.parse.unquote(self.request.path).split("/") if p]
        host = self.request.get("host").split(":")[0]
        if self.request.get("expect").lower() == "100-continue" and "refuse" not in parts:
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self.writer.drain()
        if host in zone.FILE_SITES:
            return await self.file(parts)
        if host in SITE_ORIGINS and len(parts) > 2:
            return await self.git("/".join(parts[:2]).removesuffix(".git"), "/".join(parts[2:]))
        page = getattr(self, "page_" + parts[0], None) if parts else None
        if page:
            return await page(parts[1:])
        if self.request.get("expect") and "refuse" in parts:
            self.close = True
            return await self.json({"error": "no"}, 417, "Expectation Failed")
        await self.body()
        await self.json({"host": host, "path": self.request.path, "note": "hello from the lab"}, *((200, "OK") if not parts or parts[0] == "pub" else (404, "Not Found")))


class UdpEcho(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.transport.sendto(data, addr)


class World:
    def __init__(self, folder):
        self.folder = folder
        self.http_log, self.dns_log = Log(folder / "http.jsonl"), Log(folder / "dns.jsonl")
        self.contexts = {name: self.context(name) for name in ("good", *(bad.removesuffix(".test") for bad in zone.BAD_CERTIFICATES))}

    def context(self, name):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # a server may be as careless as it likes
        context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        context.set_alpn_protocols(["http/1.1"])
        context.sni_callback = self.choose
        return context

    def choose(self, socket, server_name, _):
        kind = (server_name or "").removesuffix(".test")
        socket.context = self.contexts.get(kind, self.contexts["good"])

    async def http(self, reader, writer):
        connection, peer = next(CONNECTIONS), writer.get_extra_info("peername")[0]
        scheme = "https" if writer.get_extra_info("ssl_object") else "http"
        try:
            for number in itertools.count(1):
                request = await read_head(reader)
                self.http_log({"connection": connection, "number": number, "peer": peer, "scheme": scheme, "method": request.method,
                               "host": request.get("host"), "target": request.target, "headers": request.headers})
                exchange = Exchange(self, request, reader, writer, connection, number)
                await exchange.answer()
                if exchange.close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, ValueError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def echo(self, reader, writer):
        self.http_log({"connection": next(CONNECTIONS), "scheme": "tcp", "port": writer.get_extra_info("sockname")[1]})
        try:
            while block := await reader.read(1 << 16):
                writer.write(block)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            pass
        finally:
            writer.close()

    async def greet(self, reader, writer):
        names = {address: name for name in zone.GREETING for address in zone.SITES[name]}
        writer.write(f"{names[writer.get_extra_info('sockname')[0]]}\n".encode())
        await self.echo(reader, writer)

    async def run(self):
        tls = self.contexts["good"]
        listen = dict(host=None, backlog=4096)
        await asyncio.start_server(self.http, port=zone.PORT_HTTP, **listen)
        for port in (zone.PORT_HTTPS, zone.PORT_HTTPS_ALT):
            await asyncio.start_server(self.http, port=port, ssl=tls, **listen)
        for port in (zone.PORT_TCP_ECHO, zone.PORT_OTHER_RESOLVERS):
            await asyncio.start_server(self.echo, port=port, **listen)
        await asyncio.start_server(self.echo, port=zone.PORT_TLS_ECHO, ssl=tls, **listen)
        for address in (address for name in zone.GREETING for address in zone.SITES[name]):
            await asyncio.start_server(self.greet, host=address, port=zone.PORT_GREETING, backlog=4096)
        for address in zone.SITES["db.test"]:
            for port in (zone.PORT_UDP_ECHO, zone.PORT_OTHER_RESOLVERS):
                await asyncio.get_running_loop().create_datagram_endpoint(UdpEcho, local_addr=(address, port))
        await resolver.start(self.dns_log)
        (self.folder / "world.ready").write_text("ready\n")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(World(pathlib.Path(sys.argv[1])).run())
