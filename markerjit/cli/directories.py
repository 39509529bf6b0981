"""A directory of traces, one for each program, in which `read` and viewers find all of them."""

from __future__ import annotations

import os

import markerjit


class Directory:
    """A directory whose name ends in .ctf. It is made here; raises Refused for any other name, and
    where it cannot be."""

    def __init__(self, path: str, *, force: bool) -> None:
        if not path.rstrip("/").endswith(".ctf"):
            raise markerjit.Refused(
                "several programs are written into a directory that ends in .ctf, where viewers "
                "show all of it in one order of time, or into one file that ends in .jsonl, "
                ".pftrace, .parquet or .arrow"
            )
        self._path = path
        self._force = force
        self._programs: dict[int, int] = {}
        if not os.path.isdir(path):
            markerjit.check_output(path)
            os.mkdir(path)

    def check(self, pid: int) -> None:
        """Raise Refused where the trace of a process cannot be written."""
        markerjit.check_output(self._path_of(pid, 1), force=self._force)

    def path_for(self, pid: int) -> str:
        """The path of the next trace of a process. One that executes a file is another program."""
        self._programs[pid] = self._programs.get(pid, 0) + 1
        return self._path_of(pid, self._programs[pid])

    def _path_of(self, pid: int, number: int) -> str:
        more = f"-{number}" if number > 1 else ""
        return os.path.join(self._path, f"pid-{pid}{more}.ctf")
