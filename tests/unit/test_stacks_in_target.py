"""Stacks that the runtime walks, in this process: beside those that the walker in Python finds, of
the same registers and the same memory."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import sqlite3
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from markerjit.abi import (
    DIRECTORY_SIZE,
    PAGE,
    STACK_PLACES,
    STACKS_DIRECTORIES,
    STACKS_PLACES,
    STACKS_RECENT,
    STACKS_RECENT_BITS,
    STACKS_RULES,
    CodeEntry,
    Stacks,
)
from markerjit.errors import MemoryFault
from markerjit.model import RemoteAddress
from markerjit.unwind.objects import ProcessCode
from markerjit.unwind.rules import Kind, Rule, encode
from markerjit.unwind.walk import Registers, Stack, StackEnd, walk
from tests.support.choice import examples
from tests.support.own_arena import address_of
from tests.support.own_stacks import OwnStacks, Seen, compiled, expected
from tests.support.timing import reaped


class Walks:
    """The runtime's walks of this process."""

    def __init__(self, folder: Path, *, tables: bool = True, **control: int) -> None:
        self.library = compiled(folder)
        self.own = OwnStacks(**control)
        if tables:
            self.code: ProcessCode = self.own.refresh()
        self.looks = 0

    def compare(self, how: Callable[[Seen], object], depth: int = 64) -> Seen:
        """Look, and compare what was found; and so for each look, whether the rules of its frames
        are recent ones or not."""
        seen = self.own.seen(depth)
        how(seen)
        stack = self.own.stack(seen.number)
        assert stack == expected(self.code, seen)
        self.looks += 1
        return seen

    def below(self, depth: int) -> int:
        """The number of a stack with so many frames of its own."""
        seen = self.compare(lambda seen: self.library.look_deep(ctypes.byref(seen), depth))
        return int(seen.number)

    def here(self, *_: object) -> int:
        seen = self.compare(lambda seen: self.library.look_here(ctypes.byref(seen)))
        return int(seen.number)


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walks]:
    made = Walks(tmp_path_factory.mktemp("walks"))
    yield made
    made.own.reading.close()


@pytest.fixture
def others(tmp_path: Path) -> Iterator[Callable[..., Walks]]:
    """Makes walks of their own memory."""
    with ExitStack() as stack:

        def make(**control: int) -> Walks:
            made = Walks(tmp_path, **control)
            stack.callback(made.own.reading.close)
            return made

        yield make


def test_stacks_of_cpython_are_those_of_the_walker_in_python(walks: Walks) -> None:
    before = walks.looks
    for depth in (0, 1, 7, 40):
        deep(depth, walks.here)
    sorted(range(20), key=walks.here)
    re.sub("a", lambda match: str(walks.here()), "banana")
    json.dumps([object()] * 3, default=walks.here)
    [*map(walks.here, [1, 2]), *filter(walks.here, [1])]

    assert walks.looks - before == 33


def deep(depth: int, call: Callable[[], int]) -> int:
    return deep(depth - 1, call) if depth else call()


def test_stacks_through_a_database_are_those_of_the_walker_in_python(walks: Walks) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        walks.code = walks.own.refresh()
        database.create_function("look", 1, walks.here)
        database.create_collation("looked", lambda left, right: walks.here() and (left > right))
        before = walks.looks

        query = "WITH n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 9) "
        database.execute(f"{query} SELECT sum(look(x)) FROM n GROUP BY look(x) % 3").fetchall()
        database.execute(f"{query} SELECT hex(x) AS h FROM n ORDER BY h COLLATE looked").fetchall()

    assert walks.looks - before > 30


@pytest.mark.parametrize("own_stack", [0, 1])
def test_a_signal_is_walked_through(walks: Walks, own_stack: int) -> None:
    seen = walks.compare(lambda seen: walks.library.look_in_signal(ctypes.byref(seen), own_stack))

    stack = walks.own.stack(seen.number)
    assert stack and sum(stack.exact) == 2 and stack.end is not StackEnd.DAMAGED


def test_a_stack_goes_through_the_c_library(walks: Walks) -> None:
    walks.compare(lambda seen: walks.library.look_sorting(ctypes.byref(seen)))


