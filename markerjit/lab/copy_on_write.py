"""(f) Copy on write: the file does not change, and the page becomes private."""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.lab import one_byte
from markerjit.lab.child import Child
from markerjit.lab.experiment import Experiment, Picture, Run, Tell
from markerjit.lab.image import CODE
from markerjit.quiesce.strategies import NONE


def private_kib(pid: int) -> int:
    """The KiB of the code's mapping that are private copies of the process: Anonymous in smaps."""
    with open(f"/proc/{pid}/smaps") as lines:
        is_code = False
        for line in lines:
            name, *values = line.split()
            if not name.endswith(":"):
                is_code = int(name.split("-")[0], 16) == CODE
            elif is_code and name == "Anonymous:":
                return int(values[0])
    return 0


def runs(tell: Tell) -> Iterator[Run]:
    """One run: look, change a byte, and look again."""
    name = "one byte of a private mapping"
    site, form = one_byte.SITE, one_byte.FORM
    off, on = form.head, next(iter(form.ways.values()))
    tell(name, 1, 1)
    with Child(one_byte.image()) as child:
        before = private_kib(child.pid)
        child.change(site + 1, off[1:], on[1:], strategy=NONE)
        after = private_kib(child.pid)
        in_file, in_memory = child.in_file(site, 2), child.in_memory(site, 2)
        ending = child.ending()
    yield Run(
        name,
        "",
        1,
        {"private KiB before": before, "private KiB after": after},
        int(in_file != off or in_memory != on or after <= before),
        ending,
        (Picture("the file, after", site, in_file), Picture("the memory, after", site, in_memory)),
        f"The process had {before} KiB of its code for itself before the change and {after} KiB "
        "after it. Its memory has the new byte, and the file still has the old one.",
    )


EXPERIMENT = Experiment(
    letter="f",
    title="copy on write",
    question="A byte of code that is mapped from a file is changed in one process. What becomes "
    "of the file?",
    choices=(
        "it stays as it was; the process gets its own copy of the page",
        "it changes, for every process that runs it",
    ),
    conduct=runs,
    happened=lambda runs: int(not all(run.went_well for run in runs)),
    forgiven="",
    explanation=(
        "Code is mapped private. Processes share the pages of the file until one of them is "
        "written to; then the kernel copies the page, and only that process has the change. So "
        "the next start of the program is as its file says.",
        "The price is memory: each page with a site that was ever on is the process's own. A "
        "shared mapping has no copy, and a change there is refused.",
    ),
    references=(
        "mmap(2): MAP_PRIVATE; proc(5): /proc/pid/smaps",
        "Linux, mm/memory.c: do_wp_page",
        "markerjit/memory/process.py",
    ),
)
