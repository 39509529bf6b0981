"""Marker notes: of programs in every kind and language, and of segments that are damaged."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from markerjit.elf import FileImage, Image, MappedImage, Note, Segment, read_notes
from markerjit.elf import notes as mirror
from markerjit.elf.image import PT_LOAD, PT_NOTE
from markerjit.elf.rawnotes import iterate_notes
from markerjit.errors import BadNote, MemoryFault, TargetGone
from markerjit.memory import ProcessMemory, read_maps
from markerjit.model import Kind
from tests.support.choice import examples
from tests.support.compilers import Compiler, need

SOURCE = r"""
#include <markerjit/marker.h>
enum color { RED = -1, BLUE };
#ifdef __cplusplus
extern "C"
#endif
__attribute__((noinline)) /* so that each site is there once */
void work(const char *key, int n, double d, float f, void *p, enum color color) {
    MARK(kv_get, "key %s len %zu", key, (unsigned long)n);
    MARK(kv_part, "part %.*s", n, key);
    MARK(kv_all, "%d%u%ld%lu%hhd%hu%f%f%p%d%d%s", n, (unsigned)n, (long)n, (unsigned long)n,
         (signed char)n, (unsigned short)n, d, f, p, (bool_)n, color, key);
    MARK(kv_raw, "raw %*ph of %*ph and %*ph", n, p, n, (unsigned char *)p, n, &color);
    MARK(kv_empty, "");
    MARK(kv_odd, "gr\303\266\303\237e 100%% \"q\" \\ %d", n);
}
int main(int argc, char **argv) { work(argv[0], argc, 1, 1, argv, BLUE); return 0; }
""".replace("bool_", "BOOL_")
TEMPLATE = r"""
#include <markerjit/marker.h>
template <class T> void each(T value) { MARK(kv_each, "value %d", (int)value); }
inline void shared(int n) { MARK(kv_get, "inline %d", n); }
void work(int n) {
    each(n); each((long)n); shared(n); shared(n + 1);
    for (int i = 0; i < 4; i++) MARK(kv_loop, "i %d", i);
}
static void count(const char *, int) {}
int main(int argc, char **argv) {
    MARK_INLINE(kv_inline, count, "key %s len %d", argv[0], argc);
    work(argc); return 0;
}
"""
KINDS = {
    "exe": ["-pie", "-fPIE"],
    "fixed": ["-no-pie", "-fno-pie"],
    "static": ["-static", "-no-pie", "-fno-pie"],
    "static-pie": ["-static-pie", "-fPIE"],
    "shared": ["-shared", "-fPIC"],
}
MODES = [str(kind) for kind in Kind]
EXPECTED = [
    ("kv_get", "key %s len %zu", ["chars", "u64"]),
    ("kv_part", "part %.*s", ["i32", "chars"]),
    (
        "kv_all",
        "%d%u%ld%lu%hhd%hu%f%f%p%d%d%s",
        ["i32", "u32", "i64", "u64", "i8", "u16", "f64", "f32", "pointer", "bool", "i32", "chars"],
    ),
    ("kv_raw", "raw %*ph of %*ph and %*ph", ["i32", "pointer", "i32", "chars", "i32", "pointer"]),
    ("kv_empty", "", []),
    ("kv_odd", 'größe 100%% "q" \\ %d', ["i32"]),
]
Build = Callable[..., Path]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory, repo: Path) -> Build:
    """Compile a source with marker.h: `compiled("gcc", "exe", "jump")`, each once."""
    folder = tmp_path_factory.mktemp("notes")

    def compile_(compiler: str, kind: str, mode: str, *flags: str, source: str = SOURCE) -> Path:
        need(Compiler(compiler))
        is_c = compiler in ("gcc", "clang")
        text = source.replace("BOOL_", "_Bool" if is_c else "bool")
        name = "-".join([compiler, kind, mode, *flags, str(len(source))]).replace("/", "_")
        path = folder / name
        if not path.exists():
            file = folder / f"{name}.{'c' if is_c else 'cc'}"
            file.write_text(text)
            include = f"-I{repo / 'native' / 'include'}"
            options = [
                "-O2",
                "-Wall",
                "-Wextra",
                "-Werror",
                f"-DMJ_MODE={mode}",
                *KINDS[kind],
                *flags,
                include,
            ]
            subprocess.run([compiler, *options, "-o", name, file.name], check=True, cwd=folder)
        return path

    return compile_


def notes_of(path: Path) -> tuple[Note, ...]:
    with FileImage(str(path)) as image:
        notes, problems = read_notes(image)
    assert problems == ()
    return notes


def output(*command: object) -> str:
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=True
    ).stdout


# ---- what the compiler and the linker made ------------------------------------------------------


@pytest.mark.product
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compiler", ["gcc", "g++"])
@pytest.mark.parametrize("mode", MODES)
def test_notes_say_what_the_source_says(
    compiled: Build, compiler: str, kind: str, mode: str
) -> None:
    path = compiled(compiler, kind, mode)

    notes = notes_of(path)

    assert [(n.name, n.format, [str(arg) for arg in n.args]) for n in notes] == EXPECTED
    source = path.with_name(path.name + (".c" if compiler == "gcc" else ".cc"))
    lines = source.read_text().splitlines()
    for note in notes:
        assert str(note.kind) == mode
        assert note.file == source.name
        assert f"MARK({note.name}," in lines[note.line - 1]
        assert not note.has_inline


@pytest.mark.product
@pytest.mark.parametrize("compiler", ["clang", "clang++"])
@pytest.mark.parametrize("mode", MODES)
def test_notes_of_clang_say_the_same(compiled: Build, compiler: str, mode: str) -> None:
    notes = notes_of(compiled(compiler, "exe", mode))

    assert [(n.name, n.format, [str(arg) for arg in n.args]) for n in notes] == EXPECTED


@pytest.mark.product
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_site_holds_the_bytes_of_its_kind(compiled: Build, kind: str, mode: str) -> None:
    with FileImage(str(compiled("gcc", kind, mode))) as image:
        notes, _ = read_notes(image)

        for note in notes:
            code = image.read(note.site, max(1, note.end - note.site))
            match note.kind:
                case Kind.JUMP:
                    rex = len(code) - 7
                    assert code[rex : rex + 3] == b"\xeb\x05\xe9"
                    assert code[:rex] in (b"", b"\x40")
                    assert note.end + int.from_bytes(code[-4:], "little", signed=True) == note.body
                case Kind.NOP:
                    assert (code[0], len(code)) == (0xA9, 5)
                    assert note.end + int.from_bytes(code[1:], "little", signed=True) == note.body
                case Kind.SYMBOL:
                    assert code == b"\x90"
                case Kind.POINTER:
                    assert code[:3] == b"\x48\x83\x3d"
                    to_slot = int.from_bytes(code[3:7], "little", signed=True)
                    assert note.site + 8 + to_slot == note.slot
                case Kind.SENTINEL:
                    to_slot = int.from_bytes(code[-4:], "little", signed=True)
                    assert note.end + to_slot == note.slot
                    assert image.read(note.slot + 8, 24) == bytes(24)
                case Kind.IMMEDIATE:
                    assert code == b"\0"
                    assert image.read(note.site - 1, 1)[0] & 0xF8 == 0xB0
                case Kind.DIRECT:
                    assert (note.site, note.slot) == (note.end, 0)


@pytest.mark.parametrize("mode", ["jump", "nop", "pointer", "sentinel", "immediate", "symbol"])
def test_slot_is_where_nm_has_it(compiled: Build, mode: str) -> None:
    path = compiled("gcc", "exe", mode)
    slots = re.findall(
        r"^([0-9a-f]+) . __mj_(?:sentinel|block)_slot_(\w+)$", output("nm", path), re.MULTILINE
    )

    assert {n.name: n.slot for n in notes_of(path)} == {name: int(a, 16) for a, name in slots}


@pytest.mark.parametrize("mode", ["jump", "nop", "pointer", "symbol"])
def test_body_is_where_the_stapsdt_note_has_it(compiled: Build, mode: str) -> None:
    path = compiled("gcc", "shared", mode)
    matches = re.findall(r"Name: (\w+)\s+Location: 0x([0-9a-f]+)", output("readelf", "-nW", path))

    assert [(n.name, n.body) for n in notes_of(path)] == [(n, int(a, 16)) for n, a in matches]


def test_readelf_sees_the_same_number_of_notes(compiled: Build) -> None:
    path = compiled("gcc", "static", "jump")

    shown = output("readelf", "-nW", path)

    assert len(notes_of(path)) == len(re.findall(r"^ +markerjit ", shown, re.MULTILINE))


def test_none_leaves_no_note(compiled: Build) -> None:
    assert notes_of(compiled("gcc", "exe", "none")) == ()


def test_copies_of_a_site_each_have_a_note(compiled: Build) -> None:
    notes = notes_of(compiled("g++", "exe", "jump", "-O3", source=TEMPLATE))

    by_name = {name: [n for n in notes if n.name == name] for name in {n.name for n in notes}}
    assert len(by_name["kv_each"]) >= 2
    assert len(by_name["kv_get"]) >= 2
    assert len({n.site for n in notes}) == len(notes)
    for copies in by_name.values():
        assert len({(n.slot, n.format, n.line) for n in copies}) == 1
    assert [n.name for n in notes if n.has_inline] == ["kv_inline"]


@pytest.mark.parametrize(
    "flags",
    [
        ["-fuse-ld=gold"],
        ["-fuse-ld=lld"],
        ["-s"],
        ["-flto"],
        ["-g"],
        ["-ffunction-sections", "-Wl,--gc-sections"],
        ["-Wl,-z,noseparate-code"],
        ["-Wl,-z,norelro", "-Wl,--build-id=sha1"],
    ],
    ids=" ".join,
)
def test_notes_survive_the_linkers_options(
    compiled: Build, needs_tool: Callable[[str, str], str], flags: list[str]
) -> None:
    if flags[0].startswith("-fuse-ld="):
        needs_tool(f"ld.{flags[0][9:]}", "binutils or lld")

    notes = notes_of(compiled("gcc", "exe", "jump", *flags))

    assert [n.name for n in notes] == [name for name, *_ in EXPECTED]


def test_loaded_library_has_the_notes_of_its_file(compiled: Build) -> None:
    path = compiled("gcc", "shared", "jump")
    library = ctypes.CDLL(str(path))
    start = min(m.start for m in read_maps("self") if m.path == str(path))

    with ProcessMemory(os.getpid()) as memory:
        image = MappedImage(memory.read, start, str(path))
        notes, problems = read_notes(image)
        body = image.read(notes[0].site, 3)

    assert problems == ()
    assert notes == notes_of(path)
    assert body[-3:] == b"\xeb\x05\xe9" or body == b"\x40\xeb\x05"
    where = ctypes.cast(library.work, ctypes.c_void_p).value
    assert where is not None
    assert 0 <= notes[0].site + image.bias - where < 200


def test_mirror_is_the_struct_of_abi_h(repo: Path, tmp_path: Path) -> None:
    names = ["site", "body", "end", "slot", "text"]
    values = ["sizeof(struct mj_note)", *(f"offsetof(struct mj_note, {name})" for name in names)]
    values += ["MJ_NOTE_SIZE", "MJ_NOTE_TYPE", "MJ_NOTE_VERSION", "MJ_MAX_ARGS", "MJ_FLAG_INLINE"]
    values += ["sizeof(MJ_NOTE_OWNER)", *(f"MJ_KIND_{kind}" for kind in mirror.KINDS.values())]
    prints = "".join(f'printf("%d ", (int){value});' for value in values)
    (tmp_path / "x.c").write_text(
        "#include <markerjit/abi.h>\n#include <stddef.h>\n#include <stdio.h>\n"
        f"int main(void) {{ {prints} puts(MJ_NOTE_OWNER); }}"
    )
    include = repo / "native" / "include"
    output("gcc", "-I", include, "-o", tmp_path / "x", tmp_path / "x.c")

    *numbers, owner = output(tmp_path / "x").split()

    assert list(map(int, numbers)) == [
        *(mirror.CONTENT.size, mirror.SITE, mirror.BODY, mirror.END, mirror.SLOT, mirror.TEXT),
        *(mirror.CONTENT.size, mirror.NOTE_TYPE, mirror.VERSION, mirror.MAX_ARGS),
        *(mirror.FLAG_INLINE, len(mirror.OWNER), *mirror.KINDS),
    ]
    assert owner.encode() + b"\0" == mirror.OWNER


# ---- what somebody made up ----------------------------------------------------------------------

NOTES, CODE, DATA, TEXTS = 0x1000, 0x200000, 0x300000, 0x400000
SPAN = 0x20000


class MadeUp(Image):
    """An image of four segments: notes, code, data (nothing but zeros) and texts."""

    name = "made-up"
    bias = 0

    def __init__(self, notes: bytes, texts: bytes = b"n %d\0file.c\0", align: int = 4) -> None:
        self.reads = 0
        self.content = {NOTES: notes, CODE: bytes(SPAN), DATA: bytes(SPAN), TEXTS: texts}
        flags = {NOTES: 4, CODE: 5, DATA: 6, TEXTS: 4}
        loads = [
            Segment(PT_LOAD, flags[at], 0, at, at, len(data), len(data), 4096)
            for at, data in self.content.items()
        ]
        note = Segment(PT_NOTE, 4, 0, NOTES, NOTES, len(notes), len(notes), align)
        self.segments = (*loads, note)

    def read(self, address: int, size: int) -> bytes:
        self.reads += 1
        for start, data in self.content.items():
            if start <= address and address + size <= start + len(data):
                return data[address - start : address - start + size]
        raise MemoryFault(address, size, "read", "not mapped")


def note(
    at: int = NOTES,
    *,
    version: int = 1,
    kind: int = 1,
    argc: int = 1,
    flags: int = 0,
    size: int = 44,
    site: int = CODE,
    body: int = CODE + 64,
    slot: int = DATA,
    text: int = TEXTS,
    types: bytes = b"\x12",
    name: bytes = b"made_up\0",
    appended: bytes = b"",
) -> bytes:
    """A marker's note that will stand at `at`."""
    content_at = at + 24
    content = mirror.CONTENT.pack(
        *(version, kind, argc, flags, size, 0),
        site - (content_at + 8),
        body - (content_at + 12) if body else 0,
        site + 7 - (content_at + 16),
        slot - (content_at + 20) if slot else 0,
        text - (content_at + 24),
        *(12, types),
    )
    return raw(b"markerjit\0", 1, content + appended + name)


