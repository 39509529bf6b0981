"""The calls of functions of a running process, followed for a while: a call graph.

    1  functions are chosen, and made ready (called.py)
    2  their entries and exits are recorded, with the stack pointer alone, as a trace (trace.py):
       24 bytes for an event, and at the end all of it is off again
    3  events become steps, steps calls, and calls are added up (markerjit/calls)

Where events were lost nobody knows which calls are open. They are given up then, and stacks begin
anew; an exit of a call that was given up brings its callers back. It is not known either between
which two events others are missing. So the calls that were read together with a loss have no times,
only numbers.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from markerjit.calls.areas import Areas
from markerjit.calls.files import unwritten
from markerjit.calls.graph import CallGraph, NotOpened, sums_of
from markerjit.calls.price import Price
from markerjit.calls.slices import Slices
from markerjit.calls.stacks import Calls, Stacks
from markerjit.calls.steps import ENTER, LEAVE, TAIL, Steps, by_thread, steps_of
from markerjit.calls.threads import Threads
from markerjit.calls.tree import Tree
from markerjit.errors import MarkerError, Refused, UnknownMarker
from markerjit.events.bounds import Bounds
from markerjit.events.plain import PlainRecords, Records
from markerjit.events.stream import EventStream
from markerjit.memory.base import proc_error
from markerjit.memory.maps import read_maps
from markerjit.memory.stat import stat_fields
from markerjit.model import Site
from markerjit.printable import counted
from markerjit.proc.permission import why_not
from markerjit.session.called import (
    Chosen,
    Planned,
    check_name,
    make_ready,
    plan_functions,
    symbol_of,
)
from markerjit.session.clock import EarlyClock
from markerjit.session.flight import FlightRecorder
from markerjit.session.openings import Progress
from markerjit.session.recording import Recording
from markerjit.session.switch import Switcher
from markerjit.session.target import Target
from markerjit.session.trace import Asked, traced
from markerjit.session.turn import Turn
from markerjit.sites import NameKind, ProbeName, parse_name
from markerjit.sites.functions import EVERY
from markerjit.sites.names import PREFIX, SUFFIX, nearest
from markerjit.sites.selection import is_named
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

POLL_S = 0.02
_LOOK_NS = 1_000_000_000
_UTIME, _STIME = 11, 12
"""Of the fields behind the name in /proc/PID/stat, in ticks."""
_ALL = "func:*,func:*:return"
"""What ends it by hand, whatever was asked for."""


class Filter(NamedTuple):
    """The calls that count.

    depth  no deeper ones; None: any
    tids   only those of these threads; None: of all
    below  only what happens below the functions of this name; None: everything
    """

    depth: int | None = None
    tids: tuple[int, ...] | None = None
    below: str | None = None


class AskedCalls(NamedTuple):
    """A request to follow calls. `slices`: a file of all calls one by one, and whether it may be
    overwritten."""

    name: ProbeName
    recording: Recording
    filter: Filter
    growth: int
    clock: EarlyClock
    limit: int | None
    duration: float | None
    slices: tuple[str, bool] | None
    progress: Progress


def functions_named(text: str | None, pid: int) -> ProbeName:
    """The name of functions that a pattern is, in which `func:` may be left out. All functions are
    those of the program itself, with those that have no symbol, and without its libraries. Raises
    BadArgument, Unsupported, and NoSuchProcess and NotPermitted where the program is not known."""
    name = parse_name("*" if text is None else text)
    parts = [_function(part) for part in name.parts or (name,)]
    without = [_function(part) for part in name.without]
    if all(part.name == "*" and not part.object for part in parts):
        program = glob.escape(_program_of(pid))
        parts = [part._replace(name=EVERY, object=program) for part in parts]
    whole = ProbeName(
        name.text, NameKind.LIST, name.text, parts=tuple(parts), without=tuple(without)
    )
    check_name(whole)
    return whole


def _program_of(pid: int) -> str:
    """The file that a process executes."""
    try:
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError as error:
        raise proc_error(pid, error, why_not) from None


def _function(name: ProbeName) -> ProbeName:
    if name.kind in (NameKind.MARKER, NameKind.USDT) and not name.source:
        return parse_name(PREFIX + name.text)
    return name


class CallTrace:
    """The calls of a process while they are followed, and afterwards.

    opened      the functions that are followed
    not_opened  those that match and are not
    """

    def __init__(
        self,
        stream: EventStream,
        chosen: Chosen,
        asked: AskedCalls,
        command: str,
    ) -> None:
        self._stream = stream
        self._records = PlainRecords(stream)
        self._limit = asked.limit
        self._tids = asked.filter.tids
        self._command = command
        symbols, self._function_of, self._kind_of = _tables(stream)
        self.opened: tuple[str, ...] = symbols
        self.not_opened = (*chosen.not_opened, *_unswitched(stream))
        roots = _roots(symbols, asked.filter.below)
        self._tree = Tree(len(symbols), depth=asked.filter.depth, roots=roots)
        self._stacks = Stacks(Areas(partial(_mappings_of, stream.pid)))
        self._threads, self._price = Threads(), Price()
        self._last: Array = np.zeros(0, np.int64)
        self._slices: Slices | None = None
        if asked.slices:
            self._path, force = asked.slices
            self._slices = Slices(self._path, stream.pid, command, symbols, force=force)
        self._failure: OSError | None = None
        self._events = self._entered = self._lost = self._untimed = 0
        self._began_ns = self._now = self._looked_ns = time.monotonic_ns()
        self._cpu_before = self._cpu = _cpu_s(stream.pid)
        self._ended = False

    def __repr__(self) -> str:
        functions = counted(len(self.opened), "function")
        state = "over" if self._ended else "going on"
        return f"<CallTrace of process {self._stream.pid}: {functions}, {state}>"

    # ---- while it lasts --------------------------------------------------------------------------

    def poll(self) -> int:
        """Take what has come since the last poll; returns how many events that were."""
        now = time.monotonic_ns()
        alive = None
        if now - self._looked_ns > _LOOK_NS:
            self._looked_ns, alive = now, _threads_of(self._stream.pid)
        self._cpu = _cpu_s(self._stream.pid) or self._cpu
        records = self._records.poll()
        self._take(records)
        self._now = now
        if alive is not None:
            self._end_threads(alive, records)
        if self._limit is not None and self._entered >= self._limit:
            self._stream.stop()
        return records.rows

    def wait(self) -> None:
        """Follow calls until the end: the time is over, there are as many as were asked for, the
        process has ended, or `stop` was called."""
        while not self.is_over():
            if not self.poll():
                time.sleep(POLL_S)

    def stop(self) -> None:
        """End it. Safe to call from a signal handler."""
        self._stream.stop()

    def is_over(self) -> bool:
        """Whether nothing more will come than what was recorded already."""
        return self._ended or self._stream.is_over()

    @property
    def target_ended(self) -> bool:
        """Whether it ended because the process did."""
        return self._stream.target_ended

    @property
    def dispossessed(self) -> bool:
        """Whether it ended because another controller has taken the rings or all functions."""
        return self._stream.dispossessed or self._stream.all_taken

    @property
    def waits(self) -> tuple[int, float]:
        """With `lossless`: how many events waited, and for how many seconds in all threads."""
        waits = self._stream.waits()
        return waits.events, waits.ns / 1e9

    def graph(self) -> CallGraph:
        """All calls so far."""
        sums = sums_of(self._tree, self._stacks, self.opened, self._now)
        cpu = None
        if self._cpu is not None and self._cpu_before is not None:
            cpu = self._cpu - self._cpu_before
        return CallGraph(
            (self._now - self._began_ns) / 1e9, *sums, self.opened, self.not_opened,
            self._events, self._lost, self._untimed, self._tree.folded, len(self._threads),
            self._price.event_ns(), cpu, self._stream.pid, self._command,
        )  # fmt: skip

    # ---- its end ---------------------------------------------------------------------------------

    def note_end(self) -> None:
        """The functions are about to be switched off."""
        self._now = max(self._now, time.monotonic_ns())
        self._cpu = _cpu_s(self._stream.pid) or self._cpu

    def finish(self) -> None:
        """Take the rest: the functions are off. Raises Refused where the file of slices could not
        be written to its end."""
        alive = _threads_of(self._stream.pid)
        self._take(self._records.rest())
        if alive:
            self._end_threads(alive)
        self._ended = True
        if self._failure:
            raise unwritten(self._path, self._failure) from self._failure

    def close(self) -> None:
        """Close the file of slices."""
        if self._slices:
            self._slices.close()

    # ---- steps -----------------------------------------------------------------------------------

    def _take(self, records: Records) -> None:
        """Add these events up."""
        lost = self._records.lost()
        is_broken, self._lost = lost > self._lost, lost
        is_meant = self._function_of[records.marker] >= 0
        if self._tids is not None:
            is_meant &= np.isin(records.tid, self._tids)
        records = Records(*(column[is_meant] for column in records))
        thread = self._threads.numbers(records.tid)
        new = len(self._threads) - len(self._last)
        self._last = np.concatenate([self._last, np.zeros(new, np.int64)])
        if is_broken:
            self._give_up()
        if not records.rows:
            return
        steps = Steps(
            thread,
            self._function_of[records.marker],
            self._kind_of[records.marker],
            records.time,
            records.stack,
        )
        order = by_thread(steps)
        steps = steps.picked(order)
        self._price.add(steps.thread, records.cpu[order], steps.time)
        ends = np.append(np.flatnonzero(np.diff(steps.thread)), steps.rows - 1)
        self._last[steps.thread[ends]] = steps.time[ends]
        self._events += steps.rows
        entered = int((steps.kind == ENTER).sum())
        self._entered += entered
        self._now = max(self._now, int(records.time[-1]))
        if not is_broken:
            self._add(self._stacks.advance(steps))
            return
        self._untimed += entered
        # As if all were at one moment: no call takes any time.
        steps = steps._replace(time=np.full(steps.rows, self._now))
        self._tree.add(self._stacks.advance(steps, exact=False))
        self._give_up()

    def _add(self, calls: Calls) -> None:
        nodes = self._tree.add(calls)
        if not self._slices or self._failure:
            return
        try:
            self._slices.write(calls, nodes, self._threads.tids)
        except OSError as error:  # what was added up is whole: that is kept, and it ends here
            self._failure = error
            self._stream.stop()

    def _give_up(self) -> None:
        """Nothing is known of the calls that are open after the last event."""
        times = np.full(len(self._threads), self._now, np.int64)
        self._add(self._stacks.stop(times, ended=False))

    def _end_threads(self, alive: Sequence[int], records: Records | None = None) -> None:
        """Close the calls of threads that have ended: they were not there before the last poll, and
        have brought nothing since."""
        tids = self._threads.tids
        is_over = ~np.isin(tids, [*alive, 0])
        if records is not None:
            is_over &= ~np.isin(tids, records.tid)
        threads = np.flatnonzero(is_over).astype(np.uint32)
        if np.isin(threads, self._stacks.frames.thread).any():
            self._add(self._stacks.stop(self._last, threads, ended=True))


@contextmanager
def called(switcher: Switcher, flights: FlightRecorder, asked: AskedCalls) -> Iterator[CallTrace]:
    """Calls, followed for the length of the context. Raises what a trace raises, and Refused where
    no function can be followed or the arena has no room."""
    target = switcher.target
    target.look()
    planned = _planned(target, asked)
    chosen = Chosen((), ())

    def prepare(turn: Turn) -> Sequence[Site]:
        nonlocal chosen, planned
        if turn.seen.files != files:  # a library has come or gone since
            planned = _planned(target, asked)
        chosen = make_ready(
            turn, planned, partial(switcher.need_current_arena, turn),
            breakpoints=asked.recording.request.breakpoints, progress=asked.progress,
        )  # fmt: skip
        asked.progress("switching on", 0)
        return chosen.sites

    files = target.seen.files
    _load()
    request = Asked(
        asked.name._replace(text=_ALL), asked.recording.read().with_rsp(), False, POLL_S,
        asked.clock, asked.growth, Bounds(asked.duration, None), prepare,
    )  # fmt: skip
    trace: CallTrace | None = None
    try:
        with traced(switcher, flights, request) as stream:
            trace = CallTrace(stream, chosen, asked, target.command)
            yield trace
            trace.note_end()
        trace.finish()
    finally:
        if trace:
            trace.close()


def _load() -> None:
    """Load what the first events need, before they come: parts of numpy are loaded when they are
    used."""
    steps = steps_of([0, 0, 0], [0, 0, 0], [ENTER, ENTER, LEAVE], [0, 0, 0], [16, 8, 8])
    stacks, tree = Stacks(), Tree(1)
    Price().add(steps.thread, steps.thread, steps.time)
    tree.add(stacks.advance(steps.picked(by_thread(steps))))
    tree.add(stacks.stop(steps.time[:1], Threads().numbers(steps.thread[:1]), ended=False))


def _planned(target: Target, asked: AskedCalls) -> Planned:
    planned = plan_functions(
        target, asked.name, breakpoints=asked.recording.request.breakpoints, progress=asked.progress
    )
    if asked.filter.below is not None:
        _check_below(planned, asked.filter.below)
    return planned


def _check_below(planned: Planned, below: str) -> None:
    """Raise UnknownMarker where the calls below a function are asked for and that is not followed,
    and Refused where it cannot be."""
    symbols = {symbol_of(each.signature.name) for each in planned.entries}
    if any(is_named(below, symbol) for symbol in symbols):
        return
    for each in planned.not_opened:
        if is_named(below, each.name):
            raise Refused(f"{each.name} cannot be followed: {each.reason}")
    raise UnknownMarker(below, nearest(below, symbols), what="function that is followed")


def _roots(symbols: Sequence[str], below: str | None) -> list[int] | None:
    if below is None:
        return None
    return [number for number, symbol in enumerate(symbols) if is_named(below, symbol)]


def _tables(stream: EventStream) -> tuple[tuple[str, ...], Array, Array]:
    """The functions of a stream, and by the id of a marker the number of its function and its kind
    of step."""
    off = {each.marker.removesuffix(SUFFIX) for each in stream.unswitched}
    types = stream.types
    symbols = sorted(
        {
            symbol_of(type_.marker.removesuffix(SUFFIX))
            for type_ in types.values()
            if type_.marker.removesuffix(SUFFIX) not in off
        }
    )
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    function_of = np.full(max(types, default=-1) + 1, -1, np.int32)
    kind_of = np.zeros(len(function_of), np.uint8)
    for id, type_ in types.items():
        name = type_.marker.removesuffix(SUFFIX)
        function_of[id] = numbers.get(symbol_of(name), -1)
        if name != type_.marker:
            kind_of[id] = TAIL if type_.format.startswith("tail") else LEAVE
    return tuple(symbols), function_of, kind_of


def _unswitched(stream: EventStream) -> list[NotOpened]:
    names: dict[str, str] = {}
    for left_out in stream.unswitched:
        names.setdefault(symbol_of(left_out.marker.removesuffix(SUFFIX)), left_out.sentence)
    return [NotOpened(name, "left out of the switch", why) for name, why in names.items()]


def _threads_of(pid: int) -> list[int]:
    """The threads of a process; none where it has ended."""
    with suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []


def _mappings_of(pid: int) -> list[tuple[int, int]]:
    """The mappings of a process, in order; none where it has ended."""
    with suppress(MarkerError):
        return [(each.start, each.end) for each in read_maps(pid)]
    return []


def _cpu_s(pid: int) -> float | None:
    """The processor time that a process has used."""
    with suppress(OSError, IndexError, ValueError):
        fields = stat_fields(f"/proc/{pid}")
        ticks = int(fields[_UTIME]) + int(fields[_STIME])
        return ticks / os.sysconf("SC_CLK_TCK")
    return None
