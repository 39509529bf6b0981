"""How often each scenario of killed.py stops the whole process, and borrows one thread of it.

    python tests/races/stops.py SCENARIO...

Prints {"SCENARIO": [STOPS, BORROWINGS], ...}. Counted by the points that a controller passes.
"""

from __future__ import annotations

import json
import sys

from killed import SCENARIOS, control, use_hooked_library
from matrix import PROGRAM
from victim import Victim


def count(name: str) -> tuple[int, int]:
    """Of one scenario, which meets no fault."""
    victim = Victim(PROGRAM, "read")
    try:
        SCENARIOS[name].prepare(victim.pid)
        ending = control(SCENARIOS[name], victim.pid)
        assert not ending.signal, ending
        assert not ending.error, ending
        return ending.points.count("stopped"), ending.points.count("borrow: on the way back")
    finally:
        victim.end()


def main() -> int:
    use_hooked_library()
    print(json.dumps({name: count(name) for name in sys.argv[1:]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
