"""A client of kvserver, and the server's own counts."""

from __future__ import annotations

import re
import socket
from types import TracebackType
from typing import Self

from tests.support.timing import HANG_S, wait_until


class Client:
    """A connection to kvserver."""

    def __init__(self, port: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", int(port)), timeout=HANG_S)
        self.file = self.socket.makefile("rb")

    def ask(self, *words: str) -> bytes | int | None:
        parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        self.socket.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        kind, rest = (line := self.file.readline())[:1], line[1:].strip()
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
        assert kind in b"+:", line
        return int(rest) if kind == b":" else rest

    def counters(self) -> dict[str, int]:
        """The server's own counts. Asking is a command too, and counts itself first."""
        info = self.ask("INFO")
        assert isinstance(info, bytes)
        return {name: int(value) for name, value in re.findall(r"(\w+):(\d+)\r\n", info.decode())}

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


COUNTER_OF = {
    "kv_command": "commands",
    "kv_hit": "hits",
    "kv_miss": "misses",
    "kv_store": "stores",
    "kv_delete": "deletes",
    "kv_accept": "connections_accepted",
    "kv_close": "connections_closed",
}


class Truth:
    """A server's counters, asked over connections that stay: one to each of its two workers."""

    def __init__(self, port: str) -> None:
        self._clients = [Client(port), Client(port)]
        self._clients[1].ask("PING")  # accepted, and so counted
        self._before = self._clients[0].counters()

    def difference(self) -> dict[str, int]:
        """What was counted since, by marker, once every other connection is closed."""
        asker = self._clients[0]
        wait_until(
            lambda: (
                (now := asker.counters())["connections_accepted"]
                == now["connections_closed"] + len(self._clients)
            ),
            "connections to close",
        )
        for client in self._clients:  # a worker that answers has left the marker of a close
            client.ask("PING")
        now = asker.counters()
        return {name: now[counter] - self._before[counter] for name, counter in COUNTER_OF.items()}

    def close(self) -> None:
        for client in self._clients:
            client.close()
