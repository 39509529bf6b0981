"""Values in a notebook: well-formed tables, foreign text escaped, no colours."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

import markerjit
from markerjit.errors import BadArgument, BadTrace
from markerjit.model import Event, Kind
from markerjit.printable.html import MOST_ROWS, Code, html_table
from markerjit.ring.clock import Calibration
from markerjit.ring.types import Time
from markerjit.trace.reading import Trace
from tests.support.made_records import make_info
from tests.support.made_sites import SWITCHABLE, make_site, make_state, on

HOSTILE = '<script>alert("1")</script>&amp;\x1b[31m\u202e'
SHOWN = '<script>alert("1")</script>&amp;\\x1b[31m\\u202e'
"""What a reader sees of it: the text itself, with an escape for what is unprintable."""

EVENT = Event(1_500_000_000, 3, 77, HOSTILE, {HOSTILE: HOSTILE, "size": 5})


def parsed(html: str) -> ElementTree.Element:
    """The HTML, which is also well-formed XML."""
    return ElementTree.fromstring(f"<div>{html}</div>")


def text_of(element: ElementTree.Element) -> str:
    return "".join(element.itertext())


def rows_of(html: str) -> list[dict[str, str]]:
    """The texts of a table, by column."""
    root = parsed(html)
    columns = [text_of(cell) for cell in root.iter("th")]
    return [
        dict(zip(columns, map(text_of, row.iter("td")), strict=True))
        for row in root.findall(".//tbody/tr")
    ]


class MadeTrace(Trace):
    """A trace of so many events, and then of damage."""

    def __init__(self, events: int, *, damaged: bool = False) -> None:
        super().__init__(HOSTILE)
        self.info = make_info(clock=Calibration(Time.TSC, 1000, 2000, 3_000_000_000, 0))
        self.problems = [HOSTILE]
        self._events = events
        self._damaged = damaged

    def events(self) -> Iterator[Event]:
        yield from [EVENT] * self._events
        if self._damaged:
            raise BadTrace("it ends in the middle")


PLAN = on([make_state(Kind.JUMP, None)])

ALL = {
    "site": make_site(Kind.JUMP, marker=HOSTILE),
    "event": EVENT,
    "step": next(PLAN.steps())._replace(what=HOSTILE, proves=HOSTILE),
    "plan": PLAN._replace(title=HOSTILE),
    "trace": MadeTrace(1),
    "table": markerjit.table([make_site(Kind.JUMP, marker=HOSTILE)]),
}


@pytest.mark.parametrize("kind", ALL)
def test_text_of_another_program_is_text_in_the_page(kind: str) -> None:
    html = ALL[kind]._repr_html_()

    root = parsed(html)
    assert {element.tag for element in root.iter()} <= {
        *("div", "table", "caption", "thead", "tbody", "tr", "th", "td", "code", "p")
    }
    assert SHOWN in text_of(root)
    assert html.replace("\n", "").isprintable()


@pytest.mark.parametrize("kind", ALL)
def test_a_table_has_no_colour_of_its_own(kind: str) -> None:
    root = parsed(ALL[kind]._repr_html_())

    assert {element.get("style") for element in root.iter()} <= {None, "text-align: left"}
    assert not any(element.get(name) for element in root.iter() for name in ("class", "bgcolor"))


@pytest.mark.parametrize("kind", SWITCHABLE)
def test_a_site_of_every_kind_has_a_row(kind: Kind) -> None:
    (row,) = rows_of(make_site(kind)._repr_html_())

    assert (row["marker"], row["kind"], row["address"]) == ("kv_get", str(kind), "0x1000")


def test_a_site_shows_the_bytes_that_change() -> None:
    (row,) = rows_of(make_site(Kind.JUMP)._repr_html_())

    assert row["off"] == "eb 05"
    assert row["on"] == "jump: eb 00, int3: cc 05"


def test_a_plan_shows_its_steps() -> None:
    rows = rows_of(PLAN._repr_html_())

    assert [(row["step"], row["what is done"], row["what holds afterwards"]) for row in rows] == [
        (str(step.number), step.sentence, step.proves) for step in PLAN.steps()
    ]


def test_several_values_share_a_table() -> None:
    sites = [make_site(kind) for kind in SWITCHABLE]

    rows = rows_of(markerjit.table(sites)._repr_html_())

    assert [row["kind"] for row in rows] == list(map(str, SWITCHABLE))


@pytest.mark.parametrize("events", [0, 20, 21])
def test_a_trace_shows_its_first_events(events: int) -> None:
    html = MadeTrace(events)._repr_html_()

    remarks = [text_of(element) for element in parsed(html).iter("p")]
    assert len(rows_of(html)) == min(events, 20)
    assert remarks == ["the first 20 events"] * (events > 20) + [SHOWN]


def test_a_damaged_trace_shows_what_can_be_read_and_says_so() -> None:
    html = MadeTrace(2, damaged=True)._repr_html_()

    assert len(rows_of(html)) == 2
    assert "it ends in the middle" in text_of(parsed(html))


def test_of_many_rows_the_first_are_shown() -> None:
    html = html_table({"n": str(number)} for number in range(MOST_ROWS + 7))

    assert [row["n"] for row in rows_of(html)] == [str(number) for number in range(MOST_ROWS)]
    assert [text_of(remark) for remark in parsed(html).iter("p")] == ["7 rows more"]


def test_a_row_may_lack_columns_that_others_have() -> None:
    html = html_table([{"a": "1"}, {"b": Code("2"), "a": ""}], caption="two")

    assert rows_of(html) == [{"a": "1", "b": ""}, {"a": "", "b": "2"}]
    assert [text_of(code) for code in parsed(html).iter("code")] == ["2"]
    assert [text_of(caption) for caption in parsed(html).iter("caption")] == ["two"]


@pytest.mark.parametrize("values", [None, 5, [5], "text", [make_site(Kind.JUMP), None]])
def test_a_table_of_anything_else_is_refused(values: object) -> None:
    with pytest.raises(BadArgument):
        markerjit.table(values)  # type: ignore[arg-type]
