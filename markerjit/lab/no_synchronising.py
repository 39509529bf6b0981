"""(e) Forgetting to synchronise the cores: the breakpoint protocol without a fence between steps.

The code and the three writes are those of experiment c. Only the fences are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.lab.child import Child
from markerjit.lab.experiment import Experiment, Run, Tell, first_or_second
from markerjit.lab.five_bytes import SITE, SPAN
from markerjit.lab.mixture import by_breakpoint, until_torn
from markerjit.x86.forms import INT3

FLIPS = 100_000


def write(child: Child, code: bytes, end: int) -> bool:
    """The dangerous way: int3, the tail and the first byte are written without a fence between
    them."""
    child.set_word("goes_on", end)
    writes = ((SITE, bytes([INT3])), (SITE + 1, code[1:]), (SITE, code[:1]))
    return all(child.poke(address, part) for address, part in writes)


def runs(tell: Tell) -> Iterator[Run]:
    """Without the fences, and with them."""
    name = "three writes, and nothing between them"
    lacks = "the cores synchronised after each step"
    yield until_torn(SPAN, tell, name, lacks, FLIPS, write)
    yield by_breakpoint(SPAN, tell)


EXPERIMENT = Experiment(
    letter="e",
    title="forgetting to synchronise the cores",
    question="The breakpoint protocol writes int3, then the tail, then the first byte. The three "
    f"writes follow each other at once, {FLIPS:,} times. What will the thread execute?",
    choices=(
        "at some time a mixture of both jumps",
        "the old jump, the new one, or the breakpoint",
    ),
    conduct=runs,
    happened=first_or_second,
    forgiven="A core may have fetched the first byte before the first write and the tail after the "
    "second: no manual forbids it. The same three writes have torn on other machines.",
    explanation=(
        "Stores reach other cores in order, but a core fetches code ahead of what it executes, "
        "and keeps what it has decoded. The first byte of the old jump may wait there while the "
        "tail is read anew.",
        "membarrier(2) with SYNC_CORE makes every core of the process execute a serialising "
        "instruction, which drops what was fetched. After each step, no thread has older bytes.",
    ),
    references=(
        "Intel SDM, volume 3: Handling Self- and Cross-Modifying Code",
        "membarrier(2): PRIVATE_EXPEDITED_SYNC_CORE",
        "docs/explanation/torture.md",
    ),
)
