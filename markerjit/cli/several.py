"""Files of several programs, which may come and go while they are written: a directory of CTF
traces, or one file in one order of time."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Protocol

import markerjit
from markerjit.cli import output, recording
from markerjit.cli.directories import Directory

_AT_ONCE = 10_000
_TRACES = "all.ctf"


class Files(Protocol):
    """What writes them."""

    def add(self, session: markerjit.Session, stream: markerjit.EventStream) -> None:
        """Write the events of another program, too."""

    def poll(self) -> bool:
        """Write new events, not too many at once. Returns whether there were any."""

    def take_finished(self) -> list[markerjit.EventStream]:
        """The streams all of whose events were written, and of which no more will come."""

    def close(self) -> None:
        """Write the events that are left in the rings, and end all files."""


def check_several(options: argparse.Namespace) -> None:
    """Raise Refused where several programs cannot be written so. Makes the directory."""
    if markerjit.is_joint(options.output):
        markerjit.check_output(options.output, force=options.force)
    else:
        Directory(options.output, force=options.force)


def files_of(
    path: str, options: argparse.Namespace, quota: recording.Quota, *, are_coming: bool = False
) -> Files:
    """The files of several programs that a path means. `are_coming`: some may be added when others
    have events already."""
    if not markerjit.is_joint(path):
        return _Separate(path, options, quota)
    if are_coming and markerjit.needs_all_first(path):
        return _Spooled(path, options, quota)
    return _Joint(path, options, quota)


class AloneFile:
    """The file of a single process, which has the name that -o says."""

    def __init__(self, path: str, options: argparse.Namespace, quota: recording.Quota) -> None:
        self._path = path
        self._options = options
        self._quota = quota
        self._writer: recording.Writer | None = None

    def add(self, session: markerjit.Session, stream: markerjit.EventStream) -> None:
        self._writer = recording.Writer(session, stream, self._path, self._options, self._quota)

    def poll(self) -> bool:
        return bool(self._writer and self._writer.poll())

    def take_finished(self) -> list[markerjit.EventStream]:
        return []

    def close(self) -> None:
        if self._writer:
            self._writer.close()


class _Separate:
    """A trace for each program."""

    def __init__(self, path: str, options: argparse.Namespace, quota: recording.Quota) -> None:
        self._options = options
        self._quota = quota
        self._directory = Directory(path, force=options.force)
        self._first: markerjit.EventStream | None = None
        self._writers: dict[markerjit.EventStream, recording.Writer] = {}
        self._idle: set[markerjit.EventStream] = set()  # since they are over

    def add(self, session: markerjit.Session, stream: markerjit.EventStream) -> None:
        self._first = self._first or stream
        if stream is not self._first:
            stream.use_clock_of(self._first)  # so that the traces have one order of time
        path = self._directory.path_for(session.pid)
        self._writers[stream] = recording.Writer(session, stream, path, self._options, self._quota)

    def poll(self) -> bool:
        busy = False
        for stream, writer in self._writers.items():
            is_over = stream.is_over()
            if writer.poll():
                busy = True
            elif is_over:
                self._idle.add(stream)
        return busy

    def take_finished(self) -> list[markerjit.EventStream]:
        finished = list(self._idle)
        self._idle.clear()
        for stream in finished:
            self._writers.pop(stream).close()
        return finished

    def close(self) -> None:
        recording.close_all(self._writers.values())
        self._writers.clear()


class _Spooled:
    """One file of a format that has to know all programs before the first event. Until they have
    ended their traces are in a folder beside it, where they can be read whatever becomes of us."""

    def __init__(self, path: str, options: argparse.Namespace, quota: recording.Quota) -> None:
        self._path = path
        self._options = options
        where, name = os.path.split(path)
        for traces in _left_behind(where or ".", name):
            output.say(
                f"markerjit: an earlier trace ended before it was made into {name}; it is in "
                f"{traces}",
                error=True,
            )
        self._folder = tempfile.mkdtemp(prefix=_prefix(name), dir=where or ".")
        self._lock = _lock(self._folder)  # for as long as this process lives
        self._traces = os.path.join(self._folder, _TRACES)
        self._separate = _Separate(self._traces, options, quota)

    def add(self, session: markerjit.Session, stream: markerjit.EventStream) -> None:
        self._separate.add(session, stream)

    def poll(self) -> bool:
        return self._separate.poll()

    def take_finished(self) -> list[markerjit.EventStream]:
        return self._separate.take_finished()

    def close(self) -> None:
        try:
            self._separate.close()
            traces = markerjit.open_traces(self._traces) if os.listdir(self._traces) else ()
            markerjit.join_traces(traces, self._path, force=self._options.force)
        except BaseException:
            output.say(f"markerjit: what was recorded is in {self._traces}", error=True)
            raise
        finally:
            if self._lock is not None:
                os.close(self._lock)
        shutil.rmtree(self._folder)


def _prefix(name: str) -> str:
    return f".{name}-"


def _lock(folder: str) -> int | None:
    """A descriptor that holds the lock of a folder; None where somebody else has it, or where it is
    no folder of ours."""
    try:
        folder_of = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(folder_of).st_uid == os.geteuid():
            fcntl.flock(folder_of, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return folder_of
    except OSError:  # BlockingIOError: its process still writes
        pass
    os.close(folder_of)
    return None


def _left_behind(where: str, name: str) -> Iterator[str]:
    """The traces in folders of processes that were killed before they made this file of them."""
    for entry in sorted(os.listdir(where)):
        traces = os.path.join(where, entry, _TRACES)
        if entry.startswith(_prefix(name)) and os.path.isdir(traces) and os.listdir(traces):
            lock = _lock(os.path.join(where, entry))
            if lock is not None:
                os.close(lock)
                yield traces


class _Joint:
    """One file, in one order of time."""

    def __init__(self, path: str, options: argparse.Namespace, quota: recording.Quota) -> None:
        self._quota = quota
        self._sink = markerjit.open_joint(path, force=options.force)
        self._merger = markerjit.Merger([])
        self._streams: list[markerjit.EventStream] = []
        self._lost: dict[int, dict[tuple[int, str], int]] = {}
        self._pids: list[int] = []
        self._noted: set[int] = set()

    def add(self, session: markerjit.Session, stream: markerjit.EventStream) -> None:
        self._merger.add(stream)
        self._streams.append(stream)
        self._pids.append(session.pid)
        self._sink.add(session.trace_info(tuple(stream.types.values()), stream.clock()))

    def poll(self) -> bool:
        return self._write(self._merger.poll_columns(_AT_ONCE))

    def take_finished(self) -> list[markerjit.EventStream]:
        return [self._finished(number) for number in self._merger.take_finished()]

    def close(self) -> None:
        try:
            self._merger.find_rest()
            while self._write(self._merger.hand_out_columns(_AT_ONCE)):
                pass
        finally:
            for number in range(len(self._streams)):
                self._finished(number)
            self._sink.close(self._lost)

    def _finished(self, number: int) -> markerjit.EventStream:
        """Note the losses of a stream, which has all of them by now."""
        if number not in self._noted:
            self._noted.add(number)
            lost = self._lost.setdefault(self._pids[number], {})
            for key, count in self._streams[number].lost().items():
                lost[key] = lost.get(key, 0) + count
        return self._streams[number]

    def _write(self, batches: list[list[markerjit.Columns]]) -> bool:
        for batch in batches:
            self._sink.write(self._quota.of(markerjit.Batch((), batch, {})).columns)
        return bool(batches)
