"""ELF images: files of every kind, the same objects as they are loaded, and damaged ones."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from markerjit.elf import FileImage, MappedImage
from markerjit.elf import image as images
from markerjit.elf.image import MAX_ADDRESS, MAX_NOTE_BYTES, PF_W, PF_X, PT_LOAD, PT_NOTE
from markerjit.errors import BadFile, MarkerError, MemoryFault, Unsupported
from markerjit.memory import FakeMemory, ProcessMemory, read_maps
from markerjit.model import RemoteAddress

SOURCE = """
int truth = 4711;
char room[1 << 16];
int answer(void) { return truth + room[1]; }
int main(void) { return answer(); }
"""
KINDS = {
    "exe": ["-pie", "-fPIE"],
    "fixed": ["-no-pie", "-fno-pie"],
    "static": ["-static", "-no-pie", "-fno-pie"],
    "static-pie": ["-static-pie", "-fPIE"],
    "shared": ["-shared", "-fPIC"],
}
OBJECTS = Callable[[str], Path]


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> OBJECTS:
    """One small program, linked in each kind on demand."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "plain.c").write_text(SOURCE)

    def link(kind: str) -> Path:
        path = folder / kind
        if not path.exists():
            flags = ["-Wl,--build-id", *KINDS[kind]]
            subprocess.run(["gcc", *flags, "-o", path, folder / "plain.c"], check=True)
        return path

    return link


@pytest.fixture(scope="session")
def shared_bytes(plain: OBJECTS) -> bytes:
    return plain("shared").read_bytes()


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[[bytes], str]:
    def write(content: bytes) -> str:
        path = tmp_path / "object"
        path.write_bytes(content)
        return str(path)

    return write


def build_id_by_readelf(path: Path) -> str:
    text = subprocess.run(["readelf", "-nW", path], capture_output=True, text=True, check=True)
    (build_id,) = re.findall(r"Build ID: ([0-9a-f]+)", text.stdout)
    return build_id


def symbol(path: Path, name: str) -> int:
    text = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    (value,) = re.findall(rf"^([0-9a-f]+) . {name}$", text, re.MULTILINE)
    return int(value, 16)


def patched(content: bytes, offset: int, format_: str, value: int) -> bytes:
    changed = bytearray(content)
    struct.pack_into(format_, changed, offset, value)
    return bytes(changed)


@pytest.mark.parametrize("kind", KINDS)
def test_segments_are_those_that_pyelftools_sees(plain: OBJECTS, kind: str) -> None:
    path = plain(kind)
    with path.open("rb") as file:
        expected = [
            (p["p_flags"], p["p_offset"], p["p_vaddr"], p["p_filesz"], p["p_memsz"], p["p_align"])
            for p in (segment.header for segment in ELFFile(file).iter_segments())
        ]

    with FileImage(str(path)) as image:
        texts = [
            (s.flags, s.offset, s.address, s.file_size, s.memory_size, s.align)
            for s in image.segments
        ]

    assert texts == expected


@pytest.mark.parametrize("kind", KINDS)
def test_build_id_is_the_one_that_readelf_shows(plain: OBJECTS, kind: str) -> None:
    path = plain(kind)

    with FileImage(str(path)) as image:
        assert image.build_id() == build_id_by_readelf(path)


def test_object_without_build_id_has_none(plain: OBJECTS, tmp_path: Path) -> None:
    path = tmp_path / "anonymous"
    subprocess.run(
        ["gcc", "-Wl,--build-id=none", "-o", path, plain("exe").parent / "plain.c"], check=True
    )

    with FileImage(str(path)) as image:
        assert image.build_id() is None


@pytest.mark.parametrize("kind", KINDS)
def test_file_is_read_by_the_addresses_of_its_symbols(plain: OBJECTS, kind: str) -> None:
    path = plain(kind)

    with FileImage(str(path)) as image:
        truth = image.read(symbol(path, "truth"), 4)
        room = image.read(symbol(path, "room"), 1 << 16)

        assert int.from_bytes(truth, "little") == 4711
        assert room == bytes(1 << 16)  # not in the file at all
        assert any(symbol(path, "answer") in span for span in image.loaded(PF_X))
        assert not any(symbol(path, "answer") in span for span in image.loaded(PF_W))


