"""The board of a page, its lab with made-up experiments, and ports."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from subprocess import DEVNULL, PIPE
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra web is not installed")
pytest.importorskip("uvicorn", reason="the extra web is not installed")

from markerjit.errors import MarkerError, Refused
from markerjit.lab.experiment import Experiment, Picture, Run, Tell
from markerjit.lab.processes import end, ending_of, start
from markerjit.web import lab, server
from markerjit.web.board import Board
from markerjit.web.lab import Lab
from tests.support.timing import HANG_S, Wait


def states(board: Board) -> Iterator[Any]:
    """What a new reader gets of a board that is closed."""

    async def read() -> list[bytes]:
        return [piece async for piece in board.read()]

    first, *others = asyncio.run(read())
    assert first == b"retry: 1000\n\n"
    for piece in others:
        assert piece.endswith(b"\n\n")
        yield json.loads(piece.removeprefix(b"data: "))


# ---- the board -----------------------------------------------------------------------------------


def test_a_reader_gets_the_newest_state_and_then_the_end() -> None:
    board = Board()

    board.publish({"number": 1})
    board.publish({"number": 2, "text": "é\n\ndata: x"})
    board.close()

    assert list(states(board)) == [{"number": 2, "text": "é\n\ndata: x"}]


def test_readers_wait_for_what_is_new_and_get_it_once() -> None:
    async def watch() -> list[bytes]:
        board = Board()
        reader = board.read()
        got = [await anext(reader)]
        for number in (1, 1, 2):
            board.publish({"number": number})
            if number not in [json.loads(piece[6:])["number"] for piece in got[1:]]:
                got.append(await anext(reader))
        waiting = asyncio.create_task(anext(reader))
        await asyncio.sleep(0)
        assert not waiting.done()
        board.publish({"number": 3})
        got.append(await waiting)
        board.close()
        got += [piece async for piece in reader]
        return got

    assert asyncio.run(watch())[1:] == [
        f'data: {{"number": {number}}}\n\n'.encode() for number in (1, 2, 3)
    ]


# ---- the lab -------------------------------------------------------------------------------------

RUN = Run("raw", "care", 7, {"torn": 1}, 1, "SIGILL", (Picture("at", 16, b"\x90"),), "It died.")


class Held:
    """An experiment that goes on when it is let."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        self.ended = ""

    def conduct(self, tell: Tell) -> Iterator[Run]:
        tell("raw", 1, 4)
        self.began.set()
        assert self.go_on.wait(HANG_S)
        try:
            tell("raw", 2, 4)
        except BaseException as error:
            self.ended = type(error).__name__
            raise
        yield RUN


def made_up(letter: str, conduct: Any) -> Experiment:
    return Experiment(
        letter, "a title", "What?", ("it dies", "it lives"), conduct, lambda _: 0, "", (), ()
    )


def conduct_at_once(_: Tell) -> Iterator[Run]:
    yield RUN


def conduct_nothing(_: Tell) -> Iterator[Run]:
    raise MarkerError("no child can be had\x1b[2J")
    yield RUN


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    made = Held()
    conducts = {"h": made.conduct, "z": conduct_at_once, "n": conduct_nothing}
    experiments = {letter: made_up(letter, conduct) for letter, conduct in conducts.items()}
    monkeypatch.setattr(lab, "EXPERIMENTS", experiments)
    return made


async def begin(view: Lab, letter: str) -> bool:
    answer: bool = (await view.obey({"do": "run", "letter": letter}))["started"]
    return answer


async def ended(view: Lab, number: int) -> dict[str, Any]:
    wait = Wait(f"the end of experiment {number}")
    while (document := view.document())["last"]["number"] < number:
        wait.left_s()
        await asyncio.sleep(0.001)
    return document


def test_one_experiment_runs_at_a_time_with_its_progress(held: Held) -> None:
    async def watch() -> None:
        with ThreadPoolExecutor(1) as thread:
            view = Lab(thread)
            assert await begin(view, "h")
            await asyncio.to_thread(held.began.wait)
            document = view.document()
            assert document["running"] == "h"
            assert document["progress"] == {"name": "raw", "percent": 25}
            assert not await begin(view, "z")
            held.go_on.set()
            document = await ended(view, 1)
            assert (document["running"], document["progress"]) == ("", None)
            assert await begin(view, "z")
            document = await ended(view, 2)
        assert [each["letter"] for each in document["experiments"] if "runs" in each] == ["h", "z"]

    asyncio.run(watch())


