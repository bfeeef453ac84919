#!/usr/bin/python3
"""Runs a command under a policy with libsluice by ctypes alone, in an event loop of its own (selectors), and prints each decision.

  ./run_under.py policy.yaml [--library libsluice.so.1] [--upstream-ca FILE] -- curl https://api.example.com/
"""
import argparse
import ctypes
import json
import selectors
import sys
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p

OK, UPSTREAM_CA = 0, 11
RUNNING = 1
TEXT_CALLBACK = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
PLAIN_CALLBACK = CFUNCTYPE(None, c_void_p)


class Callbacks(Structure):
    _fields_ = [("size", c_size_t), ("context", c_void_p), ("record", TEXT_CALLBACK), ("log", TEXT_CALLBACK), ("ended", PLAIN_CALLBACK),
                ("exchanges", c_int32)]


class Result(Structure):
    _fields_ = [("size", c_size_t), ("exit_code", c_int32), ("signal", c_int32), ("timed_out", c_int32), ("complete", c_int32),
                ("allowed", c_uint64), ("denied", c_uint64), ("lost_records", c_uint64)]


class SluiceError(Exception):
    """What went wrong, for people; `details` is for programs."""

    def __init__(self, message, details):
        super().__init__(message)
        self.details = details


class Sluice:
    """The calls of sluice.h that this program needs. Every one that can fail raises SluiceError."""

    def __init__(self, path):
        self.library = library = ctypes.CDLL(path)
        for name, result, *arguments in (
                ("abi_version", ctypes.c_uint32), ("version", c_char_p),
                ("error_message", c_char_p, c_void_p), ("error_json", c_char_p, c_void_p), ("error_free", None, c_void_p),
                ("text_data", c_char_p, c_void_p), ("text_free", None, c_void_p),
                ("policy_from_file", c_int32, c_char_p, POINTER(c_void_p), POINTER(c_void_p)), ("policy_free", None, c_void_p),
                ("options_new", c_void_p), ("options_free", None, c_void_p),
                ("options_set_command", c_int32, c_void_p, POINTER(c_char_p), POINTER(c_void_p)),
                ("options_set_policy", c_int32, c_void_p, c_void_p, POINTER(c_void_p)),
                ("options_set", c_int32, c_void_p, c_int32, c_char_p, POINTER(c_void_p)),
                ("options_set_callbacks", c_int32, c_void_p, POINTER(Callbacks), POINTER(c_void_p)),
                ("start", c_int32, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
                ("run_fd", c_int, c_void_p), ("run_state", c_int32, c_void_p), ("run_free", None, c_void_p),
                ("run_dispatch", c_int32, c_void_p, POINTER(c_void_p)),
                ("run_wait", c_int32, c_void_p, c_int64, POINTER(Result), POINTER(c_void_p)),
                ("run_request", c_int32, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t, c_uint64, POINTER(c_int32), POINTER(c_void_p),
                 POINTER(c_void_p))):
            function = getattr(library, "sluice_" + name)
            function.restype, function.argtypes = result, arguments
        if library.sluice_abi_version() < 1:
            raise SluiceError("libsluice has another binary interface", {})

    def call(self, name, *arguments):
        error = c_void_p()
        if getattr(self.library, "sluice_" + name)(*arguments, byref(error)) == OK:
            return
        message, details = self.library.sluice_error_message(error).decode(), json.loads(self.library.sluice_error_json(error))
        self.library.sluice_error_free(error)
        raise SluiceError(message, details)

    def request(self, run, method, target, body):
        status, answer, data = c_int32(), c_void_p(), json.dumps(body).encode()
        self.call("run_request", run, method.encode(), target.encode(), data, len(data), 0, byref(status), byref(answer))
        text = self.library.sluice_text_data(answer).decode()
        self.library.sluice_text_free(answer)
        return status.value, json.loads(text)


def show(_, text, size):
    record = json.loads(ctypes.string_at(text, size))
    target = record.get("target", {})
    print("record", record.get("verdict"), record.get("layer"), target.get("host") or target.get("address") or target.get("path"), flush=True)


def main():
    arguments = sys.argv[1:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(usage="%(prog)s POLICY [--library SO] [--upstream-ca FILE] [--explain QUESTION] -- COMMAND...")
    parser.add_argument("policy")
    parser.add_argument("--library", default="libsluice.so.1")
    parser.add_argument("--upstream-ca")
    parser.add_argument("--explain", help="asked of the policy in force while the command runs")
    options, command = parser.parse_args(arguments[:cut]), arguments[cut + 1:]
    if not command:
        parser.error("no command: it stands after --")
    sluice = Sluice(options.library)
    library, policy, run = sluice.library, c_void_p(), c_void_p()
    try:
        sluice.call("policy_from_file", options.policy.encode(), byref(policy))
    except SluiceError as error:
        print(f"{error}\n{error.details}", file=sys.stderr)
        return 2
    # ctypes frees a callback that nobody refers to: it has to outlive the run.
    record = TEXT_CALLBACK(show)
    callbacks = Callbacks(size=ctypes.sizeof(Callbacks), record=record)
    what = library.sluice_options_new()
    argv = (c_char_p * (len(command) + 1))(*[word.encode() for word in command], None)
    sluice.call("options_set_policy", what, policy)
    sluice.call("options_set_command", what, argv)
    sluice.call("options_set_callbacks", what, byref(callbacks))
    if options.upstream_ca:
        sluice.call("options_set", what, UPSTREAM_CA, options.upstream_ca.encode())
    try:
        sluice.call("start", what, byref(run))
    except SluiceError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        library.sluice_options_free(what)
        library.sluice_policy_free(policy)
    if options.explain:
        status, answer = sluice.request(run, "POST", "/v1/explain", {"question": options.explain})
        print("explain", status, "allowed" if answer.get("allowed") else "denied", flush=True)
    with selectors.DefaultSelector() as selector:
        selector.register(library.sluice_run_fd(run), selectors.EVENT_READ)
        while library.sluice_run_state(run) == RUNNING:
            selector.select()
            sluice.call("run_dispatch", run)
    result = Result(size=ctypes.sizeof(Result))
    sluice.call("run_wait", run, -1, byref(result))
    library.sluice_run_free(run)
    print(f"exit {result.exit_code}, {result.allowed} allowed, {result.denied} denied", flush=True)
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
