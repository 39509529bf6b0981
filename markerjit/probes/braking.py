"""The code of brakes, behind the condition of a question (question.py).

A sample is taken by a generator of pseudo-random numbers. Each CPU has one for each entry of a
marker, whose state is a word in that CPU's row of a table (arena/braking.py). The code

     1  finds the word of this CPU; in the child of a fork it goes to `no`
     2  makes the next number, and goes to `no` where that is above the highest that takes an event
     3  reads the clock, and looks how far ahead of it the next event's time is. Too far: it counts
        the event as held back, and goes to `no`. Otherwise it moves that time by a step, in one
        compare-and-swap

The numbers are those of a linear congruential generator modulo 2 ** 64 with Knuth's multiplier (The
Art of Computer Programming, volume 2, 3.3.4, as in MMIX). They are compared from their highest bit
on, which is the best one. The state is changed by plain loads and stores. If a thread is
interrupted between them, another thread's numbers are used twice, which chooses neither more events
nor fewer. So it needs no restartable sequence and no locked instruction.

A rate applies to all CPUs together: they share the word with the time of the next event. It is
written for an event that is taken, so at most as often as the rate says, and read for the others.
This is the generic cell rate algorithm (ITU-T I.371, annex A), whose bound no second can exceed.

docs/decisions/0045-brakes.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from markerjit.abi import RSEQ_CPU
from markerjit.probes.computed import CLOCK
from markerjit.ring.brakes import Brakes, Pace
from markerjit.ring.clock import NS
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number

if TYPE_CHECKING:
    from markerjit.arena.arena import Arena

MULTIPLIER = 6364136223846793005
INCREMENT = 0x14057B7F
"""Any odd number will do; this one fits an instruction."""
_SIGN_EXTENDED = 1 << 64


class Rows(NamedTuple):
    """How the code finds the row of its CPU.

    rseq_offset  where from its fs base a thread has its struct rseq; 0 where none is used
    cpus         how many rows there are
    stride       bytes from row to row
    """

    rseq_offset: int = -160
    cpus: int = 1
    stride: int = 16

    @classmethod
    def of(cls, arena: Arena) -> Self:
        """Those of an arena."""
        geometry = arena.geometry
        stride = geometry.calls_offset(1, 0) - geometry.calls_offset(0, 0)
        return cls(int(arena.facts.rseq_offset), geometry.cpus, stride)


class Words(NamedTuple):
    """The addresses of an entry's words: the row of the first CPU, the time of the next event, and
    the highest number that takes an event; and of the word that says whether the process is
    alive."""

    row: int = 0
    next: int = 0
    highest: int = 0
    alive: int = 0

    @classmethod
    def of(cls, arena: Arena, marker: int) -> Self:
        """Those of a marker's entry."""
        return cls(
            arena.braking.row(marker), arena.braking.next(marker), arena.braking.highest(marker),
            arena.alive,
        )  # fmt: skip


def braking(brakes: Brakes, rows: Rows, no: str, ticks_per_s: int = 0) -> list[str]:
    """The code, which goes to the label `no` where an event is not taken. It changes rax, rcx and
    rdx, for a rate also rdi, r10 and r11, and the flags. `ticks_per_s` are those of the time stamp
    counter; 0 where it is not trusted, and the system's clock is read."""
    code: list[str] = []
    if brakes.sample or brakes.budget:
        code += _take_sample(no)
    if brakes.at_most:
        code += _keep_rate(Pace.of(brakes.at_most, ticks_per_s or NS), no, counter=ticks_per_s > 0)
    return [*_find_row(rows, no), *code] if code else []


def _find_row(rows: Rows, no: str) -> list[str]:
    """1, into rcx"""
    of_sequences = [
        # keystone makes an address from rip of a place that is a small number.
        f"mov rcx, {number((rows.rseq_offset + RSEQ_CPU) % _SIGN_EXTENDED)}",
        "mov ecx, dword ptr fs:[rcx]",
        "cmp ecx, dword ptr [rip + alive]",
        "jb on_cpu",
    ]
    return [
        *(of_sequences if rows.rseq_offset else ()),
        "cmp qword ptr [rip + alive], 0",
        f"je {no}",
        # Segment 15 of the GDT, ring 3. Its limit has the number of the CPU.
        *("mov ecx, 0x7b", "lsl ecx, ecx", "and ecx, 0xfff"),
        *(f"cmp ecx, {number(rows.cpus)}", "jb on_cpu", "xor ecx, ecx"),
        "on_cpu:",
        f"imul rcx, rcx, {number(rows.stride)}",
        *("lea rax, [rip + row]", "add rcx, rax"),
    ]


def _take_sample(no: str) -> list[str]:
    """2"""
    return [
        "mov rax, qword ptr [rcx]",
        f"movabs rdx, {number(MULTIPLIER)}",
        "imul rax, rdx",
        f"add rax, {number(INCREMENT)}",
        "mov qword ptr [rcx], rax",
        "cmp rax, qword ptr [rip + highest]",
        f"ja {no}",
    ]


def _keep_rate(pace: Pace, no: str, *, counter: bool) -> list[str]:
    """3"""
    read = ("rdtsc", "shl rdx, 0x20", "or rax, rdx") if counter else (CLOCK,)
    return [
        *(*read, "mov rdi, rax"),
        "mov rax, qword ptr [rip + next]",
        "once_more:",
        *("mov r10, rax", "sub r10, rdi"),
        *(f"movabs rdx, {number(pace.far)}", "cmp r10, rdx", "jg of_another_clock"),
        *(f"movabs rdx, {number(pace.ahead)}", "cmp r10, rdx", "jg held_back"),
        *("test r10, r10", "jns in_time"),
        *("of_another_clock:", "xor r10d, r10d"),
        "in_time:",
        *(f"movabs rdx, {number(pace.step)}", "add r10, rdx", "add r10, rdi"),
        *("lock cmpxchg qword ptr [rip + next], r10", "jne once_more"),
        "jmp let_through",
        "held_back:",
        *("lock add qword ptr [rcx + 8], 1", f"jmp {no}"),
        "let_through:",
    ]
