"""Hooks of functions by other tools: Frida, uftrace and XRay.

uftrace records into files of its own, and counts the calls in them. The hooks of the others hit a
marker (native/bench/active/hooks.h), so markerjit counts them. Frida is a package on PyPI. Nothing
else in markerjit needs it, so it is imported only when it is asked for.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from markerjit.apps.bench.active.listened import SLEDS
from markerjit.apps.bench.sampling.place import Place
from markerjit.errors import MarkerError, Unsupported
from markerjit.tuples import NamedTuple

_UFTRACE = ("record", "--force", "--no-libcall", "--no-event", "--no-pager")
_CALLBACKS = """#include <gum/guminterceptor.h>
extern void entered (guint64 a, guint64 b);
extern void left (guint64 value);
void on_enter (GumInvocationContext * ic)
{ entered (ic->cpu_context->rdi, ic->cpu_context->rsi); }
void on_leave (GumInvocationContext * ic)
{ left (ic->cpu_context->rax); }
"""
_SCRIPT = """
const kept = [];
rpc.exports = {
  hook(source, address, exits) {
    const target = ptr(address);
    const symbols = Process.findModuleByAddress(target);
    const callbacks = new CModule(source, {
      entered: symbols.findExportByName("bench_entered"),
      left: symbols.findExportByName("bench_left"),
    });
    kept.push(callbacks);
    Interceptor.attach(target, exits
      ? { onEnter: callbacks.on_enter, onLeave: callbacks.on_leave }
      : callbacks.on_enter);
  },
};
"""


class Hooked(NamedTuple):
    """The address of a function, and whether its exit is also hooked."""

    address: int
    exits: bool


@contextmanager
def frida(pid: int, functions: Sequence[Hooked]) -> Iterator[None]:
    """Functions of a process with callbacks of Frida. Raises Unsupported, MarkerError."""
    try:
        module = importlib.import_module("frida")
    except ImportError:
        raise Unsupported("Frida is not here; pip install frida") from None
    try:
        session = module.attach(pid)
        script = session.create_script(_SCRIPT)
        script.load()
        for function in functions:
            script.exports_sync.hook(_CALLBACKS, hex(function.address), function.exits)
    except Exception as error:  # frida's own have no base but this one
        raise MarkerError(f"Frida: {error}") from None
    yield
    session.detach()


def uftrace(directory: Path) -> list[object]:
    """The command that starts a program under uftrace, which records there. Raises Unsupported."""
    program = shutil.which("uftrace")
    if program is None:
        raise Unsupported("uftrace is not here; apt-get install uftrace")
    return [program, *_UFTRACE, "--data", directory]


def recorded_by_uftrace(directory: Path) -> int:
    """The calls that uftrace has recorded, once its program has ended. Raises MarkerError."""
    command = ["uftrace", "report", "--no-pager", "--data", directory, "--output-fields", "call"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise MarkerError(f"uftrace: {done.stderr.strip()[-500:]}")
    return calls_in(done.stdout)


def calls_in(text: str) -> int:
    """The calls of the bench's functions in the output of `uftrace report`."""
    return sum(map(int, re.findall(r"(\d+)\s+bench_place\b", text)))


def link_crew(objects: Sequence[Path], place: Place) -> Path:
    """A crew with these objects in it, and XRay's runtime. Raises Unsupported."""
    program = place.directory / f"crew-{objects[0].stem}"
    command = ["clang", "-O2", "-pthread", *SLEDS, "-o", program,
               place.sources / "active" / "crew.c", *objects, "-ldl"]  # fmt: skip
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unsupported(
            "clang cannot link the runtime of XRay; apt-get install libclang-rt-dev "
            f"({done.stderr.strip().splitlines()[0]})"
        )
    return program
