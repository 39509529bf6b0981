"""The frames of stacks that were made by hand, and of wild ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.errors import MemoryFault
from markerjit.model import RemoteAddress
from markerjit.unwind.rules import Kind, Rule
from markerjit.unwind.walk import DEPTH, Registers, Stack, StackEnd, walk

STACK, SIZE = 0x7FFF0000, 0x1000
MADE = range(0x9000, 0xA000)
"""Code without a table."""


class Made:
    """Code of functions at multiples of 0x100 from 0x1000 on, with a rule each, and a stack."""

    def __init__(self, *rules: Rule, words: dict[int, int] | None = None) -> None:
        self.rules = rules
        self.words = {STACK + at: value for at, value in (words or {}).items()}

    def rule(self, address: int) -> Rule:
        number = (address - 0x1000) // 0x100
        return self.rules[number] if 0 <= number < len(self.rules) else Rule(Kind.NONE)

    def is_code(self, address: int) -> bool:
        return 0x1000 <= address < 0x1000 + 0x100 * len(self.rules) or address in MADE

    def word(self, address: int) -> int:
        if not STACK <= address <= STACK + SIZE - 8:
            raise MemoryFault(RemoteAddress(address), 8, "read", "no memory")
        return self.words.get(address, 0)

    def walk(self, rip: int, rbp: int = 0, depth: int = DEPTH) -> Stack:
        return walk(self, self.word, Registers(rip, STACK, rbp), depth)


def test_a_return_address_leads_to_the_caller_and_zero_to_nobody() -> None:
    made = Made(Rule(Kind.STACK, 2), Rule(Kind.STACK, 1), words={0x08: 0x1110, 0x10: 0})

    assert made.walk(0x1004) == Stack((0x1004, 0x1110), (True, False), StackEnd.OUTERMOST)


def test_a_call_at_the_end_of_a_function_is_of_that_function() -> None:
    """Behind a call that does not return the next function begins."""
    made = Made(
        Rule(Kind.STACK, 1), Rule(Kind.STACK, 3), Rule(Kind.OTHER), words={0x00: 0x1200, 0x18: 0}
    )

    assert made.walk(0x1004) == Stack((0x1004, 0x1200), (True, False), StackEnd.OUTERMOST)


def test_the_frame_pointer_is_where_a_rule_says_it_was_saved() -> None:
    made = Made(
        Rule(Kind.STACK, 3, 2), Rule(Kind.FRAME, 2, 2), Rule(Kind.OUTERMOST),
        words={0x08: STACK + 0x40, 0x10: 0x1110, 0x40: 0, 0x48: 0x1210},
    )  # fmt: skip

    assert made.walk(0x1004).addresses == (0x1004, 0x1110, 0x1210)


def test_a_signal_leads_to_the_very_instruction_and_to_another_stack() -> None:
    words = {168: 0x1100, 160: STACK + 0x300, 120: STACK + 0x400, 0x300: 0x1210}
    made = Made(Rule(Kind.SIGNAL), Rule(Kind.STACK, 1), Rule(Kind.OUTERMOST), words=words)

    stack = made.walk(0x1004)

    assert stack == Stack((0x1004, 0x1100, 0x1210), (True, True, False), StackEnd.OUTERMOST)


@pytest.mark.parametrize(("rip", "address"), [(0x1002, 0x00), (0x100B, 0x08), (0x100F, 0x08)])
def test_a_linkage_stub_has_pushed_a_word_in_its_last_bytes(rip: int, address: int) -> None:
    made = Made(Rule(Kind.LINKAGE), Rule(Kind.OUTERMOST), words={address: 0x1110})

    assert made.walk(rip).addresses == (rip, 0x1110)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(Kind.STACK_WORD, 4), {0x20: STACK + 0x40, 0x40: 0x1110}),
        (Rule(Kind.FRAME_WORD, -2), {0xF0: STACK + 0x48, 0x40: 0x1110}),
    ],
)
def test_a_word_of_the_frame_says_where_it_begins(rule: Rule, words: dict[int, int]) -> None:
    made = Made(rule, Rule(Kind.OUTERMOST), words=words)

    assert made.walk(0x1004, rbp=STACK + 0x100).addresses == (0x1004, 0x1110)


def test_the_frame_pointer_is_taken_where_there_is_no_table() -> None:
    made = Made(Rule(Kind.OUTERMOST), words={0x40: STACK + 0x80, 0x48: 0x9100, 0x88: 0x1010})

    stack = made.walk(0x9000, rbp=STACK + 0x40)

    assert stack == Stack((0x9000, 0x9100, 0x1010), (True, False, False), StackEnd.OUTERMOST)


@pytest.mark.parametrize("rbp", [0, STACK - 8, STACK + 0x41, STACK + SIZE - 8, STACK + 0x200])
def test_no_table_and_no_frame_pointer_end_a_stack(rbp: int) -> None:
    made = Made(Rule(Kind.OUTERMOST), words={0x200: STACK + 0x80, 0x208: 0x5})

    assert made.walk(0x9000, rbp=rbp) == Stack((0x9000,), (True,), StackEnd.NO_TABLE)


def test_the_frame_pointer_is_not_taken_where_a_rule_is_another() -> None:
    """gcc's prologue of a function that aligns its stack has a copy of the return address there."""
    made = Made(Rule(Kind.OTHER), words={0x40: STACK + 0x80, 0x48: 0x9100})

    assert made.walk(0x1004, rbp=STACK + 0x40) == Stack((0x1004,), (True,), StackEnd.NO_TABLE)


