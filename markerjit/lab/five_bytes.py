"""(c) Five bytes at once while a thread runs, and then the breakpoint protocol on the same code.

The jump crosses a page: its opcode and the low byte of its displacement are on the first page, and
the other three bytes on the second. The kernel copies page by page, so its copy has two parts.
"""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.abi import PAGE
from markerjit.lab.child import Child
from markerjit.lab.experiment import Experiment, Run, Tell, first_or_second
from markerjit.lab.image import CODE, ENTRY, Image, assembled
from markerjit.lab.mixture import Span, by_breakpoint, until_torn

RAW_FLIPS = 200_000
SITE = CODE + PAGE - 2
OLD_END, NEW_END = SITE + 5 + 0x1010, SITE + 5 + 0x2080
TORN_ENDS = (SITE + 5 + 0x1080, SITE + 5 + 0x2010)  # the low byte of one, the rest of the other
OLD, NEW, *MIXTURES = (assembled(SITE, [f"jmp {end:#x}"]) for end in (OLD_END, NEW_END, *TORN_ENDS))


def image() -> Image:
    """A loop through the jump. At the targets of both mixtures the thread is counted and dies."""
    made = Image(pages=4)
    made.add(ENTRY, f"jmp {SITE:#x}")
    made.put(SITE, OLD)
    made.add(OLD_END, "lock inc qword ptr [rip + old]", f"jmp {SITE:#x}")
    made.add(NEW_END, "lock inc qword ptr [rip + new]", f"jmp {SITE:#x}")
    for end in TORN_ENDS:
        made.add(end, "lock inc qword ptr [rip + torn]", "ud2")
    made.add_handler(SITE)
    return made


SPAN = Span(image, SITE, OLD, OLD_END, NEW, NEW_END, tuple(MIXTURES))


def write(child: Child, code: bytes, _: int) -> bool:
    """The dangerous way: all bytes are written with one call, and no thread is stopped."""
    return child.poke(SITE, code)


def runs(tell: Tell) -> Iterator[Run]:
    """Without the breakpoint, and with it."""
    name = "five bytes at once, the thread running"
    yield until_torn(SPAN, tell, name, "the breakpoint", RAW_FLIPS, write)
    yield by_breakpoint(SPAN, tell)


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
