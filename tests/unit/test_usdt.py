"""USDT probes of files and of our own process: what is found, typed, seen and refused."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from markerjit.elf import parse_format
from markerjit.errors import (
    BadFile,
    BadNote,
    MemoryFault,
    TargetGone,
    UnknownMarker,
    Unsupported,
)
from markerjit.memory import ProcessMemory, read_maps
from markerjit.model import Constant, General, RemoteAddress, UsdtSite
from markerjit.sites import parse_name
from markerjit.sites.usdt import (
    UsdtSites,
    UsdtState,
    matching_usdt,
    problems_of,
    usdt_of_file,
    usdt_of_process,
    usdt_states,
)
from tests.support.shortage import open_descriptors
from tests.support.usdt import DEBIAN, build, debian

PROBES = (
    'PROBE one, "8@%rax -4@$7", raised',
    'PROBE two, "8@%zax"',
    'PROBE three, "", code=0xc3',
    'PROBE query__start, "8@%rdi", provider=postgresql',
    'PROBE object__alloc, "-8@%rax 8@%rdx -4@%ecx -4@%ebx", provider=hotspot',
    'PROBE line, "8@%rax", provider=python',
    'PROBE gc__begin, "4@%eax", provider=hotspot',
)


@pytest.fixture(autouse=True)
def no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Loaded into this process, too."""
    folder = tmp_path_factory.mktemp("made")
    path = build(folder, PROBES, "-shared", "-nostdlib", "-Wl,--build-id", name="libmade.so")
    ctypes.CDLL(str(path))
    return path


@pytest.fixture
def memory() -> Iterator[ProcessMemory]:
    with ProcessMemory(os.getpid()) as memory:
        yield memory


def of_own(memory: ProcessMemory, path: Path) -> UsdtSites:
    maps = [mapping for mapping in read_maps("self") if mapping.path == str(path)]
    return usdt_of_process(os.getpid(), memory.read, maps)


def only(sites: tuple[UsdtSite, ...], name: str) -> UsdtSite:
    (site,) = matching_usdt(UsdtSites(sites, ()), parse_name(name))
    return site


def test_site_has_its_name_arguments_and_no_op(made: Path) -> None:
    site = only(usdt_of_file(str(made)).sites, "made:one")

    assert site.signature.format == "arg0 %u arg1 %d"
    assert [str(ctype) for ctype in site.signature.args] == ["u64", "i32"]
    assert site.recipe.operands == (General(("al", "ax", "eax", "rax")), Constant(7))
    assert site.recipe.text == "8@%rax -4@$7"
    assert site.recipe.semaphore
    assert site.form.head == b"\x90"
    assert not site.form.ways
    assert site.place.source == f"libmade.so+{site.address:#x}"


def test_no_op_of_five_bytes_is_seen_as_a_whole(tmp_path: Path) -> None:
    lines = ['PROBE one, "", code="0x0f,0x1f,0x44,0,0"']

    (site,) = usdt_of_file(str(build(tmp_path, lines))).sites

    assert site.form.head == bytes.fromhex("0f1f440000")


def test_site_that_is_not_understood_is_left_out_and_others_are_found(made: Path) -> None:
    sites, problems = usdt_of_file(str(made))

    assert len(sites) == len(PROBES) - 2
    assert [str(problem).split(" ", 1)[1].split(" at ")[0] for problem in problems] == [
        "made:two", "made:three"
    ]  # fmt: skip
    assert "%zax is not supported" in str(problems[0])
    assert "has no no-op: its code is c3" in str(problems[1])


def test_notes_of_our_own_markers_are_one_problem(tmp_path: Path) -> None:
    markers = [f'PROBE body{number}, "", provider=markerjit, code=0x48' for number in range(3)]
    made = build(tmp_path, [*markers, "PROBE seen"], "-shared", "-nostdlib", name="libown.so")

    sites, (problem,) = usdt_of_file(str(made))

    assert [site.signature.name for site in sites] == ["made:seen"]
    assert str(problem) == (
        f"{made}: 3 notes that marker.h makes for other tools; `list` without --usdt has these "
        "markers"
    )


