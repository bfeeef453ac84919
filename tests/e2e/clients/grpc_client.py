"""Calls lab.Words through whatever network there is, and prints what came as JSON:  grpc_client.py TARGET ROOTS"""
import json
import os
import queue
import sys

os.environ["GRPC_DNS_RESOLVER"] = "native"
import grpc


def outcome(call):
    try:
        return call()
    except grpc.RpcError as error:
        trailers = {k: v for k, v in (error.trailing_metadata() or ()) if isinstance(v, str)}
        return {"code": error.code().name, "details": error.details(), "trailers": trailers}


def both(channel):
    """Each answer is awaited before the next word is said."""
    words = queue.Queue()
    replies = channel.stream_stream("/lab.Words/Both")(iter(words.get, None), timeout=20)
    heard = []
    for word in (b"a", b"b", b"c" * 100000):
        words.put(word)
        heard.append(len(next(replies)))
    words.put(None)
    return heard + [len(list(replies))]


def main():
    target, roots = sys.argv[1:]
    with open(roots, "rb") as file:
        channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(file.read()))
    result = {}

    def single():
        reply, call = channel.unary_unary("/lab.Words/Single").with_call(b"x", timeout=20)
        return [reply.decode(), dict(call.initial_metadata())["x-deadline"], dict(call.trailing_metadata())["x-last"]]

    result["single"] = outcome(single)
    result["fail"] = outcome(lambda: channel.unary_unary("/lab.Words/Fail")(b"x", timeout=20))
    result["slow"] = outcome(lambda: channel.unary_unary("/lab.Words/Slow")(b"x", timeout=0.5))
    result["down"] = outcome(lambda: len(list(channel.unary_stream("/lab.Words/Down")(b"500", timeout=20))))
    result["up"] = outcome(lambda: channel.stream_unary("/lab.Words/Up")(iter([b"a", b"b"]), timeout=20).decode())
    live = queue.Queue()
    replies = channel.stream_stream("/lab.Words/Both")(iter(live.get, None), timeout=60)
    live.put(b"before")
    before = next(replies).decode()
    result["denied"] = outcome(lambda: channel.unary_unary("/lab.Secret/Read")(b"x", timeout=20))
    live.put(b"after")
    result["neighbour"] = [before, next(replies).decode()]
    live.put(None)
    result["both"] = outcome(lambda: both(channel))
    print(json.dumps(result))


main()
