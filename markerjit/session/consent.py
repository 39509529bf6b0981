"""Breakpoints in code that nobody prepared: put there only where they were asked for.

A thread that comes to a breakpoint gets SIGTRAP from the kernel, which ends the process if the
thread blocks that signal, or if the program has taken it over. Neither can be known beforehand: a
thread may block all signals at any time, as those of the C library do where they begin and end. So
a pattern never leads to a breakpoint. The name of a mode does (`int3`), and so does the word of the
operator: `--breakpoints`, or `breakpoints=True` of a session.

Markers are not meant: who compiled one as a breakpoint has asked for it.
"""

from __future__ import annotations

from markerjit.errors import Reason
from markerjit.model import Form, Site, UsdtSite
from markerjit.session.opened import without_stub

NEEDS_BREAKPOINT = (
    "can be opened only by a breakpoint, which would end the program where a thread comes by that "
    "blocks SIGTRAP; --breakpoints takes it"
)


def without_breakpoint(site: UsdtSite, *, lasts: bool) -> Site:
    """A site that gets no stub, because it needs a breakpoint that nobody asked for. That does not
    last where a jump may fit later."""
    return without_stub(site, NEEDS_BREAKPOINT, Reason.NEEDS_BREAKPOINT, lasts=lasts)


def closed_for_want(form: Form) -> Form:
    """The same of the form of a site that has a stub, by an earlier request."""
    return form._replace(closed=NEEDS_BREAKPOINT, reason=Reason.NEEDS_BREAKPOINT)
