"""Switch all markers of a process while a uprobe is put into it, or taken out, at a race point.

    python tests/races/uprobed.py PID ADDRESS put|take POINT...

The uprobe is at ADDRESS. When these points have been passed in this order, while all threads of the
process stand, it is taken out, or put in. Prints "probed" before the switch, "switched" after it,
and waits for a line each time. Then what became of the switch, and how often the uprobe counted:

    {"error": "", "counted": 0}

Exit code 77 where the kernel gives us no uprobes.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

from killed import use_hooked_library

import markerjit
from markerjit.apps.bench.active import uprobes
from markerjit.remote import native

NO_UPROBES = 77


class Uprobe:
    """One at this address, not put in yet."""

    def __init__(self, pid: int, address: int) -> None:
        self._pid = pid
        self._spot = uprobes.spot_at(pid, address)
        self._descriptor = -1

    def put(self) -> None:
        self._descriptor = uprobes.open_uprobe(self._spot, self._pid)

    def take(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1

    def count(self) -> int:
        return uprobes.count(self._descriptor) if self._descriptor >= 0 else 0


def main() -> int:
    pid, address, what = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    points = sys.argv[4:]
    use_hooked_library()
    uprobe = Uprobe(pid, address)
    try:
        uprobe.put()
    except (markerjit.NotPermitted, markerjit.Unsupported) as no:
        print(no, file=sys.stderr)
        return NO_UPROBES
    if what == "put":
        uprobe.take()
    _say("probed")

    @ctypes.CFUNCTYPE(None, ctypes.c_char_p)
    def at_point(name: bytes) -> None:
        if points and name.decode() == points[0]:
            del points[0]
            if not points:
                getattr(uprobe, what)()

    loaded = native.library()
    loaded.mj_race_call(at_point)
    loaded.mj_race_begin()
    error = ""
    with markerjit.attach(pid) as session:
        try:
            session.enable("*")
        except markerjit.Refused as refused:
            error = str(refused)
    assert not points, f"not passed: {points}"
    _say("switched")
    print(json.dumps({"error": error, "counted": uprobe.count()}))
    return 0


def _say(word: str) -> None:
    print(word, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    sys.exit(main())
