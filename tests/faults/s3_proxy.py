"""A small proxy in front of an S3 server on loopback, which answers some requests as a server in trouble does."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{text}</Message></Error>'
HOP = ("connection", "transfer-encoding", "keep-alive", "content-length", "date", "server")

TROUBLES = ("error", "throttle", "slow", "cut", "lost answer")
"""A 500; a 503 that asks to slow down; an answer late; an answer cut in its middle; a request done, and no answer."""


class Trouble:
    """What a share of requests meets, drawn by a seed; counts what was done.

    Parameters
    ----------
    kind
        One of `TROUBLES`, or ``"any"``.
    share
        Of requests; 1: nothing else.
    seconds
        How late a slow answer is.
    """

    def __init__(self, kind: str, share: float, seed: int = 0, seconds: float = 0.2) -> None:
        self.kind, self.share, self.seconds = kind, share, seconds
        self.once = False
        """Whether the next request meets it for sure."""
        self.met: Counter[str] = Counter()
        self._rng, self._lock = random.Random(seed), threading.Lock()

    def next(self) -> str:
        """Draw what the next request meets; empty: nothing."""
        with self._lock:
            kind, self.once = (self.kind if self.once else ""), False
            if not kind and self._rng.random() < self.share:
                kind = self._rng.choice(TROUBLES) if self.kind == "any" else self.kind
            self.met[kind or "well"] += 1
        return kind


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    trouble: Trouble
    server_port: int

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        kind = self.trouble.next()
        if kind == "error":
            self._answer(500, [], ERROR.format(code="InternalError", text="We encountered an internal error.").encode())
            return
        if kind == "throttle":
            self._answer(503, [], ERROR.format(code="SlowDown", text="Please reduce your request rate.").encode())
            return
        if kind == "slow":
            time.sleep(self.trouble.seconds)
        called = HTTPConnection("127.0.0.1", self.server_port, timeout=60)
        try:
            called.request(self.command, self.path, body, dict(self.headers))
            answer = called.getresponse()
            content = answer.read()
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOP]
            size = answer.getheader("Content-Length") if self.command == "HEAD" else None
        finally:
            called.close()
        if kind == "lost answer":
            self.close_connection = True
            return
        self._answer(answer.status, headers, content, cut=kind == "cut", size=size)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False, size: str | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", size or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A caller who hangs up is no news."""


@contextmanager
def troubled(port: int, trouble: Trouble) -> Iterator[int]:
    """Serve on a port of loopback what a server says on another one; give the port."""
    handler = type("Handler", (_Handler,), {"trouble": trouble, "server_port": port})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
