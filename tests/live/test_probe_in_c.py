"""Probes written in C, in running programs: what they count and emit against what the programs say,
what is refused, and how they come and go."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit import Mode
from tests.support.c_probes import ANY, TURNS, values
from tests.support.commands import cli, facts, one_line, running
from tests.support.markers import modes_of, wait_on
from tests.support.processes import text_of
from tests.support.server import Client
from tests.support.timing import wait_until

TEXTS = """
#include <markerjit/probe.h>

MJ_COUNTER(unreadable);

void look(struct mj_slot *slot, int at, const char *text) {
    char copy[64];
    const long length = mj_read_string(copy, text, sizeof copy);

    if (length < 0)
        mj_count(&unreadable);
    mj_emit(looked, "at %d length %ld copy %s text %s", at, length, copy, text);
}
"""


def check_turns(values: dict[str, Any], counts: dict[int, int]) -> None:
    """`counts` are the turns of each thread."""
    assert values["turns"] == sum(counts.values())
    assert values["sum"] == sum(i * turns for i, turns in counts.items())
    assert sum(bucket["number"] for bucket in values["numbers"]) == values["turns"]
    for bucket in values["numbers"]:
        assert bucket["low"] <= bucket["high"]
        assert bucket["number"] == sum(
            max(0, min(turns, bucket["high"]) - bucket["low"] + 1) for turns in counts.values()
        )


# ---- counting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["jump", "int3"])
def test_counters_and_histograms_are_what_the_program_counted(
    target: Callable, probe: Callable, mode: str
) -> None:
    program = target("truth_threads", "1", "--rate", "20000", "--paused")

    on = facts("on", program.pid, "truth_loop", "--probe", probe(TURNS, "count"), "--mode", mode)
    program.ask("resume")
    wait_until(lambda: program.ask("counts")["truth_loop"] > 3000, "turns")
    turns = program.ask("pause")["truth_loop"]
    status, text = facts("status", program.pid), cli("status", program.pid).stdout
    facts("off", program.pid, "*")

    assert [marker["probe"] for marker in on["markers"]] == ["probe.c:count"]
    (marker,) = (marker for marker in status["markers"] if marker["on"])
    assert (marker["probe"], marker["mode"], marker["hits"]) == ("probe.c:count", mode, turns)
    check_turns(values(program.pid), {0: turns})
    assert f"probe.c: turns = {turns:,}" in text
    assert f"numbers, {turns:,} values" in text


def test_hits_before_a_probe_in_c_count_too(target: Callable, probe: Callable) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session:
        session.enable("truth_mode", probe="count")
        program.command("run 10")
        session.enable("truth_mode", probe=probe(TURNS, "count"))
        program.command("run 7")
        (marker,) = session.statistics("truth_mode")

    assert (marker.probe, marker.hits) == ("probe.c:count", 17)


def test_threads_and_handlers_that_interrupt_them_count_together(
    target: Callable, probe: Callable
) -> None:
    program = target("truth_crowd", "8", "--move", "--alarm", "3", "--fork")

    with markerjit.attach(program.pid) as session:
        session.enable("crowd_*", probe=probe(ANY, "any"))
        for _ in range(3):
            counts = program.ask("run 500")
            assert counts.pop("crowd_child") > 0
            (values,) = session.probe_values()
            hits = {marker.name: marker.hits for marker in session.statistics()}
            assert values.counters == {"passed": sum(counts.values())}
            assert {name: hits[name] for name in counts} == counts
        session.disable("*")


@pytest.mark.parametrize(
    ("name", "mode"),
    [("kvserver-nop", Mode.NOP), ("kvserver-pointer", Mode.POINTER), ("kvserver", Mode.INT3)],
)
def test_probe_on_markers_of_every_kind(
    target: Callable, probe: Callable, name: str, mode: Mode
) -> None:
    program = target(name)
    with (
        markerjit.attach(program.pid) as session,
        Client(program.ready["port"]) as client,
    ):
        session.enable("kv_command", probe=probe(ANY, "any"), mode=mode)
        for _ in range(50):
            client.ask("PING")
        session.disable("*")
        (values,) = session.probe_values()
        assert values.counters == {"passed": 50}


def test_sentinel_sites_take_no_probe_in_c(target: Callable, probe: Callable) -> None:
    """They call what the slot holds as it is: a probe's address with its mark is none."""
    program = target("truth_modes-sentinel")

    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.Refused, match="is compiled as sentinel"):
            session.enable("truth_mode", probe=probe(ANY, "any"))
        session.enable("truth_mode")
        program.command("run 5")
        assert [statistic.hits for statistic in session.statistics("truth_mode")] == [5]