def raw(owner: bytes, kind: int, content: bytes, align: int = 4) -> bytes:
    def padded(data: bytes) -> bytes:
        return data + bytes(-len(data) % align)

    header = struct.pack("<III", len(owner), len(content), kind)
    return padded(padded(header + owner) + content)


def several(*changes: dict[str, object]) -> bytes:
    data = b""
    for change in changes:
        data += note(NOTES + len(data), **change)  # type: ignore[arg-type]
    return data


def test_made_up_note_is_read() -> None:
    notes, problems = read_notes(MadeUp(note()))

    assert problems == ()
    (parsed,) = notes
    assert (parsed.site, parsed.body, parsed.end, parsed.slot) == (CODE, CODE + 64, CODE + 7, DATA)
    assert (parsed.name, parsed.format, parsed.file, parsed.line) == (
        "made_up",
        "n %d",
        "file.c",
        12,
    )


def test_fields_that_a_later_header_appends_are_skipped() -> None:
    notes, problems = read_notes(MadeUp(note(size=52, appended=b"future!!")))

    assert [n.name for n in notes] == ["made_up"]
    assert problems == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 3}, "of version 3"),
        ({"version": 0}, "of version 0"),
        ({"kind": 0}, "unknown kind 0"),
        ({"kind": 8}, "unknown kind 8"),
        ({"argc": 13, "types": b"\x12" * 12}, "13 arguments"),
        ({"argc": 255}, "255 arguments"),
        ({"argc": 0}, "types for others"),
        ({"argc": 2}, "unknown type 0x00"),
        ({"types": b"\x72"}, "unknown type 0x72"),
        ({"types": b"\x1f"}, "unknown type 0x1f"),
        ({"types": b"\x31"}, "unknown type 0x31"),
        ({"types": b"\x42"}, "unknown type 0x42"),
        ({"types": b"\x33"}, "type f64 for '%d'"),
        ({"name": b"\0"}, "not a C identifier"),
        ({"name": b"9lives\0"}, "not a C identifier"),
        ({"name": b"two words\0"}, "not a C identifier"),
        ({"name": b"\xff\xfe\0"}, "not a C identifier"),
        ({"name": b"x" * 256 + b"\0"}, "not a C identifier"),
        ({"name": b"endless"}, "does not end with a name"),
        ({"name": b"two\0names\0"}, "does not end with a name"),
        ({"size": 43}, "does not end with a name"),
        ({"size": 65535}, "does not end with a name"),
        ({"text": TEXTS - 1}, "outside of the image"),
        ({"text": TEXTS + 5}, "text without an end"),
        ({"site": DATA}, "where no code is"),
        ({"site": 64}, "where no code is"),
        ({"body": TEXTS}, "where no code is"),
        ({"body": 0}, "where no code is"),
        ({"slot": CODE}, "where no data is"),
        ({"slot": 0}, "where no data is"),
    ],
)
def test_note_that_cannot_be_is_told_and_hides_no_other(
    change: dict[str, object], sentence: str
) -> None:
    data = several({"name": b"before\0"}, change, {"name": b"after\0"})
    first = len(note(name=b"before\0"))

    notes, problems = read_notes(MadeUp(data))

    assert [n.name for n in notes] == ["before", "after"]
    assert [str(p) for p in problems] == [str(problems[0])]
    assert sentence in str(problems[0])
    assert f"made-up: the note at {NOTES + first:#x} " in str(problems[0])


