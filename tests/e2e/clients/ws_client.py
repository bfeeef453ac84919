#!/usr/bin/python3
"""python3-websockets as the workload: ws_client.py URL WHAT… prints what it saw.

WHAT: text:WORDS, variable:NAME (as it is, and within JSON), bytes:COUNT (random, compared), ping, take:N (messages), wait (until closed), each in turn.
"""
import asyncio
import json
import os
import sys

import websockets


async def main():
    url, *steps = sys.argv[1:]
    try:
        async with websockets.connect(url, subprotocols=["chat.v1", "chat.v2"], max_size=64 << 20) as socket:
            print("open", socket.subprotocol, [extension.name for extension in socket.extensions], flush=True)
            for step in steps:
                kind, _, value = step.partition(":")
                if kind == "text":
                    await socket.send(value)
                    print("text", await socket.recv(), flush=True)
                elif kind == "variable":
                    for text in (f"key={os.environ[value]}", json.dumps({"key": os.environ[value]})):
                        await socket.send(text)
                        print("text", await socket.recv(), flush=True)
                elif kind == "bytes":
                    data = os.urandom(int(value))
                    await socket.send(data[i:i + 100003] for i in range(0, len(data), 100003))
                    print("bytes", await socket.recv() == data, flush=True)
                elif kind == "ping":
                    await (await socket.ping())
                    print("pong", flush=True)
                elif kind == "take":
                    for _ in range(int(value)):
                        print("took", await socket.recv(), flush=True)
                elif kind == "wait":
                    await socket.recv()
            await socket.close(4001, "done")
            print("closed", socket.close_code, socket.close_reason, flush=True)
    except websockets.InvalidStatusCode as error:
        print("status", error.status_code, error.headers.get("X-Sluice-Denied", error.headers.get("X-Origin")), flush=True)
    except websockets.ConnectionClosed as error:
        print("closed", error.code, error.reason, flush=True)
    except (OSError, websockets.WebSocketException) as error:
        print("failed", repr(error), flush=True)


asyncio.run(main())
