"""(a) One byte is enough: a marker's site is switched while threads run, and nothing stops them."""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.lab.child import Child
from markerjit.lab.experiment import Experiment, Picture, Run, Tell
from markerjit.lab.image import CODE, ENTRY, Image
from markerjit.lab.processes import ALIVE
from markerjit.model import Kind
from markerjit.quiesce.strategies import NONE
from markerjit.x86.forms import marker_form

FLIPS = 20_000
SITE = CODE + 0x200 + 63  # its first byte ends a cache line, its second begins the next
BODY = SITE + 0x40
FORM = marker_form(Kind.JUMP, SITE, BODY)


def image() -> Image:
    """A loop through a site. `old` counts passes, and `new` executions of the body."""
    made = Image()
    made.add(ENTRY, f"jmp {SITE:#x}")
    made.put(SITE, FORM.head + FORM.tail)
    end = SITE + len(FORM.head + FORM.tail)
    made.add(end, "lock inc qword ptr [rip + old]", f"jmp {SITE:#x}")
    made.add(BODY, "lock inc qword ptr [rip + new]", f"jmp {SITE:#x}")
    return made


def runs(tell: Tell) -> Iterator[Run]:
    """One run, which leaves no safety out: a change of one byte needs none."""
    off, on = FORM.head, next(iter(FORM.ways.values()))
    with Child(image(), threads=2) as child:
        for flip in range(FLIPS):
            old, new = (off, on) if flip % 2 == 0 else (on, off)
            child.change(SITE + 1, old[1:], new[1:], strategy=NONE)
            if flip == 0:
                active = child.in_memory(SITE, 2)
            tell("one byte, no thread stopped", flip + 1, FLIPS)
        counts = child.counts("old", "new")
        ending = child.ending()
        pictures = (
            Picture("off", SITE, child.in_memory(SITE, 2)),
            Picture("on", SITE, active),
        )
    yield Run(
        "one byte, no thread stopped",
        "",
        FLIPS,
        {"passed the site": counts["old"], "entered the body": counts["new"]},
        0,
        ending,
        pictures,
        story_of(counts["old"] + counts["new"], ending),
    )


def story_of(passes: int, ending: str) -> str:
    """The story of the run."""
    ran = (
        f"Two threads ran through the site {passes:,} times while its second byte changed "
        f"{FLIPS:,} times."
    )
    if ending == ALIVE:
        return f"{ran} Each went past the body or into it, and nowhere else."
    return f"{ran} Then the child died by {ending}."


EXPERIMENT = Experiment(
    letter="a",
    title="one byte is enough",
    question=f"A marker's site crosses a cache line. One byte of it is changed {FLIPS:,} times "
    "while two threads execute it and nothing stops them. What will they execute?",
    choices=(
        "the old instruction or the new one, never anything else",
        "sometimes a mixture of both; a thread goes astray",
    ),
    conduct=runs,
    happened=lambda runs: int(not all(run.went_well for run in runs)),
    forgiven="",
    explanation=(
        "A byte has no parts. A fetch sees the old byte or the new one, and both make an "
        "instruction of the same length, so the thread goes on at the same place. The other "
        "bytes of the site never change, so it does not matter what boundary it crosses.",
        "This is why a marker's site is `jmp +5` and becomes `jmp +0`: the five bytes of the "
        "long way to the body are there from the start, and are only jumped over.",
    ),
    references=(
        "docs/explanation/protocol.md",
        "markerjit/patch/protocol/byte_flip.py",
        "AMD64 Architecture Programmer's Manual, volume 2, 7.6.1",
    ),
)
