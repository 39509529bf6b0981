"""Probes in C in an arena: found again, unless the process has written nonsense over what is known
of them; named by what is loaded; and what is shown of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit.abi as abi
from markerjit.cli.status import _print_values
from markerjit.errors import Refused
from markerjit.model import RemoteAddress
from markerjit.patch.slots import entries_of
from markerjit.probes.c.compile import compile_probe
from markerjit.probes.c.link import digest_of
from markerjit.probes.c.unit import Compiled
from markerjit.probes.c.values import BUCKETS, Histogram
from markerjit.probes.loaded import Loaded, Values, entry_of, function_at, load, loaded, values
from markerjit.probes.recorders import Recorders
from tests.support.compilers import INCLUDE
from tests.support.own_arena import OwnArena

SOURCE = """
#include <markerjit/probe.h>

MJ_COUNTER(calls);
MJ_HISTOGRAM(numbers);

static int first = 5;

void f(struct mj_slot *slot, long n) {
    mj_count(&calls);
    mj_histogram(&numbers, n + first++);
    mj_emit(told, "n %ld file %s", n, __FILE__);
}
"""
TICK_HZ = 1_000_000_000


@pytest.fixture
def own(build: Path) -> OwnArena:
    return OwnArena()


@pytest.fixture
def build_one(tmp_path: Path) -> Callable[..., Compiled]:
    """Compile a text, in a directory of its own."""

    def build_it(
        text: str = SOURCE, directory: str = "one", name: str = "probe.c", function: str = "f"
    ) -> Compiled:
        source = tmp_path / directory / name
        source.parent.mkdir(exist_ok=True)
        source.write_text(text)
        return compile_probe(source, function, "gcc", include=INCLUDE)

    return build_it


@pytest.fixture(scope="module")
def two_files(tmp_path_factory: pytest.TempPathFactory) -> list[Compiled]:
    """The same text, compiled as probe.c and as other.c."""
    paths = [tmp_path_factory.mktemp("two") / name for name in ("probe.c", "other.c")]
    for path in paths:
        path.write_text(SOURCE)
    return [compile_probe(path, "f", "gcc", include=INCLUDE) for path in paths]


# ---- what the process can write ------------------------------------------------------------------


def rewrite(own: OwnArena, probe: Loaded, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what is known of a file, as the process can."""
    length = int.from_bytes(own.store.read(probe.about, 4), "little")
    document = json.loads(own.store.read(probe.about + 4, length))
    change(document)
    text = json.dumps(document).encode()
    own.store.write(probe.about, len(text).to_bytes(4, "little") + text)


def places(own: OwnArena) -> list[int]:
    """Where the files are of which something is known."""
    return [probe.about for probe in loaded(own.arena)]


