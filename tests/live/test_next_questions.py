"""Questions that are asked one after the other in an open session: what is done for each."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest

import markerjit
from markerjit.errors import Refused
from markerjit.remote import references
from markerjit.x86 import encoding

pytestmark = pytest.mark.live


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The stops of a process beside those of switches."""
    stops = Mock(wraps=references.referred)
    monkeypatch.setattr(references, "referred", stops)
    return stops


@pytest.fixture
def assembled(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What keystone is asked for."""
    assembled = Mock(wraps=encoding.assembled)
    monkeypatch.setattr(encoding, "assembled", assembled)
    return assembled


def test_only_what_is_new_in_a_question_is_assembled(target: Callable, assembled: Mock) -> None:
    program = target("truth_keys", "1")
    asked = []
    with markerjit.attach(program.pid) as session:
        for number in (0x1234, 0x2345, 0x2345):
            assembled.reset_mock()
            where = f"value > {number}"
            with session.aggregate("truth_key", "hist(value)", by="text[:5]", where=where):
                pass
            session.on("truth_key", where=f"value < {number + 1}")
            session.off("truth_key")
            asked.append([call.args[0] for call in assembled.call_args_list])

    assert asked[1:] == [["cmp rax, 0x2345", "cmp rax, 0x2346"], []]


def test_the_threads_of_a_new_question_stop_for_its_switch_alone(
    target: Callable, stops: Mock
) -> None:
    program = target("truth_keys", "2")
    with markerjit.attach(program.pid) as session:
        for number in range(4):
            with session.aggregate("truth_key", by="key", where=f"key != {number}"):
                pass

        assert stops.call_count == 0


def test_they_stop_before_a_question_is_asked_again(target: Callable, stops: Mock) -> None:
    """Its marker names the memory of the first time, in which a thread may have been."""
    program = target("truth_keys", "2")
    with markerjit.attach(program.pid) as session:
        for times in range(3):
            with session.aggregate("truth_key", by="key"):
                assert stops.call_count == times


def largest(session: markerjit.Session) -> int:
    """For how many keys there is room at most, a power of two. No ended one has memory then."""
    keys = 1024
    try:
        while True:
            with session.aggregate("truth_key", by="key", keys=2 * keys):
                keys *= 2
    except Refused:
        return keys


def test_the_memory_of_questions_that_ended_is_taken_when_there_is_no_other(
    target: Callable, stops: Mock
) -> None:
    program = target("truth_keys", "2")
    with markerjit.attach(program.pid) as session:
        keys = largest(session)
        stops.reset_mock()
        for number in range(3):  # each of them needs more than half of all
            where = f"key != {number}"
            with session.aggregate("truth_key", by="key", keys=keys, where=where) as adding:
                assert adding.read().room == keys

    assert stops.call_count == 2
