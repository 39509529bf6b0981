"""A form: one way to put a site into a program, or a control whose cost is known.

The lists of forms that are compared are with their kinds of cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from markerjit.tuples import NamedTuple


class Form(NamedTuple):
    """A way to put a site into a program.

    flags       flags of the compiler, which choose the form in the source
    compiler    the compiler that it needs, "" for that of the user
    needs       a header that it needs, and `package` the Debian package that has the header
    what        a short description
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
        """Whether each place must be described in a header, as LTTng's tracepoints must."""
        return "-DBENCH_FORM=lttng" in self.flags


BASELINE = "no marker"
BASELINE_CLANG = "no marker, clang"
AGAIN = "no marker, again"
"""The baseline once more. The difference between the two is the noise."""
SAME = "the same,"
"""The beginning of the names of forms of the same code. A number follows: see check.py."""
CALL = "call"
FUNCTION = "function"
"""The name of a call of a function without a marker. A comma after it begins the name of a form in
which markerjit opens that function."""
BY_POINTER = "call by pointer"
YARDSTICKS = (
    BY_POINTER,
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
"""The forms that an event is compared with in `active`."""
MODES = ("jump", "nop", "symbol", "immediate", "pointer", "sentinel", "direct", "int3")
"""The modes of marker.h. The name of a form of ours begins with its mode. Anything more follows a
comma."""


def is_asked_for(name: str, only: Sequence[str], *, is_usual: bool = True) -> bool:
    """Whether a form is measured. With patterns in `only`, its name must match one of them. Without
    any, it must be a usual one. The form that all others are compared with is always measured."""
    if name in (BASELINE, AGAIN, CALL):
        return True
    return any(fnmatchcase(name, pattern) for pattern in only) if only else is_usual