@pytest.mark.parametrize("depth", [1, 2, 64, 100, 256])
def test_a_walk_has_as_many_frames_as_are_asked_for(walks: Walks, depth: int) -> None:
    seen = walks.compare(lambda seen: walks.library.look_deep(ctypes.byref(seen), 300), depth)

    stack = walks.own.stack(seen.number)
    assert stack and len(stack.addresses) == depth and stack.end is StackEnd.DEEPER


def test_a_deeper_walk_than_there_may_be_has_the_most_frames(walks: Walks) -> None:
    seen = walks.own.seen(1 << 40)
    walks.library.look_deep(ctypes.byref(seen), 300)

    stack = walks.own.stack(seen.number)
    assert stack and len(stack.addresses) == 256


def test_one_stack_has_one_number(walks: Walks) -> None:
    """The interpreter specialises a call that is made often: then it is made from another place."""
    numbers = [walks.below(depth) for _ in range(50) for depth in (3, 4)]

    assert len({*numbers[-10:]}) == 2


def test_pages_are_asked_for_where_the_counter_is_no_clock(others: Callable[..., Walks]) -> None:
    walks = others(cpu_flags=0)
    for depth in (0, 20):
        deep(depth, walks.here)

    assert walks.looks == 2


def test_threads_walk_at_once(walks: Walks) -> None:
    problems: list[BaseException] = []

    def work() -> None:
        try:
            for depth in range(50):
                deep(depth % 12, walks.here)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not problems


# ---- stacks that were made by hand, and wild ones ------------------------------------------------

CODE = 0x10_0000
"""Functions of 256 bytes each from here on, which are nowhere: code is not read."""
BARE = range(CODE + 0x10_0000, CODE + 0x10_1000)
"""Code without a table."""


class Made:
    """Functions with a rule each, and a stack of a page between two that cannot be read."""

    def __init__(self, walks: Walks, *rules: Rule) -> None:
        self.walks = walks
        self.rules = [*rules, Rule(Kind.NONE)]
        self._room = mmap.mmap(-1, 3 * PAGE)
        self.stack = address_of(self._room) + PAGE
        libc = ctypes.CDLL(None)
        for page in (self.stack - PAGE, self.stack + PAGE):
            assert not libc.mprotect(ctypes.c_void_p(page), PAGE, 0)
        self.mark = ctypes.c_uint64(77)
        self._enter()

    def _enter(self) -> None:
        own = self.walks.own
        count, size = len(self.rules), 0x100 * (len(self.rules) - 1)
        index = [min(block, count - 1) for block in range((size >> 8) + 2)]
        words = [*index, *range(0, 0x100 * count, 0x100), *map(encode, self.rules)]
        header = struct.pack("<8sIIQQ", b"mjunwind", 1, count, 0, size)
        own.store.write(STACKS_RULES, header + struct.pack(f"<{len(words)}I", *words))
        mark = ctypes.addressof(self.mark)
        codes = [
            CodeEntry(CODE, CODE + size, STACKS_RULES, CODE, mark, 77),
            CodeEntry(BARE.start, BARE.stop),
        ]
        own.enter(codes)

    def rule(self, address: int) -> Rule:
        number = (address - CODE) // 0x100
        return self.rules[number] if 0 <= number < len(self.rules) else Rule(Kind.NONE)

    def is_code(self, address: int) -> bool:
        return CODE <= address < CODE + 0x100 * (len(self.rules) - 1) or address in BARE

    def word(self, address: int) -> int:
        # The pages around the stack: /proc/PID/mem has them all the same.
        first, last = address // PAGE * PAGE, (address + 7) // PAGE * PAGE
        around = self.stack - PAGE, self.stack + PAGE
        if not 0 <= address < 1 << 47 or first in around or last in around:
            raise MemoryFault(RemoteAddress(address), 8, "read", "no address")
        return int.from_bytes(self.walks.own.reading.read(RemoteAddress(address), 8), "little")

    def put(self, words: Mapping[int, int]) -> None:
        """Have these words on the stack, and zeros."""
        content = bytearray(PAGE)
        for at, word in words.items():
            content[at : at + 8] = word.to_bytes(8, "little")
        ctypes.memmove(self.stack, bytes(content), PAGE)

    def walk(self, registers: Registers, depth: int = 64) -> Stack:
        """The walk of the runtime, by tables and by recent rules, which is the same as that of the
        walker in Python."""
        stack = walk(self, self.word, registers, depth)
        assert self.seen(registers, depth) == stack
        assert self.seen(registers, depth) == stack
        return stack

    def seen(self, registers: Registers, depth: int = 64) -> Stack | None:
        """The walk of the runtime."""
        own = self.walks.own
        return own.stack(self.walks.library.walk_from(own.gate, depth, *registers, 0))


