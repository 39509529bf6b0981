"""Controllers that are killed, or whose target is, or whose writes fail, at a point of our choice.

A controller is a fork of this process. It counts every numbered point of what it does, from taking
the target's lock to giving it back: those of native/src/stop (race.h), and around each write of
Python's, each step of the journal and each native call. What is to happen at which point is in the
environment; hooks.c does it. The library with the hooks is build/hooks/libmjstop.so.

Nothing here looks at what became of the target; matrix.py does. It is no part of the test suite's
own process, since it puts another native library into markerjit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import markerjit  # noqa: E402
from markerjit import Mode  # noqa: E402
from markerjit.arena import arena, journal, patches  # noqa: E402
from markerjit.memory import process  # noqa: E402
from markerjit.remote import gadgets, native  # noqa: E402
from tests.support.large_pages import collapse_memory  # noqa: E402
from tests.support.timing import reaped  # noqa: E402

Work = TypeVar("Work")

HANGS_AFTER_S = 120


def use_hooked_library(path: Path = ROOT / "build/hooks/libmjstop.so") -> None:
    """From now on, in this process and its forks. Nothing happens at points before a fork begins
    to count."""
    of_package = native.package_file

    def package_file(name: str) -> str:
        return str(path) if name == "libmjstop.so" else of_package(name)

    native.package_file = package_file
    native.library.cache_clear()
    native.library()
    collapse_memory()  # each controller is a fork


# ---- what a controller does ----------------------------------------------------------------------


class Scenario(NamedTuple):
    """One operation of a controller.

    prepare  brings a target to where it starts
    act      the operation
    also     how markers may be afterwards besides as before and as wanted: (mode, probe)
    """

    name: str
    prepare: Callable[[int], None]
    act: Callable[[int], None]
    also: tuple[str, ...] = ()


EVERY = "*"


def _without_sigreturn(act: Callable[[int], None]) -> Callable[[int], None]:
    """The way back by `pop %rax; ret`, as where a program has no rt_sigreturn of its own. Stays so
    in this process: for a controller that is made to die."""

    def act_without(pid: int) -> None:
        find = gadgets.find_gadgets

        def find_others(*args: Any) -> gadgets.Gadgets:
            places = find(*args)
            assert places.pop_rax_ret
            return places._replace(sigreturn=type(places.sigreturn)(0))

        gadgets.find_gadgets = find_others
        act(pid)

    return act_without


def _entered_natively(act: Callable[[int], None]) -> Callable[[int], None]:
    """The native part enters heads into the table of patches, as it does for many. Stays so in this
    process."""

    def act_so(pid: int) -> None:
        patches._MANY = 1
        act(pid)

    return act_so


def _nothing(pid: int) -> None:
    """As it was started: no arena."""


def _off(pid: int) -> None:
    with markerjit.attach(pid) as session:
        session.enable(EVERY)
        session.disable(EVERY)


def _on(pid: int, mode: Mode | None = None) -> None:
    with markerjit.attach(pid) as session:
        session.enable(EVERY, mode=mode)


def _on_by_breakpoint(pid: int) -> None:
    _on(pid, Mode.INT3)


def _enable(quiesce: str = "stop", mode: Mode | None = None) -> Callable[[int], None]:
    def act(pid: int) -> None:
        with markerjit.attach(pid) as session:
            session.enable(EVERY, quiesce=quiesce, mode=mode)

    return act


def _disable(quiesce: str = "stop") -> Callable[[int], None]:
    def act(pid: int) -> None:
        with markerjit.attach(pid) as session:
            session.disable(EVERY, quiesce=quiesce)

    return act


def _trace(pid: int) -> None:
    with markerjit.attach(pid) as session, session.trace(EVERY) as events:
        events.keep()
        events.poll()


def _step(mode: Mode | None = None, quiesce: str = "stop") -> Callable[[int], None]:
    def act(pid: int) -> None:
        with (
            markerjit.attach(pid) as session,
            session.stepping(EVERY, mode=mode, quiesce=quiesce) as stepper,
        ):
            stepper.finish()

    return act


def _repair(pid: int) -> None:
    markerjit.repair(pid)


def _left_by(name: str, point: str, occurrence: int) -> Callable[[int], None]:
    """As a controller left it that was killed there."""

    def prepare(pid: int) -> None:
        before = SCENARIOS[name]
        before.prepare(pid)
        ending = control(before, pid, kill_point=point, kill_at=occurrence)
        assert ending.signal == signal.SIGKILL, ending

    return prepare


OFF, COUNTING, BY_BREAKPOINT = "off", "jump:count", "int3:count"

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("first use, stop", _nothing, _enable()),
        Scenario("first use, membarrier", _nothing, _enable("membarrier")),
        Scenario("first use, none", _nothing, _enable("none")),
        Scenario("first use, trace", _nothing, _trace),
        Scenario("first use, breakpoints", _nothing, _enable(mode=Mode.INT3)),
        Scenario(
            "first use, many breakpoints", _nothing, _entered_natively(_enable(mode=Mode.INT3))
        ),
        Scenario("first use, no sigreturn", _nothing, _without_sigreturn(_enable())),
        Scenario("on, stop", _off, _enable()),
        Scenario("off, stop", _on, _disable()),
        Scenario("on, membarrier", _off, _enable("membarrier")),
        Scenario("off, membarrier", _on, _disable("membarrier")),
        Scenario("on, membarrier, no sigreturn", _off, _without_sigreturn(_enable("membarrier"))),
        Scenario(
            "off, membarrier, after a kill",
            _left_by("jump to int3, membarrier", "borrow: exit", 1),
            _disable("membarrier"),
        ),
        Scenario("on, none", _off, _enable("none")),
        Scenario("off, none", _on, _disable("none")),
        Scenario("trace", _off, _trace),
        Scenario("count, record, count", _on, _trace, (OFF,)),
        Scenario("jump to int3, stop", _on, _enable(mode=Mode.INT3)),
        Scenario("int3 to jump, stop", _on_by_breakpoint, _enable(mode=Mode.JUMP)),
        Scenario("jump to int3, membarrier", _on, _enable("membarrier", Mode.INT3)),
        Scenario("int3 to jump, membarrier", _on_by_breakpoint, _enable("membarrier", Mode.JUMP)),
        Scenario("first use, in steps", _nothing, _step()),
        Scenario("int3 to jump, in steps", _on_by_breakpoint, _step(Mode.JUMP)),
        Scenario("jump to int3, in steps, membarrier", _on, _step(Mode.INT3, "membarrier")),
        Scenario("repair of a change", _left_by("on, stop", "written", 6), _repair, (OFF,)),
        Scenario(
            "repair of a mode",
            _left_by("int3 to jump, membarrier", "written", 10),
            _repair,
            (BY_BREAKPOINT,),
        ),
        Scenario("repair of an arena", _left_by("first use, stop", "borrow: grown", 1), _repair),
        Scenario(
            "repair of a mapped arena",
            _left_by("first use, stop", "memory: write", 1),
            _repair,
        ),
    )
}


# ---- which of the points -------------------------------------------------------------------------


def thinned(work: Iterable[tuple[Work, str]], spacing: int) -> Iterator[Work]:
    """Of work with the names of its points: each name where it comes first, and of the rest each
    `spacing`-th."""
    seen: set[str] = set()
    others = count()
    for each, point in work:
        if point not in seen or next(others) % spacing == 0:
            seen.add(point)
            yield each


# ---- points in Python ----------------------------------------------------------------------------


def _pass(name: str) -> int:
    return int(native.library().mj_race(name.encode()))


def _around(owner: Any, name: str, before: str, after: str) -> None:
    function = getattr(owner, name)

    def with_points(*args: Any, **options: Any) -> Any:
        _pass(before)
        result = function(*args, **options)
        _pass(after)
        return result

    setattr(owner, name, with_points)


class _PointedLibrary:
    """The native library, with a point before and after each call."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        for name in ("mj_apply", "mj_borrow", "mj_send_home", "mj_clock_pair"):
            setattr(self, name, getattr(loaded, name))
            if name != "mj_clock_pair":
                _around(self, name, f"{name}: call", f"{name}: return")
        self.mj_race = loaded.mj_race
        self.mj_follows = loaded.mj_follows
        self.mj_mappings = loaded.mj_mappings
        self.mj_is_as_before = loaded.mj_is_as_before
        for name in ("create", "destroy", "enter", "mark", "changed", "write"):
            setattr(self, f"mj_patches_{name}", getattr(loaded, f"mj_patches_{name}"))


