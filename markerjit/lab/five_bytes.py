"""(c) Five bytes at once under a running thread, and then the breakpoint protocol on the same code.

The jump stands across two pages: its opcode and the low byte of its displacement on the first, the
other three bytes on the second. The kernel copies a page at a time, so that its copy has two parts.
"""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.abi import PAGE
from markerjit.lab.child import ALIVE, Child
from markerjit.lab.experiment import Experiment, Picture, Run, Tell, first_or_second
from markerjit.lab.image import CODE, ENTRY, Image, assembled
from markerjit.printable import counted
from markerjit.quiesce.strategies import MEMBARRIER

RAW_FLIPS = 200_000
SAFE_FLIPS = 200
DIES_S = 10
SITE = CODE + PAGE - 2
OLD_END, NEW_END = SITE + 5 + 0x1010, SITE + 5 + 0x2080
TORN_ENDS = (SITE + 5 + 0x1080, SITE + 5 + 0x2010)  # the low byte of one, the rest of the other
OLD, NEW = (assembled(SITE, [f"jmp {end:#x}"]) for end in (OLD_END, NEW_END))


def image() -> Image:
    """A jump that loops. Where a mixture of both jumps leads, the thread is counted, and dies."""
    made = Image(pages=4)
    made.add(ENTRY, f"jmp {SITE:#x}")
    made.put(SITE, OLD)
    made.add(OLD_END, "lock inc qword ptr [rip + old]", f"jmp {SITE:#x}")
    made.add(NEW_END, "lock inc qword ptr [rip + new]", f"jmp {SITE:#x}")
    for end in TORN_ENDS:
        made.add(end, "lock inc qword ptr [rip + torn]", "ud2")
    made.add_handler(SITE)
    return made


def at_once(tell: Tell) -> Run:
    """Write all five bytes with one call, and stop nobody."""
    name, flips = "five bytes at once, the thread running", 0
    with Child(image()) as child:
        while flips < RAW_FLIPS and not child.word("torn") and child.is_alive():
            if not child.poke(SITE, OLD if flips % 2 else NEW):
                break
            flips += 1
            tell(name, flips, RAW_FLIPS)
        return told(child, name, "the breakpoint", flips)


def by_breakpoint(tell: Tell) -> Run:
    """The product's protocol: int3, the tail, the first byte, the cores synchronised after each."""
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
    executed = counts["old"] + counts["new"]
    if counts["torn"]:
        story = (
            f"Within {counted(flips, 'change')} the thread jumped to an address that is in "
            f"neither jump: it had read the first part of one and the rest of the "
            f"other. It died by {ending}."
        )
    elif ending != ALIVE:
        story = f"Within {counted(flips, 'change')} the child died by {ending}."
    else:
        story = (
            f"The thread jumped {executed:,} times while the jump changed {flips:,} times, always "
            f"to one of its two ends. It met the breakpoint {counts['trapped']:,} times."
        )
    return Run(
        name,
        lacks,
        flips,
        {
            "to the old end": counts["old"],
            "to the new end": counts["new"],
            "to an end of neither": counts["torn"],
            "met the breakpoint": counts["trapped"],
        },
        counts["torn"],
        ending,
        (
            Picture("before", SITE, OLD),
            Picture("after", SITE, NEW),
            *(Picture("a mixture", SITE, assembled(SITE, [f"jmp {end:#x}"])) for end in TORN_ENDS),
        ),
        story,
    )


def runs(tell: Tell) -> Iterator[Run]:
    """Without the breakpoint, and with it."""
    yield at_once(tell)
    yield by_breakpoint(tell)


EXPERIMENT = Experiment(
    letter="c",
    title="five bytes at once, and the breakpoint protocol",
    question="A thread executes a jump of five bytes that stands across two pages. All five "
    "bytes are written with one call while it runs. What will happen?",
    choices=(
        "the thread jumps to an address that nobody ever wrote",
        "nothing: one call is one change",
    ),
    conduct=runs,
    happened=first_or_second,
    forgiven="A processor promises to see at most eight aligned bytes as a whole, and a copy by "
    "the kernel promises less. That none was torn in these tries is luck of this machine.",
    explanation=(
        "One call of pwrite is not one store. The bytes arrive in parts, and a thread that "
        "fetches between two parts executes an instruction that is in neither version.",
        "The breakpoint protocol makes the first byte int3, so that no thread executes the rest "
        "while the rest changes. A thread that comes meanwhile traps, and the handler sends it "
        "to where the instruction leads. Linux changes its own code so.",
    ),
    references=(
        "Linux, arch/x86/kernel/alternative.c: smp_text_poke_batch_finish",
        "Intel SDM, volume 3: Handling Self- and Cross-Modifying Code",
        "markerjit/patch/protocol/breakpoint.py",
    ),
)
