"""Tables of unwind rules: rules in 32 bits, the table's bytes, and tables that are kept."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.elf import FileImage
from markerjit.elf.functions import Functions, NoFunctions
from markerjit.elf.unwind_rows import OTHER, UNDEFINED, Row
from markerjit.errors import MarkerError
from markerjit.unwind import kept
from markerjit.unwind.rules import MOST_DISTANCE, MOST_SAVED, Kind, Rule, decode, encode, rule_of
from markerjit.unwind.table import BadTable, Table, table_of

LIBC = Path("/usr/lib/x86_64-linux-gnu/libc.so.6")
RSP, RBP, RBX = 7, 6, 3
EXPRESSION_OF_SIGNALS = bytes.fromhex("77a00106")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unwind")
    source = folder / "some.c"
    source.write_text("int f(int n) { return n ? f(n - 1) + n : 0; } int main(void) { f(3); }\n")
    subprocess.run(["gcc", "-O0", source, "-o", folder / "some"], check=True)
    return folder / "some"


def table(path: Path) -> Table:
    with FileImage(str(path)) as image:
        return table_of(Functions(image), image.name)


# ---- rules ---------------------------------------------------------------------------------------


@given(
    kind=st.sampled_from(Kind),
    distance=st.integers(-MOST_DISTANCE, MOST_DISTANCE),
    saved=st.integers(0, MOST_SAVED),
)
def test_a_rule_is_what_its_bits_say(kind: Kind, distance: int, saved: int) -> None:
    rule = Rule(kind, distance, saved)

    assert encode(rule) < 1 << 32
    assert decode(encode(rule)) == rule


def test_a_kind_that_is_not_known_is_none_that_can_be_used() -> None:
    assert decode(0xF).kind is Kind.OTHER


@pytest.mark.parametrize(
    ("cfa", "rbp", "rip", "rule"),
    [
        ((RSP, 8), None, -8, Rule(Kind.STACK, 1)),
        ((RSP, 4096), -16, -8, Rule(Kind.STACK, 512, 2)),
        ((RBP, 16), -16, -8, Rule(Kind.FRAME, 2, 2)),
        ((RSP, 8), UNDEFINED, -8, Rule(Kind.STACK, 1)),
        ((RSP, 8), None, UNDEFINED, Rule(Kind.OUTERMOST)),
        (bytes.fromhex("7778062308"), -16, -8, Rule(Kind.STACK_WORD, -1, 2)),
        (bytes.fromhex("77a801062308"), -16, -8, Rule(Kind.STACK_WORD, 21, 2)),
        (bytes.fromhex("765806"), b"\x76\0", -8, Rule(Kind.FRAME_WORD, -5)),
        (bytes.fromhex("770880003f1a3b2a332422"), None, -8, Rule(Kind.LINKAGE)),
        (EXPRESSION_OF_SIGNALS, b"\x77\xf8\0", b"\x77\xa8\x01", Rule(Kind.SIGNAL)),
        # What cannot be said in a rule.
        (EXPRESSION_OF_SIGNALS, None, b"\x77\xa8\x01", Rule(Kind.OTHER)),
        (bytes.fromhex("765806"), -16, -8, Rule(Kind.OTHER)),
        ((RBX, 16), None, -8, Rule(Kind.OTHER)),
        ((RSP, 12), None, -8, Rule(Kind.OTHER)),
        ((RSP, 8 * MOST_DISTANCE + 8), None, -8, Rule(Kind.OTHER)),
        ((RSP, 8), -8 * MOST_SAVED - 8, -8, Rule(Kind.OTHER)),
        ((RSP, 8), 16, -8, Rule(Kind.OTHER)),
        ((RSP, 8), OTHER, -8, Rule(Kind.OTHER)),
        ((RSP, 8), None, -16, Rule(Kind.OTHER)),
        ((RSP, 8), None, OTHER, Rule(Kind.OTHER)),
        (b"", None, -8, Rule(Kind.OTHER)),
    ],
)  # fmt: skip
def test_rule_of_a_row(
    cfa: tuple[int, int] | bytes, rbp: int | bytes | str | None, rip: int | bytes | str, rule: Rule
) -> None:
    assert rule_of(Row(0, cfa, rbp, rip)) == rule


# ---- the bytes of a table ------------------------------------------------------------------------


def test_a_table_is_its_bytes(program: Path) -> None:
    made = table(program)

    again = Table(made.content)

    assert list(again.starts) == list(made.starts)
    assert list(again.rules) == list(made.rules)
    assert (again.low, again.high) == (made.low, made.high)


def test_no_rule_is_outside_of_a_table(program: Path) -> None:
    made = table(program)

    assert made.at(made.low - 1) == made.at(made.high) == made.at(1 << 60) == Rule(Kind.NONE)
    assert {made.at(address).kind for address in range(made.low, made.high)} > {Kind.STACK}


@given(st.data())
def test_bytes_that_were_changed_are_refused_or_are_a_table(
    program: Path, data: st.DataObject
) -> None:
    content = bytearray(table(program).content)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.sampled_from([len(content), 0, 7, len(content) - 4]))

    try:
        changed = Table(bytes(content[:size]))
    except BadTable:
        return

    assert len(changed.starts) == len(changed.rules)
    for address in (changed.low, changed.high - 1, changed.high, 0):
        changed.at(address)


@given(st.data())
def test_a_damaged_object_has_a_table_or_a_reason(
    program: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(program.read_bytes())
    with FileImage(str(program)) as image:
        frames = next(each for each in image.segments if each.type == 0x6474E550)
    for _ in range(data.draw(st.integers(1, 8))):
        place = frames.offset + data.draw(st.integers(0, frames.file_size + 300))
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content)

    try:
        made = table(path)
    except (NoFunctions, BadTable):
        return

    assert Table(made.content).high == made.high


# ---- tables that are kept ------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_large_table_is_made_once_for_a_build(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not LIBC.exists():
        pytest.skip(f"{LIBC} is not on this machine")
    with FileImage(str(LIBC)) as image:
        made = kept.kept_table(image)
        monkeypatch.setattr(kept, "table_of", None)
        again = kept.kept_table(image)
        (file,) = (path for path in cache.rglob("*") if path.is_file())

        assert file.name == image.build_id()
    assert again.content == made.content == file.read_bytes()


def test_a_kept_table_that_was_damaged_is_made_anew(cache: Path) -> None:
    if not LIBC.exists():
        pytest.skip(f"{LIBC} is not on this machine")
    with FileImage(str(LIBC)) as image:
        made = kept.kept_table(image)
        (file,) = (path for path in cache.rglob("*") if path.is_file())
        file.write_bytes(made.content[:-4])
        again = kept.kept_table(image)

    assert again.content == made.content == file.read_bytes()


def test_a_small_table_is_not_kept(program: Path, cache: Path) -> None:
    with FileImage(str(program)) as image:
        assert len(kept.kept_table(image)) < 100

    assert not cache.exists()


def test_an_object_without_unwind_rows_has_no_table(tmp_path: Path) -> None:
    source, program = tmp_path / "bare.s", tmp_path / "bare"
    source.write_text(".globl _start\n_start: ud2\n")
    subprocess.run(["gcc", "-nostdlib", "-static", source, "-o", program], check=True)

    with pytest.raises(MarkerError, match="eh_frame"):
        table(program)


# ---- tables that a process keeps -----------------------------------------------------------------


@pytest.fixture
def unnamed(tmp_path: Path) -> Path:
    """Programs without a build id: two that are the same, and one with a longer function."""
    source = tmp_path / "unnamed.c"
    source.write_text(
        '#ifdef MORE\n#define LONGER __asm__("nop");\n#else\n#define LONGER\n#endif\n'
        "void f(void) { LONGER }\nint main(void) { f(); }\n"
    )
    for name, more in (("a", "-DFEW"), ("b", "-DMORE")):
        command = ["gcc", "-O0", "-Wl,--build-id=none", more, source, "-o", tmp_path / name]
        subprocess.run(command, check=True)
    (tmp_path / "c").write_bytes((tmp_path / "a").read_bytes())
    return tmp_path


def kept_of(path: Path) -> Table:
    with FileImage(str(path)) as image:
        assert image.build_id() is None
        return kept.kept_table(image)


def test_a_table_without_a_build_id_is_made_once_in_a_process(
    unnamed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_recent", {})
    made = kept_of(unnamed / "a")
    monkeypatch.setattr(kept, "table_of", None)

    assert kept_of(unnamed / "c") is made
    assert made.content == table(unnamed / "a").content


def test_another_build_has_a_table_of_its_own(
    unnamed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_recent", {})
    made = [kept_of(unnamed / name).content for name in "ab"]

    assert made == [table(unnamed / name).content for name in "ab"]
    assert made[0] != made[1]


def test_other_rules_of_functions_with_the_same_bounds_are_another_table(
    unnamed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DW_CFA_def_cfa_offset 16, behind the push of a frame: 24 in the copy."""
    monkeypatch.setattr(kept, "_recent", {})
    content = (unnamed / "a").read_bytes()
    other = unnamed / "other"
    other.write_bytes(content.replace(b"\x41\x0e\x10\x86", b"\x41\x0e\x18\x86"))
    made, changed = kept_of(unnamed / "a"), kept_of(other)

    assert made.content != changed.content == table(other).content


def test_only_so_many_bytes_of_tables_are_held(
    unnamed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_recent", {})
    monkeypatch.setattr(kept, "_MOST_RECENT", len(table(unnamed / "a").content) + 8)
    kept_of(unnamed / "a")
    last = kept_of(unnamed / "b")

    assert [*kept._recent.values()] == [last]