@pytest.fixture
def made(others: Callable[..., Walks]) -> Callable[..., Made]:
    walks = others(tables=False)
    return lambda *rules: Made(walks, *rules)


def test_a_loop_on_a_stack_has_an_end(made: Callable[..., Made]) -> None:
    """A frame pointer that shows itself leads below the stack pointer."""
    loop = made(Rule(Kind.FRAME, 2, 2), Rule(Kind.STACK, 1))
    loop.put({0x40: loop.stack + 0x40, 0x48: CODE + 0x20})

    stack = loop.walk(Registers(CODE + 0x10, loop.stack + 0x20, loop.stack + 0x40))

    assert stack == Stack((CODE + 0x10, CODE + 0x20), (True, False), StackEnd.DAMAGED)


def test_what_cannot_be_read_ends_a_stack(made: Callable[..., Made]) -> None:
    beyond = made(Rule(Kind.STACK, 2))
    beyond.put({PAGE - 8: CODE + 0x20})

    stack = beyond.walk(Registers(CODE + 0x10, beyond.stack + PAGE - 16, 0))

    assert stack == Stack((CODE + 0x10, CODE + 0x20), (True, False), StackEnd.DAMAGED)


def test_an_object_that_is_there_no_more_has_no_table(made: Callable[..., Made]) -> None:
    """Another one has come into its place, and is not known yet."""
    unloaded = made(Rule(Kind.STACK, 2))
    unloaded.put({0x28: 0})
    registers = Registers(CODE + 0x10, unloaded.stack + 0x20, 0)
    assert unloaded.walk(registers).end is StackEnd.OUTERMOST

    unloaded.mark.value = 78

    assert unloaded.seen(registers) == Stack((CODE + 0x10,), (True,), StackEnd.NO_TABLE)


# ---- recent rules --------------------------------------------------------------------------------

KEY = 23
"""From this bit on, a word has the directory's number and the address: recent.h."""


def place_of(address: int) -> int:
    """Where the word of an address is."""
    return STACKS_RECENT + 8 * (address % (1 << STACKS_RECENT_BITS))


def key_of(address: int, directory: int) -> int:
    return (address >> STACKS_RECENT_BITS << 7 | directory % 128) << KEY


def recent(walks: Walks, address: int) -> int:
    """The word that is there."""
    return int.from_bytes(walks.own.store.read(place_of(address), 8), "little")


def test_a_rule_that_was_found_is_not_looked_up_again(made: Callable[..., Made]) -> None:
    """Its table says something else by then."""
    kept = made(Rule(Kind.STACK, 2), Rule(Kind.FRAME, 2, 2), Rule(Kind.OUTERMOST))
    kept.put({0x28: CODE + 0x120, 0x40: 5, 0x48: CODE + 0x220})
    registers = Registers(CODE + 0x10, kept.stack + 0x20, kept.stack + 0x40)
    stack = kept.walk(registers)
    assert len(stack.addresses) == 3 and stack.end is StackEnd.OUTERMOST

    kept.walks.own.store.write(STACKS_RULES + 32, bytes(0x100))

    assert kept.seen(registers) == stack


