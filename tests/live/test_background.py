"""Events in services: for `async for`, and for a function in a thread. The queue is bounded, and
the markers are off afterwards, however it ends."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import markerjit
from tests.support.commands import ENVIRONMENT
from tests.support.programs import Target
from tests.support.timing import HANG_S, Wait, wait_until

pytestmark = pytest.mark.live

FORGETFUL = """
import sys, markerjit
subscription = markerjit.attach(int(sys.argv[1])).subscribe("truth_loop", lambda event: None)
"""


@pytest.fixture
def program(target: Callable[..., Target]) -> Target:
    return target("truth_threads", "2", "--rate", "2000")


@pytest.fixture
def session(program: Target) -> Iterator[markerjit.Session]:
    with markerjit.attach(program.pid) as session:
        yield session


def is_off(session: markerjit.Session) -> bool:
    return all(marker.mode is None for marker in session.status())


async def taken(events: markerjit.Events) -> list[markerjit.Event]:
    return [event async for event in events]


def test_an_async_iteration_has_the_events_and_others_run_meanwhile(
    session: markerjit.Session,
) -> None:
    async def watch() -> tuple[list[markerjit.Event], int]:
        turns = 0

        async def work() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(work())
        events = await taken(session.atrace("truth_loop", limit=200))
        other.cancel()
        return events, turns

    events, turns = asyncio.run(watch())

    assert len(events) == 200
    assert turns > 0
    assert {event.pid for event in events} == {session.pid}
    by_thread: dict[int, list[int]] = {}
    for event in events:
        by_thread.setdefault(event.tid, []).append(int(str(event.fields["n"])))
    assert all(numbers == sorted(numbers) for numbers in by_thread.values())
    assert is_off(session)


async def until(condition: Callable[[], bool]) -> None:
    wait = Wait("the background")
    while not condition():
        wait.left_s()
        await asyncio.sleep(0.01)


def test_markers_are_off_after_a_break_and_after_a_cancellation(
    session: markerjit.Session,
) -> None:
    async def watch() -> None:
        async with session.atrace("truth_loop") as events:
            async for _ in events:
                break
        assert is_off(session)
        async for _ in session.atrace("truth_loop"):
            break
        gc.collect()
        await until(lambda: is_off(session))
        task = asyncio.create_task(taken(session.atrace("truth_loop")))
        await until(lambda: not is_off(session))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(watch())
    gc.collect()
    wait_until(lambda: is_off(session), "the markers are off", every_s=0.01)


def test_errors_are_raised_where_the_events_are_asked_for(session: markerjit.Session) -> None:
    with pytest.raises(markerjit.UnknownMarker):
        asyncio.run(taken(session.atrace("no_such_marker")))
    with pytest.raises(markerjit.UnknownMarker):
        session.subscribe("no_such_marker", print)
    with pytest.raises(markerjit.BadArgument, match="room"):
        session.atrace("truth_loop", room=0)


def test_events_that_find_the_queue_full_are_dropped_and_counted(
    session: markerjit.Session,
) -> None:
    async def watch() -> tuple[int, int, int]:
        async with session.atrace("truth_loop", room=5) as events:
            await until(lambda: events.dropped > 0)
            await events.aclose()
            left = await taken(events)
            return len(left), events.dropped, events.statistics().events

    left, dropped, read = asyncio.run(watch())

    assert left == 5
    assert left + dropped == read


def test_a_function_is_called_with_each_event_in_another_thread(
    session: markerjit.Session,
) -> None:
    events: list[markerjit.Event] = []
    threads: set[str] = set()

    def note(event: markerjit.Event) -> None:
        events.append(event)
        threads.add(threading.current_thread().name)

    with session.subscribe("truth_loop", note, limit=50) as subscription:
        wait_until(lambda: subscription.is_over, "the limit", every_s=0.01)
    assert len(events) + subscription.dropped == 50
    assert threads == {"markerjit callback"}
    assert is_off(session)


def wait_ended(session: markerjit.Session) -> None:
    wait_until(
        lambda: all(thread.name != "markerjit trace" for thread in threading.enumerate()),
        "the thread that traces to end",
    )
    assert is_off(session)


@pytest.mark.parametrize("at", [1, 2], ids=["the thread begins", "the markers go on"])
def test_a_beginning_that_is_interrupted_leaves_nothing_on(
    session: markerjit.Session, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    real, interrupted = threading.Event.wait, []

    def wait(self: threading.Event, timeout: float | None = None) -> bool:
        is_set = real(self, timeout)
        if threading.current_thread() is threading.main_thread() and timeout is None:
            interrupted.append(self)
            if len(interrupted) == at:
                raise KeyboardInterrupt
        return is_set

    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", wait)
        with pytest.raises(KeyboardInterrupt):
            session.subscribe("truth_loop", print)

    assert len(interrupted) == at
    wait_ended(session)


def test_a_function_for_which_there_is_no_thread_leaves_nothing_on(
    session: markerjit.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if self.name == "markerjit callback":
            raise RuntimeError("can't start new thread")
        real(self)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            session.subscribe("truth_loop", print)

    wait_ended(session)


def test_an_exception_of_the_function_ends_it_and_is_raised_at_the_end(
    session: markerjit.Session,
) -> None:
    def fail(event: markerjit.Event) -> None:
        raise KeyError(event.name)

    subscription = session.subscribe("truth_loop", fail)
    wait_until(lambda: is_off(session), "the markers are off", every_s=0.01)
    with pytest.raises(KeyError, match="truth_loop"):
        subscription.close()
    subscription.close()


def test_a_function_may_close_its_own_subscription(session: markerjit.Session) -> None:
    events: list[markerjit.Event] = []
    made = threading.Event()

    def once(event: markerjit.Event) -> None:
        assert made.wait(HANG_S)
        events.append(event)
        subscription.close()

    subscription = session.subscribe("truth_loop", once)
    made.set()
    wait_until(lambda: subscription.is_over, "the function closes it", every_s=0.01)
    subscription.close()

    assert len(events) == 1
    assert subscription.dropped + 1 == subscription.statistics().events
    assert is_off(session)


def test_close_waits_for_one_call_of_a_slow_function_and_not_for_the_queue(
    session: markerjit.Session,
) -> None:
    calls: list[markerjit.Event] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow(event: markerjit.Event) -> None:
        calls.append(event)
        begun.set()
        assert go_on.wait(HANG_S)
        wait_until(lambda: subscription._background.is_to_end, "it is closed", every_s=0.01)

    with session.subscribe("truth_loop", slow, room=100) as subscription:
        assert begun.wait(HANG_S)
        wait_until(lambda: subscription.dropped > 0, "the queue is full", every_s=0.01)
        go_on.set()

    assert len(calls) == 1
    assert subscription.dropped + 1 == subscription.statistics().events


SLOW = """
import sys, time, threading, markerjit
calls = []
def slow(event):
    calls.append(event)
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    assert len(calls) == 1, "it was called again after the end of the program"
    print("called")