def test_no_descriptor_stays_open_when_the_process_ends(
    tmp_path: Path, memory: ProcessMemory
) -> None:
    """A build id that is not in the first page is read after the file is open."""
    flags = ("-shared", "-nostdlib", "-Wl,--build-id,--section-start=.note.gnu.build-id=0x8000")
    made = build(tmp_path, PROBES, *flags, name="libfar.so")
    ctypes.CDLL(str(made))
    maps = [mapping for mapping in read_maps("self") if mapping.path == str(made)]
    headers = iter(["the first page"])

    def read(address: RemoteAddress, size: int) -> bytes:
        if next(headers, None) is None:
            raise TargetGone(os.getpid())
        return memory.read(address, size)

    before = open_descriptors()
    with pytest.raises(TargetGone):
        usdt_of_process(os.getpid(), read, maps)

    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("name", "format_", "types"),
    [
        ("postgresql:query__start", "query %s", ["chars"]),
        # The length stands before the bytes, as a format has it.
        ("hotspot:object__alloc", "thread %d class %.*s size %d", ["i64", "i32", "chars", "i32"]),
        ("python:line", "arg0 %u", ["u64"]),  # of another version: the table has three
        ("hotspot:gc__begin", "full %d", ["bool"]),
    ],
)
def test_arguments_of_well_known_probes_have_names_and_types(
    made: Path, name: str, format_: str, types: list[str]
) -> None:
    site = only(usdt_of_file(str(made)).sites, name)

    assert site.signature.format == format_
    assert [str(ctype) for ctype in site.signature.args] == types
    assert len(site.recipe.operands) == len(types)


def test_process_has_the_sites_of_its_file_where_it_is_loaded(
    made: Path, memory: ProcessMemory
) -> None:
    of_file = usdt_of_file(str(made)).sites

    of_process = of_own(memory, made).sites

    (bias,) = {site.place.object.bias for site in of_process}
    assert bias
    assert [site.address - bias for site in of_process] == [site.address for site in of_file]
    assert only(of_process, "made:one").recipe.semaphore == (
        only(of_file, "made:one").recipe.semaphore + bias
    )


def test_raised_semaphore_is_seen(made: Path, memory: ProcessMemory) -> None:
    site = only(of_own(memory, made).sites, "made:one")
    count = ctypes.c_uint16.from_address(site.recipe.semaphore)

    before = usdt_states(memory.read, [site])
    count.value = 2
    during = usdt_states(memory.read, [site])
    count.value = 0

    assert before == [UsdtState(site, 0, None)]
    assert during == [UsdtState(site, 2, None)]


def test_breakpoint_of_another_tool_is_seen(made: Path, memory: ProcessMemory) -> None:
    site = only(of_own(memory, made).sites, "python:line")

    def read(address: RemoteAddress, size: int) -> bytes:
        return b"\xcc" + memory.read(address, size)[1:]

    (state,) = usdt_states(read, [site])

    assert state.raised is None, "it has no semaphore"
    assert state.problem
    assert state.problem.is_breakpoint
    assert "a breakpoint of another tool (gdb? a uprobe?)" in state.problem.fact


def test_sites_that_are_near_to_each_other_are_read_together(
    made: Path, memory: ProcessMemory
) -> None:
    sites = of_own(memory, made).sites
    reads: list[int] = []

    def read(address: RemoteAddress, size: int) -> bytes:
        reads.append(address)
        return memory.read(address, size)

    states = usdt_states(read, sites)

    assert states == [state for site in sites for state in usdt_states(memory.read, [site])]
    assert len(reads) < len(sites) / 2


def test_site_that_cannot_be_read_is_altered_and_no_other_one(
    made: Path, memory: ProcessMemory
) -> None:
    sites = of_own(memory, made).sites
    unread = sites[1].address

    def read(address: RemoteAddress, size: int) -> bytes:
        if address <= unread < address + size:
            raise MemoryFault(address, size, "read", "not mapped")
        return memory.read(address, size)

    states = usdt_states(read, sites)

    assert [state.site for state in states if state.problem] == [sites[1]]