def test_the_rule_of_a_return_is_not_looked_up_again(made: Callable[..., Made]) -> None:
    """The frame pointer is restored by then, from a place that is below the stack pointer. Rows
    still name it."""
    kept = made(Rule(Kind.STACK, 1, 5), Rule(Kind.FRAME, 2, 2), Rule(Kind.OUTERMOST))
    kept.put({0: kept.stack + 0x40, 0x20: CODE + 0x120, 0x40: 5, 0x48: CODE + 0x220})
    registers = Registers(CODE + 0x10, kept.stack + 0x20, 7)
    stack = kept.walk(registers)
    assert len(stack.addresses) == 3 and stack.end is StackEnd.OUTERMOST

    kept.walks.own.store.write(STACKS_RULES + 32, bytes(0x100))

    assert kept.seen(registers) == stack


def test_a_rule_of_another_directory_is_not_used(made: Callable[..., Made]) -> None:
    """Not even that of the one whose number has the same lower bits."""
    walks = (before := made(Rule(Kind.STACK, 2), Rule(Kind.OUTERMOST))).walks
    registers = Registers(CODE + 0x10, before.stack + 0x20, 0)
    before.put({0x28: CODE + 0x120, 0x38: CODE + 0x130})
    before.walk(registers)
    word = recent(walks, CODE + 0x10)
    assert word >> KEY << KEY == key_of(CODE + 0x10, walks.own.directory)

    for _ in range(127):
        walks.own.enter([])
    after = made(Rule(Kind.STACK, 4), Rule(Kind.OUTERMOST))
    after.put({0x28: CODE + 0x120, 0x38: CODE + 0x130})

    after.walk(registers._replace(rsp=after.stack + 0x20))
    assert recent(walks, CODE + 0x10) >> KEY == word >> KEY


def test_a_rule_that_was_put_there_late_is_gone_before_its_number_comes_again(
    made: Callable[..., Made],
) -> None:
    """By a thread that stood still while the next directory came into force."""
    walks = made(Rule(Kind.STACK, 2)).walks
    late = key_of(CODE, 127) | 2 << 4
    while walks.own.directory < 128:
        walks.own.enter([])
    walks.own.store.write(place_of(CODE), late.to_bytes(8, "little"))

    while walks.own.directory < 127 + 128:
        walks.own.enter([])

    assert recent(walks, CODE) == 0


def test_an_address_at_the_end_of_code_says_nothing_of_the_next(made: Callable[..., Made]) -> None:
    """The last instruction of an object is a call that does not return: the return address is in
    no code, also when the instruction itself was interrupted before."""
    last = made(Rule(Kind.STACK, 2))
    end = CODE + 0x100
    last.put({0x28: CODE + 0x20, 0x38: end})

    last.walk(Registers(end - 1, last.stack + 0x20, 0))
    stack = last.walk(Registers(CODE + 0x10, last.stack + 0x20, 0))

    assert stack == Stack((CODE + 0x10, CODE + 0x20), (True, False), StackEnd.DAMAGED)
    assert not recent(last.walks, end - 1) and recent(last.walks, CODE + 0x1F)


