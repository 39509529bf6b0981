"""A running truth_floats, and what can be seen of it from outside: threads, code, descriptors.

Stops nobody, and does not use what it is to judge: code and slots are read from /proc/PID/mem at
addresses that were found before anything went wrong.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from whereabouts import whereabouts

import markerjit
from markerjit.abi import SCRATCH_SIZE
from markerjit.arena.mapped import MAPPING_PATH
from tests.support.timing import Limited

KINDS = ("floats", "epoll", "nanosleep", "futex", "read", "sigtimedwait", "ppoll")
MAY_BE_ALARMED = ("floats", "futex", "read")
"""Kinds of threads that a signal handler does not interrupt: as the first, they get signals."""
WRONG = ("registers", "masks", "odd")
PATIENCE_S = 60
AGAIN_S = 0.002
"""Between two questions: each takes CPU time of both processes, and a round takes about as long."""
_BLOCKED_BY_NOBODY = signal.SIGUSR2
_HEAD, _LOW = 2, 0xFFF
_EPOLL_WAIT = "232"


class Code(NamedTuple):
    """What switching changes, the same in every process of a program: the head of each site, and
    the low bits of what each slot holds (the runtime's code begins on a page)."""

    heads: tuple[bytes, ...]
    probes: tuple[int, ...]
    data: tuple[int, ...]


class Victim:
    """One process. `harm()` names what it suffered since it was started."""

    def __init__(self, program: Path, first: str) -> None:
        self.first = first
        self._unread = b""
        alarm = ["--alarm"] if first in MAY_BE_ALARMED else []
        self._process = Limited(
            [program, first, *alarm], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.pid = self._process.pid
        self._line()
        self._memory = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY)
        with markerjit.View(self.pid) as view:
            self.sites = sorted(site.address for site in view.sites())
            self.slots = sorted({site.slot for site in view.sites()})
            self._bytes = {site: os.pread(self._memory, 7, site) for site in self.sites}
            mapped = view._target.seen.maps
        self._text = [
            (mapping.start, mapping.size)
            for mapping in mapped
            if mapping.executable and mapping.path[:1] == "/"
        ]
        self.gadget = 0
        self.scratch = 0

    # ---- talking to it ---------------------------------------------------------------------------

    def ask(self, line: str = "counts") -> dict[str, int]:
        """The numbers of its answer. Raises TimeoutError, EOFError."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
        return {key: int(value) for key, value in _pairs(self._line())}

    def _line(self) -> str:
        assert self._process.stdout
        deadline = time.monotonic() + PATIENCE_S
        while b"\n" not in self._unread:
            left_s = deadline - time.monotonic()
            if not select.select([self._process.stdout], [], [], max(left_s, 0))[0]:
                raise TimeoutError(f"process {self.pid} was silent for {PATIENCE_S} s")
            more = os.read(self._process.stdout.fileno(), 4096)
            if not more:
                raise EOFError(f"process {self.pid} closed its output")
            self._unread += more
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode()

    def wait_for(self, key: str, more: int) -> dict[str, int]:
        """Until the counter has grown by that much. Raises TimeoutError."""
        start = self.ask()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            now = self.ask()
            if now[key] - start[key] >= more:
                return now
            time.sleep(AGAIN_S)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{key} did not go on")

    def be_still(self) -> None:
        """Until `ask("wake")` its first thread, of kind epoll, sleeps in its call. Raises
        TimeoutError."""
        self.ask("still")
        deadline = time.monotonic() + PATIENCE_S
        while not self._first_thread_sleeps():
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} does not come to rest")

    def _first_thread_sleeps(self) -> bool:
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        number = Path(f"/proc/{self.pid}/task/{self.pid}/syscall").read_text().split()[0]
        return (state, number) == ("S", _EPOLL_WAIT)

    def end(self) -> int | None:
        """Kill it. Its exit code, if it had ended before."""
        code = self._process.poll()
        if code is None:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        os.close(self._memory)
        return code

    # ---- looking at it ---------------------------------------------------------------------------

    def harm(self, *, eintr: bool = False) -> list[str]:
        """What is wrong with it, in words. `eintr` permits that calls were interrupted."""
        lines = []
        code = self._process.poll()
        if code is not None:
            ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return [f"the target ended: {ended}"]
        try:
            start = self.ask()
            deadline = time.monotonic() + PATIENCE_S
            waiting = set(KINDS)
            while waiting:
                time.sleep(AGAIN_S)
                now = self.ask()
                waiting = {kind for kind in waiting if now[kind] - start[kind] < 2}
                if time.monotonic() > deadline:
                    lines.append(f"no more rounds: {', '.join(sorted(waiting))}")
                    lines += [whereabouts(self.pid, tid, self.scratch) for tid in self._tids()]
                    break
            lines += [f"{now[key]} {key} wrong" for key in WRONG if now[key]]
            if now["eintr"] and not eintr:
                lines.append(f"{now['eintr']} EINTR")
        except (TimeoutError, EOFError) as silent:
            code = self._process.poll()
            if code is not None and code < 0:
                return [f"the target ended: {signal.Signals(-code).name}"]
            lines.append(str(silent))
        for tid, state, blocked in self._threads():
            if state in "tT":
                lines.append(f"thread {tid} is stopped")
            if blocked >> (_BLOCKED_BY_NOBODY - 1) & 1:
                lines.append(
                    f"thread {tid} blocks {blocked:#x}; " + whereabouts(self.pid, tid, self.scratch)
                )
        return lines

    def _tids(self) -> list[int]:
        return [int(tid) for tid in os.listdir(f"/proc/{self.pid}/task")]

    def _threads(self) -> Iterator[tuple[int, str, int]]:
        for tid in self._tids():
            with contextlib.suppress(OSError), open(f"/proc/{self.pid}/task/{tid}/status") as file:
                fields = dict(line.split(":\t", 1) for line in file if ":\t" in line)
                yield tid, fields["State"].strip()[0], int(fields["SigBlk"], 16)

    def code(self) -> Code:
        """How sites and slots are now."""
        words = [
            [int.from_bytes(os.pread(self._memory, 8, slot + offset), "little") & _LOW
             for slot in self.slots]
            for offset in (0, 8)
        ]  # fmt: skip
        heads = tuple(os.pread(self._memory, _HEAD, site) for site in self.sites)
        return Code(heads, tuple(words[0]), tuple(words[1]))

    def tails_changed(self) -> list[str]:
        """Sites of which more changed than their head."""
        return [
            f"site {site:#x} holds {now.hex(' ')}"
            for site, before in self._bytes.items()
            if (now := os.pread(self._memory, len(before), site))[_HEAD:] != before[_HEAD:]
        ]

    def text_outside_sites(self) -> int:
        """A number that changes when code other than heads of sites does."""
        import zlib

        value = 0
        for start, size in self._text:
            with contextlib.suppress(OSError):
                data = bytearray(os.pread(self._memory, size, start))
                for site in self.sites:
                    if start <= site < start + size:
                        data[site - start : site - start + _HEAD] = b"\0\0"
                value = zlib.crc32(data, value)
        return value

    def remember_places(self) -> None:
        """Where a borrowed thread would be: on the arena's scratch, or at the gadget."""
        with markerjit.attach(self.pid) as session:
            self.gadget = session._switcher.turns.gadgets().syscall_ret
            self.scratch = session._target.seen.arena.scratch if session._target.seen.arena else 0

    def is_borrowed(self, state: str, stack_pointer: int, counter: int) -> bool:
        """Whether a thread that was seen so was in use by a controller."""
        on_scratch = self.scratch and 0 <= stack_pointer - self.scratch < SCRATCH_SIZE
        return state == "t" and bool(on_scratch or counter in (self.gadget, self.gadget + 2))

    def memfds(self) -> tuple[int, int]:
        """How many descriptors of memfds of ours it has, and how many are mapped."""
        numbers = 0
        for name in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(OSError):
                path = os.readlink(f"/proc/{self.pid}/fd/{name}")
                numbers += path.startswith(MAPPING_PATH)
        with open(f"/proc/{self.pid}/maps") as maps:
            inodes = {line.split()[4] for line in maps if MAPPING_PATH in line}
        return numbers, len(inodes)


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    for word in line.split()[1:]:
        key, _, value = word.partition("=")
        yield key, value
