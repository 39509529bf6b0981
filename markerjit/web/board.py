"""The newest state, for any number of readers. A slow reader misses states and delays no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

RETRY_MS = 1000
"""The milliseconds after which a browser that has lost its connection tries again."""

_QUIET_S = 15.0
"""The seconds without news after which a reader gets a comment, which shows whether the browser is
still there."""


class Board:
    """The newest document and its readers, all in one event loop."""

    def __init__(self) -> None:
        self._packed = b""
        self._number = 0
        self._is_closed = False
        self._news = asyncio.Event()

    def publish(self, document: dict[str, Any]) -> None:
        """Send this document to all readers, unless it equals the newest one. Text is escaped to
        ASCII."""
        packed = f"data: {json.dumps(document)}\n\n".encode()
        if packed != self._packed:
            self._packed = packed
            self._number += 1
            self._wake()

    def close(self) -> None:
        """End the readers after the newest document."""
        self._is_closed = True
        self._wake()

    async def read(self) -> AsyncIterator[bytes]:
        """The newest document and those that follow, as server-sent events."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        number = 0
        while True:
            news = self._news
            if number != self._number:
                number = self._number
                yield self._packed
            elif self._is_closed:
                return
            else:
                try:
                    await asyncio.wait_for(news.wait(), _QUIET_S)
                except TimeoutError:
                    yield b": nothing new\n\n"

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
