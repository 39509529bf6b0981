"""A controller in another process: plans edits of a victim's places and has mj_apply make them.

It makes the plan that it is asked for, right or wrong, as flip.c does inside, and calls the
product's libmjstop.so. It does not use the product's planners, because they refuse wrong plans.
"""

from __future__ import annotations

import ctypes
import os
import random
from dataclasses import dataclass

from markerjit.abi import EditEntry
from markerjit.remote import native
from tests.torture.victims import Victim

BREAKPOINT = b"\xcc"
QUIESCENCE = {"stop": native.STOP, "membarrier": native.MEMBARRIER, "none": native.NONE}
TRY_AGAIN = (native.IN_SPAN, native.BUSY, native.NO_THREAD, native.NOT_SYNCED)


@dataclass(frozen=True)
class Place:
    """The address of a place, and its two forms."""

    at: int
    code: int
    forms: tuple[bytes, bytes]


class Refused(Exception):
    """mj_apply ended with a status that a right plan never meets."""


@dataclass
class Flipped:
    """The counts of some transactions."""

    transactions: int = 0
    places: int = 0
    refused: int = 0


def _edit(place: Place, old: bytes, new: bytes, first: int, step: int, again: int = 0) -> EditEntry:
    return EditEntry(
        address=place.at + first,
        size=len(new),
        step=step,
        code=place.code,
        again=again,
        old_bytes=(ctypes.c_uint8 * 16)(*old),
        new_bytes=(ctypes.c_uint8 * 16)(*new),
    )


def plan(protocol: str, place: Place, old: bytes, new: bytes) -> list[EditEntry]:
    """The edits for one place; flip.c says what the protocols are."""
    if protocol == "whole":
        return [_edit(place, old, new, 0, 0)]
    if protocol == "byte":
        return [
            _edit(place, old[i : i + 1], new[i : i + 1], i, 0)
            for i in range(len(old))
            if old[i] != new[i]
        ]
    assert protocol == "int3", protocol
    return [
        _edit(place, old[:1], BREAKPOINT, 0, 0),
        _edit(place, old[1:], new[1:], 1, 1),
        _edit(place, BREAKPOINT, new[:1], 0, 2, again=1),
    ]


class Controller:
    """One victim's controller; knows which form each place has."""

    def __init__(self, victim: Victim, places: int, protocol: str, quiescence: str) -> None:
        self.forms = [0] * places
        self._quiescence = QUIESCENCE[quiescence]
        self._places = [_place(victim, index) for index in range(places)]
        # for each place the plan to its new form and back
        self._plans = [
            (
                plan(protocol, place, place.forms[0], place.forms[1]),
                plan(protocol, place, place.forms[1], place.forms[0]),
            )
            for place in self._places
        ]
        self._steps = 3 if protocol == "int3" else 1
        self._random = random.Random(places)
        self._pidfd = os.pidfd_open(victim.pid)
        self._mem_fd = os.open(f"/proc/{victim.pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        self._target = native.NativeTarget(
            pid=victim.pid,
            pidfd=self._pidfd,
            mem_fd=self._mem_fd,
            **{
                name: int(victim.ready[name], 0)
                for name in ("syscall_ret", "sigreturn", "pop_rax_ret", "scratch")
            },
        )

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._pidfd)
        os.close(self._mem_fd)

    def flip(self, transactions: int) -> Flipped:
        """Make this number of transactions. Each changes some neighbours to their other forms."""
        flipped = Flipped()
        for _ in range(transactions):
            count = self._random.randint(1, len(self._places))
            start = self._random.randint(0, len(self._places) - count)
            if self._apply(start, start + count):
                flipped.transactions += 1
                flipped.places += count
            else:
                flipped.refused += 1
        return flipped

    def _apply(self, start: int, end: int) -> bool:
        plans = [self._plans[index][self.forms[index]] for index in range(start, end)]
        edits = [
            edit
            for step in range(self._steps)
            for edits in plans
            for edit in edits
            if edit.step == step
        ]
        report = native.Report()
        status = native.library().mj_apply(
            ctypes.byref(self._target),
            self._quiescence,
            (EditEntry * len(edits))(*edits),
            len(edits),
            ctypes.byref(report),
        )
        if status == native.OK:
            for index in range(start, end):
                self.forms[index] ^= 1
            return True
        if status in TRY_AGAIN:
            return False
        raise Refused(f"status={status} errno={report.error} tid={report.tid} edit={report.index}")


def _place(victim: Victim, index: int) -> Place:
    place = victim.command(f"place {index}")
    forms = (bytes.fromhex(place["old"]), bytes.fromhex(place["new"]))
    return Place(at=int(place["at"], 0), code=int(place["code"]), forms=forms)