def test_child_of_a_fork_counts_and_emits_nothing(target: Callable, probe: Callable) -> None:
    program = target("truth_fork")
    source = """
    #include <markerjit/probe.h>
    MJ_COUNTER(passed);
    void tell(struct mj_slot *slot, ...) { mj_count(&passed); mj_emit(told, "tid %u", mj_tid()); }
    """

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_*", probe=probe(source, "tell")) as stream:
            answers = [program.command("fork 100") for _ in range(5)]
        events = stream.drain()
        (values,) = session.probe_values()

    assert all(answer.endswith("status=0") for answer in answers)
    assert values.counters == {"passed": 5}
    assert [event.fields for event in events] == [{"tid": program.pid}] * 5


# ---- emitting ----------------------------------------------------------------------------------


def test_trace_shows_what_a_probe_emits_and_nothing_else(
    target: Callable, probe: Callable, tmp_path: Path
) -> None:
    program = target("truth_threads", "2", "--rate", "4000", "--paused")
    path = tmp_path / "events"

    with (
        path.open("w") as file,
        running(
            "trace", program.pid, "truth_loop", "--probe", probe(TURNS, "tell"), "--json",
            stdout=file,
        ) as tracer,
    ):  # fmt: skip
        wait_on(program.pid, "truth_loop", tracer)
        tids = {int(name) for name in os.listdir(f"/proc/{program.pid}/task")}
        program.ask("resume")
        wait_until(lambda: program.ask("counts")["truth_loop"] > 1000, "turns")
        turns = program.ask("pause")["truth_loop"]
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate()

    assert (tracer.returncode, errors) == (0, "")
    *events, last = map(json.loads, path.read_text().splitlines())
    assert {event["name"] for event in events} == {"tenth"}
    assert last["summary"] == {"events": len(events), "lost": 0, "not_shown": 0, "taken": []}
    assert values(program.pid)["turns"] == turns
    latest = {0: 0, 1: 0}
    for event in events:
        fields = event["fields"]
        assert fields["at"] == "truth_loop"
        assert fields["n"] == latest[fields["who"]] + 10
        latest[fields["who"]] = fields["n"]
        assert fields["tid"] == event["tid"] in tids
    assert sum(latest.values()) <= turns < sum(latest.values()) + 20
    assert modes_of(program.pid)["truth_loop"] is None


@pytest.mark.parametrize("suffix", ["jsonl", "ctf"])
def test_file_of_what_a_probe_emits(
    target: Callable, probe: Callable, tmp_path: Path, suffix: str
) -> None:
    program = target("truth_threads", "2", "--rate", "2000")
    path = tmp_path / f"events.{suffix}"

    done = cli(
        "trace", program.pid, "truth_loop", "--probe", probe(TURNS, "tell"), "-o", path,
        "--events", 20, "--json",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)["summary"]
    events = list(markerjit.open_trace(str(path)).events())
    assert len(events) == summary["events"] >= 20
    assert all(event.fields["n"] % 10 == 0 for event in events)


