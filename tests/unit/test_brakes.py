"""Brakes as values: what they mean, how they are written down, and their code."""

from __future__ import annotations

from random import Random

import pytest

from markerjit.errors import BadArgument
from markerjit.patch.where import Where
from markerjit.probes.braking import INCREMENT, MULTIPLIER, Rows, Words, braking
from markerjit.probes.computed import Known
from markerjit.probes.question import NO, Gates, draft_of, make_question
from markerjit.ring.brakes import NO_BRAKES, WHOLE, Brakes, Pace, Sample
from markerjit.ring.clock import NS
from markerjit.x86.decode import disassemble

BASE = 0x10_0000
WORDS = Words(BASE + 0x1000, BASE + 0x1800, BASE + 0x2000, BASE + 0x3000)
GATES = Gates(BASE + 0x5000, BASE + 0x6000, BASE + 0x7000)


@pytest.mark.parametrize(
    "text",
    ["0/100", "3/2", "1/0", "0/0", "-1/2", "1/-2", "1", "", "1/", "/2", "0.5", "1%", "1/1e3",
     " 1/2", "1/2 ", "1/2\n", "1/2/3", "١/٢", "1/1000000000000000000"],
)  # fmt: skip
def test_part_that_there_cannot_be_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(BadArgument, match=r"^sample is .*a share such as 1/100, above 0"):
        Sample.of(text)


@pytest.mark.parametrize("value", [0.01, 100, b"1/2", ("1", "2")])
def test_part_is_a_text(value: object) -> None:
    with pytest.raises(BadArgument):
        Brakes.of(sample=value)  # type: ignore[arg-type]


def test_part_of_the_numbers_of_the_generator_takes_an_event() -> None:
    assert Sample.of("1/1").highest == WHOLE - 1
    assert Sample.of("1/2").highest == WHOLE // 2 - 1
    assert Sample.of("3/4").highest == WHOLE // 4 * 3 - 1
    assert Sample.of("1/999999999999999999").highest > 0


@pytest.mark.parametrize(
    "where",
    [
        Where.of("a == 1"),
        Where.of("a == 1", "b, c=a+1"),
        Where.of("", "b"),
        Where.of("", None, Brakes.of(sample="1/100")),
        Where.of("a == 1", None, Brakes.of(sample="2/3")),
        Where.of("", "b", Brakes.of(sample="2/3")),
        Where.of("a == 1", "b", Brakes.of(sample="2/3")),
        Where.of("", None, Brakes.of(at_most=5)),
        Where.of("a == 1", "b", Brakes.of(sample="2/3", at_most="7/s")),
    ],
)
def test_question_is_the_same_when_it_is_read_again(where: Where) -> None:
    again = Where.again(where.whole, where.number)

    assert again == where
    assert again.has_condition == bool(where.text)


@pytest.mark.parametrize(
    "line",
    ["", "sample", "sample 5", "sample 3/2", "sample 1/2 x", "\n\n", "at most 0", "at most -1/s",
     "at most", "sample 1/2at most 3/s x"],
)  # fmt: skip
def test_brakes_that_the_process_has_written_over_are_none(line: str) -> None:
    assert Where.again(f"a\nb\n{line}", 1).brakes == NO_BRAKES


def test_questions_with_different_brakes_are_different_questions() -> None:
    samples = [None, "1/2", "1/3", "2/4"]
    numbers = {Where.of("a == 1", None, Brakes.of(sample=each)).number for each in samples}

    assert len(numbers) == len(samples)


@pytest.mark.parametrize("rseq_offset", [-160, 0, 0x500])
@pytest.mark.parametrize("cpus", [1, 8, 512])
def test_code_changes_only_registers_that_it_keeps(rseq_offset: int, cpus: int) -> None:
    """It writes one word, by a store of which nothing but the row is the base."""
    brakes = braking(Brakes.of(sample="1/7"), Rows(rseq_offset, cpus, 2 << 20), NO)
    draft = draft_of(None, Known({}), (), brakes)
    code = make_question(draft, BASE + 0x4000, GATES, WORDS).at(BASE)
    lines = [instruction.text for instruction in disassemble(code, BASE)]
    stores = [line for line in lines if line.startswith("mov qword ptr")]

    assert lines[:4] == ["endbr64", "push rax", "push rcx", "push rdx"]
    assert lines[-4:] == ["pop rdx", "pop rcx", "pop rax", "ret"]
    assert stores == ["mov qword ptr [rcx], rax"]