def _put_points() -> None:
    """For good: for a process that is made to die."""
    pointed = _PointedLibrary(native.library())
    native.library = lambda: pointed
    _around(arena.FileStore, "write", "store: write", "store: written")
    _around(arena.FileStore, "grow", "store: grow", "store: grown")
    _around(process.ProcessMemory, "write", "memory: write", "memory: written")
    _around(journal.Journal, "open", "journal: open", "journal: opened")
    _around(journal.Journal, "close", "journal: close", "journal: closed")
    locked = process.ProcessMemory.locked

    @contextlib.contextmanager
    def locked_with_points(memory: process.ProcessMemory) -> Iterator[bool]:
        with locked(memory) as got:
            _pass("locked")
            yield got
            _pass("unlock")
        _pass("unlocked")

    process.ProcessMemory.locked = locked_with_points


# ---- controllers ---------------------------------------------------------------------------------


class Seen(NamedTuple):
    """A thread of the target at the moment of the kill: as /proc had it."""

    tid: int
    state: str
    stack_pointer: int
    program_counter: int


class Ending(NamedTuple):
    """How a controller ended: by a signal, with an error ("TargetGone: ..."), or well (0, "");
    which points it passed, and what the target's threads did when something was killed."""

    signal: int
    error: str
    hung: bool
    points: tuple[str, ...]
    threads: tuple[Seen, ...]
    pid: int


