"""Whether markerjit will work here and on a process, and why not, found out by reading.

Each finding is good, a warning (something less will do, or may go wrong) or a wall (the job cannot
work), and says the way round. Nothing of a process is written. No thread is stopped but those under
a seccomp filter, for some 50 µs each, to read it; and not while another controller has its turn.

Some walls cannot be seen from outside, in any file of the kernel. docs/reference/doctor.md names
them. `on` then runs into them, says so, and leaves the process as it was.
"""

from __future__ import annotations

from markerjit.doctor.finding import GOOD, WALL, WARNING, Finding, verdict, works
from markerjit.doctor.machine import examine_machine
from markerjit.doctor.process import examine_process

__all__ = [
    "GOOD",
    "WALL",
    "WARNING",
    "Finding",
    "examine_machine",
    "examine_process",
    "verdict",
    "works",
]
