"""Texts are recorded as they are, or say that they are not, wherever their pointers lead; and the
program lives. By memory transactions, where the processor has them, and by the kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import markerjit
from markerjit.abi import CPU_RTM
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


@pytest.fixture(params=["RTM", "no RTM"])
def texts(request: pytest.FixtureRequest, target: Callable) -> Iterator[tuple[Target, Any]]:
    """truth_texts and a session; texts are copied in transactions, or by the kernel."""
    program = target("truth_texts")
    with markerjit.attach(program.pid) as session:
        session.enable("texts_four")
        session.disable("texts_four")
        arena = session._target.seen.arena
        flags = arena.control.now().cpu_flags
        if request.param == "no RTM":
            arena.control.write("cpu_flags", flags & ~CPU_RTM)
        elif not flags & CPU_RTM:
            pytest.skip("this processor has no memory transactions (RTM)")
        yield program, session


def bounded(text: str, bound: int) -> str:
    """What is recorded of a text with this bound; below 0 it has none."""
    if 0 <= bound <= MOST:
        return text[:bound]
    return text[:MOST] + "…" * (len(text) > MOST)


@pytest.mark.parametrize("bound", [0, 3, 10, MOST, 1000, -1])
def test_texts_are_right_or_say_that_they_are_not_wherever_they_point(
    texts: tuple[Target, Any], bound: int
) -> None:
    program, session = texts
    places = program.command("places").split()[1:]

    with session.trace("texts_*") as stream:
        assert program.ask(f"pass {bound}") == {"bad": 0}
    events = stream.drain()

    found: dict[str, dict[str, Any]] = {}
    for event in events:
        values = found.setdefault(event.name, {})
        values[places[event.fields["at"]]] = event.fields["s"]
    assert [list(values) for values in found.values()] == [places] * 4
    assert stream.statistics() == (4 * len(places), 0, 0, 0, ())
    for values in found.values():
        assert values["null"] is None and values["small"] is None
    for place in UNREADABLE:
        assert found["texts_string"][place] == found["texts_four"][place] == "<unreadable>"
        assert found["texts_bounded"][place] == ("<unreadable>" if bound else "")
        assert found["texts_raw"][place] == ("<unreadable>" if bound > 0 else b"")
    for place, text in READABLE.items():
        assert found["texts_string"][place] == bounded(text, -1)
        assert found["texts_four"][place] == text[:4]
        assert found["texts_bounded"][place] == bounded(text, bound)
        raw, most = text.encode() + b"\0" * (place == "across") * 300, max(0, min(bound, MOST))
        assert found["texts_raw"][place][: len(raw)] == raw[:most]
    assert found["texts_string"]["open_at_gap"] == "no end…"
    assert found["texts_four"]["open_at_gap"] == "no e"
    whole = 0 <= bound <= len("no end")
    assert found["texts_bounded"]["open_at_gap"] == ("no end"[:bound] if whole else "no end…")
    assert found["texts_raw"]["open_at_gap"] == b"no end"[: max(0, bound)]


def test_text_that_another_thread_unmaps_meanwhile_harms_nobody(
    texts: tuple[Target, Any],
) -> None:
    program, session = texts

    with session.trace("texts_changing") as stream:
        counts = program.ask("changing 300")
    events = stream.drain()

    lost = losses(session).total()
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
def test_as_much_of_a_text_is_recorded_as_was_asked_for_and_fits(
    texts: tuple[Target, Any], most: int
) -> None:
    program, session = texts
    at = program.command("places").split()[1:].index("mebibyte")

    with session.trace("texts_string", text=most) as stream:
        program.command("pass 1")
    (text,) = (event.fields["s"] for event in stream.drain() if event.fields["at"] == at)

    assert text == "m" * (len(text) - 1) + "…"
    assert len(text) - 1 == most if most < 4000 else 4000 < len(text) < 4096
