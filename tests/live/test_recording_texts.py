"""Texts are recorded as they are, or say that they are not, wherever their pointers lead; and the
program lives. By memory transactions, where the processor has them; from pages that are known to be
readable; and by the kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

import markerjit
from markerjit.abi import CPU_RTM, CPU_TSC
from tests.support.markers import losses
from tests.support.programs import Target

UNREADABLE = ["unmapped", "kernel", "last", "not_canonical", "no_access", "behind_file"]
READABLE = {
    "text": "a text",
    "empty": "",
    "mebibyte": "m" * (1 << 20),
    "across": "across",
    "not_yet_read": "not yet read",
    "ends_at_gap": "at the gap",
    "empty_at_gap": "",
}
MOST = 256


class Texts(NamedTuple):
    """truth_texts, a session, and the way in which strings are to be read."""

    program: Target
    session: Any
    strings: str

    def trace(self, pattern: str, **options: Any) -> Any:
        return self.session.trace(pattern, strings=self.strings, **options)


@pytest.fixture(params=["RTM", "careful", "fast"])
def texts(request: pytest.FixtureRequest, target: Callable) -> Iterator[Texts]:
    """Texts are copied in transactions, by the kernel, or from known pages."""
    program = target("truth_texts")
    strings = "fast" if request.param == "fast" else "careful"
    with markerjit.attach(program.pid) as session:
        session.enable("texts_four")
        session.disable("texts_four")
        arena = session._target.seen.arena
        flags = arena.control.now().cpu_flags
        if request.param != "RTM":
            arena.control.write("cpu_flags", flags & ~CPU_RTM)
        elif not flags & CPU_RTM:
            pytest.skip("this processor has no memory transactions (RTM)")
        if request.param == "fast" and not flags & CPU_TSC:
            pytest.skip("the time stamp counter is not the same on all CPUs")
        yield Texts(program, session, strings)


def bounded(text: str, bound: int) -> str:
    """What is recorded of a text with this bound; below 0 it has none."""
    if 0 <= bound <= MOST:
        return text[:bound]
    return text[:MOST] + "…" * (len(text) > MOST)


@pytest.mark.parametrize("bound", [0, 3, 10, MOST, 1000, -1])
def test_texts_are_right_or_say_that_they_are_not_wherever_they_point(
    texts: Texts, bound: int
) -> None:
    places = texts.program.command("places").split()[1:]

    with texts.trace("texts_*") as stream:
        assert texts.program.ask(f"pass {bound}") == {"bad": 0}
    events = stream.drain()

    assert stream.statistics() == (4 * len(places), 0, 0, 0, ())
    check_places(events, places, bound)


def check_places(events: Sequence[markerjit.Event], places: Sequence[str], bound: int) -> None:
    """Of each place what can be read there, and nothing else."""
    by_name: dict[str, dict[str, Any]] = {}
    for event in events:
        values = by_name.setdefault(event.name, {})
        values[places[event.fields["at"]]] = event.fields["s"]
    assert [list(values) for values in by_name.values()] == [places] * 4
    for values in by_name.values():
        assert values["null"] is None and values["small"] is None
    for place in UNREADABLE:
        assert by_name["texts_string"][place] == by_name["texts_four"][place] == "<unreadable>"
        assert by_name["texts_bounded"][place] == ("<unreadable>" if bound else "")
        assert by_name["texts_raw"][place] == ("<unreadable>" if bound > 0 else b"")
    for place, text in READABLE.items():
        assert by_name["texts_string"][place] == bounded(text, -1)
        assert by_name["texts_four"][place] == text[:4]
        assert by_name["texts_bounded"][place] == bounded(text, bound)
        raw, most = text.encode() + b"\0" * (place == "across") * 300, max(0, min(bound, MOST))
        assert by_name["texts_raw"][place][: len(raw)] == raw[:most]
    assert by_name["texts_string"]["open_at_gap"] == "no end…"
    assert by_name["texts_four"]["open_at_gap"] == "no e"
    whole = 0 <= bound <= len("no end")
    assert by_name["texts_bounded"]["open_at_gap"] == ("no end"[:bound] if whole else "no end…")
    assert by_name["texts_raw"]["open_at_gap"] == b"no end"[: max(0, bound)]


def test_text_that_another_thread_unmaps_meanwhile_harms_nobody(texts: Texts) -> None:
    """With texts that are read from known pages, once what was known holds no longer."""
    how = "moment 100" if texts.strings == "fast" else "changing 300"
    if texts.session._target.seen.arena.control.now().cpu_flags & CPU_RTM:
        how = "changing 300"

    with texts.trace("texts_changing") as stream:
        counts = texts.program.ask(how)
    events = stream.drain()

    lost = losses(texts.session).total()
    assert counts == {"bad": 0, "passed": len(events) + lost}
    assert stream.statistics() == (len(events), lost, 0, 0, ())
    numbers = [event.fields["n"] for event in events]
    assert numbers == sorted(set(numbers))
    seen = Counter(event.fields["s"] for event in events)
    whole = {text for text in seen if text.rstrip("…").strip("c") == ""}
    assert set(seen) - whole <= {"<unreadable>"}
    assert all(len(text) <= 101 for text in whole)
    assert seen["<unreadable>"] > 0 and seen["c" * 100] > 0


@pytest.mark.parametrize("most", [1, 255, 1000, 1 << 20])
def test_as_much_of_a_text_is_recorded_as_was_asked_for_and_fits(texts: Texts, most: int) -> None:
    at = texts.program.command("places").split()[1:].index("mebibyte")

    with texts.trace("texts_string", text=most) as stream:
        texts.program.command("pass 1")
    (text,) = (event.fields["s"] for event in stream.drain() if event.fields["at"] == at)

    assert text == "m" * (len(text) - 1) + "…"
    assert len(text) - 1 == most if most < 4000 else 4000 < len(text) < 4096


def test_text_in_a_file_that_was_truncated_is_unreadable(texts: Texts) -> None:
    with texts.trace("texts_known") as stream:
        assert texts.program.ask("truncated 20") == {"bad": 0}
    events = stream.drain()

    assert [event.fields["s"] for event in events] == ["was there", "<unreadable>"] * 20


def test_texts_are_right_in_64_threads_that_block_all_signals(texts: Texts) -> None:
    places = texts.program.command("places").split()[1:]

    with texts.trace("texts_*") as stream:
        assert texts.program.ask("blocked 10 64") == {"bad": 0}
    events = stream.drain()

    assert stream.statistics() == (64 * 4 * len(places), 0, 0, 0, ())
    by_thread: dict[int, list[markerjit.Event]] = {}
    for event in events:
        by_thread.setdefault(event.tid, []).append(event)
    assert len(by_thread) == 64
    for own in by_thread.values():
        check_places(own, places, 10)


def test_texts_are_right_in_the_handler_of_a_fault(texts: Texts) -> None:
    places = texts.program.command("places").split()[1:]

    with texts.trace("texts_*") as stream:
        assert texts.program.ask("handled 10") == {"bad": 0}
    events = stream.drain()

    assert stream.statistics() == (4 * len(places), 0, 0, 0, ())
    check_places(events, places, 10)
