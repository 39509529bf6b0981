"""The bundled server, its load, and the cost of a marker in it, as `markerjit demo` shows them.

Costs are measured in short slices of load. In each round all variants run, in a new order, so that
other work of the machine meets them all alike. A figure is the median over the rounds of
the ratio to the same round's server without markers; the spread is that ratio's smallest and
largest.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median
from typing import Any

import markerjit
from markerjit.errors import MarkerError
from markerjit.lowlevel import ProcessMemory, read_maps
from markerjit.tuples import NamedTuple

CONNECTIONS = 16
PIPELINE = 8
RING_SIZE = 1 << 24

_PR_SET_PDEATHSIG = 1


class Server(NamedTuple):
    """A running key-value server."""

    pid: int
    port: int


class Variant(NamedTuple):
    """A server, and the marker that is switched on in it while it is measured."""

    name: str
    server: Server
    switched: Callable[[], AbstractContextManager[object]]


class Cost(NamedTuple):
    """A variant's throughput: requests/s, and the ratio to no markers with its spread."""

    name: str
    rate: float
    ratio: float
    least: float
    most: float


def program(name: str) -> str:
    """The path of a bundled program. Raises MarkerError when it was not built."""
    path = os.path.join(os.path.dirname(markerjit.__file__), "_native", "demo", name)
    if not os.access(path, os.X_OK):
        raise MarkerError(f"{name} is not built; run make native, or install the package again")
    return path


def _start(command: list[str]) -> subprocess.Popen[str]:
    """A child that does not outlive us, whatever ends us: prctl(2), PR_SET_PDEATHSIG."""
    prctl = ctypes.CDLL(None).prctl
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
    )


@contextmanager
def server(build: str) -> Iterator[Server]:
    """Run a build of the server until the end of the block. Raises MarkerError."""
    process = _start([program(build)])
    try:
        assert process.stdout
        ready = dict(word.split("=") for word in process.stdout.readline().split()[1:])
        if "port" not in ready:
            raise MarkerError(f"{build} did not start (exit code {process.wait()})")
        yield Server(process.pid, int(ready["port"]))
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def load(target: Server, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Put a server under load for some seconds. A block that ends early ends the load."""
    command = [
        program("kvload"), "--port", str(target.port), "--seconds", f"{seconds:g}",
        "--connections", str(CONNECTIONS), "--pipeline", str(PIPELINE),
    ]  # fmt: skip
    process = _start(command)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()


def finish(loading: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the end of the load, and return its summary. Raises MarkerError for a failed or
    wrong reply."""
    output, _ = loading.communicate()
    if loading.returncode:
        raise MarkerError(f"the load ended with exit code {loading.returncode}: {output.strip()}")
    summary: dict[str, Any] = json.loads(output.splitlines()[-1])["summary"]
    return summary


def variants(none: Server, jump: Server, nop: Server, pointer: Server) -> list[Variant]:
    """The variants of the demo's table; `on` records one event for each request."""
    mode = markerjit.Mode
    return [
        Variant("no markers", none, nullcontext),
        Variant("jump, dormant", jump, nullcontext),
        Variant("nop, dormant", nop, nullcontext),
        Variant("pointer, dormant", pointer, nullcontext),
        Variant("jump, on", jump, lambda: recording(jump, mode.JUMP)),
        Variant("nop, on", nop, lambda: recording(nop, mode.NOP)),
        Variant("pointer, on", pointer, lambda: recording(pointer, mode.POINTER)),
        Variant("int3, on", jump, lambda: recording(jump, mode.INT3)),
    ]


@contextmanager
def recording(target: Server, mode: markerjit.Mode) -> Iterator[None]:
    """One marker records, into rings that are not read meanwhile."""
    with (
        markerjit.attach(target.pid, ring_size=RING_SIZE) as session,
        session.trace("kv_command", mode=mode),
    ):
        yield


def measure(
    chosen: Sequence[Variant], *, rounds: int, slice_s: float, progress: Callable[[str], None]
) -> list[Cost]:
    """Throughput of each variant. The first one is the baseline. `progress` is called at each
    slice."""
    rates: dict[str, list[float]] = {variant.name: [] for variant in chosen}
    for number in range(1, rounds + 1):
        for variant in random.sample(chosen, len(chosen)):
            progress(f"round {number} of {rounds}: {variant.name}")
            with variant.switched(), load(variant.server, slice_s) as loading:
                rates[variant.name].append(finish(loading)["rate"])
    baseline = rates[chosen[0].name]
    costs = []
    for name, values in rates.items():
        ratios = [rate / base for rate, base in zip(values, baseline, strict=True)]
        costs.append(Cost(name, median(values), median(ratios), min(ratios), max(ratios)))
    return costs


def text_of(pid: int) -> dict[tuple[str, int], bytes]:
    """The code of every mapped object, by path and file offset."""
    with ProcessMemory(pid) as memory:
        return {
            (mapping.path, mapping.offset): memory.read(mapping.start, mapping.size)
            for mapping in read_maps(pid)
            if mapping.executable and mapping.path.startswith("/") and not _is_arena(mapping.path)
        }


def _is_arena(path: str) -> bool:
    return path.startswith("/memfd:")