def test_no_brakes_are_no_code() -> None:
    assert braking(NO_BRAKES, Rows(), NO) == []


def test_generator_has_the_full_period() -> None:
    """Knuth, volume 2, 3.2.1.2, theorem A, for a modulus that is a power of two."""
    assert MULTIPLIER % 4 == 1
    assert INCREMENT % 2 == 1


# ---- rates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [0, -5, "0/s", "-5/s", "1.5/s", "5/m", "", "/s", 10_000_001, "٣/s", "1/s\n"]
)
def test_rate_that_there_cannot_be_is_refused_in_one_sentence(value: int | str) -> None:
    with pytest.raises(BadArgument, match=r"^at_most is .*a rate such as 1000/s, from 1"):
        Brakes.of(at_most=value)


@pytest.mark.parametrize("value", [True, 1.5, b"5", ("5",)])
def test_rate_is_a_number_or_a_text(value: object) -> None:
    with pytest.raises(BadArgument):
        Brakes.of(at_most=value)  # type: ignore[arg-type]


def test_rate_has_two_forms() -> None:
    assert Brakes.of(at_most="1000/s") == Brakes.of(at_most=1000) == Brakes.of(at_most="1000")
    assert Brakes.of(at_most="1k/s") == Brakes.of(at_most="1k") == Brakes.of(at_most=1000)
    assert Brakes.of(at_most="10M/s") == Brakes.of(at_most=10_000_000)


@pytest.mark.product
@pytest.mark.parametrize("per_s", [1, 2, 9, 10, 19, 20, 1000, 12_345])
@pytest.mark.parametrize("ticks_per_s", [NS, 2_499_998_765])
@pytest.mark.parametrize("gap", [0.0, 0.3, 1.0, 3.0])
def test_no_second_has_more_than_the_rate(per_s: int, ticks_per_s: int, gap: float) -> None:
    """The algorithm of the code, for events that come at random, with pauses: each window of a
    second is looked at."""
    pace = Pace.of(per_s, ticks_per_s)
    random = Random(f"{per_s} {gap}")
    now, next_time, taken = 10 * ticks_per_s, 0, []
    while now < 14 * ticks_per_s:
        ahead = max(next_time - now, 0)
        if ahead <= pace.ahead:
            taken.append(now)
            next_time = now + ahead + pace.step
        now += int(random.expovariate(1) * gap * pace.step) + 1 if gap else pace.step // 7 + 1
    in_a_second = [after - before for before, after in zip(taken, taken[per_s:], strict=False)]

    assert all(ticks >= ticks_per_s for ticks in in_a_second)
    if gap == 0:  # they come faster than they are let through
        assert len(taken) >= 0.89 * 4 * per_s


def test_time_of_a_rate_is_never_further_ahead_than_what_is_believed() -> None:
    for per_s in (1, 10, 1000, 10_000_000):
        pace = Pace.of(per_s, NS)

        assert pace.ahead + pace.step < pace.far < 1 << 62
        assert pace.step > 0


@pytest.mark.parametrize("ticks_per_s", [0, 2_499_998_765])
def test_code_of_a_rate_writes_by_locked_instructions_only(ticks_per_s: int) -> None:
    brakes = braking(Brakes.of(at_most=1000), Rows(-160, 8, 2 << 20), NO, ticks_per_s)
    draft = draft_of(None, Known({}), (), brakes)
    code = make_question(draft, BASE + 0x4000, GATES, WORDS).at(BASE)
    lines = [instruction.text for instruction in disassemble(code, BASE)]
    writes = [line.partition(" qword")[0] for line in lines if line.startswith("lock")]

    assert writes == ["lock cmpxchg", "lock add"]
    assert not [line for line in lines if line.startswith("mov qword ptr")]
    assert ("rdtsc" in lines) == (ticks_per_s > 0)
