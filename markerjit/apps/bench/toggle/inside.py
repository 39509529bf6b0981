"""Python with sites in it, which switches its own: a process of its own, started by the bench.

    python -m markerjit.apps.bench.toggle.inside LIBRARY THREADS busy|asleep

It answers the lines of native/bench/toggle/toggle.c, and `on STRATEGY`, `off STRATEGY` with what a
session with the own process took: `on error=0 ns=N`, or `on refused TEXT`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

import markerjit
from markerjit.apps.bench.toggle.program import MARKER

_ANSWER = 32 << 10
_FIRST = -20


def main(library: str, threads: str, load: str) -> None:
    """Answer until the input ends."""
    sites = ctypes.CDLL(library)
    if error := sites.toggle_start(int(threads), load == "asleep"):
        sys.exit(f"{threads} threads: {os.strerror(error)}")
    answer = ctypes.create_string_buffer(_ANSWER)
    session: markerjit.Session | None = None
    print("ready", flush=True)
    for line in sys.stdin:
        word, *strategy = line.split()
        if strategy or word == "hits":
            session = session or markerjit.attach()
            sites.toggle_rank(0)
            reply = _switched(session, word, strategy[0]) if strategy else _hits(session)
            sites.toggle_rank(_FIRST)
            print(reply, flush=True)
        elif sites.toggle_answer(word.encode(), answer, _ANSWER):
            sys.exit(f"{word} is not understood")
        else:
            print(answer.value.decode(), flush=True)


def _switched(session: markerjit.Session, word: str, strategy: str) -> str:
    switch = session.enable if word == "on" else session.disable
    start = time.perf_counter_ns()
    try:
        switch(MARKER, quiesce=strategy)
    except markerjit.MarkerError as error:
        return f"{word} refused {error}"
    return f"{word} error=0 ns={time.perf_counter_ns() - start}"


def _hits(session: markerjit.Session) -> str:
    return f"hits hits={sum(marker.total for marker in session.statistics(MARKER))}"


if __name__ == "__main__":
    main(*sys.argv[1:])
