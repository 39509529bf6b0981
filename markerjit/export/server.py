"""Text on a port of 127.0.0.1 for a scraper, one request after the other.

    GET /metrics   the series, in the format OpenMetrics
    GET /events    the newest events, as lines of JSON

A request waits until the owner of the sessions has made its text: a session is for one thread. A
client that sends nothing is left after some seconds. A request for another host is refused, so that
a page in a browser cannot read the numbers by a name that leads here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from markerjit.errors import Refused
from markerjit.export.openmetrics import CONTENT_TYPE

ADDRESS = "127.0.0.1"
PORT = 7622
_PORTS = 50
_PATIENCE_S = 5.0
_PATHS = {"/metrics": CONTENT_TYPE, "/events": "application/jsonl; charset=utf-8"}


class Server:
    """Listens from the beginning on; answers once `answer` is called often. `port` is its port.

    Raises Refused where none of 50 ports is free.
    """

    def __init__(self, port: int = PORT) -> None:
        self._condition = threading.Condition()
        self._asked: str | None = None
        self._answer: bytes | None = None
        self._closed = False
        self._server = _listening(port, self._wait_for)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def answer(self, make: Callable[[str], bytes]) -> None:
        """Answer a request that waits, with what `make` makes of its path."""
        with self._condition:
            path = self._asked
        if path is None:
            return
        text = make(path)
        with self._condition:
            self._asked, self._answer = None, text
            self._condition.notify_all()

    def wait(self, most_s: float) -> None:
        """Wait until somebody asks, for so long at most."""
        with self._condition:
            self._condition.wait_for(lambda: self._asked is not None, most_s)

    def close(self) -> None:
        """End it. A request that waits is told so."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _wait_for(self, path: str) -> bytes | None:
        """In the thread of the server: the text, or None at the end."""
        with self._condition:
            self._asked, self._answer = path, None
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._closed or self._answer is not None, _PATIENCE_S)
            self._asked = None
            return self._answer


def _listening(port: int, text_of: Callable[[str], bytes | None]) -> HTTPServer:
    class Handler(BaseHTTPRequestHandler):
        """One request. The connection is closed after it."""

        timeout = _PATIENCE_S
        server_version, sys_version = "markerjit", ""

        def do_GET(self) -> None:
            """Answer with the text of the path."""
            host = (self.headers.get("Host") or ADDRESS).partition(":")[0]
            path = self.path.partition("?")[0]
            if host not in (ADDRESS, "localhost"):
                self.send_error(403, "this is for 127.0.0.1")
            elif path not in _PATHS:
                self.send_error(404, "there are /metrics and /events")
            elif (text := text_of(path)) is None:
                self.send_error(503, "no answer now")
            else:
                self.send_response(200)
                self.send_header("Content-Type", _PATHS[path])
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """A scrape is no news."""

    class Quiet(HTTPServer):
        """A client that goes away in the middle is no news either."""

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Nothing."""

    last = min(port + _PORTS, 1 << 16)
    for number in range(port, last):
        try:
            return Quiet((ADDRESS, number), Handler)
        except OSError:
            continue
    raise Refused(f"no port of {ADDRESS} from {port} to {last - 1} is free; --port names another")
