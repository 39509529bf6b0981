"""A trace that is stopped while it takes events out of the rings, for longer than its lease lasts,
and goes on when another one reads them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from tests.support.commands import python_started
from tests.support.programs import Target
from tests.support.timing import wait_until

pytestmark = pytest.mark.live

PAUSED = """
import json, os, signal, sys, markerjit
from markerjit.arena.store import FileStore

read, armed = FileStore.read, True

def read_and_stop(store, offset, size):
    global armed
    data = read(store, offset, size)
    if armed and offset >= rings and any(data):
        armed = False
        os.kill(os.getpid(), signal.SIGSTOP)
    return data

with markerjit.attach(int(sys.argv[1])) as session, session.trace("truth_loop") as events:
    rings = session._target.seen.arena.geometry.ring_offset(0)
    FileStore.read = read_and_stop
    print("reading", flush=True)
    seen = [event.fields["n"] for event in events]
    print(json.dumps([events.dispossessed, seen]))
"""


@pytest.mark.parametrize("rseq", ["1", "0"], ids=["own rings", "shared rings"])
def test_each_event_is_delivered_once_though_a_reader_was_paused(
    target: Callable, monkeypatch: pytest.MonkeyPatch, rseq: str
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", f"glibc.pthread.rseq={rseq}")
    program = target("truth_threads", "1", "--rate", "2000", "--paused")
    with python_started(PAUSED, program.pid, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "reading\n"
        program.ask("resume")
        state = Path(f"/proc/{first.pid}/stat")
        wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "the pause")
        program.ask("pause")

        with markerjit.attach(program.pid) as session:
            assert session._target.seen.arena is not None
            session._target.seen.arena.control.write("lease_ns", 1)
            with session.trace("truth_loop", resume=True) as events:
                seen = [event.fields["n"] for event in events.drain()]
                assert seen
                run_a_while(program)
                seen += [event.fields["n"] for event in events.drain()]
                first.send_signal(signal.SIGCONT)
                dispossessed, before = json.loads(first.stdout.readline())
                run_a_while(program)
                turns = program.ask("counts")["truth_loop"]
                seen += [event.fields["n"] for event in events.drain()]
                assert events.statistics()[1:] == (0, 0, 0, ())
            (status,) = session.statistics("truth_loop")

    assert dispossessed
    assert before + seen == [*range(1, turns + 1)]
    assert status.total == turns


def run_a_while(program: Target) -> None:
    before = program.ask("resume")["truth_loop"]
    wait_until(lambda: program.ask("counts")["truth_loop"] > before + 100, "more events")
    program.ask("pause")
