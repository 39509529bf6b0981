"""The checks that a request must pass to be answered.

A page of another site can make a browser send requests to 127.0.0.1, but it does not know the token
and cannot read an answer. If it makes a name of its own resolve to 127.0.0.1 (DNS rebinding), that
name is in `Host`. Its origin is in `Origin` and `Sec-Fetch-Site`. Every one of these is checked, so
a request is refused as soon as one of them is wrong.

What this does not do: protect from other programs of this user, which can read our memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import compare_digest
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse

from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost")
READING = ("GET", "HEAD")
WRITING = "POST"

_OWN_SITES = (b"same-origin", b"none")
"""The values of `Sec-Fetch-Site` for a request by our page, and for one by the user."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Denial(NamedTuple):
    """The answer to a request that is refused."""

    status: int
    sentence: str


class Guard:
    """An ASGI application that checks requests and passes the permitted ones to `app`, without the
    token in their path. Every answer gets the headers, with this Content-Security-Policy."""

    def __init__(self, app: ASGIApp, port: int, token: str, policy: str) -> None:
        self._app = app
        self._hosts = [f"{host}:{port}".encode() for host in HOSTS]
        self._origins = [b"http://" + host for host in self._hosts]
        self._token = token.encode()
        self._headers = {**_HEADERS, "Content-Security-Policy": policy}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"no requests of type {scope['type']} are served")

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        token, _, path = scope["path"].removeprefix("/").partition("/")
        denial = self.denial(scope["method"], token, scope["headers"])
        if denial:
            answer = PlainTextResponse(f"{denial.sentence}\n", denial.status)
            await answer(scope, receive, send_guarded)
        else:
            await self._app({**scope, "path": f"/{path}"}, receive, send_guarded)

    def denial(
        self, method: str, token: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Denial | None:
        """The refusal of a request; None for a request that is permitted. Names of headers must be
        in lower case."""
        hosts, origins, sites = (
            [value for name, value in headers if name == key]
            for key in (b"host", b"origin", b"sec-fetch-site")
        )
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return Denial(421, f"this view is at {self._hosts[0].decode()} and nowhere else")
        if not compare_digest(token.encode(errors="surrogatepass"), self._token):
            return Denial(403, "the address is not the one that markerjit has printed")
        is_reading = method in READING
        if not is_reading and method != WRITING:
            return Denial(405, f"{method} is not served")
        if any(origin not in self._origins for origin in origins) or len(origins) > 1:
            return Denial(403, "a page of another origin is not served")
        if not is_reading and not origins:
            return Denial(403, "a command has to come from the page, with its origin")
        if any(site not in _OWN_SITES for site in sites):
            return Denial(403, "a request of another site is not served")
        return None
