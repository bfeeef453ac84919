"""A client of `sluice run --control`, as a launcher in any language would write it: HTTP/1.1 and JSON over a UNIX socket."""
import http.client
import json
import socket
import threading

from harness import SLOW


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout=20 * SLOW):
        super().__init__("sluice", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(path, method, target, body=None, **headers):
    """Status, JSON or text, and the entity tag."""
    connection = Connection(path)
    try:
        sent = json.dumps(body) if isinstance(body, dict) else body
        connection.request(method, target, sent, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        text = answer.read().decode()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text, answer.headers.get("ETag")
    finally:
        connection.close()


class Lines:
    """A stream of JSON Lines, read on a thread; `all` grows until the other end is done, which `join` waits for."""

    def __init__(self, path, target):
        self.connection = Connection(path, timeout=60 * SLOW)
        self.connection.request("GET", target)
        self.socket = self.connection.sock
        self.answer = self.connection.getresponse()
        self.all = []
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.read, daemon=True)
        if self.answer.status == 200:
            self.thread.start()

    def read(self):
        try:
            for line in self.answer:
                if line.strip():
                    with self.changed:
                        self.all.append(json.loads(line))
                        self.changed.notify_all()
        except (OSError, ValueError, http.client.HTTPException):
            pass

    def until(self, wanted, seconds=20 * SLOW):
        """The first line that is wanted."""
        with self.changed:
            self.changed.wait_for(lambda: any(wanted(line) for line in self.all), seconds)
            return next((line for line in self.all if wanted(line)), None)

    def join(self, seconds=20 * SLOW):
        self.thread.join(seconds)
        return not self.thread.is_alive()

    def drop(self):
        """As a launcher that dies."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.connection.close()
