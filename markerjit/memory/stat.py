"""/proc/PID/stat, of a process or of one of its threads: proc_pid_stat(5)."""

from __future__ import annotations


def stat_fields(directory: str) -> list[bytes]:
    """The fields behind the name, which may have blanks and brackets of its own. The first one is
    the state, number 3 of the manual page. `directory` is such as /proc/7/task/8. Raises OSError.
    """
    with open(f"{directory}/stat", "rb", buffering=0) as file:
        return file.read().rpartition(b")")[2].split()
