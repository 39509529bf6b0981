"""Probes in C, linked to addresses in this process and called there.

The runtime that they call is a stand-in, tests/unit/probe/host.c.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import c_char, c_double, c_uint64
from functools import cache
from pathlib import Path

from markerjit.probes.c.compile import compile_probe
from markerjit.probes.c.link import link_probe
from markerjit.probes.c.unit import Compiled, Linked, Runtime
from markerjit.probes.c.values import Histogram, read_counters, read_histograms
from tests.support.compilers import INCLUDE
from tests.support.programs import ROOT

HERE = ROOT / "tests" / "unit" / "probe"
EVERYTHING = HERE / "everything.c"
CPUS = (os.cpu_count() or 1) + 3
TICK_HZ = 2_500_000_000
HEAD = "#include <markerjit/probe.h>\nvoid f(struct mj_slot *slot, long n) {\n"


class Slot(ctypes.Structure):
    """struct mj_slot."""

    _fields_ = [(name, c_uint64) for name in ("probe", "data", "entered", "left")]

    def hit(self, *args: object) -> None:
        ctypes.CFUNCTYPE(None)(self.probe)(ctypes.byref(self), *args)


class How(ctypes.Structure):
    """struct how of host.c."""

    _fields_ = [("letters", c_char * 16)]


class Event(ctypes.Structure):
    """struct event of host.c."""

    _fields_ = [("how", c_uint64), ("words", c_uint64 * 12), ("text", c_char * 64)]

    def real(self, index: int) -> float:
        return c_double.from_buffer(self, Event.words.offset + 8 * index).value


class Host:
    """host.c, and at most one probe in it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.code = ctypes.addressof(c_char.in_dll(library, "code"))
        self.data = ctypes.addressof(c_char.in_dll(library, "data"))
        self.alive = c_uint64.in_dll(library, "alive")
        self.runtime = Runtime(
            functions={
                "mj_record_event": _address(library.record_event),
                "mj_fetch": _address(library.fetch),
            },
            alive=ctypes.addressof(self.alive),
            cpus=CPUS,
            has_rdpid=" rdpid" in Path("/proc/cpuinfo").read_text(),
            tid_offset=library.tid_offset(),
            tick_hz=TICK_HZ,
        )
        assert library.let_code_run() == 0

    def load(
        self, compiled: Compiled, signatures: dict[str, bytes] | None = None, **runtime: object
    ) -> Probe:
        """Link and write the probe; `wanted` events, by name, with the letters of host.c."""
        linked = link_probe(
            compiled,
            code_address=self.code,
            data_address=self.data,
            runtime=self.runtime._replace(**runtime),
        )
        self.how = {name: How(letters) for name, letters in (signatures or {}).items()}
        entries = {name: ctypes.addressof(how) for name, how in self.how.items()}
        data = linked.data_for(entries) + bytes(linked.bss_size)
        ctypes.memset(self.code, 0, 64 * 4096)
        ctypes.memmove(self.code, linked.code, len(linked.code))
        ctypes.memmove(self.data, data, len(data))
        self.alive.value = 1
        self._used.value = 0
        return Probe(self, linked)

    @property
    def _used(self) -> ctypes.c_uint:
        return ctypes.c_uint.in_dll(self.library, "events_used")

    def events(self) -> dict[str, Event]:
        """What was emitted, by name; the last of each."""
        all_events = (Event * 256).in_dll(self.library, "events")
        names = {ctypes.addressof(how): name for name, how in self.how.items()}
        return {names[event.how]: event for event in all_events[: self._used.value]}


class Probe:
    """A probe in the host. Its functions are called as a marker's body does."""

    def __init__(self, host: Host, linked: Linked) -> None:
        self.host = host
        self.linked = linked
        self.slot = Slot()

    def call(self, function: str, *args: object) -> None:
        self.slot.probe = self.linked.entries[function]
        self.slot.hit(*args)

    def counters(self) -> dict[str, int]:
        return read_counters(self.linked, ctypes.string_at)

    def histograms(self) -> dict[str, Histogram]:
        return read_histograms(self.linked, ctypes.string_at)

    def pointer(self, function: str) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.linked.entries[function])


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]


@cache
def compile_everything(compiler: str) -> Compiled:
    return compile_probe(EVERYTHING, "on_count", compiler, include=INCLUDE)


NOWHERE = Runtime(
    {"mj_record_event": 0x7F0000001000, "mj_fetch": 0x7F0000002000}, 0x7F0001000000, 64, True, 720,
    TICK_HZ,
)  # fmt: skip
