"""The parser of /proc/PID/maps: on lines that the kernel writes, and on the kernel itself."""

from __future__ import annotations

import ctypes
import mmap
import os
import string
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.errors import BadMaps, NoSuchProcess, NotPermitted
from markerjit.memory import Mapping, parse_maps, read_maps
from tests.support.timing import Limited

TEXT = "55d0c8a00000-55d0c8a20000 r-xp 00002000 fe:01 1311 {}\n"


def test_every_field_of_a_line_is_parsed() -> None:
    line = TEXT.format("                      /usr/bin/cat")

    (mapping,) = parse_maps(line)

    assert mapping == Mapping(
        start=0x55D0C8A00000,
        end=0x55D0C8A20000,
        readable=True,
        writable=False,
        executable=True,
        shared=False,
        offset=0x2000,
        device="fe:01",
        inode=1311,
        path="/usr/bin/cat",
        deleted=False,
    )
    assert mapping.size == 0x20000


@pytest.mark.parametrize(
    ("shown", "path", "deleted"),
    [
        ("", "", False),
        ("    [heap]", "[heap]", False),
        ("    [vdso]", "[vdso]", False),
        ("    [anon:name with space]", "[anon:name with space]", False),
        ("    /a b  c.so", "/a b  c.so", False),
        ("    /ends with space ", "/ends with space ", False),
        ("    /two\\012lines", "/two\nlines", False),
        ("    /gone.so (deleted)", "/gone.so", True),
        ("    /memfd:x y (deleted)", "/memfd:x y", True),
        ("    /a (deleted)/b", "/a (deleted)/b", False),
        ("    /odd\x0b\x85\u2028name", "/odd\x0b\x85\u2028name", False),
        ("    /latin\udce9", "/latin\udce9", False),
        ("    anon_inode:[perf_event]", "anon_inode:[perf_event]", False),
    ],
)
def test_path_is_taken_as_the_kernel_means_it(shown: str, path: str, deleted: bool) -> None:
    (mapping,) = parse_maps(TEXT.format(shown))

    assert (mapping.path, mapping.deleted) == (path, deleted)


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ("rwxs", (True, True, True, True)),
        ("---p", (False, False, False, False)),
        ("r--s", (True, False, False, True)),
    ],
)
def test_permissions_are_told_apart(permissions: str, expected: tuple[bool, ...]) -> None:
    (m,) = parse_maps(f"1000-2000 {permissions} 00000000 00:00 0 \n")

    assert (m.readable, m.writable, m.executable, m.shared) == expected


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "1000 r-xp 00000000 00:00 0",
        "1000-2000-3000 r-xp 00000000 00:00 0",
        "1000-2000 r-x 00000000 00:00 0",
        "1000-2000 r-xpp 00000000 00:00 0",
        "1000-2000 x-rp 00000000 00:00 0",
        "1000-2000 r-xp zero 00:00 0",
        "1000-2000 r-xp 00000000 00:00",
        "1000-2000 r-xp 00000000 00:00 inode",
        "2000-1000 r-xp 00000000 00:00 0",
        "1000-1000 r-xp 00000000 00:00 0",
    ],
)
def test_malformed_line_is_named(line: str) -> None:
    text = TEXT.format("/good") + line + "\n" + TEXT.format("/good")

    with pytest.raises(BadMaps) as caught:
        parse_maps(text)

    assert caught.value.line == line
    assert line in str(caught.value)


@given(st.text(st.sampled_from(string.hexdigits + "-rwxsp: /\n\\"), max_size=200))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        mappings = parse_maps(text)
    except BadMaps:
        return

    assert all(mapping.size > 0 for mapping in mappings)


def test_no_text_is_no_mapping() -> None:
    assert parse_maps("") == ()


def test_own_stack_is_in_own_maps() -> None:
    variable = ctypes.c_int(1)

    mappings = read_maps("self")

    holding = [m for m in mappings if m.start <= ctypes.addressof(variable) < m.end]
    assert len(holding) == 1
    assert holding[0].readable and holding[0].writable
    assert list(mappings) == sorted(mappings)


def test_self_and_own_number_are_the_same_process() -> None:
    paths = {m.path for m in read_maps("self") if m.executable}

    assert {m.path for m in read_maps(os.getpid()) if m.executable} == paths


def test_odd_and_deleted_names_come_back_from_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "a b\nc"
    path.write_bytes(bytes(mmap.PAGESIZE))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

    (before,) = (m for m in read_maps("self") if m.path == str(path))
    path.unlink()
    (after,) = (m for m in read_maps("self") if m.path == str(path))
    mapped.close()

    assert (before.deleted, after.deleted) == (False, True)
    assert before.shared
    assert before.inode == after.inode


def test_process_that_is_not_there_is_named() -> None:
    child = Limited([sys.executable, "-c", ""])
    child.wait()

    with pytest.raises(NoSuchProcess) as caught:
        read_maps(child.pid)

    assert caught.value.pid == child.pid


def test_zombie_has_no_mappings() -> None:
    child = Limited(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    mappings = read_maps(child.pid)
    child.wait()

    assert mappings == ()


def test_refusal_has_the_sentence_that_was_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)

    own = os.getpid()
    with pytest.raises(NotPermitted, match=f"rule 7 of process {own}"):
        read_maps(own, why_not=lambda pid: f"rule 7 of process {pid}")


def test_hundreds_of_mappings_are_all_seen() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        kept = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for _ in range(700)]
        inode = os.fstat(file.fileno()).st_ino

        mappings = [m for m in read_maps("self") if m.inode == inode]

    # the kernel may show neighbours as they are: one mapping each, as all start at offset 0
    assert len(mappings) == len(kept)
