"""(g) A probe is taken away while a thread is inside."""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.errors import MarkerError
from markerjit.lab.child import Child
from markerjit.lab.experiment import Experiment, Picture, Run, Tell, first_or_second
from markerjit.lab.image import CODE, ENTRY, Image, assembled
from markerjit.lab.processes import ALIVE

SITE = CODE + 0x200
BODY = CODE + 0x600
PROBE = CODE + 0x700
OFF = assembled(SITE, ["test eax, 0x1000"])  # five bytes without an effect here
ON = assembled(SITE, [f"jmp {BODY:#x}"])
END = SITE + len(OFF)
WAIT = (
    "wait:",
    "pause",
    "cmp qword ptr [rip + hold], 0",
    "je leave",
    "lock inc qword ptr [rip + held]",
    "jmp wait",
    "leave:",
)
GONE = bytes(Image().bytes[:1])
"""`hlt`, which fills an image where it has no code."""
LIMIT_S = 30


def image() -> Image:
    """A loop through a site that is on. Its probe waits while `hold` is not zero, and counts its
    turns of waiting in `held`."""
    made = Image()
    made.add(ENTRY, f"jmp {SITE:#x}")
    made.put(SITE, ON)
    made.add(END, "lock inc qword ptr [rip + old]", f"jmp {SITE:#x}")
    made.add(BODY, "lock inc qword ptr [rip + inside]", f"call {PROBE:#x}",
             "lock inc qword ptr [rip + left]", f"jmp {END:#x}")  # fmt: skip
    made.add(PROBE, *WAIT, "ret")
    made.add_handler(SITE)
    return made


PROBE_CODE = bytes(image().bytes[PROBE - CODE : PROBE - CODE + 2])
"""The first instruction of the probe."""


def hold_inside(child: Child) -> None:
    """Switch the site off while the thread is in the probe and cannot leave it. Raises MarkerError
    where no thread enters the probe in time."""
    child.set_word("hold", 1)
    child.wait_for("held", 1, LIMIT_S, lambda _: None)
    if child.is_alive() and not child.word("held"):
        raise MarkerError(f"no thread entered the probe in {LIMIT_S} seconds")
    child.change(SITE, ON, OFF, goes_on=END)  # the product's way: no other thread enters


def take_away(child: Child) -> None:
    """Overwrite the whole probe, as may happen to memory that is given back."""
    child.poke(PROBE, GONE * 0x20)


def at_once(tell: Tell) -> Run:
    """The dangerous run: switch the site off, and take the probe away at once."""
    name = "taken away when the site is off"
    tell(name, 1, 1)
    with Child(image()) as child:
        hold_inside(child)
        entered, left = child.word("inside"), child.word("left")
        take_away(child)
        return run_of(child, name, "the wait until every thread has left", entered - left)


def after_a_wait(tell: Tell) -> Run:
    """The safe run: switch the site off, wait until as many threads have left as have entered, and
    take the probe away. Raises MarkerError where a thread does not leave in time."""
    name = "taken away when every thread has left"
    tell(name, 1, 1)
    with Child(image()) as child:
        hold_inside(child)
        inside = child.word("inside") - child.word("left")
        child.set_word("hold", 0)
        entered = child.word("inside")  # the site is off: that is all of them
        child.wait_for("left", entered, LIMIT_S, lambda _: None)
        if child.is_alive() and child.word("left") != entered:
            raise MarkerError(f"a thread did not leave the probe in {LIMIT_S} seconds")
        take_away(child)
        return run_of(child, name, "", inside)


def run_of(child: Child, name: str, lacks: str, inside: int) -> Run:
    """The run of a child, by whether its thread died or passed the site again."""
    passed = child.word("old")
    child.wait_for("old", passed + 1000, LIMIT_S, lambda _: None)
    ending = child.ending()
    again = child.word("old") - passed
    if ending != ALIVE:
        story = f"The thread was inside. Its next instruction was gone, and it died by {ending}."
    elif again:
        story = f"The thread came out of the probe, and passed the site {again:,} times since."
    else:
        story = f"The thread did not pass the site again in {LIMIT_S} seconds."
    return Run(
        name,
        lacks,
        1,
        {"threads inside, the site off": inside, "passed the site since": again},
        int(ending != ALIVE or not again),
        ending,
        (Picture("the probe, before", PROBE, PROBE_CODE), Picture("after", PROBE, GONE * 2)),
        story,
    )


def runs(tell: Tell) -> Iterator[Run]:
    """Without the wait, and with it."""
    yield at_once(tell)
    yield after_a_wait(tell)


EXPERIMENT = Experiment(
    letter="g",
    title="a probe taken away while a thread is inside",
    question="A site is switched off, so that no thread enters its probe any more. The memory of "
    "the probe is used for something else. What will happen?",
    choices=(
        "a thread that was inside dies",
        "nothing: the probe is off",
    ),
    conduct=runs,
    happened=first_or_second,
    forgiven="A thread may stay inside a probe for as long as it likes: it may be interrupted "
    "there, or sleep. That this one was out in time says nothing of the next.",
    explanation=(
        "Off means that nobody enters, and not that nobody is inside. A thread in the probe "
        "still needs its code, and the way back to its caller.",
        "So the body counts the threads that enter and those that leave, and what a probe needs "
        "is given back when the counts are equal. The kernel's name for this wait is a grace "
        "period.",
    ),
    references=(
        "docs/decisions/0021-giving-back-and-islands.md",
        "McKenney and Slingwine, Read-Copy Update, PDCS 1998",
        "Linux, kernel/kprobes.c: synchronize_rcu before a probe is freed",
    ),
)