@pytest.mark.parametrize("name", [b"x\0", b"_a$1\0", "größe\0".encode(), b"x" * 255 + b"\0"])
def test_names_that_compilers_take_are_taken(name: bytes) -> None:
    notes, problems = read_notes(MadeUp(note(name=name)))

    assert problems == ()
    assert notes[0].name == name[:-1].decode()


@pytest.mark.parametrize("kind", [Kind.IMMEDIATE, Kind.DIRECT])
def test_kinds_without_a_body_say_zero(kind: Kind) -> None:
    slot = 0 if kind is Kind.DIRECT else DATA
    (code,) = [number for number, known in mirror.KINDS.items() if known is kind]

    ((parsed,), problems) = read_notes(MadeUp(note(kind=code, body=0, slot=slot)))

    assert (parsed.body, parsed.slot, problems) == (0, slot, ())


def test_text_that_is_no_utf8_is_shown_with_escapes() -> None:
    ((parsed,), _) = read_notes(MadeUp(note(), texts=b"caf\xe9 %d\0/caf\xe9.c\0"))

    assert (parsed.format, parsed.file) == (r"caf\xe9 %d", r"/caf\xe9.c")


def test_text_may_stand_across_pages_but_not_without_end() -> None:
    texts = bytes(4090) + b"n" * 5000 + b" %d\0file.c\0" + b"x" * 0x11000

    ((long,), problems) = read_notes(MadeUp(note(text=TEXTS + 4090), texts=texts))
    (none, endless) = read_notes(MadeUp(note(text=TEXTS + 4090 + 5020), texts=texts))

    assert (len(long.format), long.file, problems) == (5003, "file.c", ())
    assert none == ()
    assert "text without an end" in str(endless[0])


