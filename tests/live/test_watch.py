"""`markerjit watch` on running programs: by Textual's pilot, and on a pseudo-terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import NamedTuple

import pytest

import markerjit
from markerjit.model import RemoteAddress
from tests.support.c_probes import TURNS
from tests.support.commands import CLI, ENVIRONMENT, cli
from tests.support.markers import altered
from tests.support.programs import Target
from tests.support.timing import HANG_S, Limited

pytest.importorskip("textual", reason="the extra watch is not installed")

from textual.pilot import Pilot

from markerjit.watch.operator import Operator
from markerjit.watch.terminal import Watch

LOOP = "truth_loop"
BIRTH = "truth_birth"


class Seen(NamedTuple):
    """A view under a pilot, and what it left at its end."""

    view: Watch
    pilot: Pilot[int]
    operator: Operator
    left: list[str]

    async def until(self, condition: Callable[[], object]) -> None:
        """Until the view shows it."""
        deadline = time.monotonic() + HANG_S
        while not condition():
            assert time.monotonic() < deadline, (self.view.message, self.text)
            await self.pilot.pause(0.02)

    async def press(self, *keys: str, says: str) -> None:
        """Press keys, and wait for the sentence."""
        self.view.message = ""
        await self.pilot.press(*keys)
        await self.until(lambda: re.search(says, self.view.message))

    @property
    def text(self) -> str:
        """All of the screen."""
        strips = self.view.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    def row(self, name: str = LOOP):
        return next(row for row in self.view.shown.rows if row.name == name)


@asynccontextmanager
async def viewer(pid: int, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Seen]:
    with ThreadPoolExecutor(1) as thread:
        operator = thread.submit(Operator, pid).result(HANG_S)
        view = Watch(operator, thread)
        seen = Seen(view, None, operator, [])  # type: ignore[arg-type]
        try:
            async with view.run_test(size=size) as pilot:
                seen = seen._replace(pilot=pilot)
                await seen.until(lambda: view.shown.rows and view.shown.detail)
                yield seen
        finally:
            seen.left.extend(thread.submit(operator.end).result(HANG_S))


async def choose(seen: Seen, name: str) -> None:
    names = [row.name for row in seen.view.shown.rows]
    seen.view.table.move_cursor(row=names.index(name))
    await seen.until(lambda: seen.view.shown.detail and seen.view.shown.detail.row.name == name)


async def choose_mode(seen: Seen, mode: str) -> None:
    while (before := seen.view.mode) != mode:
        await seen.pilot.press("m")
        await seen.until(lambda before=before: seen.view.mode != before)


def mode_of(pid: int, name: str = LOOP) -> str | None:
    with markerjit.View(pid) as view:
        (marker,) = view.statistics(name)
    return str(marker.mode) if marker.mode else None


def address_of(pid: int, name: str) -> RemoteAddress:
    with markerjit.View(pid) as view:
        (site,) = view.sites(name)
    return site.address


# ---- by keys -------------------------------------------------------------------------------------


def test_a_marker_is_switched_on_counts_and_goes_off_with_the_view(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "500")

    async def watch() -> None:
        async with viewer(program.pid) as seen:
            await choose(seen, LOOP)
            await seen.press("o", says=f"{LOOP} is on")
            await seen.until(lambda: (seen.row().rate or 0) > 100)
            assert seen.row().state == "jump, count"
            assert "● jump, count*" in seen.text
            assert "by this view" in seen.text
            assert "off when it ends" in seen.text
            assert mode_of(program.pid) == "jump"
        assert seen.left == []

    asyncio.run(watch())

    assert mode_of(program.pid) is None


def test_mode_strategy_off_and_keep(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    async def watch() -> None:
        async with viewer(program.pid) as seen:
            await choose(seen, LOOP)
            await choose_mode(seen, "int3")
            await seen.pilot.press("s")
            await seen.until(lambda: "mode int3, threads: membarrier" in seen.text)
            await seen.press("o", says="is on$")
            await seen.until(lambda: seen.row().state == "int3, count")
            assert "(not executed)" in seen.text
            await seen.press("f", says="is off")
            await seen.until(lambda: not seen.row().is_on)
            await seen.press("k", says="was not switched on by this view")
            await seen.press("o", says="is on")
            await seen.press("k", says="stays on when this view ends")
            await seen.until(lambda: "int3, count+" in seen.text)
        assert seen.left == [f"{LOOP} stays on, as you asked"]

    asyncio.run(watch())

    assert mode_of(program.pid) == "int3"


def test_a_marker_that_was_on_before_is_left_as_it_is(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    cli("on", program.pid, LOOP)

    async def watch() -> None:
        async with viewer(program.pid) as seen:
            await choose(seen, LOOP)
            await choose_mode(seen, "int3")
            await seen.press("o", says="is on")

    asyncio.run(watch())

    assert mode_of(program.pid) == "int3"


def test_a_switch_is_made_stage_by_stage_and_changed_bytes_are_lit(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "500")

    async def watch() -> None:
        async with viewer(program.pid) as seen:
            await choose(seen, LOOP)
            await choose_mode(seen, "int3")
            await seen.press("o", says="is on")
            await choose_mode(seen, "jump")
            await seen.press("n", says="n makes the next")
            await seen.until(lambda: "0 of 2 stages made" in seen.text)
            await seen.press("o", says="is being made in stages")
            await seen.press("n", says="stage 1 is made")
            await seen.until(lambda: "[00]" in seen.text and "1 of 2 stages" in seen.text)
            hits = seen.row().hits
            await seen.until(lambda: seen.row().hits > hits)
            assert seen.row().state == "int3, count"
            assert "journal open: our 2 edits" in seen.text
            await seen.press("n", says="all stages are made")
            await seen.until(lambda: seen.row().state == "jump, count")
            await seen.until(lambda: "journal empty" in seen.text)

    asyncio.run(watch())

    assert mode_of(program.pid) is None


@pytest.mark.parametrize("end", ["undo", "leave"])
def test_stages_are_taken_back_by_a_key_and_at_the_end(target: Callable, end: str) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    async def watch() -> None:
        async with viewer(program.pid) as seen:
            await choose(seen, LOOP)
            await seen.press("n", says="n makes the next")
            await seen.press("n", says="stage 1 is made")
            if end == "undo":
                await seen.press("u", says="is taken back")
                await seen.press("u", says="nothing is being made")

    asyncio.run(watch())

    with markerjit.View(program.pid) as view:
        arena = view.arena()
        assert arena
        assert arena.writer is None
    assert mode_of(program.pid) is None


def test_a_look_that_comes_back_after_the_end_is_dropped(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    began = threading.Event()

    async def watch() -> None:
        async with viewer(program.pid) as seen:
            look = seen.operator.look

            def late(chosen: str) -> object:
                began.set()
                while seen.view.query("#heading"):
                    time.sleep(0.0001)
                return look(chosen)

            seen.operator.look = late  # type: ignore[method-assign]
            await seen.until(began.is_set)

    asyncio.run(watch())


def test_a_choice_outlives_another_width(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "200")

    async def watch() -> None:
        async with viewer(program.pid, (140, 40)) as seen:
            names = [row.name for row in seen.view.shown.rows]
            assert names.index(LOOP) > 0
            await choose(seen, LOOP)
            for width in (100, 80, 150):
                columns = seen.view._widths
                await seen.pilot.resize_terminal(width, 40)
                await seen.until(lambda before=columns: seen.view._widths != before)
                await seen.press("o", says=f"{LOOP} is on")
                assert seen.view.table.cursor_row == names.index(LOOP)
                await seen.press("f", says=f"{LOOP} is off")

    asyncio.run(watch())


def test_events_are_recorded_and_shown(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "200")

    async def watch() -> None:
        async with viewer(program.pid, (140, 40)) as seen:
            await choose(seen, LOOP)
            assert "e records them" in seen.text
            await seen.press("e", says="are recorded while it is on")
            await seen.until(lambda: re.search(rf"{LOOP} i=0 n=\d+", seen.text))
            await seen.press("e", says="recorded no more")
            await seen.until(lambda: "e records them" in seen.text)

    asyncio.run(watch())

    assert mode_of(program.pid) is None


def test_events_of_no_marker_are_refused(target: Callable) -> None:
    """A key may come before the first look has found a marker to choose."""
    operator = Operator(target("truth_threads", "1", "--rate", "500").pid)
    try:
        with pytest.raises(markerjit.MarkerError):
            operator.record("", None, None)
    finally:
        assert operator.end() == []


def test_two_viewers_of_one_process_are_told_of_each_other(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    async def watch() -> None:
        async with viewer(program.pid) as first, viewer(program.pid) as other:
            await choose(first, LOOP)
            await choose(other, LOOP)
            await first.press("n", says="n makes the next")
            await other.press("o", says="changes process .* in stages")
            await first.press("u", says="is taken back")
            await other.press("o", says="is on")
            await first.until(lambda: first.row().is_on)
            await first.press("k", says="was not switched on by this view")

    asyncio.run(watch())

    assert mode_of(program.pid) is None


def test_a_refusal_is_a_sentence(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    async def watch() -> None:
        async with viewer(program.pid) as seen:
            await choose(seen, LOOP)
            with markerjit.attach(program.pid) as session, session.trace(LOOP):
                await seen.press("o", says="recorded by a trace of this very process")
                await seen.until(lambda: seen.row().state == "jump, record")

    asyncio.run(watch())


def test_a_stage_is_refused_where_the_bytes_are_not_what_they_were(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    address = address_of(program.pid, LOOP)

    async def watch() -> None:
        async with viewer(program.pid) as seen:
            await choose(seen, LOOP)
            await choose_mode(seen, "int3")
            await seen.press("o", says="is on")
            await choose_mode(seen, "jump")
            await seen.press("n", says="n makes the next")
            await seen.press("n", says="stage 1 is made")
            # Behind the breakpoint, where nothing is executed.
            with altered(program.pid, address, 1) as head:
                await seen.press("n", says="holds 10, expected 00")
                await seen.until(lambda: "1 of 2 stages" in seen.text)
                with markerjit.View(program.pid) as view:
                    assert view.read(address, 2) == head == b"\xcc\x10"
            await seen.press("u", says="the change is taken back")
        assert seen.left == []

    asyncio.run(watch())

    assert mode_of(program.pid) is None


def test_counts_of_a_probe_in_c_are_shown_as_they_grow(target: Callable, probe: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    cli("on", program.pid, LOOP, "--probe", probe(TURNS, "count"))

    async def watch() -> None:
        async with viewer(program.pid, (80, 60)) as seen:
            await choose(seen, LOOP)
            await seen.until(lambda: re.search(r" turns [1-9]", seen.text))
            first = seen.view.shown.detail
            assert first
            assert "PROBE  probe.c, in C" in seen.text
            await seen.until(lambda: seen.view.shown.detail.counts != first.counts)
            await seen.until(lambda: re.search(r" numbers [▁-█]+ [\d,]+ values from", seen.text))

    asyncio.run(watch())


def test_a_process_that_goes_away_ends_the_view(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500", may_die=True)

    async def watch() -> str:
        async with viewer(program.pid) as seen:
            await choose(seen, LOOP)
            await seen.press("o", says="is on")
            program.process.kill()
            program.process.wait()
            await seen.until(lambda: seen.view.ended)
        assert seen.left == []
        return seen.view.ended

    assert asyncio.run(watch()) == f"process {program.pid} has ended"


@pytest.mark.parametrize(
    "size",
    [
        *((20, 5), (1, 1), (200, 60)),
        *(pytest.param(size, marks=pytest.mark.long) for size in ((20, 24), (80, 5))),
    ],
)
def test_any_size_of_a_terminal_is_survived(target: Callable, size: tuple[int, int]) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    async def watch() -> None:
        async with viewer(program.pid) as seen:
            await choose(seen, LOOP)
            await seen.press("e", says="are recorded")
            await seen.pilot.resize_terminal(*size)
            at_s = seen.view.shown.at_s
            await seen.until(lambda: seen.view.shown.at_s > at_s + 0.5)
            await seen.pilot.press("space", "down", "up", "n")
            if size >= (20, 5):
                assert "truth_" in seen.text
            await seen.pilot.resize_terminal(80, 24)
            await seen.until(lambda: "EVENTS" in seen.text or "STEPS" in seen.text)

    asyncio.run(watch())


# ---- on a terminal -------------------------------------------------------------------------------

_ESCAPE = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>]")


class Terminal:
    """A command on a pseudo-terminal of 80 columns and 24 lines."""

    def __init__(self, *arguments: object, **environment: str) -> None:
        self.master, self._slave = pty.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self._slave)
        self.output = b""
        self.process = Limited(
            [*CLI, *map(str, arguments)],
            stdin=self._slave, stdout=self._slave, stderr=self._slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**ENVIRONMENT, "TERM": "xterm-256color", **environment},
        )  # fmt: skip

    def read_until(self, pattern: bytes) -> bytes:
        """All output without escape sequences, which has this."""
        deadline = time.monotonic() + HANG_S
        while not re.search(pattern, text := _ESCAPE.sub(b"", self.output)):
            left_s = deadline - time.monotonic()
            assert left_s > 0, text
            if select.select([self.master], [], [], left_s)[0]:
                self.output += os.read(self.master, 1 << 16)
        return text

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self) -> int:
        """Its exit code, once all of its output was read."""
        deadline = time.monotonic() + HANG_S
        while (code := self.process.poll()) is None or select.select([self.master], [], [], 0)[0]:
            assert time.monotonic() < deadline, self.output[-2000:]
            if select.select([self.master], [], [], 0.05)[0]:
                self.output += os.read(self.master, 1 << 16)
        return code

    def is_restored(self) -> bool:
        """Whether the terminal is as it was: its settings, its screen and its cursor."""
        settings = termios.tcgetattr(self._slave) == self.before
        left = self.output.rfind(b"\x1b[?1049l") > self.output.rfind(b"\x1b[?1049h")
        return settings and left and self.output.rfind(b"\x1b[?25h") > 0


@contextmanager
def terminal(*arguments: object, **environment: str) -> Iterator[Terminal]:
    opened = Terminal(*arguments, **environment)
    try:
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()
        os.close(opened._slave)
        with suppress(OSError):
            os.close(opened.master)


def watching(program: Target, **environment: str) -> contextmanager[Terminal]:
    return terminal("watch", program.pid, **environment)


@pytest.mark.parametrize(
    "environment", [{}, {"NO_COLOR": "1"}, pytest.param({"TERM": "vt100"}, marks=pytest.mark.long)]
)
def test_on_a_terminal_keys_switch_and_the_end_switches_off(
    target: Callable, environment: dict[str, str]
) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with watching(program, **environment) as shown:
        shown.read_until(rb"e records them")
        shown.press(b"\x1b[B")
        shown.read_until(rb'"i %d n %lu"')
        shown.press(b"o")
        shown.read_until(rb"truth_loop is on")
        assert mode_of(program.pid) == "jump"
        if environment.get("NO_COLOR"):
            colours = re.findall(rb"\x1b\[[0-9;]*38;2;(\d+);(\d+);(\d+)", shown.output)
            assert all(red == green == blue for red, green, blue in colours)
        shown.press(b"q")
        assert shown.end() == 0
        assert shown.is_restored()

    assert b"Traceback" not in shown.output
    assert mode_of(program.pid) is None


@pytest.mark.parametrize(
    ("number", "key"),
    [
        *((signal.SIGTERM, b""), (None, b"\x03")),
        *(pytest.param(end, b"", marks=pytest.mark.long) for end in (signal.SIGHUP, signal.SIGINT)),
    ],
)
def test_a_signal_or_ctrl_c_restores_the_terminal_and_switches_off(
    target: Callable, number: int | None, key: bytes
) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with watching(program) as shown:
        shown.read_until(rb"e records them")
        shown.press(b"\x1b[B")
        shown.read_until(rb'"i %d n %lu"')
        shown.press(b"o")
        shown.read_until(rb"truth_loop is on")
        if number is None:
            shown.press(key)
        else:
            shown.process.send_signal(number)
        assert shown.end() == (0 if number is None else 128 + number)
        assert shown.is_restored()

    assert b"Traceback" not in shown.output
    assert mode_of(program.pid) is None


def test_the_end_of_the_process_is_said_after_the_view(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500", may_die=True)

    with watching(program) as shown:
        shown.read_until(rb"e records them")
        program.process.kill()
        program.process.wait()
        assert shown.end() == 0
        assert shown.is_restored()

    assert f"markerjit: process {program.pid} has ended".encode() in shown.output
    assert b"Traceback" not in shown.output


def test_a_terminal_that_goes_away_ends_the_view_and_switches_off(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with watching(program) as shown:
        shown.read_until(rb"e records them")
        shown.press(b"\x1b[B")
        shown.read_until(rb'"i %d n %lu"')
        shown.press(b"o")
        shown.read_until(rb"truth_loop is on")
        os.close(shown.master)
        shown.process.wait(HANG_S)

    assert mode_of(program.pid) is None


def test_a_terminal_that_cannot_place_text_gets_a_sentence(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")

    with watching(program, TERM="dumb") as shown:
        assert shown.end() == 1
    piped = cli("watch", program.pid)

    instead = f"markerjit status {program.pid} prints the markers once"
    sentence = f"markerjit: this terminal cannot place text (TERM=dumb); {instead}"
    assert shown.output.decode().split() == sentence.split()
    assert (piped.returncode, piped.stdout) == (1, "")
    assert piped.stderr == (
        f"markerjit: watch needs a terminal, but standard input or output is not one; {instead}\n"
    )


def test_without_textual_a_sentence_says_how_to_get_it(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    script = (
        "import sys; sys.modules['textual'] = None\nfrom markerjit.cli.main import main; main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, "watch", str(program.pid)],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'markerjit[watch]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["status", "list"])
def test_no_other_command_loads_textual(target: Callable, command: str) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    script = (
        "import sys\nfrom markerjit.cli.main import run\nrun(sys.argv[1:])\n"
        "sys.exit('textual' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, command, str(program.pid)],
        env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=False,
    )  # fmt: skip

    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [((1 << 22,), "no process 4194304"), (("{pid}", "no_such"), "no marker")],
)
def test_what_cannot_be_watched_is_refused_before_the_screen_changes(
    target: Callable, arguments: tuple[object, ...], sentence: str
) -> None:
    program = target("truth_threads", "1", "--rate", "500")
    words = [str(word).format(pid=program.pid) for word in arguments]

    with terminal("watch", *words) as shown:
        assert shown.end() == 1

    assert sentence in shown.output.decode()
    assert b"\x1b[?1049h" not in shown.output


def test_a_breakpoint_is_put_only_where_the_command_has_asked_for_one(target: Callable) -> None:
    program = target("truth_prototypes")
    name = "func:truth_prototypes:nothing"

    for asks in (False, True):
        operator = Operator(program.pid, name, breakpoints=asks)
        try:
            if asks:
                operator.switch_on(name, None, None)
                assert mode_of(program.pid, name) == "int3"
            else:
                with pytest.raises(markerjit.Refused, match="--breakpoints"):
                    operator.switch_on(name, None, None)
        finally:
            operator.end()
    assert mode_of(program.pid, name) is None