def test_address_outside_of_the_file_image_is_a_fault(plain: OBJECTS) -> None:
    with FileImage(str(plain("exe"))) as image:
        last = max(s.end for s in image.segments if s.type == PT_LOAD)

        for address, size in ((last, 1), (last - 1, 2), (-1, 1), (1 << 70, 1)):
            with pytest.raises(MemoryFault):
                image.read(address, size)


def test_loaded_library_has_the_bias_and_build_id_of_its_symbols(plain: OBJECTS) -> None:
    path = plain("shared")
    library = ctypes.CDLL(str(path))
    where = ctypes.addressof(ctypes.c_int.in_dll(library, "truth"))
    start = min(m.start for m in read_maps("self") if m.path == str(path))

    with ProcessMemory(os.getpid()) as memory:
        image = MappedImage(memory.read, start, str(path))

        assert image.bias == where - symbol(path, "truth")
        assert image.build_id() == build_id_by_readelf(path)
        assert image.read(symbol(path, "truth"), 4) == struct.pack("<i", 4711)
        library.answer()
        ctypes.c_int.in_dll(library, "truth").value = 12
        assert image.read(symbol(path, "truth"), 4) == struct.pack("<i", 12)


def test_every_object_of_our_own_process_can_be_read() -> None:
    starts = {m.path: m.start for m in read_maps("self") if not m.offset and m.executable is False}

    with ProcessMemory(os.getpid()) as memory:
        images = [
            MappedImage(memory.read, start, path)
            for path, start in starts.items()
            if ".so" in os.path.basename(path) and os.path.exists(path)
            if memory.read(start, 4) == b"\x7fELF"
        ]

        assert len(images) > 3
        for image in images:
            with FileImage(image.name) as file:
                assert image.build_id() == file.build_id()
                assert image.segments == file.segments


def test_vdso_is_an_image_without_a_file() -> None:
    (vdso,) = (m for m in read_maps("self") if m.path == "[vdso]")

    with ProcessMemory(os.getpid()) as memory:
        image = MappedImage(memory.read, vdso.start, vdso.path)

        assert image.bias == vdso.start
        assert image.build_id()


def test_fixed_program_has_no_bias_at_its_place_and_is_refused_elsewhere(plain: OBJECTS) -> None:
    content = plain("fixed").read_bytes()
    memory = FakeMemory({0x400000: content, 0x10000000: content})

    image = MappedImage(memory.read, RemoteAddress(0x400000))

    assert image.bias == 0
    with pytest.raises(BadFile, match="not loaded"):
        MappedImage(memory.read, RemoteAddress(0x10000000))


@pytest.mark.parametrize(
    ("offset", "format_", "value", "error", "sentence"),
    [
        (0, "<B", 0, BadFile, "not an ELF file"),
        (4, "<B", 1, Unsupported, "32-bit"),
        (5, "<B", 2, Unsupported, "another architecture"),
        (16, "<H", 1, Unsupported, "relocatable object"),
        (16, "<H", 4, Unsupported, "core file"),
        (16, "<H", 77, BadFile, "unknown type 77"),
        (18, "<H", 183, Unsupported, "another architecture"),
        (32, "<Q", 1 << 40, BadFile, "cut off"),
        (32, "<Q", (1 << 64) - 8, BadFile, "cut off"),
        (54, "<H", 32, BadFile, "program headers are of 32 bytes"),
        (56, "<H", 0xFFFF, BadFile, "65535 program headers"),
        (56, "<H", 4096, BadFile, "cut off"),
    ],
)
def test_header_that_does_not_fit_is_refused_with_its_reason(
    shared_bytes: bytes,
    file_of: Callable[[bytes], str],
    offset: int,
    format_: str,
    value: int,
    error: type[MarkerError],
    sentence: str,
) -> None:
    content = patched(shared_bytes, offset, format_, value)
    path = file_of(content)

    with pytest.raises(error, match=sentence) as of_file:
        FileImage(path)
    with pytest.raises(error, match=sentence):
        MappedImage(FakeMemory({0x10000: content}).read, RemoteAddress(0x10000))

    assert path in str(of_file.value)


