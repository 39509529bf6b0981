"""Stacks as texts: what is written can be read, and what makes no sense has no frames."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from markerjit import Frame, StackText
from markerjit.elf import show
from markerjit.frames import shown
from markerjit.model import CType, Event, Field, FieldType, TypeClass
from markerjit.ring.batch import Columns
from markerjit.ring.types import RecordType
from markerjit.trace.stacks import numbers_of, with_numbers, with_texts

STACK = Field("stack", FieldType.STACK, CType(TypeClass.UNSIGNED, 8), 0, "pB")
KIND = RecordType(3, "hit", "stack=%pB", [STACK])
FRAMES = (
    Frame(0x7F00_0000_1234, "/lib/libé\n.so", 0x1234, "_ZN2kv3getEv", 4),
    Frame((1 << 64) - 1, "/bin/x", 0x99, "", 9),
    Frame(7, "", 0, "", 0),
)


def one_frame(wrong: str) -> str:
    """A stack with a frame that is right but for this."""
    right = '"function": "", "offset": 0, "object": "", "place": 0, "address": 0'
    return f'{{"frames": [{{{right}, {wrong}}}], "end": ""}}'


@pytest.mark.parametrize("end", ["", "[no table]", "[damaged]", "[deeper]"])
def test_a_stack_is_the_same_again(end: str) -> None:
    stack = StackText.of(FRAMES, end)

    assert (stack.frames, stack.end) == (FRAMES, end)
    assert StackText.of_document(json.loads(stack)) == stack
    assert pickle.loads(pickle.dumps(stack)).frames == FRAMES
    assert "\n" not in stack


def test_an_event_has_the_frames_of_its_field() -> None:
    with_one = Event(1, 0, 7, "hit", {"stack": StackText.of(FRAMES, "[deeper]")})
    without = Event(1, 0, 7, "hit", {"stack": "a field of the marker"})

    assert (with_one.stack, with_one.stack_end) == (FRAMES, "[deeper]")
    assert (without.stack, without.stack_end) == ((), "")


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", "{}", '{"frames": 1, "end": ""}', '{"frames": [], "end": 1}',
        '{"frames": [1], "end": ""}', '{"frames": [{}], "end": ""}', "[" * 100_000,
        one_frame('"function": 1'), one_frame('"offset": -1'), one_frame('"place": 1e300'),
        one_frame('"address": true'), one_frame(f'"address": {1 << 64}'), one_frame('"object": 2'),
    ],
)  # fmt: skip
def test_what_makes_no_sense_has_no_frames(text: str) -> None:
    stack = StackText(text)

    assert stack.frames == () and stack.end == "" and stack.labels == ()
    assert show(STACK, stack)


def test_a_line_has_the_names_and_a_reader_takes_them_from_there() -> None:
    line = show(STACK, StackText.of(FRAMES, "[no table]"))

    assert line == '"kv::get() < x+0x90 < [no object] [no table]"'
    again = StackText.of_labels(line[1:-1])
    assert [frame.label for frame in again.frames] == ["kv::get()", "x+0x90", "[no object]"]
    assert again.end == "[no table]"
    for labels in (["leaf", "main"], ["leaf", "operator new[]"], ["leaf", "[no object]"]):
        whole = StackText.of_labels(shown(labels, ""))
        assert [frame.function for frame in whole.frames] == labels and whole.end == ""


def test_numbers_become_texts_and_numbers_again() -> None:
    numbers = np.array([5, 0, 9, 5, 6], np.uint64)
    times = np.arange(5, dtype=np.uint64)
    columns = Columns(KIND, times, times, times, {"stack": numbers})
    texts = {5: StackText.of(FRAMES, ""), 9: StackText.of(FRAMES[:1], "")}

    named = with_texts([columns], texts.get)
    numbered, known = with_numbers(named)

    assert numbers_of([columns]) == {5, 6, 9} and numbers_of(named) == set()
    first, none, second, again, unknown = numbered[0].fields["stack"].tolist()
    assert none == unknown == 0 and first == again
    assert known == {first: texts[5], second: texts[9]}
