"""A gRPC service over TLS with all four kinds of calls, bytes in and bytes out:  grpc_server.py ADDRESS:PORT CERTIFICATE KEY"""
import concurrent.futures
import sys
import time

import grpc


def single(request, context):
    context.set_trailing_metadata((("x-last", "word"),))
    context.send_initial_metadata((("x-deadline", str(context.time_remaining() is not None and context.time_remaining() < 100)),))
    return b"one:" + request


def fail(request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today: 100% sure")


def slow(request, context):
    time.sleep(30)
    return b"late"


def down(request, context):
    for i in range(int(request)):
        yield b"%d" % i


def up(requests, context):
    return b"+".join(requests)


def both(requests, context):
    for request in requests:
        yield b"echo:" + request


def main():
    address, certificate, key = sys.argv[1:]
    method = {
        "Single": grpc.unary_unary_rpc_method_handler(single),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Slow": grpc.unary_unary_rpc_method_handler(slow),
        "Down": grpc.unary_stream_rpc_method_handler(down),
        "Up": grpc.stream_unary_rpc_method_handler(up),
        "Both": grpc.stream_stream_rpc_method_handler(both),
    }
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("lab.Words", method),))
    with open(key, "rb") as k, open(certificate, "rb") as c:
        credentials = grpc.ssl_server_credentials(((k.read(), c.read()),))
    if not server.add_secure_port(address, credentials):
        sys.exit("cannot listen")
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


main()
