"""(d) A thread is in the middle of the span that is to become one instruction."""

from __future__ import annotations

import time
from collections.abc import Iterator

from markerjit.errors import MarkerError, Refused
from markerjit.lab.child import Child
from markerjit.lab.experiment import Experiment, Picture, Run, Tell, first_or_second
from markerjit.lab.image import CODE, ENTRY, Image, assembled
from markerjit.lab.processes import ALIVE

SITE = CODE + 0x200
WAIT = SITE + 1
SPAN = assembled(SITE, ["nop", "wait:", "pause", "jmp wait"])
# Read from the second byte on, the displacement of this jump is `ud2` and then a store through a
# null pointer. So a thread in the middle dies wherever it is.
NEW = assembled(SITE, [f"jmp {SITE + 5 + 0x0B0F:#x}"])
LIMIT_S = 30


def image() -> Image:
    """Code that enters the span and stays in it for ever."""
    made = Image()
    made.add(ENTRY, "xor eax, eax", f"jmp {SITE:#x}")
    made.put(SITE, SPAN)
    return made


def wait_until_inside(child: Child) -> None:
    """Wait until the thread is in the span, which it never leaves.

    The product's own look tells it: while a thread is inside, even a change into the same bytes is
    refused. Raises MarkerError where the thread does not arrive in time.
    """
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            child.change(SITE, SPAN, SPAN)
        except Refused as refusal:
            if refusal.try_again:
                return
            raise
    raise MarkerError(f"the thread of this experiment did not arrive in {LIMIT_S} seconds")


def at_once(tell: Tell) -> Run:
    """The dangerous run: write the jump without a look at the threads."""
    name = "written without a look at the threads"
    tell(name, 1, 1)
    with Child(image()) as child:
        wait_until_inside(child)
        child.poke(SITE, NEW)
        ending = child.ending(LIMIT_S)
        story = (
            "The thread was on its second or third instruction. It went on there, in the middle "
            f"of the jump, and executed the bytes of an address as code. It died by {ending}."
            if ending != ALIVE
            else f"The thread went on for {LIMIT_S} seconds."
        )
        return Run(
            name,
            "the look at where threads stand",
            1,
            {"threads inside": 1},
            int(ending != ALIVE),
            ending,
            (
                Picture("before", SITE, SPAN),
                Picture("after", SITE, NEW),
                Picture("as the thread reads it", WAIT, NEW[1:]),
            ),
            story,
        )


def with_a_look(tell: Tell) -> Run:
    """The safe run, by the product's way: stop, look, and refuse while a thread is inside."""
    name = "all threads stopped and looked at"
    tell(name, 1, 1)
    with Child(image()) as child:
        wait_until_inside(child)
        refused = 0
        try:
            child.change(SITE, SPAN, NEW)
            story = "The change was made."
        except Refused as refusal:
            if not refusal.try_again:
                raise
            refused = 1
            story = "The change was refused for now, because a thread is inside the span."
        after = child.in_memory(SITE, 5)
        story += " The bytes are as they were, and the thread runs on." if after == SPAN else ""
        return Run(
            name,
            "",
            1,
            {"threads inside": 1, "refused": refused},
            int(after != SPAN),
            child.ending(),
            (Picture("before", SITE, SPAN), Picture("after", SITE, after)),
            story,
        )


def runs(tell: Tell) -> Iterator[Run]:
    """Without the look, and with it."""
    yield at_once(tell)
    yield with_a_look(tell)


EXPERIMENT = Experiment(
    letter="d",
    title="a thread stands in the middle of the span",
    question="Five bytes hold three instructions: nop, pause, jmp. A thread is at the second. "
    "The five bytes become one jump. What will the thread do?",
    choices=(
        "execute the middle of the jump, and die",
        "finish the old instructions first",
    ),
    conduct=runs,
    happened=first_or_second,
    forgiven="The thread has no memory of the old instructions: it reads what is at its "
    "instruction pointer. That it lived says only that it was not there.",
    explanation=(
        "A thread knows where it is, and not in what instruction. Where several instructions "
        "become one, a thread that is between them comes out in the middle of the new one.",
        "So the product stops all threads, reads their instruction pointers, and the ones that "
        "wait in signal frames on their stacks. While one is inside, the change is refused and "
        "can be tried again. A marker's site is one instruction, so that nobody is inside.",
    ),
    references=(
        "native/src/stop/spans.h, native/src/stop/stacks.c",
        "docs/explanation/quiescence.md",
        "Linux, kernel/kprobes.c: optimized probes wait for synchronize_rcu_tasks",
    ),
)