def test_notes_of_others_are_skipped_whatever_their_padding() -> None:
    for align in (4, 8):
        foreign = raw(b"GNU\0", 5, b"x" * 13, align) + raw(b"", 0, b"", align)
        assert len(foreign) % 8 == (0 if align == 8 else 4)
        data = foreign + raw(b"stapsdt\0", 3, bytes(42), align)
        data += note(NOTES + len(data), name=b"after\0")

        notes, problems = read_notes(MadeUp(data, align=align))

        assert [n.name for n in notes] == ["after"]
        assert problems == ()


def test_notes_of_eight_byte_alignment_are_iterated() -> None:
    data = raw(b"GNU\0", 5, b"x" * 13, 8) + raw(b"ABCDE\0", 7, b"y" * 3, 8)

    notes = [(n.owner, n.type, n.content) for n in iterate_notes(data, 8)]

    assert notes == [(b"GNU\0", 5, b"x" * 13), (b"ABCDE\0", 7, b"yyy")]


def test_other_types_of_ours_are_for_later_readers() -> None:
    assert read_notes(MadeUp(raw(b"markerjit\0", 2, b"?"))) == ((), ())


@pytest.mark.parametrize(
    "damage", [(0, 1 << 31), (0, 300), (0, 70), (4, 1 << 31), (4, 70), (4, 130)]
)
def test_damaged_size_hides_only_its_own_note(damage: tuple[int, int]) -> None:
    data = bytearray(several({"name": b"a\0"}, {"name": b"b\0"}, {"name": b"c\0"}))
    struct.pack_into("<I", data, len(note(name=b"a\0")) + damage[0], damage[1])

    notes, problems = read_notes(MadeUp(bytes(data)))

    assert [n.name for n in notes] == ["a", "c"]
    assert len(problems) == 1