@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(lows=st.lists(st.integers(0, (1 << KEY) - 1), min_size=2, max_size=2),
       words=st.dictionaries(st.integers(4, 511), st.integers(0, 2**64 - 1), max_size=100),
       rbp=st.one_of(st.integers(0, 2**64 - 1), st.integers(-64, PAGE // 8 + 64)))  # fmt: skip
def test_wild_recent_rules_read_nothing_that_cannot_be_read(
    made: Callable[..., Made], lows: list[int], words: dict[int, int], rbp: int
) -> None:
    wild = made(Rule(Kind.STACK, 2), Rule(Kind.STACK, 2))
    back = {at * 8: CODE + 0x11 if word % 3 else word for at, word in words.items()}
    wild.put(back)
    own = wild.walks.own
    for address, low in zip((CODE + 0x10, CODE + 0x110), lows, strict=True):
        word = key_of(address, own.directory) | low
        own.store.write(place_of(address), word.to_bytes(8, "little"))
    frame = rbp if rbp > PAGE else wild.stack + 8 * rbp

    wild.seen(Registers(CODE + 0x10, wild.stack + 0x20, frame % 2**64))


KINDS = st.sampled_from(list(Kind))
RULES = st.builds(Rule, KINDS, st.integers(-40, 300), st.integers(0, 300))
PLACES = st.integers(0, PAGE - 8)


@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), rules=st.lists(RULES, min_size=1, max_size=6))
def test_wild_stacks_are_those_of_the_walker_in_python(
    made: Callable[..., Made], data: st.DataObject, rules: list[Rule]
) -> None:
    wild = made(*rules)
    code = st.integers(CODE, CODE + 0x100 * len(rules) - 1)
    values = st.one_of(
        code, code, st.sampled_from([BARE.start, BARE.start + 7]), st.just(0),
        PLACES.map(lambda at: wild.stack + at // 8 * 8),
        st.integers(-32, PAGE + 32).map(lambda at: wild.stack + at), st.integers(0, 2**64 - 1),
    )  # fmt: skip
    words = data.draw(st.dictionaries(PLACES.map(lambda at: at // 8 * 8), values, max_size=200))
    rsp = wild.stack + data.draw(st.integers(4, 200)) * 8
    # What is written there to begin the walk, as a call would.
    low = rsp - wild.stack
    wild.put({at: word for at, word in words.items() if at >= low})

    wild.walk(Registers(data.draw(code), rsp, data.draw(values)), data.draw(st.integers(1, 20)))


# ---- the table of stacks -------------------------------------------------------------------------


def test_a_stack_for_which_there_is_no_room_is_counted_and_has_no_number(
    others: Callable[..., Walks],
) -> None:
    walks = others()
    walks.own.write_word(Stacks.words_room, 200)
    look = walks.library.look_deep
    numbers = []
    for depth in range(40):
        seen = walks.own.seen()
        look(ctypes.byref(seen), depth)
        numbers.append(seen.number)

    known = [number for number in numbers if number]
    assert 0 < len(known) < 40 and not any(numbers[len(known) :])
    assert walks.own.stacks.lost == 40 - len(known)
    seen = walks.compare(lambda seen: look(ctypes.byref(seen), 0))
    assert seen.number == numbers[0]


def test_places_that_are_taken_are_counted(others: Callable[..., Walks]) -> None:
    walks = others()
    walks.own.write_word(Stacks.places_mask, 3)
    seen = [walks.own.seen() for _ in range(8)]
    for depth, each in enumerate(seen):
        walks.library.look_deep(ctypes.byref(each), depth)

    assert [bool(each.number) for each in seen] == [True] * 4 + [False] * 4
    assert walks.own.stacks.lost == 4


def test_a_place_that_was_left_claimed_is_passed(others: Callable[..., Walks]) -> None:
    walks = others()
    walks.own.store.write(STACKS_PLACES, b"\1\0\0\0\0\0\0\0" * 8 + bytes(8 * 8))
    walks.own.write_word(Stacks.places_mask, 15)

    numbers = {walks.here() for _ in range(5)}

    assert len(numbers) == 1 and 0 not in numbers


def test_the_child_of_a_fork_has_no_stacks(walks: Walks) -> None:
    lost = walks.own.stacks.lost
    seen = walks.own.seen()
    child = os.fork()
    if not child:
        walks.library.look_here(ctypes.byref(seen))
        os._exit(1 if seen.number else 0)
    status = reaped(child)

    assert status == 0 and walks.own.stacks.lost == lost


PIECES = (0, STACKS_DIRECTORIES + DIRECTORY_SIZE, STACKS_RULES, STACKS_RULES + 32, STACKS_PLACES)


@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(junk=st.binary(min_size=64, max_size=256), place=st.sampled_from(PIECES))
def test_a_process_that_writes_over_its_tables_is_not_harmed(
    made: Callable[..., Made], junk: bytes, place: int
) -> None:
    """Nothing outside is read, and nobody believes what is there."""
    hostile = made(Rule(Kind.STACK, 2), Rule(Kind.FRAME, 2, 2))
    hostile.put({0x28: CODE + 0x110, 0x40: hostile.stack + 0x80})
    own = hostile.walks.own
    before = own.store.read(0, PAGE)
    own.store.write(place, junk)

    hostile.seen(Registers(CODE + 0x10, hostile.stack + 0x20, hostile.stack + 0x40))
    own.store.write(0, before)
    own.store.write(STACKS_PLACES, bytes(8 * STACK_PLACES))
