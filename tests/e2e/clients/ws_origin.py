#!/usr/bin/python3
"""python3-websockets as an origin: ws_origin.py ADDRESS TLS_PORT PLAIN_PORT CERTIFICATE KEY

/echo says everything back; /events sends ten messages and closes with 4000; /refuse answers 403 as HTTP does.
"""
import asyncio
import http
import ssl
import sys

import websockets


async def serve(socket, path):
    if path == "/events":
        for number in range(10):
            await socket.send(f"event {number}")
        await socket.close(4000, "all told")
        return
    try:
        async for message in socket:
            await socket.send(message)
    except websockets.ConnectionClosed:
        pass


async def refuse(path, headers):
    if path == "/refuse":
        return http.HTTPStatus.FORBIDDEN, [("X-Origin", "yes")], b"not you\n"
    return None


async def main():
    address, tls_port, plain_port, certificate, key = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    options = {"subprotocols": ["chat.v2"], "max_size": 64 << 20, "process_request": refuse}
    async with websockets.serve(serve, address, int(tls_port), ssl=context, **options), websockets.serve(serve, address, int(plain_port), **options):
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