def test_segment_cut_anywhere_gives_the_notes_before_the_cut() -> None:
    data = several({"name": b"a\0"}, {"name": b"b\0"}, {"name": b"c\0"})
    unit = len(data) // 3

    for size in range(len(data) + 1):
        notes, problems = read_notes(MadeUp(data[:size]))

        missing_padding = (len(data) - size) % unit if size else 0
        whole = size // unit + (0 < missing_padding <= 2)
        assert [n.name for n in notes] == ["a", "b", "c"][:whole], size
        assert len(problems) == (size % unit != 0 and not 0 < missing_padding <= 2)


def test_segment_that_cannot_be_read_is_a_problem_and_the_next_is_read() -> None:
    image = MadeUp(note())
    hole = image.segments[-1]._replace(address=0x900000)
    image.segments = (hole, *image.segments)

    notes, problems = read_notes(image)

    assert [n.name for n in notes] == ["made_up"]
    assert "cannot be read" in str(problems[0])


def test_process_that_ends_meanwhile_is_no_bad_note() -> None:
    image = MadeUp(note())

    def gone(address: int, size: int) -> bytes:
        raise TargetGone(12)

    image.read = gone  # type: ignore[method-assign]

    with pytest.raises(TargetGone):
        read_notes(image)


def test_thousands_of_bad_notes_end_the_search() -> None:
    notes, problems = read_notes(MadeUp(note(version=9) * 5000))

    assert notes == ()
    assert len(problems) == mirror.MAX_PROBLEMS


