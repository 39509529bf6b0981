"""Switch all markers of a process on, and say at which priorities that was done.

    python tests/races/prioritised.py PID [STRATEGY]

Prints the nice value before, those of the helper's thread at its points while threads stand or are
borrowed, the policy there, and the nice value after:

    {"before": 0, "during": [-20], "fifo": true, "after": 0}
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

from killed import use_hooked_library

import markerjit
from markerjit.remote import native

POINTS = ("seized", "written", "borrow: call")


def main() -> int:
    use_hooked_library()
    library = native.library()
    nice: set[int] = set()
    policies: set[int] = set()

    @ctypes.CFUNCTYPE(None, ctypes.c_char_p)
    def note(point: bytes) -> None:
        if point.decode() in POINTS:
            nice.add(os.getpriority(os.PRIO_PROCESS, 0))
        if point == b"written":
            policies.add(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK)

    before = os.getpriority(os.PRIO_PROCESS, 0)
    library.mj_race_begin()
    library.mj_race_call(note)
    with markerjit.attach(int(sys.argv[1])) as session:
        session.enable("*", quiesce=sys.argv[2] if sys.argv[2:] else None)
    after = os.getpriority(os.PRIO_PROCESS, 0)
    fifo = os.SCHED_FIFO in policies
    print(json.dumps({"before": before, "during": sorted(nice), "fifo": fifo, "after": after}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
