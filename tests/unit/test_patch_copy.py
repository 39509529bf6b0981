"""The table of patches, into which the native part puts very many heads: as Python does a few."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from markerjit.abi import PAGE
from markerjit.arena import patches
from markerjit.arena.arena import Arena
from markerjit.arena.patch_copy import PatchCopy
from markerjit.arena.store import FileStore
from markerjit.errors import MarkerError, Refused
from markerjit.model import Mode, RemoteAddress
from markerjit.runs import Run, Runs
from tests.support.made_arena import BASE, PID, make_store
from tests.support.many_heads import GEOMETRY, head, many_heads
from tests.support.programs import ROOT, make

NOWHERE = RemoteAddress(0)

MakeArena = Callable[[], Arena]


@pytest.fixture
def make_arena(build: object) -> Iterator[MakeArena]:
    """Arenas in files."""
    stores: list[FileStore] = []

    def made() -> Arena:
        store = FileStore(os.memfd_create("table"))
        stores.append(store)
        store.grow(GEOMETRY.size)
        store.write(0, make_store(GEOMETRY).read(0, GEOMETRY.size))
        return Arena(PID, BASE, store, GEOMETRY.size)

    yield made
    for store in stores:
        store.close()


@pytest.fixture
def native_from(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets from how many heads on the native part does it."""
    return lambda count: monkeypatch.setattr(patches, "_MANY", count)


def table(arena: Arena) -> bytes:
    part = arena.geometry.patches
    return arena.store.read(part.offset, part.size)


def changes(seed: int) -> list[tuple[str, Sequence]]:
    """Heads that are put, marked and forgotten: a head has the same body each time."""
    some = random.Random(seed)
    addresses = some.sample(range(1, 1 << 16), 300)
    done: list[tuple[str, Sequence]] = [("put", [head(at) for at in addresses[:101]])]
    for _ in range(12):
        chosen = some.sample(addresses, some.randrange(1, 120))
        what = some.choice(("put", "put", "run", "plant", "remove", "forget"))
        if what == "put":
            mode = some.choice((Mode.JUMP, Mode.INT3))
            heads = [head(at, mode, at + 64 if mode is Mode.INT3 else 0) for at in chosen]
            done.append((what, heads))
        elif what == "run":
            done.append(("put", Runs([Run(head(0, Mode.INT3), {0: chosen, 5: chosen}),
                                      [head(1 << 20)]])))  # fmt: skip
        else:
            done.append((what, chosen))
    return done


def apply(arena: Arena, change: tuple[str, Sequence]) -> str:
    """Why it was refused."""
    what, values = change
    try:
        if what == "put":
            arena.patches.put(values)
        elif what == "forget":
            arena.patches.forget(values)
        else:
            arena.patches.mark(*((values, ()) if what == "plant" else ((), values)))
    except Refused as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("seed", range(20))
def test_the_native_part_makes_the_same_table(
    make_arena: MakeArena, native_from: Callable[[int], None], seed: int
) -> None:
    natively, plainly = make_arena(), make_arena()
    for change in changes(seed):
        native_from(1)
        refused = apply(natively, change)
        native_from(1 << 30)

        assert refused == apply(plainly, change)
        assert table(natively) == table(plainly)
        for field in ("patches_used", "patches_changed"):
            assert natively.control.number(field) == plainly.control.number(field), field
        assert natively.patches.heads == plainly.patches.heads
    assert natively.control.number("patches_used") > 100


def test_the_native_part_finds_the_same_breakpoints(
    make_arena: MakeArena, native_from: Callable[[int], None]
) -> None:
    arena = make_arena()
    addresses = range(0x1000, 0x1000 + 40 * 300, 40)
    breakpoints = [(RemoteAddress(at), RemoteAddress(at + 64)) for at in addresses]
    arena.patches.put([head(at, Mode.INT3, body) for at, body in breakpoints])
    arena.patches.mark([address for address, _ in breakpoints])
    first, second, third, *_ = breakpoints
    rest = breakpoints[3:]
    arena.patches.mark(removed=[first[0]])
    arena.patches.forget([second[0]])
    asked = (
        rest, [*rest, first], [*rest, second], [third, *rest], [*rest, (third[0], third[1] + 1)],
        [*rest, (RemoteAddress(1), third[1])],
    )  # fmt: skip

    answers = []
    for limit in (1, 1 << 30):
        native_from(limit)
        answers.append([arena.patches.have_planted(some) for some in asked])

    assert answers == 2 * [[True, False, False, True, False, False]]