@pytest.mark.parametrize(
    ("rule", "rbp"),
    [
        (Rule(Kind.STACK, 0), 0),  # a caller that is not above
        (Rule(Kind.STACK, -3), 0),
        (Rule(Kind.FRAME, 2), STACK - 0x100),
        (Rule(Kind.FRAME, 2), STACK + 0x41),  # a stack pointer that is not aligned
        (Rule(Kind.FRAME, 2), STACK + SIZE),  # memory that is not there
        (Rule(Kind.STACK, 1), 0),  # a return address that is not code
        (Rule(Kind.SIGNAL), 0),
    ],
)
def test_what_cannot_be_a_stack_ends_it(rule: Rule, rbp: int) -> None:
    made = Made(rule, words={0: 0x77})

    assert made.walk(0x1004, rbp=rbp) == Stack((0x1004,), (True,), StackEnd.DAMAGED)


def test_a_stack_has_as_many_frames_as_were_asked_for() -> None:
    made = Made(Rule(Kind.STACK, 1), words=dict.fromkeys(range(0, SIZE, 8), 0x1010))

    for depth in (1, 2, 64):
        assert made.walk(0x1004, depth=depth) == Stack(
            (0x1004, *[0x1010] * (depth - 1)), (True, *[False] * (depth - 1)), StackEnd.DEEPER
        )


def test_a_signal_that_leads_to_itself_comes_to_an_end() -> None:
    made = Made(Rule(Kind.SIGNAL), words={168: 0x1004, 160: STACK, 120: 0})

    assert made.walk(0x1004).end is StackEnd.DEEPER


_PLACES = st.integers(0, SIZE // 8 - 1)
_VALUES = st.one_of(
    st.integers(STACK - 64, STACK + SIZE + 64),
    st.integers(0xFF0, 0x1700),
    st.integers(0, 2**64 - 1),
)
_RULES = st.builds(
    Rule, st.sampled_from(Kind), st.integers(-300, 300), st.sampled_from([0, 1, 2, 300])
)


@given(
    rules=st.lists(_RULES, min_size=6, max_size=6),
    words=st.dictionaries(_PLACES, _VALUES, max_size=60),
    rip=_VALUES,
    rbp=_VALUES,
)
def test_a_wild_stack_has_an_end(
    rules: list[Rule], words: dict[int, int], rip: int, rbp: int
) -> None:
    made = Made(*rules, words={8 * place: value for place, value in words.items()})

    stack = made.walk(rip, rbp=rbp)

    assert 1 <= len(stack.addresses) <= DEPTH
    assert all(made.is_code(address) for address in stack.addresses[1:])
    assert stack.end is not StackEnd.DEEPER or len(stack.addresses) == DEPTH