def test_an_experiment_that_fails_has_a_sentence_and_the_view_goes_on(held: Held) -> None:
    async def watch() -> None:
        with ThreadPoolExecutor(1) as thread:
            view = Lab(thread)
            assert await begin(view, "n")
            document = await ended(view, 1)
            assert document["failures"] == {"n": "no child can be had\\x1b[2J"}
            assert await begin(view, "z")
            await ended(view, 2)

    asyncio.run(watch())


def test_the_end_of_the_view_ends_the_experiment_that_runs(held: Held) -> None:
    board = Board()

    async def watch() -> None:
        with ThreadPoolExecutor(1) as thread:
            view = Lab(thread)
            assert await begin(view, "h")
            await asyncio.to_thread(held.began.wait)
            running = asyncio.create_task(view.run(board, lambda: True))
            await asyncio.sleep(0)
            assert not await begin(view, "z")
            held.go_on.set()
            await running
        board.close()

    asyncio.run(watch())

    assert held.ended == "_Ended"
    (state,) = states(board)
    assert state["ended"] == "markerjit lab has ended"
    assert all("runs" not in each for each in state["experiments"])


@pytest.mark.parametrize("is_late", [False, True], ids=["before the end", "after the end"])
def test_the_end_of_the_view_ends_a_child_that_is_waited_for(
    is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a word of the experiment: also a child that it starts when the end has come."""
    began, over = threading.Event(), threading.Event()
    endings: list[str] = []

    def wait_for_child(_: Tell) -> Iterator[Run]:
        if is_late:
            began.set()
            over.wait(HANG_S)
        child = start([sys.executable, "-c", "input()"], stdin=PIPE, stderr=DEVNULL)
        began.set()
        endings.append(ending_of(child, HANG_S))
        end(child)
        os.stat("/of/a/child/that/is/gone")
        yield RUN

    monkeypatch.setattr(lab, "EXPERIMENTS", {"w": made_up("w", wait_for_child)})
    board = Board()

    async def watch() -> None:
        with ThreadPoolExecutor(1) as thread:
            view = Lab(thread)
            assert await begin(view, "w")
            await asyncio.to_thread(began.wait)
            running = asyncio.create_task(view.run(board, lambda: True))
            await asyncio.sleep(0)
            over.set()
            await running
        board.close()

    asyncio.run(watch())

    assert endings == ["SIGKILL"]


def test_an_error_of_ours_in_an_experiment_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def conduct_wrongly(_: Tell) -> Iterator[Run]:
        os.stat("/nowhere/at/all")
        yield RUN

    monkeypatch.setattr(lab, "EXPERIMENTS", {"w": made_up("w", conduct_wrongly)})

    async def watch() -> None:
        with ThreadPoolExecutor(1) as thread:
            view = Lab(thread)
            assert await begin(view, "w")
            (task,) = view._tasks
            with pytest.raises(OSError, match="/nowhere"):
                await task

    asyncio.run(watch())


# ---- ports ---------------------------------------------------------------------------------------


class Port:
    """A socket that binds to some ports only."""

    busy: frozenset[int] = frozenset()

    def __init__(self) -> None:
        self.number = 0

    def setsockopt(self, *_: int) -> None: ...

    def bind(self, address: tuple[str, int]) -> None:
        assert address[0] == "127.0.0.1"
        self.number = address[1]
        if self.number in self.busy:
            raise OSError(errno.EADDRINUSE, "in use")

    def listen(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(("busy", "port"), [((), 7621), ((7621,), 7622), (range(7621, 7670), 7670)])
def test_the_next_free_port_is_taken(monkeypatch: pytest.MonkeyPatch, busy: Any, port: int) -> None:
    monkeypatch.setattr(socket, "socket", Port)
    monkeypatch.setattr(Port, "busy", frozenset(busy))

    assert server.listen().number == port  # type: ignore[attr-defined]


@pytest.mark.parametrize(("port", "last"), [(7621, 7670), (65_530, 65_535)])
def test_without_a_free_port_a_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, port: int, last: int
) -> None:
    monkeypatch.setattr(socket, "socket", Port)
    monkeypatch.setattr(Port, "busy", frozenset(range(1 << 16)))

    with pytest.raises(Refused, match=f"no port of 127.0.0.1 from {port} to {last} is free"):
        server.listen(port)
