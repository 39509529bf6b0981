"""Switch all markers of a process on and say in which order its threads are stopped.

    python tests/races/ordered.py PID TID

Prints the points of the first stop that seize or interrupt a thread, and at each interrupt which
state thread TID has:

    {"points": ["seized", "seized", "interrupted", "interrupted"], "states": ["R", "t"]}
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from killed import use_hooked_library

import markerjit
from markerjit.remote import native
from tests.support.processes import state_of
from tests.support.timing import wait_until


def main() -> int:
    use_hooked_library()
    library = native.library()
    pid, tid = map(int, sys.argv[1:])
    points: list[str] = []
    states: list[str] = []
    with markerjit.attach(pid) as session:
        session.enable("*", probe="count")
        # They were stopped for that, and go back to sleep.
        others = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
        others.remove(tid)
        wait_until(lambda: {*map(state_of, others)} == {"S"}, "all others to sleep again")

        @ctypes.CFUNCTYPE(None, ctypes.c_char_p)
        def note(point: bytes) -> None:
            if point in (b"seized", b"interrupted"):
                points.append(point.decode())
            if point == b"interrupted":
                states.append(state_of(tid))

        library.mj_race_begin()
        library.mj_race_call(note)
        session.disable("*")
    print(json.dumps({"points": points, "states": states}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
