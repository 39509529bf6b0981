"""Packages that only some formats need, and that may be missing."""

from __future__ import annotations

from markerjit.errors import Unsupported
from markerjit.printable.packages import how_to_get


def missing(subject: str, package: str, extra: str = "") -> Unsupported:
    """The error for an optional package that is not installed. `extra` is the one of ours that
    brings it, and what it needs itself."""
    return Unsupported(f"{subject} needs {package}: {how_to_get(package, extra)}")
