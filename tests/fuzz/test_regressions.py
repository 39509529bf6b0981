"""What fuzzing has found, one test each. The inputs are the smallest that showed it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from markerjit.elf import FileImage, parse_format, read_notes, show
from markerjit.elf.image import PT_LOAD, PT_NOTE
from markerjit.elf.symbols import function_at
from markerjit.errors import BadFile, BadMaps, BadNote
from markerjit.memory import parse_maps
from markerjit.model import CType, TypeClass
from markerjit.ring.reader import SharedRing
from tests.fuzz.check_ring import geometry_of
from tests.fuzz.objects import PROGRAMS, skeleton
from tests.fuzz.stores import HostileRing
from tests.support.programs import ROOT, make

CHARS = CType(TypeClass.CHARS, 8)
DOUBLE = CType(TypeClass.FLOAT, 8)


# ---- formats -------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["9" * 5000, str(1 << 31)])
@pytest.mark.parametrize(("letter", "ctype"), [("s", CHARS), ("f", DOUBLE)])
def test_a_precision_that_no_int_holds_is_a_bad_note(
    precision: str, letter: str, ctype: CType
) -> None:
    """It was a ValueError: Python does not convert so many digits."""
    with pytest.raises(BadNote, match="a precision that is too large"):
        parse_format(f"%.{precision}{letter}", (ctype,))


@pytest.mark.parametrize("precision", [(1 << 31) - 1, 100_000])
def test_a_float_is_shown_with_as_many_places_as_a_double_has_and_no_more(precision: int) -> None:
    """It was a MemoryError, or a line of two thousand million zeros."""
    (field,) = parse_format(f"%.{precision}f", (DOUBLE,))

    assert show(field, 5e-324) == f"{5e-324:.1074f}"


def test_a_precision_of_zeros_is_zero() -> None:
    (field,) = parse_format("%." + "0" * 5000 + "f", (DOUBLE,))

    assert show(field, 2.5) == "2"


def test_a_point_without_a_number_is_the_precision_zero() -> None:
    """As in printf; it was shown with six places."""
    (field,) = parse_format("%.f", (DOUBLE,))

    assert show(field, 2.75) == "3"


@pytest.mark.parametrize(
    ("format_", "args"),
    [
        ("x" * 9000 + "%d", ()),
        ("x" * 9000, (CHARS,)),
        ("x" * 9000 + "%*s", (CHARS, CHARS)),
        ("%" + "0" * 9000 + "d", (CHARS,)),
    ],
)
def test_a_message_shows_only_the_beginning_of_a_long_format(
    format_: str, args: tuple[CType, ...]
) -> None:
    """A thousand problems with 64 KiB each made one line of 64 MiB."""
    with pytest.raises(BadNote) as caught:
        parse_format(format_, args)

    assert len(str(caught.value)) < 200


# ---- /proc/PID/maps ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "1_0-2000 r--p 00000000 00:00 0",
        "+1000-2000 r--p 00000000 00:00 0",
        "0x1000-0x2000 r--p 00000000 00:00 0",
        "1000-2000 r--p -1 00:00 0",
        "1000-2000 r--p 00000000 00:00 1_0",
        "1000-2000 r--p 00000000 00:00 ٣",
        "1000-2000 r--p 00000000 0 0",
        "1000-2000 r--p 00000000 :1 0",
    ],
)
def test_numbers_that_the_kernel_never_writes_are_refused(line: str) -> None:
    """int() takes them all."""
    with pytest.raises(BadMaps):
        parse_maps(line)


# ---- files ---------------------------------------------------------------------------------------


def test_a_file_that_claims_more_notes_than_it_has_bytes_is_refused(tmp_path: Path) -> None:
    """A small file kept us busy for seconds: its notes were said to reach into the zeros behind
    what it loads, and there each twelve zeros are a note."""
    bones = skeleton(PROGRAMS[0])
    content = bytearray(bones.size)
    for offset, data in bones.spans:
        content[offset : offset + len(data)] = data
    for header in range(64, len(bones.spans[0][1]), 56):
        type_ = int.from_bytes(content[header : header + 4], "little")
        if type_ in (PT_LOAD, PT_NOTE):
            content[header + 40 : header + 48] = (32 << 20).to_bytes(8, "little")
        if type_ == PT_NOTE:
            content[header + 32 : header + 40] = (30 << 20).to_bytes(8, "little")
            break
    path = tmp_path / "object"
    path.write_bytes(content)

    with pytest.raises(BadFile, match="it claims more notes than it has bytes"):
        FileImage(str(path))


# ---- symbol tables -------------------------------------------------------------------------------


PLUGIN = "build/targets/truth_plugin.so"


@pytest.fixture
def plugin(repo: Path) -> bytes:
    make(PLUGIN)
    return (repo / PLUGIN).read_bytes()


def _name_in(folder: Path, content: bytes) -> str | None:
    """The name of the plugin's function with the marker, looked up in a file of this content."""
    with FileImage(str(ROOT / PLUGIN)) as image:
        notes, _ = read_notes(image)
        build_id = image.build_id()
    path = folder / "object"
    path.write_bytes(content)
    return function_at(str(path), build_id, notes[0].site)


def test_sections_beyond_all_offsets_are_a_function_without_a_name(
    tmp_path: Path, plugin: bytes
) -> None:
    """It was a ValueError of seek(), which pyelftools lets out."""
    content = bytearray(plugin)
    sections, count = struct.unpack_from("<Q", plugin, 40)[0], plugin[60]
    for section in range(sections, sections + 64 * count, 64):
        struct.pack_into("<Q", content, section + 24, 1 << 63)

    assert _name_in(tmp_path, content) is None
    assert str(_name_in(tmp_path, plugin)).startswith("truth_plugin+0x")


def test_a_function_whose_name_is_not_for_terminals_has_none(tmp_path: Path, plugin: bytes) -> None:
    """An escape sequence in a symbol table came out of `explain`."""
    content = plugin.replace(b"truth_plugin\0", b"truth\x1bplugin\0")

    assert content != plugin
    assert _name_in(tmp_path, content) is None


# ---- rings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("head", "begun"), [(4, 0), (16, 4), (4096 + 7, 7)])
def test_a_position_between_two_words_is_damage_to_a_picture(head: int, begun: int) -> None:
    """It was a struct.error: less than a commit word was left to read."""
    geometry = geometry_of(1, 4096, 1)
    ring = SharedRing(
        HostileRing(geometry, 1, (head, 0, begun), bytes(4096)), geometry, 0, geometry.ring_size
    )

    assert ring.picture()[1] == b""
    assert ring.damaged == 1
