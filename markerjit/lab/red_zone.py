"""(h) The red zone: a local below the stack pointer, and a call that lands on it."""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.lab.child import Child
from markerjit.lab.experiment import Experiment, Picture, Run, Tell, first_or_second
from markerjit.lab.image import CODE, ENTRY, Image, assembled
from markerjit.lab.processes import ALIVE

SITE = CODE + 0x240
BODY = CODE + 0x600
PROBE = CODE + 0x700
PASSES = 10_000
LIMIT_S = 30
OFF = assembled(SITE, ["test eax, 0x1000"])  # five bytes without an effect here
CALL = assembled(SITE, [f"call {PROBE:#x}"])
JUMP = assembled(SITE, [f"jmp {BODY:#x}"])
END = SITE + len(OFF)


def image() -> Image:
    """A leaf function with a local at rsp - 8. `torn` counts the passes in which the local is
    another value than was stored. The body steps over the red zone."""
    made = Image()
    made.add(ENTRY, f"jmp {SITE - 9:#x}")
    made.add(SITE - 9, "mov qword ptr [rsp - 8], 0x1234")
    made.put(SITE, OFF)
    made.add(
        END,
        "lock inc qword ptr [rip + old]",
        "cmp qword ptr [rsp - 8], 0x1234",
        "je intact",
        "lock inc qword ptr [rip + torn]",
        "intact:",
        f"jmp {SITE - 9:#x}",
    )
    made.add(BODY, "lea rsp, [rsp - 0x80]", f"call {PROBE:#x}", "lea rsp, [rsp + 0x80]",
             f"jmp {END:#x}")  # fmt: skip
    made.add(PROBE, "lock inc qword ptr [rip + new]", "ret")
    made.add_handler(SITE)
    return made


def run_with(tell: Tell, name: str, lacks: str, code: bytes, goes_on: int) -> Run:
    """The run with this code at the site: it is switched on by the product's way, and the probe is
    called many times."""
    with Child(image()) as child:
        child.change(SITE, OFF, code, goes_on=goes_on)
        child.wait_for("new", PASSES, LIMIT_S, lambda new: tell(name, min(new, PASSES), PASSES))
        child.change(SITE, code, OFF, goes_on=END)
        ending, counts = child.ending(), child.counts("new", "torn")
    overwritten = counts["torn"]
    if overwritten:
        story = (
            f"The probe was called {counts['new']:,} times. {overwritten:,} times the local had "
            "another value after the call: the return address."
        )
    else:
        story = f"The probe was called {counts['new']:,} times, and the local was intact each time."
    if ending != ALIVE:
        story += f" The child died by {ending}."
    return Run(
        name,
        lacks,
        1,
        {"calls of the probe": counts["new"], "local overwritten": overwritten},
        overwritten,
        ending,
        (Picture("off", SITE, OFF), Picture("on", SITE, code)),
        story,
    )


def runs(tell: Tell) -> Iterator[Run]:
    """With a call at the site, and with a jump to a body that steps over the red zone."""
    yield run_with(tell, "a call at the site", "the step over the red zone", CALL, BODY)
    yield run_with(tell, "a jump to a body", "", JUMP, BODY)


EXPERIMENT = Experiment(
    letter="h",
    title="the red zone, overwritten by a call",
    question="A leaf function keeps a local at rsp - 8. An instruction that does "
    "nothing becomes `call probe`, and the probe changes no register. What will the function find?",
    choices=(
        "its local has another value",
        "everything as it was",
    ),
    conduct=runs,
    happened=first_or_second,
    forgiven="A call stores its return address at rsp - 8 by definition.",
    explanation=(
        "A function that calls no other may use the 128 bytes below the stack pointer without "
        "moving it: the red zone. The kernel keeps off it when it delivers a signal. A call "
        "that was not there when the program was compiled stores its return address there.",
        "So the body of a marker is reached by a jump, which stores nothing, and the compiler "
        "is told of the call that is in the body; a body that the compiler does not know of has "
        "to move the stack pointer first.",
    ),
    references=(
        "System V ABI, AMD64 supplement, 3.2.2: The Stack Frame",
        "docs/decisions/0024-a-preserving-call.md",
    ),
)
