#!/usr/bin/python3
"""One WebSocket for long: ws_soak.py URL SECONDS talk|rest

talk: a ping and a text each half second. rest: nothing of its own until the end, not even pings. Both say and hear one more text at the end, and
close. Prints what it saw; a line for each tenth of the time.
"""
import asyncio
import sys
import time

import websockets


async def main():
    url, seconds, kind = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    own_pings = 20 if kind == "talk" else None
    beats, told, begun = 0, 0, time.monotonic()
    try:
        async with websockets.connect(url, subprotocols=["chat.v2"], ping_interval=own_pings) as socket:
            print("open", flush=True)
            while (spent := time.monotonic() - begun) < seconds:
                await asyncio.sleep(min(0.5, seconds - spent))
                if kind == "talk":
                    await asyncio.wait_for(await socket.ping(), 10)
                    await socket.send(f"beat {beats}")
                    if await asyncio.wait_for(socket.recv(), 10) != f"beat {beats}":
                        raise OSError("another word came back")
                    beats += 1
                if (time.monotonic() - begun) * 10 // seconds > told:
                    told = (time.monotonic() - begun) * 10 // seconds
                    print("at", int(told), flush=True)
            await socket.send("the last")
            print("heard", await asyncio.wait_for(socket.recv(), 10), "beats", beats, flush=True)
            await socket.close(4001, "done")
            print("closed", socket.close_code, socket.close_reason, flush=True)
    except websockets.ConnectionClosed as error:
        print("closed early", error.code, error.reason, "after", round(time.monotonic() - begun, 1), flush=True)
    except (OSError, asyncio.TimeoutError, websockets.WebSocketException) as error:
        print("failed", repr(error), "after", round(time.monotonic() - begun, 1), flush=True)


asyncio.run(main())
