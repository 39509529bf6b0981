"""USDT probes that are known from the cache: the same as those that are read, whatever is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from markerjit.elf import format as format_of_elf
from markerjit.elf import parse_format
from markerjit.errors import MarkerError
from markerjit.memory import ProcessMemory, read_maps
from markerjit.model import (
    Constant,
    CType,
    MappedObject,
    Recipe,
    RemoteAddress,
    Signature,
    Static,
    TypeClass,
)
from markerjit.sites import usdt_kept, usdt_notes
from markerjit.sites.usdt import UsdtSites, usdt_of_file, usdt_of_process
from markerjit.sites.usdt_listing import UsdtNote, listing_of, placed
from markerjit.x86.forms import usdt_form
from tests.support.shortage import files_end_at
from tests.support.timing import Limited
from tests.support.usdt import DEBIAN, build, debian, readelf_probes

PROBES = (
    'PROBE one, "8@%rax -4@$7 1@%ah 8@%xmm3 8f@%xmm4 -4@8(%rsp,%rcx,4)", raised',
    'PROBE two, "8@%zax"',
    'PROBE three, "", code=0xc3',
    'PROBE four, "-8@counter+8(%rip) 8@$counter"',
    'PROBE query__start, "8@%rdi", provider=postgresql',
)
BUILD_ID = "-Wl,--build-id=0x0123456789abcdef"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/markerjit/verified"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return build(tmp_path, PROBES, "-shared", "-nostdlib", BUILD_ID, name="libmade.so")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose notes are read."""
    files: list[str] = []
    list_notes = usdt_notes.list_notes

    def counted(image: usdt_kept.FileImage, *args: object) -> object:
        files.append(os.path.basename(image.name))
        return list_notes(image, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(usdt_notes, "list_notes", counted)
    return files


def of_file(path: Path | str) -> tuple[object, list[tuple[type, str]]]:
    """What is listed, to be compared: errors are equal to nothing."""
    return comparable(usdt_of_file(str(path)))


def comparable(listed: UsdtSites) -> tuple[object, list[tuple[type, str]]]:
    problems = [
        (type(problem), str(problem), getattr(problem, "name", None)) for problem in listed.problems
    ]
    return listed.sites, problems


def entry_of(cache: Path) -> Path:
    (entry,) = cache.glob("usdt-*")
    return entry


def test_second_look_reads_no_notes_and_finds_the_same(
    made: Path, cache: Path, reads: list[str]
) -> None:
    first = of_file(made)

    assert of_file(made) == first
    assert reads == ["libmade.so"]
    assert len(usdt_of_file(str(made)).sites) == 3
    assert len(first[1]) == 2
    assert entry_of(cache).name == "usdt-0123456789abcdef"


def test_an_entry_is_decoded_once(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a family have the same files."""
    decoded: list[object] = []
    signature_of = usdt_kept._signature

    def counted(row: object) -> usdt_kept.Signature:
        decoded.append(row)
        return signature_of(row)

    monkeypatch.setattr(usdt_kept, "_signature", counted)
    usdt_kept._entry.cache_clear()
    first = of_file(made)

    assert (of_file(made), of_file(made)) == (first, first)
    assert len(decoded) == 3
    again, third = (usdt_of_file(str(made)).problems for _ in range(2))
    assert not {*map(id, again)} & {*map(id, third)}, "each has errors of its own to raise"


def test_an_entry_that_was_replaced_is_decoded_again(made: Path, cache: Path) -> None:
    first = of_file(made)
    entry_of(cache).write_bytes(
        entry_of(cache).read_bytes().replace(b"query__start", b"query__stop_")
    )

    assert of_file(made) == first, "its checksum is wrong"


@pytest.mark.parametrize("path", DEBIAN, ids=os.path.basename)
def test_probes_of_debians_binaries_are_the_same_from_the_cache(
    path: str, reads: list[str]
) -> None:
    debian(path)
    first = usdt_of_file(path)

    again = usdt_of_file(path)

    assert comparable(again) == comparable(first)
    assert len(reads) == 1
    assert sorted(
        (*site.signature.name.split(":"), site.place.offset, site.recipe.semaphore,
         site.recipe.text) for site in again.sites
    ) == sorted(readelf_probes(path))  # fmt: skip


def test_process_has_the_same_from_the_cache_at_its_addresses(
    tmp_path: Path, made: Path, reads: list[str]
) -> None:
    program = Limited(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(made)!r}); print(1, flush=True); "
         "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with program, ProcessMemory(program.pid) as memory:
        assert program.stdout
        program.stdout.readline()
        maps = [mapping for mapping in read_maps(program.pid) if mapping.path == str(made)]
        looks = [usdt_of_process(program.pid, memory.read, maps) for _ in range(2)]
        program.kill()

    assert comparable(looks[0]) == comparable(looks[1])
    assert reads == ["libmade.so"]
    bias = looks[0].sites[0].place.object.bias
    four = next(site for site in looks[1].sites if site.signature.name == "made:four")
    in_file = next(
        site for site in usdt_of_file(str(made)).sites if site.signature.name == "made:four"
    )
    assert bias
    assert [operand.address - bias if hasattr(operand, "address") else operand.value - bias
            for operand in four.recipe.operands] == [
        getattr(operand, "address", None) or operand.value for operand in in_file.recipe.operands
    ]  # fmt: skip


def test_file_with_the_build_id_of_another_one_has_its_own_probes(
    tmp_path: Path, made: Path, reads: list[str]
) -> None:
    (tmp_path / "other").mkdir()
    lines = [line.replace("8@%rax", "8@%rbx") for line in PROBES]
    other = build(tmp_path / "other", lines, "-shared", "-nostdlib", BUILD_ID, name="libmade.so")
    expected = {path: of_file(path) for path in (made, other)}
    assert expected[made] != expected[other]
    assert made.stat().st_size == other.stat().st_size

    for _ in range(2):
        for path, known in expected.items():
            assert of_file(path) == known
    assert len(reads) == 6


def test_file_whose_symbols_have_moved_is_read_again(
    tmp_path: Path, made: Path, reads: list[str]
) -> None:
    """No byte of a note says where a name is."""
    before = of_file(made)
    symbols = subprocess.run(["nm", made], capture_output=True, text=True, check=True).stdout
    address = next(int(line.split()[0], 16) for line in symbols.splitlines() if "counter" in line)
    value, size = address.to_bytes(8, "little"), (16).to_bytes(8, "little")
    moved = (address + 4).to_bytes(8, "little")
    made.write_bytes(made.read_bytes().replace(value + size, moved + size))

    assert of_file(made) != before
    assert reads == ["libmade.so"] * 2


def test_damaged_entry_is_not_believed_and_is_written_again(
    made: Path, cache: Path, reads: list[str]
) -> None:
    expected = of_file(made)
    whole = entry_of(cache).read_bytes()
    damages = [whole[:at] for at in range(0, len(whole), 97)]
    damages += [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 41)
    ]
    for damaged in damages:
        entry_of(cache).write_bytes(damaged)
        assert of_file(made) == expected
        assert entry_of(cache).read_bytes() == whole

    assert len(reads) == 1 + len(damages)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key, value)
        for key in ("rules", "tables", "size", "reads", "digest", "signatures", "operands", "notes")
        for value in (None, "", -1, [], [[1]], [["x", 1]], {}, 1 << 70)
        if (key, value) != ("tables", "")  # which is what it says
    ]
    + [("problems", value) for value in (None, -1, [[1]], [["x", 1]], [["x", "y", 1]])],
)
def test_entry_that_nobody_has_written_harms_nothing(
    made: Path, cache: Path, reads: list[str], key: str, value: object
) -> None:
    """Its checksum is right, and what it says is nonsense."""
    expected = of_file(made)
    text = entry_of(cache).read_text().partition("\n")[2]
    entry = {**json.loads(text), key: value}
    assert entry != json.loads(text)
    write(entry_of(cache), entry)

    listed = of_file(made)

    assert listed == expected
    assert len(reads) == 2


NO_NUMBERS = (None, -1, 1 << 70, "x", [])
BAD_COLUMNS = (
    *((column, value) for column in (0, 1, 5) for value in NO_NUMBERS),
    (0, 1 << 20),
    (1, 0),  # they are in order
    *((2, value) for value in (None, 1, "x", "cc", [])),
    *((3, value) for value in (None, 1, "x", [-1], [99], [None])),
    *((4, value) for value in (None, 1, [])),
)  # fmt: skip


@pytest.mark.parametrize(("column", "value"), BAD_COLUMNS)
def test_column_that_nobody_has_written_harms_nothing(
    made: Path, cache: Path, reads: list[str], column: int, value: object
) -> None:
    """A value of another kind, or an index of nothing."""
    expected = of_file(made)
    entry = json.loads(entry_of(cache).read_text().partition("\n")[2])
    entry["notes"][column][-1] = value
    write(entry_of(cache), entry)

    assert of_file(made) == expected
    assert len(reads) == 2


@pytest.mark.parametrize("column", range(6))
def test_columns_that_are_not_equally_long_are_none(
    made: Path, cache: Path, reads: list[str], column: int
) -> None:
    expected = of_file(made)
    entry = json.loads(entry_of(cache).read_text().partition("\n")[2])
    entry["notes"][column].pop()
    write(entry_of(cache), entry)

    assert of_file(made) == expected
    assert len(reads) == 2


def write(entry: Path, content: object) -> None:
    """An entry with the right checksum."""
    text = json.dumps(content)
    entry.write_text(f"{usdt_kept.blake2b(text.encode()).hexdigest()}\n{text}")


def test_formats_are_not_parsed_again(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signatures = [site.signature for site in usdt_of_file(str(made)).sites]
    parsed = [parse_format(format_, args) for _, format_, args in signatures]
    usdt_kept._entry.cache_clear()
    parse_format.cache_clear()
    monkeypatch.setattr(format_of_elf, "_scan", pytest.fail)

    usdt_of_file(str(made))

    assert [parse_format(format_, args) for _, format_, args in signatures] == parsed
    assert any(len(fields) > 3 for fields in parsed)


def test_operands_that_are_equal_and_of_two_types_stay_what_they_are() -> None:
    """As in `8@counter(%rip) 8@$counter`: the value there, and the address itself."""
    static, constant = Static(RemoteAddress(64), "counter"), Constant(64, "counter")
    assert static == constant
    word = CType(TypeClass.UNSIGNED, 8)
    signature = Signature("made:both", "arg0 %lu arg1 %lu", (word, word))
    form = usdt_form(b"\x90")
    assert form
    note = UsdtNote(signature, 32, form, Recipe((static, constant, static)))
    mapped = MappedObject("/made", 4096, None, False)

    (site,) = placed(listing_of([note], ()), mapped)

    assert list(map(type, site.recipe.operands)) == [Static, Constant, Static]
    assert [operand[0] for operand in site.recipe.operands] == [4160] * 3
    assert (site.address, site.place.offset) == (4128, 32)


def test_other_code_that_reads_notes_is_not_believed(
    made: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = of_file(made)
    monkeypatch.setattr(usdt_kept, "rules", lambda: "others")

    assert of_file(made) == expected
    assert reads == ["libmade.so"] * 2


NEUTRAL = (
    "arguments", "errors", "memory", "ours", "printable", "tuples", "abi", "sites.remembered",
    "sites.discover", "sites.lots", "sites.names", "sites.selection", "sites.verify",
    "elf.notes", "elf.demangle", "elf.written",
)  # fmt: skip
"""What says how the process, the file and the cache are reached, names, and markers."""


def test_rules_are_all_files_that_give_the_answer(made: Path) -> None:
    code = (
        "import sys; from markerjit.sites.usdt import usdt_of_file; usdt_of_file(sys.argv[1]);"
        "print(*(name for name in sys.modules if name.startswith('markerjit.')))"
    )
    command = [sys.executable, "-c", code, made]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = {name.removeprefix("markerjit.") for name in done.stdout.split()}
    rules = {room.removesuffix(".py").replace("/", ".") for room in usdt_kept._RULES}
    packages = {name.partition(".")[0] for name in modules if "." in name}  # they only name others

    others = modules - rules - packages
    assert [
        name for name in others if not f"{name}.".startswith(tuple(f"{each}." for each in NEUTRAL))
    ] == []
    assert rules <= modules, "one that has gone would never change"


def test_tables_of_the_user_are_read_again_when_they_change(
    tmp_path: Path, made: Path, reads: list[str]
) -> None:
    def names() -> list[str]:
        return [site.signature.format for site in usdt_of_file(str(made)).sites][-1:]

    tables = tmp_path / "config/markerjit/usdt"
    tables.mkdir(parents=True)
    assert names() == ["query %s"]
    (tables / "mine.toml").write_text('[postgresql]\nquery__start = "const char *text"\n')
    for _ in range(2):
        assert names() == ["text %s"]
    (tables / "mine.toml").write_text('[postgresql]\nquery__start = "const char *same"\n')
    for _ in range(2):
        assert names() == ["same %s"]
    assert len(reads) == 3

    (tables / "mine.toml").write_text("[postgresql]\nquery__start = 7\n")
    looks = [usdt_of_file(str(made)) for _ in range(2)]

    assert [str(look.problems[-1]).startswith(str(tables)) for look in looks] == [True, True]


# ---- a cache that cannot be used -----------------------------------------------------------------


def test_many_writers_at_once_leave_a_whole_entry(made: Path, cache: Path) -> None:
    expected = sites_of(str(made))
    with ProcessPoolExecutor(4) as pool:
        for _ in range(5):
            for entry in cache.glob("usdt-*"):
                entry.unlink()
            assert all(listed == expected for listed in pool.map(sites_of, [str(made)] * 12))

    assert [path.name for path in cache.iterdir()] == ["usdt-0123456789abcdef"]
    assert sites_of(str(made)) == expected


def sites_of(path: str) -> str:
    return repr(usdt_of_file(path).sites)


def test_full_disk_leaves_nothing_and_hinders_nothing(
    made: Path, cache: Path, reads: list[str]
) -> None:
    cache.mkdir(parents=True, mode=0o700)
    with files_end_at(100):
        looks = [of_file(made) for _ in range(2)]

    assert looks[0] == looks[1]
    assert len(reads) == 2
    assert list(cache.iterdir()) == []


@pytest.fixture(params=["no home", "none can be made", "a file", "another user's", "a link"])
def unusable(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path | None]:
    home = tmp_path / "home"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(home))
    match request.param:
        case "none can be made":
            monkeypatch.setenv("HOME", "/proc/self/fdinfo")
        case "a file":
            home.write_text("")
        case "another user's":
            if os.geteuid():
                pytest.skip("needs root")
            home.mkdir()
            os.chown(home, 65534, 65534)
        case "a link":
            (home / ".cache").mkdir(parents=True)
            (tmp_path / "elsewhere").mkdir()
            (home / ".cache/markerjit").symlink_to(tmp_path / "elsewhere")
    yield None if request.param == "no home" else home


def test_cache_that_cannot_be_used_is_not_an_error(
    unusable: Path | None, made: Path, reads: list[str]
) -> None:
    looks = [of_file(made) for _ in range(2)]

    assert looks[0] == looks[1]
    if unusable:
        assert len(reads) == 2
        assert not list(made.parent.glob("elsewhere/*"))
        assert not unusable.is_dir() or not list(unusable.rglob("usdt-*"))


def test_notes_are_not_looked_for_in_a_file_that_has_none(
    tmp_path: Path, cache: Path, reads: list[str]
) -> None:
    listed = of_file(build(tmp_path, [], "-shared", "-nostdlib", BUILD_ID))

    assert listed == ((), [])
    assert reads == []
    assert not cache.exists()


def test_headers_of_sections_that_lie_end_in_a_sentence_or_nothing(made: Path) -> None:
    """Whatever stands in the header of the file about them."""
    content = made.read_bytes()
    for at in (*range(40, 48), *range(58, 64)):
        for byte in (0, 1, 0x7F, 0xFF):
            made.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
            try:
                listed = of_file(made)
            except MarkerError:
                continue
            assert all(text.startswith(str(made)) for _, text, _ in listed[1])
