"""Facts as documents: each key tree whole, so that a key that changes is seen here; and words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from markerjit.arena.lease import Reader
from markerjit.doctor import GOOD, WALL, Finding
from markerjit.elf import parse_format
from markerjit.errors import MarkerError, Reason, UnexpectedBytes
from markerjit.events.flight import Kept, Picture
from markerjit.explain import ActivePath, Explanation, Instruction, PathPart
from markerjit.facts import words
from markerjit.facts.findings import doctor_facts
from markerjit.facts.markers import left_out_lines, list_facts, marker_facts, site_facts
from markerjit.facts.plans import explanation_facts, path_facts, plan_facts
from markerjit.facts.process import (
    arena_facts,
    picture_facts,
    status_facts,
    switch_facts,
    values_facts,
)
from markerjit.facts.traces import remedies, trace_facts
from markerjit.model import (
    Body,
    CType,
    Edit,
    Kind,
    MappedObject,
    Mode,
    Place,
    Quiescence,
    RemoteAddress,
    Signature,
    Site,
    TypeClass,
)
from markerjit.patch.apply import Applied
from markerjit.patch.plan import LeftOut, Plan, Refusal
from markerjit.probes.c.values import Histogram
from markerjit.probes.loaded import Values
from markerjit.probes.parts import Role
from markerjit.probes.reached import Piece
from markerjit.proc.owner import Owner
from markerjit.quiesce.strategies import MEMBARRIER, STRATEGIES
from markerjit.session.status import ArenaStatus, MarkerStatus
from markerjit.sites.names import written_name
from markerjit.trace.open import open_sink, open_trace
from markerjit.trace.statistics import summarise
from markerjit.x86.forms import marker_form
from tests.support.made_traces import EVENTS, make_batch, make_info

ARGS = (CType(TypeClass.CHARS, 8), CType(TypeClass.SIGNED, 4))
FORMAT = "key %s n %d"
FIELDS = parse_format(FORMAT, ARGS)
BASE = 0x1000
SITE = Site(
    Signature("kv_get", FORMAT, ARGS),
    Place(MappedObject("/bin/kv", BASE, None, False), 16, "kv.c:7"),
    RemoteAddress(BASE + 16),
    marker_form(Kind.JUMP, 16, 32),
    Body(RemoteAddress(BASE + 64), RemoteAddress(BASE + 32), RemoteAddress(BASE + 23)),
)
ALTERED = UnexpectedBytes(BASE + 16, b"\xcc\x05", b"\xeb\x05")

OFF = MarkerStatus(
    name="kv_get", format=FORMAT, fields=FIELDS, kind=Kind.JUMP, sites=(SITE,), mode=None,
    partly=False, probe="", since=0, by=0, hits=0, lost=0,
)  # fmt: skip
ON = OFF._replace(mode=Mode.JUMP, probe="record", since=1_000, by=7, hits=9, lost=2, total=12)

SITE_FACTS = {
    "address": BASE + 16,
    "object": "/bin/kv",
    "offset": 16,
    "source": "kv.c:7",
    "kind": "jump",
    "deleted": False,
    "altered": None,
}
FIELD_FACTS = [{"name": "key", "type": "string"}, {"name": "n", "type": "int"}]
OFF_FACTS = {
    "name": "kv_get",
    "format": FORMAT,
    "fields": FIELD_FACTS,
    "kind": "jump",
    "mode": None,
    "on": False,
    "partly": False,
    "probe": None,
    "since": None,
    "by": None,
    "hits": 0,
    "lost": 0,
    "total": 0,
    "held": None,
    "where": None,
    "select": None,
    "sample": None,
    "at_most": None,
    "held_back": 0,
    "budget": None,
    "until": None,
    "aggregate": None,
    "unmatched": 0,
    "sites": [SITE_FACTS],
}


def as_read(document: Any) -> Any:
    """The document as a program reads it from JSON."""
    return json.loads(json.dumps(document, allow_nan=False))


# ---- markers -------------------------------------------------------------------------------------


def test_marker_that_is_off_has_every_key() -> None:
    facts = as_read(marker_facts(OFF))

    assert facts == OFF_FACTS
    assert list(facts) == list(OFF_FACTS)


def test_marker_that_is_on_says_how_and_for_whom() -> None:
    facts = as_read(marker_facts(ON._replace(partly=True, held="trace")))

    assert facts == {
        **OFF_FACTS,
        "mode": "jump",
        "on": True,
        "partly": True,
        "probe": "record",
        "since": 1000,
        "by": 7,
        "hits": 9,
        "lost": 2,
        "total": 12,
        "held": "trace",
        "where": None,
        "until": None,
        "aggregate": None,
        "unmatched": 0,
    }


def test_altered_site_has_both_bytes_and_a_sentence() -> None:
    altered = {"found": "cc05", "expected": "eb05", "problem": ALTERED.fact}

    assert as_read(site_facts(SITE, ALTERED)) == {**SITE_FACTS, "altered": altered}
    assert marker_facts(OFF._replace(altered=(ALTERED,)))["sites"][0]["altered"] == altered


def test_list_names_the_process_or_the_file() -> None:
    problems = [MarkerError("a note is odd")]
    rest = {"markers": [OFF_FACTS], "problems": ["a note is odd"]}

    assert as_read(list_facts("7", 7, [OFF], problems)) == {"pid": 7, **rest}
    assert as_read(list_facts("./kv", None, [OFF], problems)) == {"file": "./kv", **rest}


# ---- a process -----------------------------------------------------------------------------------

ARENA = ArenaStatus(Owner(5, 0, 0), 1_000, 0xAB, Reader(Owner(7, 0, 0), 7.44, False), None, False)
ARENA_FACTS = {
    "owner": 5,
    "since": 1_000,
    "runtime": "00000000000000ab",
    "reader": 7,
    "lease_s": 7.4,
    "writer": None,
    "paused_s": None,
    "to_mend": None,
}


def test_arena_has_pids_or_none() -> None:
    assert as_read(arena_facts(ARENA)) == ARENA_FACTS
    assert as_read(arena_facts(ARENA._replace(reader=None))) == {
        **ARENA_FACTS,
        "reader": None,
        "lease_s": None,
    }


def test_values_of_probes_have_the_buckets_that_hold_something() -> None:
    values = Values("kv.c", {"misses": 3}, {"bytes": Histogram((0, 2, 0, 5))})

    assert as_read(values_facts(values)) == {
        "source": "kv.c",
        "counters": {"misses": 3},
        "histograms": {
            "bytes": [{"low": 1, "high": 1, "number": 2}, {"low": 3, "high": 3, "number": 5}]
        },
    }


def test_status_is_arena_markers_and_probes() -> None:
    assert as_read(status_facts(7, None, [OFF], [], [])) == {
        "pid": 7,
        "arena": None,
        "markers": [OFF_FACTS],
        "probes": [],
        "stray_heads": [],
    }
    values = Values("kv.c", {}, {})
    facts = as_read(status_facts(7, ARENA, [], [values], []))
    assert (facts["arena"], facts["probes"]) == (ARENA_FACTS, [as_read(values_facts(values))])


def test_switch_says_what_it_took_and_what_it_left() -> None:
    applied = Applied(
        3, 2, 100, 20, 3, (LeftOut("kv_put", Reason.ALWAYS_ON, "it is direct"),), ("a",), ("b",)
    )

    assert as_read(switch_facts(7, [OFF], applied)) == {
        "pid": 7,
        "markers": [OFF_FACTS],
        "threads": 2,
        "stopped_ns": 123,
        "left_out": [{"marker": "kv_put", "kind": "always on", "reason": "it is direct"}],
        "taken": ["a"],
        "ended": ["b"],
    }


def test_picture_has_the_markers_with_events_in_the_order_of_names() -> None:
    info = make_info()
    kept = {"b": Kept(1, 2, 3), "a": Kept(4, 0, 0), "none": Kept(0, 0, 0)}

    assert as_read(picture_facts("f.ctf", Picture(make_batch(info, ()), info.clock, kept))) == {
        "file": "f.ctf",
        "markers": [
            {"name": "a", "events": 4, "overwritten": 0, "lost": 0},
            {"name": "b", "events": 1, "overwritten": 2, "lost": 3},
        ],
    }


# ---- plans ---------------------------------------------------------------------------------------

PLAN = Plan(
    "switch on 1 marker at 1 site",
    (
        Edit(RemoteAddress(BASE + 64), b"\x01", b"\x01", "kv_get: slot.data", False),
        Edit(RemoteAddress(BASE + 16), b"\xeb", b"\xe9", "kv_get: jump", True, step=1),
    ),
    MEMBARRIER,
    left_out=(LeftOut("kv_put", Reason.ALWAYS_ON, "it is direct"),),
)
STEP = {"place": None, "old": "", "new": ""}
STEPS = [
    {
        "number": 1, "verb": "journal", **STEP, "what": "2 edits",
        "proves": "if the controller dies from here on, the next one knows what to put back",
        "sentence": "write the 2 edits into the journal",
    },
    {
        "number": 2, "verb": "quiesce", **STEP, "what": MEMBARRIER.explained,
        "proves": "a thread of the process is at hand for the fences; the others run on",
        "sentence": f"quiesce: {MEMBARRIER.explained}",
    },
    {
        "number": 3, "verb": "compare", **STEP, "what": "2 places",
        "proves": "the process is as it was when the plan was made",
        "sentence": "compare the old bytes at 2 places; give up if any differs",
    },
    {
        "number": 4, "verb": "write", "place": BASE + 16, "old": "eb", "new": "e9",
        "what": "kv_get: jump",
        "proves": "one byte has no parts: a thread runs the old instruction or the new one",
        "sentence": f"write {BASE + 16:#x}: eb -> e9  (kv_get: jump)",
    },
    {
        "number": 5, "verb": "read back", **STEP, "what": "1 place",
        "proves": "the memory of the process has the new bytes",
        "sentence": "read 1 place back; if any differs, put all old bytes back",
    },
    {
        "number": 6, "verb": "synchronise", **STEP,
        "what": "membarrier SYNC_CORE in the process",
        "proves": "every core has serialised since the write, so none runs older bytes",
        "sentence": "synchronise: membarrier SYNC_CORE in the process",
    },
    {
        "number": 7, "verb": "close", **STEP, "what": "",
        "proves": "nothing is left to put back",
        "sentence": "empty the journal",
    },
]  # fmt: skip
PLAN_FACTS = {
    "title": "switch on 1 marker at 1 site",
    "strategy": "membarrier",
    "steps": STEPS,
    "edits": [
        {
            "address": BASE + 16,
            "old": "eb",
            "new": "e9",
            "what": "kv_get: jump",
            "code": True,
            "step": 1,
        }
    ],
    "left_out": [{"marker": "kv_put", "kind": "always on", "reason": "it is direct"}],
    "remarks": [],
}


def test_plan_has_the_edits_that_change_something_and_its_steps() -> None:
    facts = as_read(plan_facts(PLAN))

    assert facts == PLAN_FACTS
    assert list(facts) == list(PLAN_FACTS)
    assert any("write 0x1010: eb -> e9" in step["sentence"] for step in facts["steps"])


def test_refusal_has_its_reason() -> None:
    assert as_read(plan_facts(Refusal(Reason.OTHER, "a thread is there", try_again=True))) == {
        "refused": "a thread is there",
        "try_again": True,
    }


def test_explanation_is_a_site_with_assembly_and_the_plan() -> None:
    address = RemoteAddress(BASE + 16)
    jump = (Instruction(address, b"\xeb\x05", "jmp 0x1017"),)
    explanation = Explanation(
        SITE, FIELDS, "get+0x10", None, jump, {Mode.JUMP: jump}, (), PLAN, ("a remark",)
    )

    facts = as_read(explanation_facts("./kv", [explanation]))

    assert facts == {
        "target": "./kv",
        "sites": [
            {
                "name": "kv_get",
                "format": FORMAT,
                "fields": FIELD_FACTS,
                "function": "get+0x10",
                **SITE_FACTS,
                "body": BASE + 32,
                "end": BASE + 23,
                "slot": BASE + 64,
                "hole": None,
                "mode": None,
                "dormant": ["1010  eb 05  jmp 0x1017"],
                "active": {"jump": ["1010  eb 05  jmp 0x1017"]},
                "body_code": [],
                "path": None,
                "page": None,
            }
        ],
        "plan": {**PLAN_FACTS, "remarks": ["a remark"]},
    }


def test_path_is_its_parts_and_says_which_are_in_memory() -> None:
    address = RemoteAddress(BASE + 16)
    head = Piece("the head", Role.HEAD, "the program", address, b"\xeb\x00", False)
    word = Piece("the slot", Role.SLOT, "the slot", BASE + 64, bytes(8))
    jump = (Instruction(address, b"\xeb\x00", "jmp 0x1012"),)
    parts, rest = (PathPart(head, jump),), (PathPart(word, ()),)
    path = ActivePath(SITE, Mode.JUMP, parts, rest, ("a remark",))

    facts = as_read(path_facts(path))

    assert facts == {
        "mode": "jump",
        "parts": [
            {
                "name": "the head",
                "role": "head",
                "where": "the program",
                "address": BASE + 16,
                "bytes": "eb00",
                "in_memory": False,
                "code": ["1010  eb 00  jmp 0x1012"],
            }
        ],
        "rest": [
            {
                "name": "the slot",
                "role": "slot",
                "where": "the slot",
                "address": BASE + 64,
                "bytes": "0000000000000000",
                "in_memory": True,
                "code": [],
            }
        ],
        "remarks": ["a remark"],
    }


def test_strategies_are_those_of_the_model() -> None:
    assert list(STRATEGIES) == [str(way) for way in Quiescence]


# ---- findings and traces -------------------------------------------------------------------------


def test_findings_say_whether_the_job_can_work() -> None:
    findings = [Finding(GOOD, "kernel", "is new"), Finding(WALL, "tracer", "gdb", "end it")]

    assert as_read(doctor_facts(7, findings)) == {
        "pid": 7,
        "works": False,
        "findings": [
            {"level": "good", "what": "kernel", "found": "is new", "way_round": ""},
            {"level": "wall", "what": "tracer", "found": "gdb", "way_round": "end it"},
        ],
    }
    assert as_read(doctor_facts(None, findings[:1]))["works"] is True


def test_trace_has_its_origin_and_a_summary_of_every_field(tmp_path: Path) -> None:
    info, path = make_info(), str(tmp_path / "a.jsonl")
    sink = open_sink(path, info)
    sink.write(make_batch(info, [event for event in EVENTS if event.name == "query_start"]))
    sink.close({(0, "query_start"): 5})
    trace = open_trace(path)

    facts = as_read(trace_facts(trace, summarise(trace, lambda name: name == "query_start")))

    start = 5_000_000_010
    assert facts == {
        "file": path,
        "pid": 812,
        "command": "kvserver",
        "host": "here",
        "started_ns": info.started_ns,
        "wall_offset_ns": info.clock.wall_offset_ns,
        "events": 2,
        "lost": 5,
        "first_ns": start,
        "last_ns": start + 15,
        "markers": [
            {
                "name": "query_start",
                "source": "",
                "events": 2,
                "lost": 5,
                "rate_hz": pytest.approx(2e9 / 15),
                "first_ns": start,
                "last_ns": start + 15,
                "fields": [
                    {
                        "name": "id", "type": "int", "count": 2, "nans": 0, "min": -8, "p50": -8,
                        "p90": 7, "p99": 7, "max": 7, "mean": -0.5, "error": 0,
                    },
                    {
                        "name": "text", "type": "string", "count": 1, "nulls": 1, "distinct": 1,
                        "top": [{"value": "select 'ä'\n\"1\"", "count": 1}], "missed": 0,
                    },
                ],
                "sample": None,
                "at_most": None,
                "budget": None,
            }
        ],
        "problems": [],
    }  # fmt: skip


# ---- words ---------------------------------------------------------------------------------------

TWO = OFF._replace(sites=(SITE, SITE._replace(address=RemoteAddress(BASE + 99))))


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        (OFF, "off"),
        (ON, "on (jump, record)"),
        (ON._replace(partly=True), "on (jump, record), not all sites"),
        (OFF._replace(altered=(ALTERED,)), "altered"),
        (TWO._replace(altered=(ALTERED,)), "off, 1 of 2 sites altered"),
    ],
)
def test_state_in_words(marker: MarkerStatus, text: str) -> None:
    assert words.state_words(marker) == text


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        (OFF, "-"),
        (ON, "pid 7"),
        (ON._replace(held="flight"), "pid 7 (flight)"),
        (ON._replace(by=0, held="trace"), "- (trace)"),
    ],
)
def test_holder_in_words(marker: MarkerStatus, text: str) -> None:
    assert words.holder_words(marker) == text


def test_place_in_words_has_the_source_the_number_of_sites_and_the_object() -> None:
    gone = SITE._replace(place=SITE.place._replace(object=SITE.object._replace(deleted=True)))

    assert words.place_words(OFF) == "kv.c:7 in kv"
    assert words.place_words(TWO) == "kv.c:7 and 1 more in kv"
    assert words.place_words(OFF._replace(sites=(gone,))) == "kv.c:7 in kv (deleted)"


def test_fields_in_words() -> None:
    assert words.field_words(FIELDS) == "key: string, n: int"
    assert words.field_words(()) == "-"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (0, "0 s"), (59, "59 s"), (60, "1 min"), (3600, "1 h"), (200_000, "2 d")],
)
def test_age_in_words(seconds: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words.time, "time", lambda: 1e9 + seconds)

    assert words.age_words(10**9) == text


# ---- what would have helped ----------------------------------------------------------------------

MIB = 1 << 20
RIGHT = {
    "ring_size": 16 * MIB,
    "output": "a.ctf",
    "calls": False,
    "markers": 1,
    "fields": 1,
    "lossless": True,
}
"""A trace that could not have been recorded with fewer losses."""


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"ring_size": MIB}, "--ring-size 8: each ring began with 1 MiB"),
        ({"ring_size": 8 * MIB}, "--ring-size 16: each ring began with 8 MiB"),
        ({"output": None}, "-o FILE.ctf: it takes a quarter of the time of lines"),
        ({"output": "a.jsonl"}, "-o FILE.ctf: it takes a quarter of the time of lines"),
        (
            {"output": None, "calls": True},
            "-o FILE.ctf or a probe in C: calls of a Python function take most time",
        ),
        ({"fields": 2}, "--fields: a ring has room for more records that are smaller"),
        ({"markers": 3}, "a pattern that matches fewer markers: it matched 3"),
        (
            {"lossless": False},
            "--lossless: the process waits instead, and may become much slower",
        ),
    ],
)
def test_a_trace_with_losses_says_what_would_have_helped(
    changed: dict[str, Any], sentence: str
) -> None:
    assert remedies(**RIGHT) == []
    assert remedies(**{**RIGHT, **changed}) == [sentence]


@pytest.mark.parametrize("output", ["a.ctf", "a/", "a.ctf2", "a.parquet", "a.arrow"])
def test_no_other_format_helps_where_a_fast_one_was_written(output: str) -> None:
    assert remedies(**{**RIGHT, "output": output}) == []


def test_hundreds_that_differ_in_name_and_place_are_counted() -> None:
    lacking = [
        LeftOut(
            f"func:f{at}:return", Reason.NO_OPENING,
            f"func:f{at}:return (my prog+0x4{at:03x}) cannot be opened: it never returns ({at:#x})",
        )
        for at in range(1004)
    ]  # fmt: skip

    assert list(left_out_lines(lacking))[4:] == ["1,000 more: … cannot be opened: it never returns"]


def test_names_that_need_a_breakpoint_share_a_line_in_which_they_are_as_written_in_cxx() -> None:
    symbols = ("_ZN2ns4stepEi", "b", "c", "d", "e")
    needing = [LeftOut(f"func:{each}", Reason.NEEDS_BREAKPOINT, f"{each}!") for each in symbols]
    other = LeftOut("kv_put", Reason.ALWAYS_ON, "it is direct")

    line, rest = left_out_lines([needing[0], other, *needing[1:]])

    assert line == "it is direct"
    assert rest.startswith("5 names that only a breakpoint opens, ")
    assert rest.endswith(": func:ns::step(int), func:b, func:c, func:d, …")
    assert list(left_out_lines(needing[:1])) == ["_ZN2ns4stepEi!"]


def test_notes_that_are_not_understood_are_counted_whatever_each_lacks() -> None:
    names = [f"made:x{number}" for number in range(9)]
    notes = [LeftOut(name, Reason.BAD_NOTE, f"{name} has {name[-1]}") for name in names]

    assert list(left_out_lines(notes)) == [
        *(note.sentence for note in notes[:4]),
        "5 more: USDT probes whose notes are not understood; list --usdt has them",
    ]


def test_hundreds_that_differ_in_the_name_alone_are_counted() -> None:
    names = ["func:_ZN2ns4stepEi", *(f"m{index}" for index in range(1003))]
    sentences = {each: f"{written_name(each)} has no field n" for each in names}
    lacking = [LeftOut(each, Reason.OTHER, sentence) for each, sentence in sentences.items()]
    other = LeftOut("m7", Reason.OTHER, "m7 is in a file that has changed")

    assert list(left_out_lines([*lacking[:4], other])) == [
        "func:ns::step(int) has no field n",
        *(f"m{index} has no field n" for index in range(3)),
        other.sentence,
    ]
    assert list(left_out_lines([*lacking, other]))[4:] == [
        other.sentence,
        "1,000 more: … has no field n",
    ]