subscription = markerjit.attach(int(sys.argv[1])).subscribe("truth_loop", slow)
while not subscription.dropped:
    time.sleep(0.01)
"""


def test_a_program_ends_without_a_call_for_each_event_in_the_queue(
    session: markerjit.Session,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLOW, str(session.pid)],
        env=ENVIRONMENT, timeout=120, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, "called\n", "")
    assert is_off(session)


def test_an_error_of_a_subscription_that_nobody_closes_is_not_silent(
    session: markerjit.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(event: markerjit.Event) -> None:
        raise KeyError(event.name)

    errors: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: errors.append(repr(lost.exc_value)))
    subscriptions = [session.subscribe("truth_loop", fail)]
    wait_until(lambda: subscriptions[0].is_over, "the function ends it", every_s=0.01)
    subscriptions.clear()
    gc.collect()

    assert errors == ["KeyError('truth_loop')"]
    wait_until(lambda: is_off(session), "the markers are off", every_s=0.01)


def test_a_coroutine_function_is_no_function_for_events(session: markerjit.Session) -> None:
    class Receiver:
        async def __call__(self, event: markerjit.Event) -> None:
            raise AssertionError

    for function in (taken, Receiver()):
        with pytest.raises(markerjit.BadArgument, match="for async there is atrace"):
            session.subscribe("truth_loop", function)  # type: ignore[arg-type]
    assert is_off(session)


def test_an_iteration_goes_on_in_another_event_loop(session: markerjit.Session) -> None:
    events = session.atrace("truth_loop", room=100)

    async def next_ones(count: int) -> list[markerjit.Event]:
        return [await anext(events) for _ in range(count)]

    assert "not begun" in repr(events)
    for _ in range(3):  # more than the queue has, so that each loop waits
        assert len(asyncio.run(next_ones(300))) == 300
    assert "going on" in repr(events)
    asyncio.run(events.aclose())
    assert "over" in repr(events)
    assert is_off(session)


def test_the_death_of_the_process_ends_both(target: Callable[..., Target]) -> None:
    program = target("truth_threads", "2", "--rate", "2000", may_die=True)

    async def watch(events: markerjit.Events) -> int:
        count = 0
        async for _ in events:
            if not count:
                program.process.kill()
            count += 1
        return count

    with markerjit.attach(program.pid) as session:
        calls: list[markerjit.Event] = []
        with session.subscribe("truth_loop", calls.append, room=1_000_000) as subscription:
            wait_until(lambda: calls, "the first event", every_s=0.01)
            subscription.close()
        assert asyncio.run(watch(session.atrace("truth_loop"))) > 0
        with pytest.raises(markerjit.NoSuchProcess, match="has ended"):
            asyncio.run(watch(session.atrace("truth_loop")))
        with pytest.raises(markerjit.NoSuchProcess, match="has ended"):
            session.subscribe("truth_loop", calls.append)


def test_a_program_that_forgets_it_ends_and_leaves_the_markers_off(
    session: markerjit.Session,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL, str(session.pid)],
        env=ENVIRONMENT, timeout=120, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert is_off(session)