def test_texts_beyond_the_limit_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "MAX_TEXTS", 25)
    texts = b"n %d\0file.c\0" * 4
    data = several(*({"text": TEXTS + 12 * i} for i in range(4)), {"text": TEXTS})

    notes, problems = read_notes(MadeUp(data, texts))

    assert len(notes) == 3  # two texts of ten bytes, and the first once more
    assert len(problems) == 2


def test_ten_thousand_notes_take_few_reads() -> None:
    texts = b"".join(b"number %%d of marker_%05d\0file.c\0" % i for i in range(10_000))
    each = len(texts) // 10_000
    data = several(*({"text": TEXTS + each * i} for i in range(10_000)))

    image = MadeUp(data, texts)
    notes, problems = read_notes(image)

    assert problems == ()
    assert len({n.format for n in notes}) == 10_000
    assert image.reads <= len(texts) // 4096 + 3


def test_what_notes_share_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    describe = mirror._describe
    monkeypatch.setattr(mirror, "_describe", lambda data: decoded.append(data) or describe(data))
    other: dict[str, object] = {"argc": 2, "types": b"\x12\x13", "text": TEXTS + 12}
    changes = [*({"site": CODE + 8 * i} for i in range(100)), other, {"site": CODE + 800}]

    notes, problems = read_notes(MadeUp(several(*changes), b"n %d\0file.c\0%d %ld\0other.c\0"))

    assert problems == ()
    assert len(decoded) == 2
    assert [len(n.args) for n in notes] == [1] * 100 + [2, 1]
    assert [n.file for n in notes] == ["file.c"] * 100 + ["other.c", "file.c"]
    assert [n.site for n in notes] == [CODE + 8 * i for i in range(100)] + [CODE, CODE + 800]


def read_both_ways(
    monkeypatch: pytest.MonkeyPatch, data: bytes, texts: bytes = b"n %d\0file.c\0"
) -> tuple[tuple[mirror.AlikeNotes, ...], list[str]]:
    """What is read in lots of four notes, and the same note by note."""
    results = []
    for lot in (4, 1 << 30):
        monkeypatch.setattr(mirror, "_LOT", lot)
        alike, problems = mirror.read_alike(MadeUp(data, texts))
        results.append((alike, [str(problem) for problem in problems]))
    assert results[0] == results[1]
    return results[0]


