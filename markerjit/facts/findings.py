"""The findings of doctor."""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.doctor import Finding, works
from markerjit.facts import Json


def doctor_facts(pid: int | None, findings: Sequence[Finding]) -> Json:
    """The findings of a machine, or of a process on it, and whether the job can work."""
    return {
        "pid": pid,
        "works": works(findings),
        "findings": [finding._asdict() for finding in findings],
    }
