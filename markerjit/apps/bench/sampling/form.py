"""A form: one way to put a site into a program, or a control whose cost is known.

The lists of forms that are compared stand with their kinds of cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from markerjit.tuples import NamedTuple


class Form(NamedTuple):
    """A way to put a site into a program.

    flags       for the compiler, which choose it in the source
    compiler    the one that it needs, "" for that of the user
    needs       a header that has to be there, and `package` the Debian package that has it
    what        in a few words
    baseline    the form that it is compared with: the same source without a marker, by the same
                compiler
    is_usual    whether it is measured without being asked for
    """

    name: str
    flags: tuple[str, ...]
    what: str
    compiler: str = ""
    needs: str = ""
    package: str = ""
    libraries: tuple[str, ...] = ()
    baseline: str = "no marker"
    is_usual: bool = True

    @property
    def is_ours(self) -> bool:
        """Whether it is a mode of marker.h."""
        return "-DBENCH_FORM=mark" in self.flags

    @property
    def wants_description(self) -> bool:
        """Whether each place has to be described in a header: LTTng's tracepoints."""
        return "-DBENCH_FORM=lttng" in self.flags


BASELINE = "no marker"
BASELINE_CLANG = "no marker, clang"
AGAIN = "no marker, again"
"""The baseline once more. The difference between the two is the noise."""
SAME = "the same,"
"""The beginning of a name. A number follows it: see check.py."""
CALL = "call"
FUNCTION = "function"
"""A call of a function that nobody prepared. With a comma behind it: which markerjit opens."""
YARDSTICKS = (
    "rdtsc",
    "two rdtsc",
    FUNCTION,
    "clock_gettime",
    "store of 32 bytes",
    "record by hand",
    "record by hand, prefetched",
    "record by hand, in the cache",
    "locked add",
    "locked add, shared",
)
"""What an event is compared with in `active`."""
MODES = ("jump", "nop", "symbol", "immediate", "pointer", "sentinel", "direct", "int3")
"""The modes of marker.h. The name of a form of ours begins with its mode, and what else there is to
say follows a comma."""


def is_asked_for(name: str, only: Sequence[str], *, is_usual: bool = True) -> bool:
    """Whether a form is measured: where its name matches one of the patterns `only`, or, without
    any, where it is a usual one. What all others are compared with always is."""
    if name in (BASELINE, AGAIN, CALL):
        return True
    return any(fnmatchcase(name, pattern) for pattern in only) if only else is_usual