def test_losses_of_emitted_events_are_counted(target: Callable, probe: Callable) -> None:
    program = target("truth_modes-jump")
    source = """
    #include <markerjit/probe.h>
    void tell(struct mj_slot *slot, int i, unsigned long n) { mj_emit(told, "i %d", i); }
    """

    with markerjit.attach(program.pid, ring_size=1 << 12) as session:
        with session.trace("truth_mode", probe=probe(source, "tell")) as stream:
            program.command("run 2000")
        events = stream.drain()

    assert [event.fields["i"] for event in events] == list(range(len(events)))
    assert stream.statistics() == (len(events), 2000 - len(events), 0, 0, ())
    assert 0 < len(events) < 2000


def test_probe_reads_wild_pointers_without_harm(target: Callable, probe: Callable) -> None:
    program = target("truth_texts")
    places = program.command("places").split()[1:]

    with markerjit.attach(program.pid) as session:
        with session.trace("texts_string", probe=probe(TEXTS, "look")) as stream:
            assert program.ask("pass 5") == {"bad": 0}
        by_place = {places[event.fields["at"]]: event.fields for event in stream.drain()}
        (counted,) = session.probe_values()

    assert list(by_place) == places
    wild = {"null", "small", "unmapped", "kernel", "last", "not_canonical", "no_access"}
    wild |= {"behind_file", "open_at_gap"}
    assert {place for place in places if by_place[place]["length"] == -1} == wild
    assert counted.counters == {"unreadable": len(wild)}
    assert by_place["ends_at_gap"]["copy"] == "at the gap"
    assert by_place["open_at_gap"]["copy"] == "no end"
    assert by_place["mebibyte"]["copy"] == "m" * 63
    assert by_place["unmapped"]["text"] == "<unreadable>"
    assert by_place["null"]["text"] is None


def test_flight_recorder_keeps_what_a_probe_emits(
    target: Callable, probe: Callable, tmp_path: Path
) -> None:
    program = target("truth_threads", "2", "--rate", "4000", "--paused")

    begun = cli("flight", "start", program.pid, "truth_loop", "--probe", probe(TURNS, "tell"))
    refused = cli("trace", program.pid, "truth_birth")
    program.ask("resume")
    wait_until(lambda: program.ask("counts")["truth_loop"] > 1000, "turns")
    program.ask("pause")
    document = facts("flight", "dump", program.pid, "-o", tmp_path / "a.jsonl")
    facts("off", program.pid, "*")
    again = facts("flight", "dump", program.pid, "-o", tmp_path / "b.jsonl")

    assert begun.returncode == 0, begun.stderr
    one_line(refused, "flight recorder is on")
    emitted = sum(bucket["number"] for bucket in values(program.pid)["numbers"]) // 10
    (marker,) = document["markers"]
    assert marker["name"] == "tenth"
    assert emitted - 2 <= marker["events"] <= emitted
    assert (marker["overwritten"], marker["lost"]) == (0, 0)
    assert again["markers"] == document["markers"]


@pytest.mark.parametrize("quiesce", ["membarrier", "none"])
def test_a_probe_in_c_is_switched_off_only_while_threads_stand(
    target: Callable, probe: Callable, quiesce: str
) -> None:
    """Otherwise a thread that has just come by the open site calls it after `off` has waited."""
    program = target("truth_threads", "2", "--rate", "2000")
    text = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        session.enable("truth_loop", probe=probe(ANY, "any"), quiesce=quiesce)
        open_text = text_of(program.pid)

        for pattern in ("truth_loop", "*"):
            with pytest.raises(markerjit.Refused, match=r"probe in C.*--quiesce stop"):
                session.disable(pattern, quiesce=quiesce)
        assert text_of(program.pid) == open_text

        before = program.ask("counts")["truth_loop"]
        wait_until(lambda: program.ask("counts")["truth_loop"] > before, "a turn")
        session.disable("*")
        passed = values(program.pid)["passed"]
        assert values(program.pid)["passed"] == passed > 0
    assert text_of(program.pid) == text
