"""The code that a process had mapped whenever it was looked at, so that addresses have names when
their objects have gone.

A program may unload an object, and load another one at the same address. The address alone does not
tell which of the two it was of. So an address at which two objects were seen is one of an unknown
object, and has the name of neither. Whole stacks can tell (walked.py).

What this does not do: see objects that came and went between two looks.
"""

from __future__ import annotations

from contextlib import suppress

from markerjit.arena.stacks import Identity, identity_of
from markerjit.errors import MarkerError
from markerjit.frames import UNKNOWN_OBJECT, Frame
from markerjit.memory.maps import parse_maps, read_maps_text
from markerjit.session.target import Target
from markerjit.unwind.names import FrameNames
from markerjit.unwind.objects import LoadedCode, ProcessCode


class SeenCode:
    """The code of a process, at all looks so far."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._executable: list[str] = []
        self._seen: dict[tuple[int, int, Identity], tuple[FrameNames, LoadedCode]] = {}

    def look(self) -> bool:
        """See what is mapped now; whether that is not what was mapped before. What cannot be seen,
        because the process has ended, stays as it was."""
        target = self._target
        with suppress(MarkerError):
            target.check_open()
            text = read_maps_text(target.pid)
            executable = _executable(text)
            if executable == self._executable:
                return False
            with target.memory.watched():
                code = ProcessCode(target.memory.read, parse_maps(text))
                names = FrameNames(target.pid, code, outlives=True)
                seen = {
                    (each.start, each.stop, identity_of(each.image)): (names, each)
                    for each in code.codes
                }
            if _executable(read_maps_text(target.pid)) != executable:
                return False  # what was read may be of other objects: at the next look
            is_new = not seen.keys() <= self._seen.keys()
            self._seen = seen | self._seen
            self._executable = executable
            return is_new
        return False

    def frame(self, address: int) -> Frame:
        """The frame that goes on at an address, behind a call."""
        inside = address - 1
        codes = {
            identity: known
            for (start, stop, identity), known in self._seen.items()
            if start <= inside < stop
        }
        if len(codes) > 1:
            return Frame(address, UNKNOWN_OBJECT, 0, "", 0)
        for names, code in codes.values():
            return names.frame_in(code, address, exact=False)
        return Frame(address, "", 0, "", 0)


def _executable(maps_text: str) -> list[str]:
    """The lines of what can be executed: heaps grow all the time."""
    return [line for line in maps_text.split("\n") if "x" in line.partition(" ")[2][:4]]
