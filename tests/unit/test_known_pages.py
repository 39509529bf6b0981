"""What the runtime knows of pages that could be read: when a word of the table holds, and that no
word lets it read what it may not (fetch.c; docs/decisions/0023-strings-by-known-pages.md)."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from ctypes import c_char_p, c_uint64
from pathlib import Path

import pytest

from markerjit.abi import (
    CPU_RTM,
    CPU_TSC,
    PAGE,
    PART_READABLE,
    READABLE,
    READABLE_BITS,
    READABLE_TAG,
    READABLE_WINDOW,
)
from markerjit.arena.readable import forget_pages
from markerjit.memory import ProcessMemory
from markerjit.ring.types import Options, Strings, Time
from tests.support.own_arena import (
    AS_USUAL,
    CHARS,
    INT,
    OwnArena,
    address_of,
    cpu_flags,
    geometry_of,
)
from tests.support.timing import reaped

UNREADABLE = "<unreadable>"
LAST_WINDOW = (1 << 64 - READABLE_TAG) - 1


@pytest.fixture
def own(build: Path) -> OwnArena:
    flags = cpu_flags()
    if not flags & CPU_TSC:
        pytest.skip("the time stamp counter is not the same on all CPUs")
    return OwnArena(geometry_of(max_markers=64), cpu_flags=flags & ~CPU_RTM)


class Known:
    """The table of an arena."""

    def __init__(self, own: OwnArena) -> None:
        self._own = own
        self._part = own.geometry.parts[PART_READABLE]

    def words(self) -> dict[int, int]:
        """Those that are set, by their places."""
        data = self._own.store.read(self._part.offset, self._part.size)
        words = memoryview(data).cast("Q")
        return {place: word for place, word in enumerate(words) if word}

    def put(self, address: int, window: int) -> None:
        """Say that the page of this address could be read in a window."""
        word = word_of(address, window).to_bytes(8, "little")
        self._own.store.write(self._part.at(place_of(address)), word)

    def window(self, address: int) -> int:
        """The window in which the page of this address could be read; -1 for none."""
        word = self.words().get(place_of(address), 0)
        tag = word & (1 << READABLE_TAG) - 1
        return word >> READABLE_TAG if word and tag == address // PAGE >> READABLE_BITS else -1


def place_of(address: int) -> int:
    page = address // PAGE
    return (page ^ page >> READABLE_BITS) % READABLE


def word_of(address: int, window: int) -> int:
    return window << READABLE_TAG & (1 << 64) - 1 | address // PAGE >> READABLE_BITS


def recorded(own: OwnArena, address: int, options: Options = AS_USUAL) -> tuple[int, object]:
    """The window of an event with the text at an address, and what was recorded of it."""
    slot = own.marker("s %s", CHARS, options=options)
    slot.hit(c_uint64(address))
    (event,) = own.records()
    return event.time >> READABLE_WINDOW, event.fields["s"]


def page_of(protection: int = mmap.PROT_READ | mmap.PROT_WRITE) -> tuple[mmap.mmap, int]:
    """A page with a text, and its address."""
    memory = mmap.mmap(-1, PAGE)
    memory[:7] = b"a text\0"
    address = address_of(memory)
    protect(address, protection)
    return memory, address


def protect(address: int, protection: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert not libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(PAGE), protection)


def test_a_page_that_was_read_is_known_for_the_window_in_which_it_was(own: OwnArena) -> None:
    _memory, address = page_of()

    window, text = recorded(own, address)

    assert text == "a text"
    assert window - 1 <= Known(own).window(address) <= window


def test_a_text_across_two_pages_needs_both(own: OwnArena) -> None:
    memory = mmap.mmap(-1, 2 * PAGE)
    memory[PAGE - 3 : PAGE + 5] = b"a text \0"
    address = address_of(memory)

    _, text = recorded(own, address + PAGE - 3)

    assert text == "a text "
    assert Known(own).window(address) > 0 < Known(own).window(address + PAGE)


def test_a_page_that_cannot_be_read_is_never_known(own: OwnArena) -> None:
    _memory, address = page_of(0)

    assert recorded(own, address)[1] == UNREADABLE
    assert Known(own).window(address) == -1


@pytest.mark.parametrize("earlier", [1, 2, 1 << 20, 1 << 38])
def test_what_was_known_in_another_window_is_asked_again(own: OwnArena, earlier: int) -> None:
    """Were it believed, this process would end here."""
    _other, page = page_of()
    _memory, address = page_of(0)
    window, _ = recorded(own, page)
    Known(own).put(address, window - earlier)

    assert recorded(own, address)[1] == UNREADABLE


def test_a_page_is_not_known_by_another_one_with_the_same_place(own: OwnArena) -> None:
    memory = mmap.mmap(-1, 2 * READABLE * PAGE)
    memory[:7] = b"a text\0"
    first = address_of(memory)
    pages = range(first + PAGE, first + len(memory), PAGE)
    second = next(page for page in pages if place_of(page) == place_of(first))
    protect(second, 0)

    assert recorded(own, first)[1] == "a text"
    assert recorded(own, second)[1] == UNREADABLE
    assert recorded(own, first)[1] == "a text"


def test_a_page_whose_word_was_lost_or_torn_is_read(own: OwnArena) -> None:
    _memory, address = page_of()
    window, _ = recorded(own, address)
    for wrong in (0, LAST_WINDOW, window ^ 1 << 30):
        Known(own).put(address, wrong)

        assert recorded(own, address)[1] == "a text"


@pytest.mark.parametrize(
    "address", [0x7FFF_FFFF_F000, 0x8000_0000_0000, 0xFFFF_8000_0000_0000, (1 << 64) - 1], ids=hex
)
def test_no_page_beyond_the_addresses_of_a_process_is_known(own: OwnArena, address: int) -> None:
    """The bits of its number do not fit into a word, where it would look like another page's."""
    before = Known(own).words()

    assert recorded(own, address)[1] == UNREADABLE
    assert Known(own).words() == before


