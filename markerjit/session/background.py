"""Events of a trace in another thread, handed on through a queue of bounded length.

    Background    the thread that traces, and the queue
    Events        takes from the queue in an asyncio loop
    Subscription  takes from the queue in a thread of its own, and calls a function

The thread has a session of its own, since a session is for one thread. It reads the rings whatever
becomes of the events, so that a slow consumer does not lose the lease of the rings. Events that
find the queue full are dropped, and counted.

What this does not do: outlive the program. The threads end when the main thread does.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Self

from markerjit.events.feed import StreamStatistics
from markerjit.events.stream import SLICE, EventStream
from markerjit.model import Event

Begin = Callable[[], AbstractContextManager[EventStream]]
"""Begins the trace, in the thread that reads it."""

_LOOK_UP_S = 0.2


class Background:
    """Traces in a thread. `news` is called there when there are events, or the end has come."""

    def __init__(self, begin: Begin, room: int, news: Callable[[], object]) -> None:
        self.dropped = 0
        self.statistics = StreamStatistics(0, 0, 0, 0)
        self.error: BaseException | None = None
        self.over = False
        self._begin = begin
        self._room = room
        self._news = news
        self._queue: deque[Event] = deque()
        self._began = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="markerjit trace")

    def start(self) -> None:
        """Start it, and wait until the markers are on. Raises what the trace raises."""
        try:
            self._thread.start()
            self._began.wait()
        except BaseException:  # an interruption: nobody would end it
            self.stop()
            raise
        if self.error is not None:
            self._thread.join()
            raise self.error

    @property
    def is_to_end(self) -> bool:
        """Whether it was stopped or closed, or the program has come to its end."""
        return self._closing.is_set() or not threading.main_thread().is_alive()

    @property
    def waiting(self) -> int:
        """Number of events in the queue."""
        return len(self._queue)

    @property
    def label(self) -> str:
        """How it is, for a repr."""
        state = "over" if self.over else "going on" if self._began.is_set() else "not begun"
        return f"{state}, {self.statistics.events:,} events, {self.dropped:,} dropped"

    def take(self, most: int) -> list[Event]:
        """The next events, none where the queue is empty."""
        events: list[Event] = []
        with suppress(IndexError):
            while len(events) < most:
                events.append(self._queue.popleft())
        return events

    def stop(self) -> None:
        """End the trace soon, without waiting for that."""
        self._closing.set()

    def close(self) -> None:
        """End the trace, and wait until the markers are off."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with self._begin() as stream:
                self._began.set()
                while not self.is_to_end and not stream.is_over():
                    if not self._put(stream, stream.poll(SLICE)):
                        self._closing.wait(stream.poll_s)
                stream.stop()
            if not self._closing.is_set():
                self._put(stream, stream.drain())
        except BaseException as error:
            self.error = error
        finally:
            self.over = True
            self._began.set()
            self._news()

    def _put(self, stream: EventStream, events: list[Event]) -> bool:
        free = max(0, self._room - len(self._queue))
        self._queue.extend(events[:free])
        self.dropped += len(events[free:])
        self.statistics = stream.statistics()
        if events:
            self._news()
        return bool(events)


class Events:
    """Events for `async for`. The markers go on with the first one that is asked for, or with
    `async with`, and off at the end of the iteration, of the `async with`, or by `aclose`."""

    def __init__(self, begin: Begin, room: int) -> None:
        # The thread holds no reference to this object: an iteration that is forgotten ends.
        wake = weakref.WeakMethod(self._wake)
        self._background = Background(begin, room, lambda: (now := wake()) and now())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._ready: deque[Event] = deque()

    @property
    def dropped(self) -> int:
        """Number of events that found the queue full."""
        return self._background.dropped

    def statistics(self) -> StreamStatistics:
        """The counts of the stream so far."""
        return self._background.statistics

    def __repr__(self) -> str:
        return f"<Events of {self._background.label}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if not self._ready:
            await self._fill()
        if not self._ready:
            await self.aclose()
            if self._background.error is not None:
                raise self._background.error
            raise StopAsyncIteration
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Switch the markers off. Events that are in the queue can still be taken. May be called
        again."""
        await asyncio.to_thread(self._background.close)

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        """After a `break`, and no `aclose`: the markers go off."""
        if "_background" in vars(self):
            self._background.stop()

    async def _start(self) -> None:
        loop, before = asyncio.get_running_loop(), self._loop
        if before is not loop:  # the first one, or one after another
            self._loop, self._news = loop, asyncio.Event()
        if before is None:
            try:
                await asyncio.to_thread(self._background.start)
            except asyncio.CancelledError:
                self._background.stop()
                raise

    async def _fill(self) -> None:
        """Wait for events, or the end. Others may run, also where there are events all the time."""
        await self._start()
        await asyncio.sleep(0)
        while True:
            over = self._background.over
            self._news.clear()
            self._ready.extend(self._background.take(SLICE))
            if self._ready or over:
                return
            await self._news.wait()

    def _wake(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._news.set)


def is_asynchronous(function: Callable[..., object]) -> bool:
    """Whether a call of the function does nothing but make a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  (an object with such a method)
    )


class Subscription:
    """Calls a function with each event, in a thread of its own, until `close` or the end of a
    `with`. An exception of the function ends it, and is raised by `close`. One that nobody closes
    is told to sys.unraisablehook."""

    def __init__(self, begin: Begin, room: int, function: Callable[[Event], object]) -> None:
        self._news = threading.Event()
        self._background = Background(begin, room, self._news.set)
        self._function = function
        self._error: BaseException | None = None
        self._background.start()
        self._thread = threading.Thread(target=self._call, name="markerjit callback")
        try:
            self._thread.start()
        except BaseException:  # no thread is free, or an interruption: nobody would close it
            self._background.stop()
            raise

    @property
    def dropped(self) -> int:
        """Number of events that found the queue full, or were in it at the end."""
        return self._background.dropped + (self._background.waiting if self.is_over else 0)

    @property
    def is_over(self) -> bool:
        """Whether the function is not called any more."""
        return not self._thread.is_alive()

    def statistics(self) -> StreamStatistics:
        """The counts of the stream so far."""
        return self._background.statistics

    def close(self) -> None:
        """Switch the markers off, and wait until the function has returned; it is not called any
        more. Events that are in the queue are dropped. May be called again, and by the function
        itself, which it does not wait for. Raises what the function or the trace has raised,
        once."""
        if threading.current_thread() is self._thread:
            self._background.stop()
            return
        self._background.close()
        self._thread.join()
        error = self._error or self._background.error
        self._error = self._background.error = None
        if error is not None:
            raise error

    def __repr__(self) -> str:
        return f"<Subscription {self._background.label}>"

    def __del__(self) -> None:
        """The error of one that nobody has closed is not kept silent."""
        thread = vars(self).get("_thread")
        if thread and thread.ident is not None and not thread.is_alive():
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self) -> None:
        try:
            while not self._background.is_to_end:
                over = self._background.over
                self._news.clear()
                events = self._background.take(1)
                if events:
                    self._function(*events)
                elif over:
                    return
                else:
                    self._news.wait(_LOOK_UP_S)
        except BaseException as error:
            self._error = error
            self._background.stop()
