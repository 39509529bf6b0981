"""(b) Two bytes across a cache line, with one call, under a running thread.

The site is `jmp first` and becomes `je second`, which is never taken. A thread that has the opcode
of the old one and the operand of the new one jumps to `second`, which neither instruction does. The
other mixture, `je first`, is not taken either and cannot be told from the new instruction.
"""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.lab.child import ALIVE, Child
from markerjit.lab.experiment import Experiment, Picture, Run, Tell, first_or_second
from markerjit.lab.image import CODE, ENTRY, Image, assembled
from markerjit.printable import counted
from markerjit.quiesce.strategies import MEMBARRIER

RAW_FLIPS = 300_000
SAFE_FLIPS = 200
DIES_S = 10
SITE = CODE + 0x200 + 63  # its first byte ends a cache line, its second begins the next
OLD_END, TORN_END, NEW_END = SITE + 0x20, SITE + 0x40, SITE + 2
OLD = assembled(SITE, [f"jmp {OLD_END:#x}"])
NEW = assembled(SITE, [f"je {TORN_END:#x}"])
TORN = assembled(SITE, [f"jmp {TORN_END:#x}"])


def image() -> Image:
    """A loop through the site, with a zero flag that says: do not take `je`."""
    made = Image()
    again = f"jmp {ENTRY:#x}"
    made.add(ENTRY, "or eax, 1", f"jmp {SITE:#x}")
    made.put(SITE, OLD)
    made.add(OLD_END, "lock inc qword ptr [rip + old]", again)
    made.add(NEW_END, "lock inc qword ptr [rip + new]", again)
    made.add(TORN_END, "lock inc qword ptr [rip + torn]", "ud2")
    made.add_handler(SITE)
    return made


def at_once(tell: Tell) -> Run:
    """Write both bytes with one call, and stop nobody."""
    name, flips = "two bytes at once, the thread running", 0
    with Child(image()) as child:
        while flips < RAW_FLIPS and not child.word("torn") and child.is_alive():
            if not child.poke(SITE, OLD if flips % 2 else NEW):
                break
            flips += 1
            tell(name, flips, RAW_FLIPS)
        return told(child, name, "the breakpoint", flips)


def by_breakpoint(tell: Tell) -> Run:
    """The product's protocol on the same code."""
    name = "breakpoint first, the thread running"
    with Child(image()) as child:
        for flip in range(SAFE_FLIPS):
            old, new, end = (NEW, OLD, OLD_END) if flip % 2 else (OLD, NEW, NEW_END)
            child.change(SITE, old, new, strategy=MEMBARRIER, goes_on=end)
            tell(name, flip + 1, SAFE_FLIPS)
        return told(child, name, "", SAFE_FLIPS)


def told(child: Child, name: str, lacks: str, flips: int) -> Run:
    """What happened in a child."""
    ending = child.ending(DIES_S if child.word("torn") else 0)
    counts = child.counts("old", "new", "torn", "trapped")
    if counts["torn"]:
        story = (
            f"Within {counted(flips, 'change')} the thread took the opcode of one instruction and "
            f"the operand of the other. It died by {ending}."
        )
    elif ending != ALIVE:
        story = f"Within {counted(flips, 'change')} the child died by {ending}."
    else:
        story = (
            f"The thread passed {counts['old'] + counts['new']:,} times while the bytes changed "
            f"{flips:,} times, and executed one of the two instructions each time."
        )
    return Run(
        name,
        lacks,
        flips,
        {
            "executed jmp": counts["old"],
            "executed je": counts["new"],
            "executed a mixture": counts["torn"],
            "met the breakpoint": counts["trapped"],
        },
        counts["torn"],
        ending,
        (
            Picture("before", SITE, OLD),
            Picture("after", SITE, NEW),
            Picture("a mixture", SITE, TORN),
        ),
        story,
    )


def runs(tell: Tell) -> Iterator[Run]:
    """Without the breakpoint, and with it."""
    yield at_once(tell)
    yield by_breakpoint(tell)


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
