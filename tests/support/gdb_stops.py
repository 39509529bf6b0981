"""A process that gdb stops at random: its registers there, and the stack as gdb finds it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from tests.support.timing import HANG_S, Limited

_SCRIPT = """
import json, os, gdb

def stack(most):
    addresses, frame = [], gdb.newest_frame()
    while frame is not None and len(addresses) < most:
        if frame.type() in (gdb.NORMAL_FRAME, gdb.SIGTRAMP_FRAME):
            addresses.append(frame.pc())
        frame = frame.older()
    return addresses

def register(name):
    return int(gdb.parse_and_eval("(unsigned long)$" + name))

gdb.execute("set pagination off")
gdb.execute("set backtrace past-main on")
gdb.execute("set debuginfod enabled off")
orders = open(os.environ["MJ_ORDERS"])
with open(os.environ["MJ_STOPS"], "w", buffering=1) as stops:
    gdb.execute("attach " + os.environ["MJ_PID"], to_string=True)
    stops.write("attached\\n")
    for order in orders:
        gdb.execute(order, to_string=True)
        where = [register(name) for name in ("rip", "rsp", "rbp")]
        stops.write(json.dumps([where, stack(int(os.environ["MJ_MOST"]))]) + "\\n")
gdb.execute("detach", to_string=True)
"""


class Stop(NamedTuple):
    """The instruction pointer, the stack pointer and the frame pointer of a thread that stands, and
    where its frames go on, the innermost first."""

    registers: tuple[int, int, int]
    addresses: tuple[int, ...]


@contextmanager
def stops_in_gdb(
    gdb: str, pid: int, folder: Path, count: int, *, most: int = 60
) -> Iterator[Iterator[Stop]]:
    """So many stops of a process: every other one some milliseconds after the one before, and some
    instructions, so that all places of a function are met. It stands while a stop is looked at."""
    orders, stops, script = (folder / name for name in ("orders", "stops", "script.py"))
    script.write_text(_SCRIPT)
    for path in (orders, stops):
        os.mkfifo(path)
    names = {"MJ_ORDERS": orders, "MJ_STOPS": stops, "MJ_PID": pid, "MJ_MOST": most}
    with Limited(
        [gdb, "-q", "-nx", "-batch", "-x", script],
        env={**os.environ, **{name: str(value) for name, value in names.items()}},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as debugger:  # fmt: skip
        try:
            with orders.open("w", buffering=1) as out, stops.open() as lines:
                assert lines.readline() == "attached\n"
                yield _stops(pid, out, lines, count)
            assert debugger.wait(HANG_S) == 0
        finally:
            debugger.kill()


def _stops(pid: int, out: TextIO, lines: TextIO, count: int) -> Iterator[Stop]:
    chance = random.Random(pid)
    for number in range(count):
        if number % 2:
            out.write(f"stepi {chance.randint(1, 40)}\n")
        else:
            out.write("continue\n")
            time.sleep(chance.uniform(0.001, 0.01))
            os.kill(pid, signal.SIGINT)
        line = lines.readline()
        assert line, "gdb has ended"
        registers, addresses = json.loads(line)
        yield Stop(tuple(registers), tuple(addresses))
