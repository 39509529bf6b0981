"""bpftrace, which compiles a script for the kernel and has uprobes run it at USDT probes.

Each form has a map of its own in the script, which counts executions, by a key or in buckets. The
sum over the map is what bpftrace has seen.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from markerjit.errors import MarkerError, Unsupported
from markerjit.tuples import NamedTuple

_BEGIN_S, _END_S, _LOOK_S = 30, 30, 0.01


class Probe(NamedTuple):
    """A USDT probe in a file."""

    path: Path
    provider: str
    name: str


class Tracer:
    """bpftrace at work: for each map the probes that change it, and how. `is_attached` tells
    whether its breakpoints are there: it says so before. Raises Unsupported, MarkerError."""

    def __init__(
        self,
        pid: int,
        maps: Mapping[str, tuple[Sequence[Probe], str]],
        is_attached: Callable[[], bool],
    ) -> None:
        program = shutil.which("bpftrace")
        if program is None:
            raise Unsupported("bpftrace is not here; apt-get install bpftrace")
        if os.geteuid():
            raise Unsupported("bpftrace needs root")
        script = "\n".join(
            f"usdt:{probe.path}:{probe.provider}:{probe.name} {{ @{name}{does}; }}"
            for name, (probes, does) in maps.items()
            for probe in probes
        )
        self._process = subprocess.Popen(
            [program, "-f", "json", "-p", str(pid), "-e", script],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        until = time.monotonic() + _BEGIN_S
        while not is_attached():
            if self._process.poll() is not None:
                errors = self._process.communicate()[1].strip()
                raise MarkerError(f"bpftrace: {errors or 'it ended'}")
            if time.monotonic() > until:
                self.close()
                raise MarkerError(f"bpftrace has attached nothing in {_BEGIN_S} s")
            time.sleep(_LOOK_S)

    def counts(self) -> dict[str, int]:
        """End it. Returns the sum over each map."""
        self._process.send_signal(signal.SIGINT)
        printed, errors = self._process.communicate(timeout=_END_S)
        counts: dict[str, int] = {}
        for line in printed.splitlines():
            document = _of(line)
            if document.get("type") in ("map", "hist"):
                for name, value in document["data"].items():
                    counts[name.removeprefix("@")] = _sum(value)
            elif document.get("type") == "lost_events":
                raise MarkerError(f"bpftrace has lost {document['data']['events']} events")
        if self._process.returncode:
            raise MarkerError(f"bpftrace: {errors.strip()}")
        return counts

    def close(self) -> None:
        """End it. May be called again."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def tracing(
    pid: int, maps: Mapping[str, tuple[Sequence[Probe], str]], is_attached: Callable[[], bool]
) -> Iterator[Tracer]:
    """bpftrace at the USDT probes of a process. Raises Unsupported, MarkerError."""
    tracer = Tracer(pid, maps, is_attached)
    try:
        yield tracer
    finally:
        tracer.close()


def _of(line: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
    return document


def _sum(value: Any) -> int:
    """Of a count, of counts by key, and of the buckets of a histogram."""
    if isinstance(value, int):
        return value
    if isinstance(value, dict):
        return sum(map(_sum, value.values()))
    return sum(bucket["count"] for bucket in value)
