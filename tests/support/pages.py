"""A view that is served, and requests to it as a program makes them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple

from tests.support.commands import running
from tests.support.timing import HANG_S, Wait

ADDRESS = re.compile(r"^in a browser: (http://127\.0\.0\.1:(\d+)/([\w-]+)/)$")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Served(NamedTuple):
    """A command with --web."""

    process: subprocess.Popen[str]
    url: str
    port: int
    token: str

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
        """One request, with these headers instead of the usual ones; an empty one is left out."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        try:
            connection.putrequest(method, path, skip_host=True)
            usual = {"Host": f"127.0.0.1:{self.port}"}
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            for name, value in {**usual, **given}.items():
                if value:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body.encode())))
            connection.endheaders(None if body is None else body.encode())
            response = connection.getresponse()
            lower = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, lower, response.read().decode())
        finally:
            connection.close()

    def act(self, command: object, **headers: str) -> Answer:
        """A command as the page sends it, with these headers instead."""
        usual = {
            "Origin": f"http://127.0.0.1:{self.port}",
            "Content_Type": "application/json",
        }
        return self.ask("POST", f"/{self.token}/act", json.dumps(command), **{**usual, **headers})

    @contextmanager
    def states(self) -> Iterator[States]:
        """The states, as one browser gets them."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        try:
            connection.request("GET", f"/{self.token}/state")
            response = connection.getresponse()
            assert response.status == 200
            yield States(response)
        finally:
            connection.close()

    def end(self, number: int) -> tuple[int, str]:
        """End it by a signal: its exit code, and what it has written to standard error."""
        self.process.send_signal(number)
        return self.outcome()

    def outcome(self) -> tuple[int, str]:
        """The same, where it ends by itself."""
        _, errors = self.process.communicate()
        return self.process.returncode, errors


class States:
    """The stream of one reader."""

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response

    def next(self) -> dict[str, Any]:
        """The next state. Raises EOFError at the end."""
        while line := self._response.readline():
            if line.startswith(b"data: "):
                state: dict[str, Any] = json.loads(line[6:])
                return state
        raise EOFError

    def until(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first state for which this is true."""
        wait = Wait("a state")
        while not condition(state := self.next()):
            wait.left_s()
        return state


@contextmanager
def served(*arguments: object) -> Iterator[Served]:
    """A command with --web, until its end."""
    with running(*arguments, "--web") as process:
        yield served_by(process)


def served_by(process: subprocess.Popen[str]) -> Served:
    """The view of a command that was started, once it is there."""
    assert process.stdout and process.stderr
    line = process.stdout.readline().rstrip("\n")
    address = ADDRESS.match(line)
    assert address, (line, process.stderr.read())
    return Served(process, address[1], int(address[2]), address[3])