def control(scenario: Scenario, pid: int, **faults: object) -> Ending:
    """Have a controller do the scenario on a process. `faults` are those of hooks.c: kill_at=7."""
    descriptor, log = tempfile.mkstemp(prefix="markerjit-points-")
    os.close(descriptor)
    environment = {f"MJ_{name.upper()}": str(value) for name, value in faults.items()}
    environment |= {"MJ_RACE_LOG": log, "MJ_TARGET": str(pid)}
    reading, writing = os.pipe()
    try:
        child = os.fork()
        if child == 0:
            os.close(reading)
            _be_controller(scenario, pid, environment, writing)
        os.close(writing)
        code, error, hung = _wait_for(child, reading)
        points, threads = _read_log(log)
        return Ending(max(-code, 0), error, hung, points, threads, child)
    finally:
        os.close(reading)
        os.unlink(log)


def _be_controller(
    scenario: Scenario, pid: int, environment: Mapping[str, str], writing: int
) -> None:
    """Never returns."""
    error = ""
    try:
        os.environ.update(environment)
        loaded = native.library()
        _put_points()
        loaded.mj_race_begin()
        scenario.act(pid)
    except markerjit.MarkerError as expected:
        error = f"{type(expected).__name__}: {expected}"
    except BaseException as bug:
        import traceback

        error = f"BUG {type(bug).__name__}: {bug} {traceback.format_exc()}"
    finally:
        with contextlib.suppress(OSError):
            os.write(writing, error.encode()[:4000])
        os._exit(0)


def _wait_for(child: int, reading: int) -> tuple[int, str, bool]:
    """The end of its pipe comes with its own end."""
    deadline = time.monotonic() + HANGS_AFTER_S
    text = b""
    hung = False
    while not hung:
        left_s = deadline - time.monotonic()
        if not select.select([reading], [], [], max(left_s, 0))[0]:
            hung = True
            os.kill(child, signal.SIGKILL)
            break
        more = os.read(reading, 4096)
        if not more:
            break
        text += more
    status = reaped(child)
    return os.waitstatus_to_exitcode(status), text.decode(errors="replace"), hung


def _read_log(path: str) -> tuple[tuple[str, ...], tuple[Seen, ...]]:
    points, threads = [], []
    with open(path, encoding="ascii") as log:
        for line in log:
            word, rest = line.rstrip("\n").split(" ", 1)
            if word == "thread":
                tid, state, stack_pointer, counter = rest.split()
                threads.append(Seen(int(tid), state, int(stack_pointer, 0), int(counter, 0)))
            else:
                points.append(rest)
    return tuple(points), tuple(threads)


def main() -> int:
    """killed.py SCENARIO PID POINT OCCURRENCE: leave a process as a controller leaves it that is
    killed there. Prints the controller's pid, and where the target's threads were."""
    name, pid, point, occurrence = sys.argv[1:]
    use_hooked_library()
    SCENARIOS[name].prepare(int(pid))
    ending = control(SCENARIOS[name], int(pid), kill_point=point, kill_at=int(occurrence))
    print(ending.pid, *(f"{thread.program_counter:#x}" for thread in ending.threads))
    return 0 if ending.signal == signal.SIGKILL else 1


if __name__ == "__main__":
    sys.exit(main())