ODD: list[dict[str, object]] = [
    {}, {"site": 16}, {"site": CODE + SPAN - 7}, {"body": 0}, {"body": CODE + SPAN}, {"slot": 0},
    {"slot": CODE}, {"slot": DATA + 8}, {"text": TEXTS + 12}, {"text": 16}, {"kind": 2},
    {"kind": 4}, {"argc": 2, "types": b"\x12\x13"}, {"version": 2}, {"version": 9},
    {"name": b"other_1\0"}, {"name": b"a_longer_name\0"}, {"flags": 1},
]  # fmt: skip


@pytest.mark.parametrize("at", [0, 1, 4, 5, 11, 12])
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_notes_are_the_same_in_lots_and_one_by_one(
    monkeypatch: pytest.MonkeyPatch, odd: dict[str, object], at: int
) -> None:
    changes: list[dict[str, object]] = [{"site": CODE + 8 * i} for i in range(20)]
    changes[at] = {**changes[at], **odd}

    alike, problems = read_both_ways(monkeypatch, several(*changes), b"n %d\0file.c\0n %d\0b.c\0")

    assert sum(len(notes.columns.site) for notes in alike) + len(problems) == 20


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 12 * 68 - 1), st.integers(0, 255)), max_size=4))
def test_damaged_notes_are_the_same_in_lots_and_one_by_one(
    monkeypatch: pytest.MonkeyPatch, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(several(*({"site": CODE + 8 * i} for i in range(12))))
    for offset, value in changes:
        data[offset] = value

    read_both_ways(monkeypatch, bytes(data))


def test_notes_that_are_alike_are_read_in_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[int] = []
    add = mirror._Reader._add
    monkeypatch.setattr(
        mirror._Reader, "_add", lambda self, *args: added.append(1) or add(self, *args)
    )
    texts = b"n %d\0file.c\0" + bytes(4)  # as a linker aligns them
    data = several(*({"site": CODE + i % 64, "text": TEXTS + 16 * i} for i in range(2001)))

    (notes,), problems = mirror.read_alike(MadeUp(data, texts * 2001))

    assert problems == ()
    assert notes.columns.site == [CODE + i % 64 for i in range(2001)]
    assert len(added) < 1 + mirror._LOT


@pytest.mark.parametrize(
    "change", [{"site": 16}, {"body": 16}, {"slot": CODE}, {"text": 16}, {"site": CODE + SPAN}]
)
def test_addresses_of_a_note_like_others_are_checked(change: dict[str, object]) -> None:
    notes, problems = read_notes(MadeUp(several({}, {}, change, {})))

    assert len(notes) == 3
    assert len(problems) == 1


GOOD = several({"name": b"a\0"}, {"name": b"b\0", "argc": 0, "types": b"", "text": TEXTS + 12})


@settings(deadline=None, max_examples=examples(400))
@given(
    st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=6),
    st.sampled_from([0, 1, 4, 8, 4096]),
)
def test_flipped_bytes_give_problems_and_no_other_errors(
    changes: list[tuple[int, int]], align: int
) -> None:
    data = bytearray(GOOD)
    for offset, value in changes:
        data[offset] = value

    notes, problems = read_notes(MadeUp(bytes(data), b"n %d\0file.c\0\0b.c\0", align))

    assert all(isinstance(problem, BadNote) for problem in problems)
    for parsed in notes:
        assert CODE <= parsed.site < CODE + SPAN
        assert parsed.name.replace("$", "_").isidentifier()


@settings(deadline=None)
@given(st.binary(max_size=400), st.sampled_from([4, 8]))
def test_any_bytes_are_read_to_an_end(data: bytes, align: int) -> None:
    notes, _ = read_notes(MadeUp(data, align=align))

    assert notes == ()


@settings(deadline=None)
@given(st.binary(max_size=20), st.integers(0, 200))
def test_any_text_is_read_or_is_a_problem(texts: bytes, offset: int) -> None:
    notes, problems = read_notes(MadeUp(note(text=TEXTS + offset), texts))

    assert len(notes) + len(problems) == 1
