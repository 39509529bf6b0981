"""`make relocation-check`: instructions of twenty real binaries, executed where they are and where
relocate() puts them.

    RELOCATIONS   instructions in all; 1,000,000 by default, which takes an hour or two

Prints a line for each binary, then each run of instructions that did not do the same. The exit
code is 1 if there is one. tests/oracle/test_relocation.py does the same with a few of them. A
binary that is not on this machine is named, and another one is taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.relocations import EXECUTOR, Sample, Verdict, differences

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
BINARIES = (
    *(Path("/usr/bin", name) for name in ("bash", "python3.11", "gdb", "redis-server", "perl")),
    *(Path("/usr/bin", name) for name in ("git", "openssl", "gpg", "tar", "find", "ssh")),
    Path("/usr/lib/postgresql/15/bin/postgres"),
    *(
        LIBRARIES / name
        for name in (
            *("libc.so.6", "libm.so.6", "libstdc++.so.6", "libsqlite3.so.0", "libcrypto.so.3"),
            *("libssl.so.3", "libgcc_s.so.1", "libz.so.1", "libexpat.so.1", "libcurl-gnutls.so.4"),
            *("libgmp.so.10", "libjsoncpp.so.25", "liblzma.so.5", "libzstd.so.1"),
        )
    ),
)
NUMBER = 20
"""Of them, so many are taken: the first ones that are there."""
_AT_ONCE = 2000
_SHOWN = 20
_WIDTHS = (14, 10, 11, 9, 8)


class Checked(NamedTuple):
    """What came of a binary: instructions and runs of them, those runs that ended without a signal,
    the refused ones by their obstacle, and what was not the same."""

    instructions: int
    runs: int
    completed: int
    refused: Counter[str]
    wrong: list[Verdict]


def main() -> int:
    """Check all binaries; the exit code."""
    total = int(os.environ.get("RELOCATIONS", "1000000"))
    for path in BINARIES:
        if not path.exists():
            print(f"{path} is not here")
    chosen = [path for path in BINARIES if path.exists()][:NUMBER]
    titles = ("instructions", "runs", "no signal", "refused", "differ")
    columns = zip(titles, _WIDTHS, strict=True)
    print(f"{'binary':>22}" + "".join(f"{title:>{width}}" for title, width in columns))
    everything: list[Checked] = []
    with tempfile.TemporaryDirectory(prefix="mj-relocations-", dir="/tmp") as directory:
        executor = Path(directory, "executor")
        subprocess.run(["gcc", "-O1", EXECUTOR, "-o", executor], check=True)
        for path in chosen:
            checked = check(path, executor, -(-total // len(chosen)))
            everything.append(checked)
            print(line(path.name, checked), flush=True)
            for verdict in checked.wrong[:_SHOWN]:
                print(f"    {verdict.run}: {verdict.differs}")
    refused = sum((checked.refused for checked in everything), Counter[str]())
    wrong = [verdict for checked in everything for verdict in checked.wrong]
    numbers = [sum(column) for column in zip(*(checked[:3] for checked in everything), strict=True)]
    print(line(f"{len(everything)} binaries", Checked(*numbers, refused, wrong)))
    for obstacle, count in refused.most_common():
        print(f"{count:>10,} runs refused: {obstacle}")
    return 1 if wrong else 0


def check(path: Path, executor: Path, instructions: int) -> Checked:
    """Execute so many instructions of a binary, or some more."""
    done = runs = completed = seed = 0
    refused: Counter[str] = Counter()
    wrong: list[Verdict] = []
    while done < instructions:
        sample = Sample(path, min(_AT_ONCE, instructions - done), seed)
        verdicts = sample.execute(executor)
        done += sum(len(verdict.run.instructions) for verdict in verdicts)
        runs += len(verdicts)
        completed += sum(verdict.signals == (0, 0) for verdict in verdicts)
        refused += sample.refused
        wrong += differences(verdicts)
        seed += 1
    return Checked(done, runs, completed, refused, wrong)


def line(name: str, checked: Checked) -> str:
    """The line of a binary."""
    numbers = (*checked[:3], checked.refused.total(), len(checked.wrong))
    cells = (f"{number:>{width},}" for number, width in zip(numbers, _WIDTHS, strict=True))
    return f"{name:>22}" + "".join(cells)


if __name__ == "__main__":
    sys.exit(main())
