"""The end of a `trace`: signals and the time, and output that waits for neither.

Offers `End`, which has the signal handlers, and `Output`, which writes to standard output past
Python's buffer and stops when the end is there. Does not switch markers off: the caller does.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import markerjit

if TYPE_CHECKING:
    Stream = markerjit.EventStream | markerjit.AllocationTrace | markerjit.CallTrace

_READER_MS = 500
_LOOK_UP_MS = 20


class End:
    """Signals end the streams, and so does the time. The handlers stand before anything is switched
    on, so that no signal ends us in between and leaves markers on. A second signal asks to hurry:
    it also ends what is done when the markers are off."""

    def __init__(self) -> None:
        self._signals = 0
        self._off = False
        self._streams: Sequence[Stream] = ()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, self._on_signal)

    @property
    def has_come(self) -> bool:
        """Whether the end was asked for, or the time is over."""
        return self._signals > 0

    @property
    def is_hurried(self) -> bool:
        """Whether it was asked for again."""
        return self._signals > 1

    @property
    def markers_are_off(self) -> bool:
        """Whether the markers are off, so that output has time."""
        return self._off

    @property
    def is_now(self) -> bool:
        """Whether to give up what is being done: to switch off, and later for good."""
        return self.is_hurried if self._off else self.has_come

    def leave_signals_to(self, program: markerjit.Launched) -> None:
        """A program that was started here ends the trace, and gets the signals: the terminal sends
        it its own, and a SIGTERM is passed on."""
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, lambda number, _: program.send(number))

    def arm(self, streams: Sequence[Stream], duration: float | None) -> None:
        """From here on signals end these streams, and so does the time, after `duration`
        seconds."""
        self._streams = streams
        if self.has_come:
            self._stop()
        if duration is not None:
            signal.setitimer(signal.ITIMER_REAL, duration)

    def disarm(self) -> None:
        """Stop the timer. Its signal would end the interpreter while that shuts down, when the
        handlers are gone."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def note_markers_off(self) -> None:
        """The markers are off: output may take its time, as long as it is read."""
        self.disarm()
        self._off = True

    def _on_signal(self, *_: object) -> None:
        self._signals += 1
        self._stop()

    def _stop(self) -> None:
        for stream in self._streams:
            stream.stop()


class Output:
    """Standard output, past Python's buffer: that would be flushed at the end, and wait for a
    reader that does not read. `unread` says that there was such a reader when the markers were
    off."""

    def __init__(self, end: End, streams: Sequence[markerjit.EventStream]) -> None:
        self.unread = False
        self._end = end
        self._streams = streams
        self._data = b""
        self._at = 0  # what is before is written
        self._cut = False

    def write(self, data: bytes) -> None:
        """Write all of it, unless the end is now. The next call begins with what was not
        written."""
        self._data = self._data[self._at :] + data
        self._at = 0
        output = sys.stdout.fileno()
        # So much never waits once poll says that there is room: pipe(7). A file never waits.
        most = len(self._data) if stat.S_ISREG(os.fstat(output).st_mode) else select.PIPE_BUF
        ready = select.poll()
        ready.register(output, select.POLLOUT)
        while self._at < len(self._data) and not self._end.is_now and not self.unread:
            if ready.poll(_READER_MS if self._end.markers_are_off else _LOOK_UP_MS):
                self._at += os.write(output, self._data[self._at : self._at + most])
                self._cut = self._data[self._at - 1 : self._at] != b"\n"
            elif self._end.markers_are_off and self._end.has_come:
                self.unread = True
            else:
                for stream in self._streams:
                    stream.keep()  # a reader that pauses us does not lose us the rings

    @property
    def separator(self) -> str:
        """The text that must stand before another line."""
        return "\n" if self._cut else ""

    def unwritten(self) -> int:
        """Number of lines that are not written."""
        return self._data.count(b"\n", self._at)
