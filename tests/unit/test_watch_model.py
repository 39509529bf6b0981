"""What a live view shows of looks that were made up, and its lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from markerjit.cli.costs import costs_of
from markerjit.errors import Refused
from markerjit.watch.model import EMPTY, LIT_S, Byte, Look, Shown, show
from markerjit.watch.text import (
    Role,
    Span,
    detail_lines,
    heading,
    number,
    sparkline,
    state_of,
    wrapped,
)

SITE = {"source": "kv.c:7", "altered": None}
MARKER: dict[str, Any] = {
    "name": "kv_get", "format": "key %s", "kind": "jump", "mode": None, "on": False,
    "partly": False, "probe": None, "since": None, "by": None, "hits": 0, "lost": 0,
    "total": 0, "held": None, "sites": [SITE],
}  # fmt: skip
ON = {**MARKER, "mode": "int3", "on": True, "probe": "count", "since": 1_000, "by": 77}
ARENA = {"owner": 5, "reader": None, "writer": None, "paused_s": None, "to_mend": None}


def status(*markers: dict[str, Any], **arena: Any) -> dict[str, Any]:
    return {"pid": 7, "arena": {**ARENA, **arena}, "markers": list(markers)}


def memory(code: str, slot: str = "00" * 16) -> dict[str, Any]:
    return {
        "source": "kv.c:7",
        "slot": 0x9000,
        "slot_bytes": slot,
        "code": [{"address": 0x1000, "bytes": code, "text": "jmp 0x1007"}],
    }


def look(at_s: float, *markers: dict[str, Any], **facts: Any) -> Look:
    return Look(at_s, status(*markers), "kv_get", **facts)


def shown(*looks: Look) -> Shown:
    now = EMPTY
    for look in looks:
        now = show(now, look)
    return now


def text_of(now: Shown, width: int = 80, height: int = 40) -> str:
    lines = detail_lines(now.detail, width, height)
    return "\n".join("".join(span.text for span in line) for line in lines)


# ---- rows ----------------------------------------------------------------------------------------


def test_a_rate_is_the_hits_between_two_looks() -> None:
    first, second = look(10, MARKER), look(12, {**ON, "total": 500})

    (row,) = shown(first).rows
    assert (row.rate, row.rates) == (None, ())
    (row,) = shown(first, second).rows
    assert (row.rate, row.rates, row.hits) == (250, (250,), 500)


def test_counters_that_begin_anew_are_no_negative_rate() -> None:
    (row,) = shown(look(1, {**ON, "total": 500}), look(2, MARKER)).rows

    assert row.rate == 0


def test_markers_of_one_name_are_one_row() -> None:
    (row,) = shown(look(1, {**ON, "total": 3}, {**MARKER, "format": "", "total": 4})).rows

    assert (row.state, row.hits) == ("int3, count, partly", 7)


@pytest.mark.parametrize(
    ("marker", "mine", "kept", "words", "role"),
    [
        (MARKER, (), (), "○ off", Role.FAINT),
        (ON, (), (), "● int3, count", Role.ON),
        (ON, ("kv_get",), (), "● int3, count*", Role.ON),
        (ON, ("kv_get",), ("kv_get",), "● int3, count+", Role.ON),
        ({**MARKER, "sites": [{**SITE, "altered": {"found": ""}}]}, (), (), "! altered", Role.BAD),
    ],
)
def test_a_state_is_told_by_a_mark_and_not_by_colour_alone(
    marker: dict[str, Any], mine: tuple[str, ...], kept: tuple[str, ...], words: str, role: Role
) -> None:
    (row,) = shown(look(1, marker, mine=frozenset(mine), kept=frozenset(kept))).rows

    assert state_of(row) == Span(words, role)


def test_a_hit_costs_what_the_bench_has_measured_of_its_probe() -> None:
    costs = {"int3, count": 6.5}

    assert show(EMPTY, look(1, ON), costs).rows[0].cost_ns == 6.5
    assert show(EMPTY, look(1, MARKER), costs).rows[0].cost_ns is None
    assert show(EMPTY, look(1, ON)).rows[0].cost_ns is None


# ---- memory --------------------------------------------------------------------------------------


def test_bytes_that_change_are_lit_for_a_while() -> None:
    before, after = look(1, ON, sites=[memory("eb05")]), look(2, ON, sites=[memory("cc05")])
    later = look(2 + LIT_S, ON, sites=[memory("cc05")])

    def code(*looks: Look) -> tuple[Byte, ...]:
        detail = shown(*looks).detail
        assert detail is not None
        return detail.places[0].code[0].data

    assert code(before) == (Byte(0xEB, False), Byte(5, False))
    assert code(before, after) == (Byte(0xCC, True), Byte(5, False))
    assert code(before, after, later) == (Byte(0xCC, False), Byte(5, False))


def test_a_changed_byte_is_in_brackets_with_a_legend() -> None:
    now = shown(look(1, ON, sites=[memory("eb05")]), look(2, ON, sites=[memory("cc05")]))

    assert "[cc] 05 " in text_of(now)
    assert text_of(now).count("[ ] just changed") == 1


def test_a_word_of_a_slot_is_a_number_and_lit_as_a_whole() -> None:
    filled = "00000000ff7f0000" + "00" * 8
    now = shown(look(1, ON, sites=[memory("eb05")]), look(2, ON, sites=[memory("eb05", filled)]))

    assert "probe [0x7fff00000000]" in text_of(now)
    assert "data   0, nothing " in text_of(now)


# ---- one marker ----------------------------------------------------------------------------------

STEPS = [
    [{"number": 1, "sentence": "enter 1 head", "verb": "enter"}],
    [
        {"number": 2, "sentence": "compare", "verb": "compare"},
        {"number": 3, "sentence": "write 0x1000: eb -> cc", "verb": "write"},
    ],
    [{"number": 4, "sentence": "write 0x1001: 05 -> 00", "verb": "write"}],
]


def change(done: int) -> dict[str, Any]:
    return {"done": done, "finished": done == 2, "opening": STEPS[0], "stages": STEPS[1:]}


def test_stages_that_are_made_and_the_next_one_are_marked() -> None:
    text = text_of(shown(look(1, ON, change=change(1))))

    assert "STEPS  1 of 2 stages made; the process runs between them" in text
    assert " ✓  1 enter 1 head\n ✓  2 compare\n ✓  3 write 0x1000: eb -> cc" in text
    assert " ▶  4 write 0x1001: 05 -> 00" in text


def test_few_lines_have_the_steps_that_write() -> None:
    text = text_of(shown(look(1, ON, change=change(0))), height=11)

    assert " ▶  3 write 0x1000: eb -> cc" in text
    assert "compare" not in text


@pytest.mark.parametrize(
    ("arena", "made", "words"),
    [
        ({}, None, "journal empty"),
        ({"writer": 9}, None, "open: pid 9 makes a change"),
        ({"writer": 9, "paused_s": 5.0}, None, "open: pid 9 makes a change in stages"),
        ({"writer": 7, "paused_s": 59.6}, change(1), "open: our 2 edits, lease 60 s"),
        ({}, change(2), "journal empty"),
    ],
)
def test_the_journal_is_told(arena: dict[str, Any], made: Any, words: str) -> None:
    now = show(EMPTY, Look(1, status(ON, **arena), "kv_get", change=made))

    assert words in text_of(now)


def test_who_switched_it_on_and_what_becomes_of_it() -> None:
    assert "by pid 77 since" in text_of(shown(look(1, ON)))
    assert "by pid 77 (trace) since" in text_of(shown(look(1, {**ON, "held": "trace"})))
    mine = look(1, ON, mine=frozenset(["kv_get"]))
    assert "by this view since" in text_of(shown(mine))
    assert "; off when it ends" in text_of(shown(mine))
    assert "stays on when it ends" in text_of(shown(mine._replace(kept=frozenset(["kv_get"]))))


@pytest.mark.parametrize("since", [0, 1 << 56, (1 << 64) - 1])
def test_a_time_that_is_none_is_not_known(since: int) -> None:
    """The time is in the memory of the process, which can write there."""
    assert "since ?" in text_of(shown(look(1, {**ON, "since": since})))


def test_events_come_newest_first_and_none_says_how_to_get_them() -> None:
    assert "EVENTS  e records them" in text_of(shown(look(1, ON)))
    assert "none yet" in text_of(shown(look(1, ON, events=())))
    assert text_of(shown(look(1, ON, events=("one", "two")))).endswith(" two\n one")


def in_c(*files: dict[str, Any], probe: str = "count.c:count") -> Shown:
    document = {**status({**ON, "probe": probe}), "probes": list(files)}
    return shown(Look(1, document, "kv_get"))


def counts_of(source: str, value: int, *numbers: int) -> dict[str, Any]:
    buckets = [{"low": 4 * at, "high": 4 * at + 3, "number": n} for at, n in enumerate(numbers, 1)]
    return {"source": source, "counters": {"turns": value}, "histograms": {"sizes": buckets}}


def test_counts_of_a_probe_in_c_are_shown_with_their_histogram() -> None:
    text = text_of(in_c(counts_of("count.c", 1234, 1, 2, 8)))

    assert "PROBE  count.c, in C" in text
    assert "\n turns 1,234\n" in text
    assert "\n sizes ▂▃█ 11 values from 4 to 15\n" in text


@pytest.mark.parametrize(("buckets", "bars"), [(1, 1), (40, 40), (41, 21), (252, 36)])
def test_histogram_has_a_bar_for_each_bucket_or_for_some(buckets: int, bars: int) -> None:
    text = text_of(in_c(counts_of("count.c", 1, *[1] * buckets)))

    assert f" sizes {'█' * (bars - 1)}" in text
    assert f" {buckets} value" in text


def test_counts_are_those_of_the_file_that_the_marker_calls_and_of_its_newest_version() -> None:
    files = [counts_of("count.c", 1), counts_of("count.c", 2), counts_of("other.c", 3)]

    text = text_of(in_c(*files))

    assert " turns 2\n" in text
    assert "turns 1" not in text
    assert "turns 3" not in text
    assert "sizes" not in text, "a histogram without a value has no bars"
    assert "PROBE" not in text_of(in_c(*files, probe="count"))
    assert "PROBE" not in text_of(in_c(probe="gone.c:count"))


def test_what_a_program_says_of_itself_is_made_printable() -> None:
    hostile = {**ON, "format": "\x1b[2J%s", "sites": [{**SITE, "source": "a\nb"}]}

    text = text_of(shown(look(1, hostile)))

    assert "\x1b" not in text
    assert "a\\nb" in text
    assert "\x1b" not in heading(shown(look(1, ON)), "kv \x1b[2J", 80)


# ---- lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "-"), (0, "0"), (0.4, "0"), (999.4, "999"), (999.7, "1.0k"), (12_345, "12.3k"),
        (99_960, "100k"), (999_600, "1.0M"), (1.234e8, "123M"), (5e9, "5.0G"),
    ],
)  # fmt: skip
def test_a_number_has_five_characters_at_most(value: float | None, words: str) -> None:
    assert number(value) == words


def test_a_sparkline_has_the_newest_rates_and_the_highest_is_full() -> None:
    assert sparkline((), 4) == ""
    assert sparkline((0, 0), 4) == ""
    assert sparkline((0, 1, 8), 4) == " ·▂█"
    assert sparkline((9, 9, 0, 4, 8), 3) == "·▅█"
    assert sparkline((1,), 0) == ""


@pytest.mark.parametrize("width", range(1, 60))
def test_no_line_is_longer_than_there_is_room(width: int) -> None:
    line = (Span("CODE", Role.TITLE), Span("  in memory, at kv.c:7 or so"), Span("x" * 20))

    lines = list(wrapped(line, width))
    text = "".join("".join(span.text for span in part) for part in lines)

    assert all(sum(len(span.text) for span in part) <= max(width, 5) for part in lines)
    assert text.replace(" ", "") == "".join(span.text for span in line).replace(" ", "")


@pytest.mark.parametrize("width", [0, 5, 20, 80])
def test_a_heading_is_as_wide_as_the_screen_at_most(width: int) -> None:
    assert len(heading(shown(look(1, ON)), "./kvserver", width)) <= width
    assert heading(shown(look(1, ON)), "./kv", 40) == "pid 7 ./kv              1 of 1 marker on"


def test_costs_come_from_a_result_of_the_bench(repo: Path) -> None:
    costs = costs_of(repo / "bench" / "results" / "bench.json.gz")

    assert costs["jump, count"] < costs["int3, count"]
    with pytest.raises(Refused, match="has no active markers"):
        costs_of(repo / "bench" / "results" / "real.json.gz")