def test_the_heads_that_were_put_last_are_not_looked_at_again(
    make_arena: MakeArena, native_from: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    native_from(1)
    arena, entered = make_arena(), []
    enter = PatchCopy.enter
    monkeypatch.setattr(PatchCopy, "enter", lambda *words: entered.append(words) or enter(*words))
    heads = many_heads()

    for _ in range(3):
        arena.patches.put(heads)
    assert len(entered) == 1
    another = Arena(PID, BASE, arena.store, GEOMETRY.size)
    another.patches.mark([heads[0].address])
    arena.patches.put(heads)
    assert len(entered) == 2


def test_a_table_that_is_full_takes_none_of_them(
    make_arena: MakeArena, native_from: Callable[[int], None]
) -> None:
    native_from(1)
    arena = make_arena()
    room = GEOMETRY.patches.entries // 4 * 3
    before = table(arena)

    with pytest.raises(Refused, match=f"room for {room} places"):
        arena.patches.put([head(64 * number) for number in range(1, room + 2)])

    assert table(arena) == before
    assert not arena.control.number("patches_used")
    arena.patches.put([head(64 * number) for number in range(1, room + 1)])
    assert arena.control.number("patches_used") == room


def test_a_table_that_the_program_has_filled_or_cut_off_is_refused(
    make_arena: MakeArena, native_from: Callable[[int], None]
) -> None:
    native_from(1)
    arena = make_arena()
    part = arena.geometry.patches
    arena.store.write(part.offset, b"\1" * part.size)

    with pytest.raises(Refused, match="room for"):
        arena.patches.put([head(0x1000)])

    store = arena.store
    assert isinstance(store, FileStore)
    os.ftruncate(store.fileno(), part.offset + PAGE)
    with pytest.raises(MarkerError, match="cannot read or write the table"):
        arena.patches.put([head(1 << 16 | at << 10) for at in range(64)])


PUT = """
import sys
from markerjit.arena import patches
from markerjit.arena.arena import Arena
from markerjit.arena.store import FileStore
from markerjit.remote import native
from tests.support.made_arena import BASE, PID
from tests.support.many_heads import GEOMETRY, many_heads

of_package = native.package_file
native.package_file = lambda name: sys.argv[2] if name == "libmjstop.so" else of_package(name)
patches._MANY = 1
arena = Arena(PID, BASE, FileStore(int(sys.argv[1])), GEOMETRY.size)
native.library().mj_race_begin()
arena.patches.put(many_heads())
"""


def test_no_entry_has_its_address_before_it_is_whole(make_arena: MakeArena) -> None:
    """A controller that is killed behind the first of its two writes has entered nothing."""
    make("native", "build/hooks/libmjstop.so")
    arena = make_arena()
    assert isinstance(arena.store, FileStore)
    descriptor = arena.store.fileno()

    killed = subprocess.run(
        [sys.executable, "-c", PUT, str(descriptor), ROOT / "build/hooks/libmjstop.so"],
        env={**os.environ, "MJ_KILL_POINT": "patches: addresses", "MJ_KILL_AT": "1"},
        pass_fds=[descriptor],
        cwd=ROOT,
        check=False,
    )

    assert killed.returncode == -signal.SIGKILL
    assert any(table(arena)), "the first write was made"
    assert [*arena.patches.entries()] == []
    arena.patches.put(many_heads())
    entered = {entry.address for entry in arena.patches.entries()}
    assert entered == {head.address for head in many_heads()}