def test_note_segment_of_claimed_gigabytes_is_refused(
    shared_bytes: bytes, file_of: Callable[[bytes], str]
) -> None:
    (table,) = struct.unpack_from("<Q", shared_bytes, 32)
    (count,) = struct.unpack_from("<H", shared_bytes, 56)
    header = next(table + i * 56 for i in range(count) if shared_bytes[table + i * 56] == PT_NOTE)

    path = file_of(patched(shared_bytes, header + 32, "<Q", MAX_NOTE_BYTES + 1))

    with pytest.raises(BadFile, match="64 MiB of notes"):
        FileImage(path)


def test_segment_at_an_address_that_no_program_has_is_refused(
    shared_bytes: bytes, file_of: Callable[[bytes], str]
) -> None:
    (table,) = struct.unpack_from("<Q", shared_bytes, 32)
    (count,) = struct.unpack_from("<H", shared_bytes, 56)
    header = next(table + i * 56 for i in range(count) if shared_bytes[table + i * 56] == PT_LOAD)
    content = patched(shared_bytes, header + 40, "<Q", MAX_ADDRESS + 1)

    with pytest.raises(BadFile, match="addresses that no program has"):
        FileImage(file_of(content))
    with pytest.raises(BadFile, match="addresses that no program has"):
        MappedImage(FakeMemory({0x10000: content}).read, RemoteAddress(0x10000))


@pytest.mark.parametrize(("offset", "size"), [(0, 1 << 62), (1 << 70, 1), (-1, 1)])
def test_bytes_that_a_file_does_not_have_are_a_fault(
    plain: OBJECTS, offset: int, size: int
) -> None:
    """A size without an end was a MemoryError."""
    with FileImage(str(plain("exe"))) as image, pytest.raises(MemoryFault):
        image.read_file(offset, size)


@pytest.mark.parametrize("size", [0, 3, 4, 16, 63, 64, 100])
def test_short_file_is_refused(
    shared_bytes: bytes, file_of: Callable[[bytes], str], size: int
) -> None:
    with pytest.raises(BadFile):
        FileImage(file_of(shared_bytes[:size]))


def test_real_objects_of_other_kinds_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "x.c"
    source.write_text("int x;")
    for flag in ("-m64", "-m32"):
        subprocess.run(["gcc", flag, "-c", "-o", tmp_path / f"{flag}.o", source], check=True)

    with pytest.raises(Unsupported, match="relocatable"):
        FileImage(str(tmp_path / "-m64.o"))
    with pytest.raises(Unsupported, match="32-bit"):
        FileImage(str(tmp_path / "-m32.o"))
    with pytest.raises(BadFile, match="not an ELF file"):
        FileImage(str(source))


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero"), tmp_path / "none"):
        with pytest.raises(BadFile, match=str(path)):
            FileImage(str(path))
    with pytest.raises(BadFile):
        FileImage("a\0b")


def test_no_descriptor_stays_open(plain: OBJECTS, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    before = os.listdir("/proc/self/fd")

    with FileImage(str(plain("exe"))) as image:
        pass
    image.close()
    for path in (tmp_path / "text", tmp_path):
        with pytest.raises(BadFile):
            FileImage(str(path))

    assert os.listdir("/proc/self/fd") == before


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 255)), max_size=8))
@example([(32 + i, 255) for i in range(8)])
def test_damaged_headers_give_documented_errors_only(
    shared_bytes: bytes, file_of: Callable[[bytes], str], changes: list[tuple[int, int]]
) -> None:
    content = bytearray(shared_bytes)
    for offset, value in changes:
        content[offset] = value
    memory = FakeMemory({0x10000: content})

    for make in (
        lambda: FileImage(file_of(bytes(content))),
        lambda: MappedImage(memory.read, RemoteAddress(0x10000)),
    ):
        try:
            image = make()
        except (BadFile, Unsupported):
            continue
        image.build_id()
        if isinstance(image, FileImage):
            image.close()


def test_the_notes_of_a_build_are_searched_for_its_id_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command asks for the build ids of all objects of a process, several times."""
    searched: list[bytes] = []
    iterate = images.iterate_notes

    def counted(data: bytes, align: int) -> object:
        searched.append(data)
        return iterate(data, align)

    monkeypatch.setattr(images, "iterate_notes", counted)
    images._build_id_in.cache_clear()
    build_ids = []
    for _ in range(3):
        with FileImage("/proc/self/exe") as program:
            build_ids += [program.build_id(), program.build_id()]

    assert build_ids == 6 * [build_ids[0]]
    assert searched
    assert len(searched) == len({*searched})
