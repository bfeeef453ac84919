#!/usr/bin/python3
"""python3-websockets as the workload: ws_client.py URL WHAT… prints what it saw.

Where WS_PROXY is HOST:PORT, through a tunnel of that proxy: its answer is printed first.

WHAT: text:WORDS, variable:NAME (as it is, and within JSON), bytes:COUNT (random, compared), ping, take:N (messages), wait (until closed), each in turn.
"""
import asyncio
import json
import os
import socket
import sys
import urllib.parse

import websockets


def tunnel(url):
    """A connection to where the URL leads, and the name to ask it for in TLS; nothing without a proxy."""
    if "WS_PROXY" not in os.environ:
        return {}
    host, port = os.environ["WS_PROXY"].split(":")
    to = urllib.parse.urlsplit(url)
    connection = socket.create_connection((host, int(port)), 20)
    connection.sendall(f"CONNECT {to.hostname}:{to.port} HTTP/1.1\r\nHost: {to.hostname}:{to.port}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += connection.recv(1)
    print(answer.split(b"\r\n")[0].decode(), flush=True)
    return {"sock": connection, **({"server_hostname": to.hostname} if to.scheme == "wss" else {})}


async def main():
    url, *steps = sys.argv[1:]
    try:
        async with websockets.connect(url, **tunnel(url), subprotocols=["chat.v1", "chat.v2"], max_size=64 << 20) as peer:
            print("open", peer.subprotocol, [extension.name for extension in peer.extensions], flush=True)
            for step in steps:
                kind, _, value = step.partition(":")
                if kind == "text":
                    await peer.send(value)
                    print("text", await peer.recv(), flush=True)
                elif kind == "variable":
                    for text in (f"key={os.environ[value]}", json.dumps({"key": os.environ[value]})):
                        await peer.send(text)
                        print("text", await peer.recv(), flush=True)
                elif kind == "bytes":
                    data = os.urandom(int(value))
                    await peer.send(data[i:i + 100003] for i in range(0, len(data), 100003))
                    print("bytes", await peer.recv() == data, flush=True)
                elif kind == "ping":
                    await (await peer.ping())
                    print("pong", flush=True)
                elif kind == "take":
                    for _ in range(int(value)):
                        print("took", await peer.recv(), flush=True)
                elif kind == "wait":
                    await peer.recv()
            await peer.close(4001, "done")
            print("closed", peer.close_code, peer.close_reason, flush=True)
    except websockets.InvalidStatusCode as error:
        print("status", error.status_code, error.headers.get("X-Sluice-Denied", error.headers.get("X-Origin")), flush=True)
    except websockets.ConnectionClosed as error:
        print("closed", error.code, error.reason, flush=True)
    except (OSError, websockets.WebSocketException) as error:
        print("failed", repr(error), flush=True)


asyncio.run(main())
