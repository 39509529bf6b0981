"""(b) Two bytes across a cache line, written with one call while a thread executes them.

The site is `jmp first` and becomes `je second`, which is never taken. A thread that fetches the old
opcode and the new operand jumps to `second`, which neither instruction does. The other mixture, `je
first`, is not taken either and cannot be told from the new instruction.
"""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.lab.child import Child
from markerjit.lab.experiment import Experiment, Run, Tell, first_or_second
from markerjit.lab.image import CODE, ENTRY, Image, assembled
from markerjit.lab.mixture import Span, by_breakpoint, until_torn

RAW_FLIPS = 300_000
SITE = CODE + 0x200 + 63  # its first byte ends a cache line, its second begins the next
OLD_END, TORN_END, NEW_END = SITE + 0x20, SITE + 0x40, SITE + 2
OLD = assembled(SITE, [f"jmp {OLD_END:#x}"])
NEW = assembled(SITE, [f"je {TORN_END:#x}"])
TORN = assembled(SITE, [f"jmp {TORN_END:#x}"])


def image() -> Image:
    """A loop through the site, with the zero flag clear, so that `je` is not taken."""
    made = Image()
    again = f"jmp {ENTRY:#x}"
    made.add(ENTRY, "or eax, 1", f"jmp {SITE:#x}")
    made.put(SITE, OLD)
    made.add(OLD_END, "lock inc qword ptr [rip + old]", again)
    made.add(NEW_END, "lock inc qword ptr [rip + new]", again)
    made.add(TORN_END, "lock inc qword ptr [rip + torn]", "ud2")
    made.add_handler(SITE)
    return made


SPAN = Span(image, SITE, OLD, OLD_END, NEW, NEW_END, (TORN,))


def write(child: Child, code: bytes, _: int) -> bool:
    """The dangerous way: all bytes are written with one call, and no thread is stopped."""
    return child.poke(SITE, code)


def runs(tell: Tell) -> Iterator[Run]:
    """Without the breakpoint, and with it."""
    name = "two bytes at once, the thread running"
    yield until_torn(SPAN, tell, name, "the breakpoint", RAW_FLIPS, write)
    yield by_breakpoint(SPAN, tell)


EXPERIMENT = Experiment(
    letter="b",
    title="two bytes across a cache line",
    question="An instruction of two bytes has one in a cache line and the other in the next. "
    f"Both are written with one call, {RAW_FLIPS:,} times, while a thread executes them. What "
    "will the thread see?",
    choices=(
        "at some time one byte of the old instruction and one of the new",
        "the old instruction or the new one",
    ),
    conduct=runs,
    happened=first_or_second,
    forgiven="Nothing that a processor's manual promises covers a store across two lines, and the "
    "kernel does not promise to use one store. Another machine, or a longer run, may tear.",
    explanation=(
        "Processors share memory by the line. Two lines travel on their own, so that another "
        "core can have the new one of the first and the old one of the second.",
        "A marker's site also has two bytes that may stand like this. It is safe because only "
        "one of them ever changes: experiment a. Where both have to change, a breakpoint keeps "
        "threads off the second byte meanwhile.",
    ),
    references=(
        "Intel SDM, volume 3: Guaranteed Atomic Operations",
        "docs/explanation/torture.md",
        "markerjit/patch/protocol/breakpoint.py",
    ),
)
