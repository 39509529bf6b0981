"""A view in a browser: what it needs, its port and its address, for the commands that have one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from markerjit.cli import output
from markerjit.errors import Refused
from markerjit.printable.packages import how_to_get

if TYPE_CHECKING:
    from markerjit.web.server import View

PACKAGES = ("starlette", "uvicorn")


def check() -> None:
    """Raise Refused where a package is missing."""
    for package in PACKAGES:
        if find_spec(package) is None:
            raise Refused(f"--web needs the package {package}: {how_to_get(package, 'web')}")


def serve(view: View, port: int | None, is_over: Callable[[], object]) -> None:
    """Serve a view until it ends or `is_over`, and print its address. Raises Refused without a
    free port."""
    from markerjit.web import server

    server.serve(view, server.listen(port or server.PORT), _announce, is_over)


def _announce(address: str) -> None:
    output.say(f"in a browser: {address}")
    output.say("Ctrl-C ends it")
    sys.stdout.flush()