def test_the_child_of_a_fork_knows_no_page(own: OwnArena) -> None:
    _memory, address = page_of()
    recorded(own, address)
    known = Known(own)
    assert known.words()

    child = os.fork()
    if not child:
        os._exit(len(known.words()))
    assert reaped(child) == 0


def test_nothing_is_known_of_pages_after_a_switch(own: OwnArena) -> None:
    _memory, address = page_of()
    recorded(own, address)

    with ProcessMemory(os.getpid()) as memory_of_ours:
        forget_pages(memory_of_ours, own.arena)

    assert not Known(own).words()
    assert recorded(own, address)[1] == "a text"


def test_careful_strings_make_no_page_known(own: OwnArena) -> None:
    _memory, address = page_of()

    assert recorded(own, address, Options(strings=Strings.CAREFUL))[1] == "a text"
    assert not Known(own).words()


def test_only_markers_with_texts_can_be_careful(own: OwnArena) -> None:
    own.marker("n %d", INT, options=Options(strings=Strings.CAREFUL))

    assert not own.arena.markers.entry(0).careful


def test_asking_for_a_page_changes_neither_the_signal_mask_nor_errno(own: OwnArena) -> None:
    _memory, address = page_of(0)
    slot = own.marker("s %s", CHARS)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        ctypes.set_errno(77)
        slot.hit(c_uint64(address))
        slot.hit(c_char_p(b"a text"))
        assert ctypes.get_errno() == 77
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {*before, signal.SIGUSR2}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_counter_that_is_not_trusted_leaves_all_texts_to_the_kernel(build: Path) -> None:
    own = OwnArena(geometry_of(max_markers=64), cpu_flags=cpu_flags() & ~(CPU_RTM | CPU_TSC))
    _memory, address = page_of()

    assert recorded(own, address, Options(Time.NONE))[1] == "a text"
    assert not Known(own).words()
