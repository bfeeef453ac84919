"""urllib and asyncio as a program without any proxy setting uses them: fetch.py MODE METHOD URL"""
import asyncio
import errno
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request

mode, method, url = sys.argv[1:]


async def over_asyncio():
    parts = urllib.parse.urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or (443 if tls else 80), ssl=tls)
    writer.write(f"{method} {parts.path or '/'} HTTP/1.1\r\nHost: {parts.hostname}\r\nConnection: close\r\n\r\n".encode())
    print((await reader.read()).decode())


try:
    if mode == "asyncio":
        asyncio.run(over_asyncio())
    else:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=20) as answer:
            print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print("error", error.code, error.reason, error.read().decode())
except OSError as error:
    reason = getattr(error, "reason", error)
    print("error", type(reason).__name__, errno.errorcode.get(getattr(reason, "errno", 0) or 0, ""), reason)
