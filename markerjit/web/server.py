"""Serves a view on a port of 127.0.0.1 until it ends.

    GET  /TOKEN/        the page
    GET  /TOKEN/state   its state, as server-sent events
    POST /TOKEN/act     a command, a JSON object; the answer has a sentence

What this does not do: handle signals. It calls `is_over` several times a second instead.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from markerjit.errors import Refused
from markerjit.web.board import Board
from markerjit.web.command import Json, NotACommand
from markerjit.web.guard import Guard
from markerjit.web.page import load

ADDRESS = "127.0.0.1"
PORT = 7621
TICK_S = 0.1
_PORTS = 50
_COMMAND_BYTES = 4096
_END_S = 2
_BUSY = (errno.EADDRINUSE, errno.EACCES)


class View(Protocol):
    """A view that is served. `page` is the name of its page."""

    page: str

    async def run(self, board: Board, is_over: Callable[[], object]) -> None:
        """Publish states until the view ends or `is_over` is true."""

    async def obey(self, command: Json) -> Json:
        """Execute the command of a browser, and return the answer. Raises NotACommand."""


class _Server(uvicorn.Server):
    """Leaves signals to the command."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(port: int = PORT) -> socket.socket:
    """A socket that listens on this port of 127.0.0.1, or on the next free one. Raises Refused
    where none of 50 ports from this one on is free."""
    last = min(port + _PORTS, 1 << 16)
    for number in range(port, last):
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((ADDRESS, number))
            listener.listen()
        except OSError as error:
            listener.close()
            if error.errno not in _BUSY:
                raise
        else:
            return listener
    raise Refused(f"no port of {ADDRESS} from {port} to {last - 1} is free; --port names another")


def serve(
    view: View,
    listener: socket.socket,
    announce: Callable[[str], None],
    is_over: Callable[[], object],
) -> None:
    """Serve a view until it ends or `is_over` is true. `announce` is called with its address, which
    has the token."""
    asyncio.run(_serve(view, listener, announce, is_over))


async def _serve(
    view: View,
    listener: socket.socket,
    announce: Callable[[str], None],
    is_over: Callable[[], object],
) -> None:
    board, port, token = Board(), listener.getsockname()[1], secrets.token_urlsafe()
    page = load(view.page)
    app = Guard(_application(view, board, page.html), port, token, page.policy)
    # Requests that are not valid HTTP are not the user's concern.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    server = _Server(
        uvicorn.Config(
            app, loop="asyncio", http="h11", ws="none", lifespan="off", log_config=None,
            access_log=False, server_header=False, proxy_headers=False,
            timeout_graceful_shutdown=_END_S,
        )
    )  # fmt: skip
    serving = asyncio.create_task(server.serve([listener]))
    announce(f"http://{ADDRESS}:{port}/{token}/")
    try:
        await view.run(board, lambda: is_over() or serving.done())
    finally:
        board.close()
        server.should_exit = True
        await serving


def _application(view: View, board: Board, html: str) -> Starlette:
    async def show(request: Request) -> Response:
        return HTMLResponse(html)

    async def state(request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return StreamingResponse(board.read(), media_type="text/event-stream")

    async def act(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return JSONResponse({"sentence": "a command is application/json"}, 415)
        body = b""
        try:
            async for piece in request.stream():
                body += piece
                if len(body) > _COMMAND_BYTES:
                    return JSONResponse({"sentence": "that is too long for a command"}, 413)
        except ClientDisconnect:
            return Response()
        try:
            return JSONResponse(await view.obey(_command(body)))
        except NotACommand:
            return JSONResponse({"sentence": "that is not a command of this page"}, 400)

    return Starlette(
        routes=[
            Route("/", show),
            Route("/state", state),
            Route("/act", act, methods=["POST"]),
        ]
    )


def _command(body: bytes) -> Json:
    try:
        command = json.loads(body)
    except (ValueError, RecursionError):
        raise NotACommand("no JSON") from None
    if not isinstance(command, dict):
        raise NotACommand("no object")
    return command