def test_file_that_was_replaced_since_it_was_loaded_is_not_believed(
    tmp_path: Path, memory: ProcessMemory
) -> None:
    options = ("-shared", "-nostdlib", "-Wl,--build-id")
    path = build(tmp_path, ['PROBE one, ""'], *options, name="libreplaced.so")
    ctypes.CDLL(str(path))
    maps = [mapping for mapping in read_maps("self") if mapping.path == str(path)]
    other = build(tmp_path, ['PROBE other, ""'], *options, name="libother.so")
    shutil.move(path, tmp_path / "kept")
    shutil.move(other, path)

    sites, problems = usdt_of_process(os.getpid(), memory.read, maps)

    # With the right to open what is mapped, it is found all the same.
    assert [site.signature.name for site in sites] in ([], ["made:one"])
    assert bool(problems) != bool(sites)
    assert not problems or "was replaced" in str(problems[0])


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("made:*", {"made:one"}),
        ("*:query__*", {"postgresql:query__start"}),
        ("query__start", {"postgresql:query__start"}),
        ("hotspot:*", {"hotspot:object__alloc", "hotspot:gc__begin"}),
    ],
)
def test_pattern_is_of_provider_and_name(made: Path, pattern: str, names: set[str]) -> None:
    sites = matching_usdt(usdt_of_file(str(made)), parse_name(pattern))

    assert {site.signature.name for site in sites} == names


def test_pattern_that_matches_nothing_names_the_nearest(made: Path) -> None:
    listed = usdt_of_file(str(made))

    with pytest.raises(UnknownMarker, match=r"no USDT probe matches.*did you mean made:one"):
        matching_usdt(listed, parse_name("made:onee"))
    with pytest.raises(Unsupported, match="names functions"):
        matching_usdt(listed, parse_name("func:main"))


def test_pattern_that_matches_only_what_is_left_out_says_why(made: Path) -> None:
    listed = usdt_of_file(str(made))
    bad = next(problem for problem in listed.problems if isinstance(problem, BadNote))

    assert bad.name
    assert problems_of(listed, [bad.name]) == (bad,)
    for pattern in (bad.name, bad.name.partition(":")[2]):
        with pytest.raises(UnknownMarker) as refused:
            matching_usdt(listed, parse_name(pattern))
        assert str(refused.value).endswith(f"; left out: {bad}")


def test_pattern_that_matches_nothing_says_what_is_wrong_with_a_file() -> None:
    listed = UsdtSites((), (BadFile("x.so: its file was replaced"),))

    with pytest.raises(UnknownMarker, match=r"'a:b'; left out: x\.so: its file was replaced"):
        matching_usdt(listed, parse_name("a:b"))


@pytest.mark.parametrize("path", DEBIAN)
def test_every_probe_of_debians_binaries_is_understood(path: str) -> None:
    sites, problems = usdt_of_file(debian(path))

    assert sites
    assert problems == ()
    for site in sites:
        parse_format(site.signature.format, site.signature.args)
        assert len(site.recipe.operands) == len(site.signature.args)
        assert site.form.head == b"\x90"
        if not site.signature.name.startswith("hotspot_jni:"):
            assert "arg0" not in site.signature.format, site.signature


def test_probes_of_postgresql_have_the_types_of_its_documentation() -> None:
    sites = usdt_of_file(debian("/usr/lib/postgresql/15/bin/postgres")).sites

    assert len(sites) == 71
    assert only(sites, "postgresql:query__start").signature.format == "query %s"
    assert only(sites, "postgresql:lwlock__acquire").signature.format == "tranche %s mode %u"
    assert only(sites, "postgresql:checkpoint__done").signature.format == (
        "written %d buffers %d wal_added %d wal_removed %d wal_recycled %d"
    )
