"""Files that have not changed are not opened again, and one that has is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from markerjit.memory import Mapping, ProcessMemory, read_maps
from markerjit.model import RemoteAddress
from markerjit.sites import unchanged, usdt, usdt_files, usdt_kept
from markerjit.sites.remembered import blake2b
from tests.support.timing import Limited
from tests.support.usdt import build

PROBES = ('PROBE one, "8@%rax"', 'PROBE two, "8@%zax"')


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(unchanged, "_has_rested", lambda about: True)
    return tmp_path / "cache/markerjit/verified"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of a process that are opened."""
    names: list[str] = []
    file_of = usdt.file_of

    def counted(pid: int, mapping: Mapping, *rest: object) -> object:
        names.append(os.path.basename(mapping.path))
        return file_of(pid, mapping, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(usdt, "file_of", counted)
    return names


class Program:
    """A Python that has loaded a library with probes; `look` finds those of this process, and
    `reads` are the addresses that it reads."""

    def __init__(self, library: Path) -> None:
        code = f"import ctypes; ctypes.CDLL({str(library)!r}); print(1, flush=True); input()"
        pipe = subprocess.PIPE
        self.process = Limited([sys.executable, "-c", code], stdin=pipe, stdout=pipe)
        assert self.process.stdout and self.process.stdout.readline()
        self.memory = ProcessMemory(self.process.pid)
        self.reads: list[int] = []

    def read(self, address: RemoteAddress, size: int) -> bytes:
        self.reads.append(address)
        return self.memory.read(address, size)

    def look(self, **numbers: object) -> tuple[object, ...]:
        """With other `numbers` in all mappings, where some are given."""
        pid = self.process.pid
        maps = [mapping._replace(**numbers) for mapping in read_maps(pid)]  # type: ignore[arg-type]
        listed = usdt.usdt_of_process(pid, self.read, maps)
        return listed.sites, [(type(problem), str(problem)) for problem in listed.problems]

    def close(self) -> None:
        self.memory.close()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return build(tmp_path, PROBES, "-shared", "-nostdlib", "-Wl,--build-id", name="libmade.so")


@pytest.fixture
def program(library: Path) -> Iterator[Program]:
    yield (program := Program(library))
    program.close()


def test_a_second_look_opens_no_file_and_finds_the_same(
    program: Program, opened: list[str]
) -> None:
    first = program.look()
    assert "libmade.so" in opened
    assert len(opened) > 2
    opened.clear()

    assert program.look() == first
    assert opened == []
    assert len(first[1]) == 1, "the problem is told again, too"


def test_an_object_without_probes_is_not_read_again(program: Program, library: Path) -> None:
    """Its mapping says which file it is, and stat that this is as it was."""
    program.look()
    maps = read_maps(program.process.pid)
    heads = {mapping.start for mapping in maps if not mapping.offset and mapping.path[:1] == "/"}
    of_library = {mapping.start for mapping in maps if mapping.path == str(library)}
    first = heads.intersection(program.reads)
    program.reads.clear()

    program.look()

    again = heads.intersection(program.reads)
    assert min(of_library) in again
    assert len(again) < len(first) / 2


@pytest.mark.parametrize("numbers", [{"device": "ff:ff"}, {"inode": 1}], ids=str)
def test_a_file_that_may_be_another_than_the_mapped_one_is_opened_each_time(
    program: Program, opened: list[str], numbers: dict[str, object]
) -> None:
    """As on an overlay, where a mapping has the numbers of the file below."""
    program.look(**numbers)
    opened.clear()

    program.look(**numbers)

    assert "libmade.so" in opened


def test_a_file_in_the_place_of_the_mapped_one_is_not_asked(
    program: Program, opened: list[str], library: Path, tmp_path: Path
) -> None:
    """The process still has the old one."""
    first = program.look()
    (tmp_path / "new").mkdir()
    other = build(tmp_path / "new", PROBES[:1], "-shared", "-nostdlib", "-Wl,--build-id")
    os.replace(other, library)
    opened.clear()

    sites, problems = program.look()

    assert opened == ["libmade.so"]
    if any(site.place.object.path == str(library) for site in sites):  # by a file of mappings
        deleted = [
            site._replace(place=site.place._replace(object=object._replace(deleted=True)))
            if (object := site.place.object).path == str(library)
            else site
            for site in first[0]
        ]
        assert (sites, problems) == (tuple(deleted), first[1])
    else:
        assert "replaced" in str(problems)


def test_a_file_that_was_touched_is_opened_again(
    program: Program, opened: list[str], library: Path
) -> None:
    first = program.look()
    opened.clear()
    os.utime(library)

    assert program.look() == first
    assert opened == ["libmade.so"]


def test_a_file_in_the_place_of_another_is_not_taken_for_it(
    program: Program, opened: list[str], library: Path, tmp_path: Path
) -> None:
    """Where the index is of a file with the same number, size and times, the first page tells, in
    which the build id is."""
    program.look()
    index = tmp_path / "cache/markerjit/verified/files-with-usdt"
    text = json.loads(index.read_text().partition("\n")[2])
    key = next(key for key, known in text["files"].items() if known[5])
    text["files"][key][7] = "0" * 64
    write(index, text)
    opened.clear()

    program.look()

    assert len(opened) == 1


def test_an_entry_that_has_gone_is_made_again(
    program: Program, opened: list[str], cache: Path
) -> None:
    first = program.look()
    for entry in cache.glob("usdt-*"):
        entry.unlink()
    opened.clear()

    assert program.look() == first
    assert "libmade.so" in opened
    assert program.look() == first


@pytest.mark.parametrize("damage", ["cut off", "a bit", "rules", "nonsense", "no list"])
def test_an_index_that_cannot_be_believed_is_written_again(
    program: Program, opened: list[str], cache: Path, damage: str
) -> None:
    first = program.look()
    index = cache / "files-with-usdt"
    whole = index.read_bytes()
    known = json.loads(whole.partition(b"\n")[2])
    match damage:
        case "cut off":
            index.write_bytes(whole[:-9])
        case "a bit":
            index.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
        case "rules":
            write(index, {**known, "rules": "others"})
        case "nonsense":
            write(index, {**known, "files": {key: [1, 2] for key in known["files"]}})
        case "no list":
            write(index, [])
    opened.clear()

    assert program.look() == first
    assert "libmade.so" in opened
    assert index.read_bytes() == whole


def write(index: Path, content: object) -> None:
    text = json.dumps(content)
    index.write_text(f"{blake2b(text.encode()).hexdigest()}\n{text}")


def test_only_the_files_that_were_noted_last_are_kept(
    program: Program, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usdt_files, "_FILES", 2)
    program.look()

    files = json.loads((cache / "files-with-usdt").read_text().partition("\n")[2])["files"]

    assert len(files) == 2


@pytest.mark.parametrize(
    ("device", "age_s", "is_noted"),
    [(os.makedev(8, 1), 7200, True), (os.makedev(8, 1), 3000, False),
     (os.makedev(0, 40), 7200, False)],
)  # fmt: skip
def test_a_file_is_noted_when_it_has_rested_on_a_block_device(
    monkeypatch: pytest.MonkeyPatch, device: int, age_s: int, is_noted: bool
) -> None:
    monkeypatch.undo()
    about = SimpleNamespace(st_dev=device, st_ctime=unchanged.time.time() - age_s)

    assert unchanged._has_rested(about) is is_noted  # type: ignore[arg-type]


def test_a_file_that_was_just_written_is_not_noted(
    program: Program, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unchanged, "_has_rested", lambda about: False)
    program.look()
    opened.clear()

    program.look()

    assert "libmade.so" in opened


def test_a_file_without_a_build_id_is_opened_each_time(tmp_path: Path, opened: list[str]) -> None:
    flags = ("-shared", "-nostdlib", "-Wl,--build-id=none")
    program = Program(build(tmp_path, PROBES, *flags, name="libplain.so"))
    try:
        first = program.look()
        opened.clear()
        assert program.look() == first
        assert opened == ["libplain.so"]
    finally:
        program.close()


def test_other_tables_of_the_user_are_heeded(
    program: Program, tmp_path: Path, opened: list[str]
) -> None:
    program.look()
    tables = tmp_path / "config/markerjit/usdt"
    tables.mkdir(parents=True)
    (tables / "mine.toml").write_text('[made]\none = "long mine"\n')

    sites, _ = program.look()

    formats = [site.signature.format for site in sites if site.signature.name == "made:one"]
    assert formats == ["mine %u"]
    shutil.rmtree(tables)
    assert program.look()[0] != sites


def test_rules_of_the_index_are_those_of_the_entries() -> None:
    assert usdt.rules is usdt_kept.rules
