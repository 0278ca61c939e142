"""The listener of the status page: two documents, read only."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socket import socket
from typing import Any

import structlog

__all__ = ["StatusServer"]

_log = structlog.get_logger(__name__)

_MOST_CONNECTIONS = 64
_IDLE_S = 10.0
_FRESH_S = 0.5  # however many look, the daemon is asked twice a second

Headers = tuple[tuple[str, str], ...]


class StatusServer(ThreadingHTTPServer):
    """GET / is the page, GET /status.json what it shows. Raises OSError where the address cannot be opened.

    `hosts` are the names under which it may be asked for; None: any. A page of another site, whose name was made to
    point at this host, is refused by it.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], snapshot: Callable[[], Any], hosts: frozenset[str] | None) -> None:
        self.hosts = hosts
        self.page = files("verifier.statuspage").joinpath("page.html").read_bytes()
        self.policy = _content_security_policy(self.page.decode())
        self._snapshot = snapshot
        self._lock = threading.Lock()
        self._made: tuple[float, bytes] = (float("-inf"), b"")
        self._room = threading.Semaphore(_MOST_CONNECTIONS)
        super().__init__(address, _Handler)
        self._thread = threading.Thread(target=self.serve_forever, name="status-page", daemon=True)

    @property
    def port(self) -> int:
        """The port that was taken."""
        return self.server_port

    def server_bind(self) -> None:
        """As the socket server's: the HTTP server's looks up the host's name, which may take long."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def close(self) -> None:
        """Ends the listener."""
        if self._thread.ident is not None:
            self.shutdown()
            self._thread.join()
        self.server_close()

    def status(self) -> bytes:
        """The JSON text, at most half a second old."""
        with self._lock:
            made, text = self._made
            now = time.monotonic()
            if now - made > _FRESH_S:
                text = json.dumps(self._snapshot(), separators=(",", ":")).encode()
                self._made = now, text
            return text

    def answer(self) -> tuple[HTTPStatus, str, bytes]:
        """What is sent for /status.json."""
        try:
            return HTTPStatus.OK, "application/json", self.status()
        except Exception:
            _log.exception("status_not_told")
            return HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", b"see the daemon's log\n"

    def process_request(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Hands a connection to a thread, or closes it where there are too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Answers one connection's requests."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """A browser that goes away is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: StatusServer
    protocol_version = "HTTP/1.1"
    server_version = "verifier"
    sys_version = ""
    timeout = _IDLE_S

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        if self.server.hosts is not None and _host(self.headers.get("Host", "")) not in self.server.hosts:
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"this host is not served here\n")
        elif path == "/":
            policy = (("Content-Security-Policy", self.server.policy),)
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page, policy)
        elif path == "/status.json":
            self._send(*self.server.answer())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is / and /status.json\n")

    def _send(self, status: HTTPStatus, kind: str, body: bytes, more: Headers = ()) -> None:
        self.send_response(status)
        headers: Headers = (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        )
        for name, value in (*headers, *more):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Requests are not logged: a page that is open asks every second."""


def _host(header: str) -> str:
    """The name in a Host header, without its port."""
    return re.sub(r":\d+$", "", header).strip("[]").lower()


def _content_security_policy(page: str) -> str:
    """Only the page's own script and style run, and it talks to nobody but this listener."""

    def digests(tag: str) -> str:
        found = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in found)

    return (
        f"default-src 'none'; script-src {digests('script')}; style-src {digests('style')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