def of_an_event(at: int, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda document: next(iter(document["events"].values())).__setitem__(at, value)


def of_a_variable(at: int, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["variables"][0].__setitem__(at, value)


NONSENSE: dict[str, Callable[[dict[str, Any]], object]] = {
    "an infinite number of CPUs": lambda document: document.update(cpus=math.inf),
    "no number": lambda document: document.update(cpus=math.nan),
    "another number of CPUs": lambda document: document.update(cpus=document["cpus"] + 1),
    "huge stride": lambda document: document.update(stride=1 << 70),
    "negative stride": lambda document: document.update(stride=-64),
    "infinite stride": lambda document: document.update(stride=math.inf),
    "code elsewhere": lambda document: document.update(entries={"f": 1 << 80}),
    "a function without a name": lambda document: document.update(entries={"": 1}),
    "a marker that cannot be": lambda document: document.update(
        events={"100000": next(iter(document["events"].values()))}
    ),
    "events in a list": lambda document: document.update(events=[1]),
    "a format that is none": of_an_event(1, "n %"),
    "a format of others": of_an_event(1, "n %s file %s"),
    "an event for the terminal": of_an_event(0, "\x1b[2J"),
    "an argument of three bytes": of_an_event(2, [[1, 3], [5, 8]]),
    "an argument of no class": of_an_event(2, [[99, 8], [5, 8]]),
    "a variable elsewhere": of_a_variable(2, 8),
    "a variable before all": of_a_variable(2, -8),
    "a variable behind all": of_a_variable(2, 1 << 62),
    "a variable at infinity": of_a_variable(2, math.inf),
    "a large counter": of_a_variable(3, BUCKETS + 1),
    "a variable of no text": of_a_variable(0, "\ud800"),
}


@pytest.mark.parametrize("change", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_not_believed_and_hides_no_later_file(
    own: OwnArena, two_files: list[Compiled], change: Callable
) -> None:
    first, second = (load(own.arena, compiled, tick_hz=TICK_HZ) for compiled in two_files)
    assert [probe.source for probe in loaded(own.arena)] == ["probe.c", "other.c"]

    rewrite(own, first, change)

    assert places(own) == [second.about]
    assert [value.source for value in values(own.arena)] == ["other.c"]
    assert Recorders(own.arena).types([]).keys() == second.types().keys()
    assert function_at(own.arena, entry_of(first, "f")) is None
    assert function_at(own.arena, entry_of(second, "f")) == "other.c:f"
    again = load(own.arena, two_files[0], tick_hz=TICK_HZ)
    assert again.about > second.about
    assert places(own) == [second.about, again.about]


DATA = abi.lay_out(abi.Sizes(1, 4096, 1, 1, 1, 4096)).data


@pytest.mark.parametrize("place", [0, 1, DATA.offset, DATA.end - 1, (1 << 64) - 1], ids=hex)
def test_file_that_is_nowhere_is_put_there_again(
    own: OwnArena, build_one: Callable, place: int
) -> None:
    compiled = build_one()
    load(own.arena, compiled, tick_hz=TICK_HZ)
    about = own.geometry.units.offset + abi.UnitEntry.about.offset
    own.store.write(about, place.to_bytes(8, "little"))

    assert loaded(own.arena) == []
    again = load(own.arena, compiled, tick_hz=TICK_HZ)
    assert places(own) == [again.about]


def test_a_full_table_of_files_takes_no_more(own: OwnArena, build_one: Callable) -> None:
    for number in range(own.geometry.units.entries):
        entry = abi.UnitEntry(state=abi.UNIT_READY, order=number)
        own.store.write(own.geometry.units.at(number), bytes(entry))
    own.arena.control.write("units_used", own.geometry.units.entries)

    with pytest.raises(Refused, match="room for 1024 files of probes"):
        load(own.arena, build_one(), tick_hz=TICK_HZ)


def test_name_of_a_file_is_for_a_terminal(own: OwnArena, build_one: Callable) -> None:
    probe = load(own.arena, build_one(), tick_hz=TICK_HZ)
    rewrite(own, probe, lambda document: document.update(source="\x1b[2J\ud800.c"))

    assert function_at(own.arena, entry_of(probe, "f")) == r"\x1b[2J\ud800.c:f"


def test_word_of_a_slot_that_is_no_probe_in_c_has_no_name(
    own: OwnArena, build_one: Callable
) -> None:
    probe = load(own.arena, build_one(), tick_hz=TICK_HZ)
    word = entry_of(probe, "f")

    assert function_at(own.arena, word) == "probe.c:f"
    for other in (0, word + 16, word & ~abi.PROBE_COUNTED, 0x1000 | abi.PROBE_COUNTED):
        assert function_at(own.arena, RemoteAddress(other)) is None


# ---- what makes another file ---------------------------------------------------------------------


def test_same_file_is_loaded_once_wherever_it_was_compiled(
    own: OwnArena, build_one: Callable
) -> None:
    probe = load(own.arena, build_one(), tick_hz=TICK_HZ)
    used = own.arena.control.now().data_used

    for number, text in enumerate((SOURCE, f"/* A comment. */\n\n{SOURCE}")):
        compiled = build_one(text, directory=f"a-longer-name-{number}")
        assert load(own.arena, compiled, tick_hz=TICK_HZ).about == probe.about
    assert own.arena.control.now().data_used == used


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("first = 5", "first = 6"),
        ("(calls)", "(called)"),
        ("n + first", "n - first"),
        ("emit(told", "emit(said"),
        ('"n %ld', '"m %ld'),
        ("void f", "void g(struct mj_slot *slot) {}\nvoid f"),
    ],
    ids=["first value", "counter", "code", "event", "format", "function"],
)
def test_file_that_has_changed_is_another_one(build_one: Callable, old: str, new: str) -> None:
    changed = SOURCE.replace(old, new).replace("&calls", "&called" if "called" in new else "&calls")
    assert changed != SOURCE

    assert digest_of(build_one()) != digest_of(build_one(changed))


def test_which_function_of_the_runtime_is_called_makes_a_difference(build_one: Callable) -> None:
    text = """
    #include <markerjit/probe.h>
    void f(struct mj_slot *slot, char *p) { mj_%s; }
    """
    calls = "fetch(p, p, 1)", "record_event((const struct mj_marker *)p, p, 1)"

    first, other = (build_one(text % call) for call in calls)

    assert digest_of(first) != digest_of(other)


def test_name_of_the_file_belongs_to_it(build_one: Callable) -> None:
    assert digest_of(build_one()) != digest_of(build_one(name="other.c"))


# ---- room ----------------------------------------------------------------------------------------


def test_variables_that_are_too_large_are_refused_with_what_there_is(
    own: OwnArena, build_one: Callable
) -> None:
    compiled = build_one(
        "#include <markerjit/probe.h>\nstatic char large[40 << 20];\n"
        "void f(struct mj_slot *slot, long n) { mj_read(large, (void *)n, sizeof large); }"
    )

    with pytest.raises(
        Refused, match=r"probe\.c: its variables take 41 MiB; there is room for 32$"
    ):
        load(own.arena, compiled, tick_hz=TICK_HZ)


def test_code_that_is_too_large_is_refused_with_what_there_is(
    own: OwnArena, build_one: Callable
) -> None:
    own.arena.control.write("code_used", abi.CODE_SIZE - 64)

    with pytest.raises(Refused, match=r"its code takes \d+ KiB; there is room for 0$"):
        load(own.arena, build_one(), tick_hz=TICK_HZ)


# ---- what is shown -------------------------------------------------------------------------------


def test_histogram_without_values_has_no_percentiles(capsys: pytest.CaptureFixture[str]) -> None:
    empty = Histogram((0,) * BUCKETS)
    single = Histogram((0, 1) + (0,) * (BUCKETS - 2))

    _print_values(Values("a.c", {}, {"empty": empty, "one": single}))

    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "a.c: empty, 0 values",
        "a.c: one, 1 value: 50 % <= 1, 90 % <= 1, 99 % <= 1",
    ]


def test_thread_that_comes_and_goes_does_not_hide_one_that_is_inside() -> None:
    words = {16: 1, 24: 0}  # one is inside

    def read(address: RemoteAddress, size: int) -> bytes:
        data = b""
        for at in range(address, address + size, 8):
            data += words[at].to_bytes(8, "little")
            words[16] += 1  # the other one, between any two reads
            words[24] += 1
        return data

    entered, left = entries_of(read, RemoteAddress(0))

    assert entered > left
