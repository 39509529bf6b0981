"""The layouts of abi.h and stop.h beside their mirrors in Python, in both directions.

The headers are read for the names of everything that they lay down, a C program prints where the
compiler puts it, and every name has to have its mirror: a field or constant that is new on one side
only fails, and so does a mirror whose original is gone.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import struct
import subprocess
from pathlib import Path

import pytest

import markerjit.abi as abi
from markerjit.arena import create, stash, store, trap
from markerjit.arena import pack as pack_module
from markerjit.arena.pack import pack
from markerjit.arena.patches import PatchKind
from markerjit.elf import notes
from markerjit.model import Edit, RemoteAddress, TypeClass
from markerjit.patch import slots
from markerjit.questions import buckets, latencies
from markerjit.quiesce.strategies import STRATEGIES
from markerjit.remote import calls, native
from markerjit.ring import types

ROOT = Path(__file__).resolve().parent.parent.parent
ABI = ROOT / "native/include/markerjit/abi.h"
STOP = ROOT / "native/src/stop/stop.h"
RUNTIME = ROOT / "native/src/runtime"
TRAP = RUNTIME / "trap.c"

pytestmark = pytest.mark.oracle

Fields = dict[str, tuple[int, int]]  # offset and size, by name

CTYPES_MIRRORS: dict[str, type[ctypes.Structure]] = {
    "mj_sigaction": abi.Sigaction,
    "mj_restartable": abi.Restartable,
    "mj_ring": abi.Head,
    "mj_control": abi.Control,
    "mj_marker": abi.MarkerEntry,
    "mj_count": abi.Count,
    "mj_calls": abi.Calls,
    "mj_aggregate": abi.AggregateEntry,
    "mj_aggregation": abi.Aggregation,
    "mj_pairing": abi.Pairing,
    "mj_block": abi.BlockEntry,
    "mj_asked": abi.Asked,
    "mj_asked_text": abi.AskedText,
    "mj_key_part": abi.KeyPart,
    "mj_part": abi.PartEntry,
    "mj_stash": abi.Stash,
    "mj_kept": abi.Kept,
    "mj_stacks": abi.Stacks,
    "mj_code": abi.CodeEntry,
    "mj_unwind": abi.UnwindEntry,
    "mj_patch": abi.PatchEntry,
    "mj_unit": abi.UnitEntry,
    "mj_island": abi.IslandEntry,
    "mj_caller": abi.CallerEntry,
    "mj_entry": abi.Entry,
    "mj_owner": abi.OwnerEntry,
    "mj_journal": abi.JournalHead,
    "mj_edit": abi.EditEntry,
    "mj_target": native.NativeTarget,
    "mj_place": native.NativePlace,
    "mj_before": native.NativeBefore,
    "mj_breakpoint": native.Breakpoint,
    "mj_known": native.KnownThread,
    "mj_move": native.Move,
    "mj_range": native.Range,
    "mj_stack": native.CopiedStack,
    "mj_stack_piece": native.StackPiece,
    "mj_stack_room": native.StackRoom,
    "mj_filters": native.Filters,
    "mj_call": native.NativeCall,
    "mj_thread": native.NativeThread,
    "mj_report": native.Report,
    "mj_launched": native.Launched,
    "mj_loads": native.Loads,
    "mj_mapping": native.NativeMapping,
    "mj_followed": native.Followed,
    "mj_follow_totals": native.FollowTotals,
}

# Where the mirror is a struct format: its fields in order, and their names.
FORMAT_MIRRORS = {
    "mj_note": (
        notes.CONTENT,
        "version kind argc flags size reserved site body end slot text line types",
    ),
    "mj_record": (struct.Struct("<II"), "head tid"),
    "mj_text": (struct.Struct("<II"), "length state"),
    "mj_rules": (struct.Struct("<8sIIQQ"), "magic version count low high"),
}

CONSTANTS = {
    "MJ_NOTE_OWNER": notes.OWNER.rstrip(b"\0").decode(),
    "MJ_NOTE_TYPE": notes.NOTE_TYPE,
    "MJ_NOTE_VERSION": notes.VERSION,
    "MJ_NOTE_OLDEST": notes.OLDEST,
    "MJ_NOTE_SIZE": notes.CONTENT.size,
    "MJ_MAX_ARGS": notes.MAX_ARGS,
    "MJ_MAX_WORDS": abi.MAX_WORDS,
    "MJ_FLAG_INLINE": notes.FLAG_INLINE,
    "MJ_FLAG_BLOCK": notes.FLAG_BLOCK,
    **{f"MJ_KIND_{kind}": number for number, kind in notes.KINDS.items()},
    **{f"MJ_CLASS_{member.name}": int(member) for member in TypeClass},
    "MJ_ARENA_MAGIC": abi.MAGIC,
    "MJ_ARENA_VERSION": abi.VERSION,
    "MJ_ARENA_NAME": abi.NAME.decode(),
    "MJ_PAGE": abi.PAGE,
    "MJ_CODE_SIZE": abi.CODE_SIZE,
    "MJ_RUNTIME_SIZE": abi.RUNTIME_SIZE,
    "MJ_ALIVE": abi.ALIVE,
    "MJ_SCRATCH_SIZE": abi.SCRATCH_SIZE,
    "MJ_DATA_SIZE": abi.DATA_SIZE,
    "MJ_TRAP_NONE": abi.TRAP_NONE,
    "MJ_TRAP_INSTALLED": abi.TRAP_INSTALLED,
    "MJ_TRAP_INSTALLING": abi.TRAP_INSTALLING,
    "MJ_TRAP_NOT_YET": abi.TRAP_NOT_YET,
    "MJ_JOURNAL_EMPTY": abi.JOURNAL_EMPTY,
    "MJ_JOURNAL_OPEN": abi.JOURNAL_OPEN,
    "MJ_CPU_RDPID": abi.CPU_RDPID,
    "MJ_CPU_RTM": abi.CPU_RTM,
    "MJ_CPU_TSC": abi.CPU_TSC,
    "MJ_CPU_PKU": abi.CPU_PKU,
    "MJ_READER_NS": abi.READER_NS,
    "MJ_WAIT_NS": abi.WAIT_NS,
    "MJ_READABLE": abi.READABLE,
    "MJ_READABLE_BITS": abi.READABLE_BITS,
    "MJ_READABLE_TAG": abi.READABLE_TAG,
    "MJ_READABLE_WINDOW": abi.READABLE_WINDOW,
    "MJ_CPU_XSAVE": abi.CPU_XSAVE,
    "MJ_CALL_WORDS": abi.CALL_WORDS,
    "MJ_SLOT_DATA": slots.SLOT_DATA,
    "MJ_SLOT_ENTERED": slots.SLOT_ENTERED,
    "MJ_SLOT_LEFT": slots.SLOT_LEFT,
    "MJ_SLOT_ADAPTER": slots.SLOT_ADAPTER,
    "MJ_SLOT_OWNER": abi.SLOT_OWNER,
    "MJ_SLOT_SIZE": abi.SLOT_SIZE,
    "MJ_SLOT_TOKEN": slots.SLOT_TOKEN,
    "MJ_SLOT_STASH": slots.SLOT_STASH,
    "MJ_SLOT_UNMATCHED": slots.SLOT_UNMATCHED,
    "MJ_SLOT_TAKES": slots.SLOT_TAKES,
    "MJ_TAKES_TIME": abi.TAKES_TIME,
    "MJ_SINCE_TICKS": abi.SINCE_TICKS,
    **{f"MJ_{name}": value for name, value in vars(abi).items() if name.startswith("STASH_")},
    **{
        f"MJ_{name}": value
        for name, value in vars(abi).items()
        if name.startswith(("STACK_", "STACKS_", "END_", "SITE_"))
    },
    "MJ_APART": abi.APART,
    "MJ_ISLANDS_SIZE": abi.ISLANDS_SIZE,
    "MJ_MAX_STACK_DEPTH": abi.MAX_STACK_DEPTH,
    "MJ_FRAME_EXACT": abi.FRAME_EXACT,
    "MJ_FRAME_UNKNOWN": abi.FRAME_UNKNOWN,
    "MJ_DIRECTORIES": abi.DIRECTORIES,
    "MJ_DIRECTORY_SIZE": abi.DIRECTORY_SIZE,
    "MJ_MAX_CODES": abi.MAX_CODES,
    "MJ_UNWINDS": abi.UNWINDS,
    "MJ_RED_ZONE": abi.RED_ZONE,
    "MJ_SHAPE_FLOATS": abi.SHAPE_FLOATS,
    "MJ_PROBE_COUNTED": abi.PROBE_COUNTED,
    "MJ_SEQUENCES": abi.SEQUENCES,
    "MJ_SEQUENCE_COUNT": abi.SEQUENCE_COUNT,
    "MJ_SEQUENCE_ENTER": abi.SEQUENCE_ENTER,
    "MJ_SEQUENCE_LEAVE": abi.SEQUENCE_LEAVE,
    "MJ_SEQUENCE_ENTER_SAVING": abi.SEQUENCE_ENTER_SAVING,
    "MJ_SEQUENCE_LEAVE_SAVING": abi.SEQUENCE_LEAVE_SAVING,
    "MJ_RSEQ_SIGNATURE": abi.RSEQ_SIGNATURE,
    "MJ_RSEQ_CPU": abi.RSEQ_CPU,
    "MJ_RSEQ_SEQUENCE": abi.RSEQ_SEQUENCE,
    "MJ_WORDS_SHIFT": abi.WORDS_SHIFT,
    "MJ_FILLER": abi.FILLER,
    "MJ_MAX_RECORD": abi.MAX_RECORD,
    "MJ_CELL_SEQUENCES": abi.CELL_SEQUENCES,
    "MJ_CELL_ADD": abi.CELL_ADD,
    "MJ_CELL_SET": abi.CELL_SET,
    "MJ_CONTROL_CELL_SEQUENCES": abi.Control.cell_sequences.offset,
    "MJ_AGGREGATES": abi.AGGREGATES,
    "MJ_HASH_FACTOR": abi.HASH_FACTOR,
    "MJ_HASH_STEP": abi.HASH_STEP,
    "MJ_AGGREGATE_SIZE": abi.AGGREGATE_SIZE,
    "MJ_MAX_KEY_PARTS": abi.MAX_KEY_PARTS,
    "MJ_MAX_KEY_WORDS": abi.MAX_KEY_WORDS,
    "MJ_MISSED": abi.MISSED,
    "MJ_MAX_FIELD_PARTS": abi.MAX_FIELD_PARTS,
    "MJ_PLACES_OF_KEY": abi.PLACES_OF_KEY,
    "MJ_HELD_WORDS": abi.HELD_WORDS,
    "MJ_MAX_FIELD_WORDS": latencies.MOST_FIELD_WORDS,
    "MJ_SLOW_WORDS": abi.SLOW_WORDS,
    **{
        f"MJ_{n}": v
        for n, v in vars(abi).items()
        if re.match("(KEY|VALUE|DOES|MISSED|PLACE|BLOCK|STEP|GIVES)_", n)
    },
    "MJ_NO_SITE": abi.NO_SITE,
    "MJ_SITE_STACK": abi.SITE_STACK,
    "MJ_SITE_MARKER": abi.SITE_MARKER,
    **{
        f"MJ_{n}": v for n, v in vars(buckets).items() if re.match("PARTS_BITS|EXPONENTS|MIDDLE", n)
    },
    "MJ_MAX_ASKED": abi.MAX_ASKED,
    **{
        f"MJ_{name}": value
        for name, value in vars(abi).items()
        if re.match("OP_(?!SIZE)|TIME_|ASKS?_|MEMORY_", name)
    },
    **{f"MJ_TEXT_{state.name}": int(state) for state in types.TextState},
    **{
        f"MJ_CONTROL_{name.upper()}": getattr(abi.Control, name).offset
        for name in ("arena_size", "cpus", "parts", "cpu_flags", "rseq_offset", "sequences")
    },
    **{f"MJ_{name}": value for name, value in vars(abi).items() if name.startswith("PART_")},
    "MJ_PARTS": abi.PARTS,
    "MJ_PART_SIZE": ctypes.sizeof(abi.PartEntry),
    "MJ_PART_COUNT": abi.PartEntry.count.offset,
    **{f"MJ_{name}": value for name, value in vars(abi).items() if name.startswith("UNIT_")},
    **{f"MJ_PATCH_{kind.name}": int(kind) for kind in PatchKind},
    "MJ_RING_ROOM": abi.RING_ROOM,
    "MJ_RING_DATA": abi.RING_DATA,
    "MJ_RING_MASK": abi.RING_MASK,
    "MJ_RING_LIMIT": abi.RING_LIMIT,
}

STATUSES = [
    "OK",
    "ERRNO",
    "GONE",
    "BUSY",
    "IN_SPAN",
    "UNEXPECTED",
    "NOT_VERIFIED",
    "NO_THREAD",
    "CALL_FAILED",
    "NOT_64_BIT",
    "NOT_UNDONE",
    "NOT_SYNCED",
    "MOVED",
    "SIGTRAP_BLOCKED",
    "DISTURBED",
    "FAULTED",
    "STACK_UNKNOWN",
    "NO_ROOM",
    "OTHER_TRAP",
    "FILTERED",
]
QUIESCENCES = ["STOP", "MEMBARRIER", "SIGNALS", "NONE"]
FOLLOWED = ["FORKED", "EXECUTED", "ENDED", "SHARING"]

NOT_MIRRORED = {
    "MJ_KIND_none": "emits no note",
    "MJ_PROBE_INLINE": "between a program and its own library",
    **dict.fromkeys(
        (
            "MJ_SLOT_SIZE_OF_C",
            "MJ_CALL_SHAPE",
            "MJ_CALL_SLOT",
        ),
        "between a body and its probe",
    ),
    **dict.fromkeys(
        (
            "MJ_SEQUENCE_APPEND",
            "MJ_SEQUENCE_TURN",
            "MJ_SEQUENCE_TALLY",
            "MJ_MARKER_ID",
        ),
        "within the runtime",
    ),
}

KERNEL = {
    **{f"__NR_{n[4:].lower()}": v for n, v in vars(calls).items() if n.startswith("SYS_")},
    "ARCH_GET_FS": calls._ARCH_GET_FS,
    "PROT_READ": create._PROT_READ,
    "PROT_WRITE": create._PROT_WRITE,
    "PROT_EXEC": create._PROT_EXEC,
    "MAP_SHARED": create._MAP_SHARED,
    "MAP_PRIVATE": create._MAP_PRIVATE,
    "MAP_ANONYMOUS": create._MAP_ANONYMOUS,
    "MAP_FIXED": create._MAP_FIXED,
    "MAP_NORESERVE": stash._MAP_NORESERVE,
    "MADV_WIPEONFORK": create._MADV_WIPEONFORK,
    "MFD_CLOEXEC": create._MFD_CLOEXEC,
    "F_DUPFD_CLOEXEC": create._F_DUPFD_CLOEXEC,
    "SIGTRAP": trap._SIGTRAP,
    "SA_SIGINFO": trap._SA_SIGINFO,
    "SA_RESTORER": trap._SA_RESTORER,
    "SA_ONSTACK": trap._SA_ONSTACK,
    "SA_RESTART": trap._SA_RESTART,
    "SA_NODEFER": trap._SA_NODEFER,
    "FALLOC_FL_PUNCH_HOLE": store._PUNCH_HOLE,
    "FALLOC_FL_KEEP_SIZE": store._KEEP_SIZE,
    "sizeof(struct sigaction)": ctypes.sizeof(abi.Sigaction),
    "offsetof(struct rseq, cpu_id)": abi.RSEQ_CPU,
    "offsetof(struct rseq, rseq_cs)": abi.RSEQ_SEQUENCE,
    "sizeof(struct rseq_cs)": ctypes.sizeof(abi.Restartable),
    "offsetof(struct rseq_cs, start_ip)": abi.Restartable.start.offset,
    "offsetof(struct rseq_cs, post_commit_offset)": abi.Restartable.length.offset,
    "offsetof(struct rseq_cs, abort_ip)": abi.Restartable.abort.offset,
}
KERNEL_HEADERS = [
    "asm/signal.h",
    "asm/prctl.h",
    "asm/unistd_64.h",
    "linux/mman.h",
    "linux/memfd.h",
    "linux/fcntl.h",
    "linux/falloc.h",
    "linux/time.h",
    "sys/rseq.h",
    "stddef.h",
]


# ---- reading and compiling the headers -----------------------------------------------------------


def _without_comments(path: Path) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.S)


def structures(path: Path) -> dict[str, list[str]]:
    """The names of the fields of every structure that a header defines."""
    structs = {}
    text = re.sub(r"struct \{[^}]*\}", "struct_without_a_name", _without_comments(path))
    for name, body in re.findall(r"struct (mj_\w+) \{(.*?)\n\}[^;]*;", text, re.S):
        fields = []
        for declaration in body.split(";"):
            plain = re.sub(r"__attribute__\(\(.*?\)\)\)?|\[[^]]*\]", "", declaration)
            fields += [re.findall(r"\w+", part)[-1] for part in plain.split(",") if part.strip()]
        structs[name] = fields
    return structs


def constants(path: Path) -> list[str]:
    """The names of the macros of a header that have a value and take no arguments."""
    return re.findall(r"^#define (MJ_\w+)[ \t]+\S", _without_comments(path), re.M)


def _run_c(folder: Path, source: str) -> list[list[str]]:
    (folder / "print.c").write_text(source)
    subprocess.run(["gcc", "-w", "-o", folder / "print", folder / "print.c"], check=True)
    output = subprocess.run([folder / "print"], check=True, capture_output=True, text=True).stdout
    return [line.split(" ") for line in output.splitlines()]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What the compiler says: sizes of structures, their fields, the constants, the statuses."""
    known = {**structures(ABI), **structures(STOP)}
    lines = []
    for name, fields in known.items():
        lines.append(f'printf("size {name} %zu\\n", sizeof(struct {name}));')
        for field in fields:
            place = f"(size_t)offsetof(struct {name}, {field})"
            size = f"sizeof(((struct {name} *)0)->{field})"
            lines.append(f'printf("field {name} {field} %zu %zu\\n", {place}, {size});')
    for name in constants(ABI):
        kind = f'_Generic(({name}), char *: "text {name} %s\\n", default: "number {name} %lu\\n")'
        lines.append(f"printf({kind}, {name});")
    lines += [
        f'printf("status {name} %d\\n", MJ_{name});'
        for name in (*STATUSES, *QUIESCENCES, *FOLLOWED)
    ]
    source = (
        f'#include <stdio.h>\n#include "{ABI}"\n#include "{STOP}"\n'
        f"int main(void) {{\n{chr(10).join(lines)}\n}}\n"
    )
    sizes: dict[str, object] = {}
    fields_of: dict[str, Fields] = {name: {} for name in known}
    values: dict[str, object] = {}
    statuses: dict[str, object] = {}
    for what, name, *rest in _run_c(tmp_path_factory.mktemp("mirrors"), source):
        if what == "size":
            sizes[name] = int(rest[0])
        elif what == "field":
            fields_of[name][rest[0]] = (int(rest[1]), int(rest[2]))
        elif what == "status":
            statuses[name] = int(rest[0])
        else:
            values[name] = rest[0] if what == "text" else int(rest[0])
    return {"sizes": sizes, "fields": {**fields_of}, "values": values, "statuses": statuses}


def _of_ctypes(mirror: type[ctypes.Structure]) -> Fields:
    places = {name: getattr(mirror, name) for name, *_ in mirror._fields_ if name[0] != "_"}
    return {name.rstrip("_"): (place.offset, place.size) for name, place in places.items()}


def _of_format(mirror: struct.Struct, names: str) -> Fields:
    items = re.findall(r"\d*s|\w", mirror.format.lstrip("<"))
    at, members = 0, {}
    for name, item in zip(names.split(), items, strict=True):
        size = struct.calcsize(f"<{item}")
        members[name] = (at, size)
        at += size
    return members


# ---- the comparison ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CTYPES_MIRRORS)
def test_every_field_of_a_structure_is_where_the_compiler_puts_it(
    name: str, compiled: dict[str, dict[str, object]]
) -> None:
    mirror = CTYPES_MIRRORS[name]

    assert _of_ctypes(mirror) == compiled["fields"][name]
    assert ctypes.sizeof(mirror) == compiled["sizes"][name]


@pytest.mark.parametrize("name", FORMAT_MIRRORS)
def test_every_field_of_a_format_is_where_the_compiler_puts_it(
    name: str, compiled: dict[str, dict[str, object]]
) -> None:
    mirror, names = FORMAT_MIRRORS[name]

    assert _of_format(mirror, names) == compiled["fields"][name]
    assert mirror.size == compiled["sizes"][name]


def test_relative_addresses_of_a_note_count_from_their_own_places(
    compiled: dict[str, dict[str, object]],
) -> None:
    fields = compiled["fields"]["mj_note"]

    for name in ("site", "body", "end", "slot", "text"):
        assert getattr(notes, name.upper()) == fields[name][0]


def test_slot_ring_and_record_have_their_words_where_they_are_looked_for(
    compiled: dict[str, dict[str, object]],
) -> None:
    slot, ring = compiled["fields"]["mj_slot"], compiled["fields"]["mj_ring"]

    assert slot["probe"] == (slots.SLOT_PROBE, 8)
    assert slot["data"] == (slots.SLOT_DATA, 8)
    assert slot["adapter"] == (slots.SLOT_ADAPTER, 8)
    assert set(slot) == {"probe", "data", "entered", "left", "adapter", "reserved"}
    assert slots.BINDING_SIZE == 16 <= compiled["sizes"]["mj_slot"]
    assert ring == {
        name: (getattr(abi, f"RING_{name.upper()}"), 8)
        for name in ("head", "room", "data", "mask", "limit", "begun")
    }
    assert compiled["sizes"]["mj_ring"] == abi.RING_HEAD_SIZE
    assert compiled["sizes"]["mj_count"] == abi.COUNT_SIZE
    assert compiled["sizes"]["mj_calls"] == abi.CALLS_SIZE
    assert compiled["sizes"]["mj_record"] == types.HEAD_SIZE
    assert compiled["sizes"]["mj_text"] == types.WORD
    assert types.FILLER == abi.FILLER


def test_no_structure_of_the_headers_is_without_a_mirror(
    compiled: dict[str, dict[str, object]],
) -> None:
    mirrored = {*CTYPES_MIRRORS, *FORMAT_MIRRORS, "mj_slot"}

    assert set(compiled["sizes"]) == mirrored


def test_no_structure_of_the_mirrors_is_without_its_original(
    compiled: dict[str, dict[str, object]],
) -> None:
    mirrors = {
        value
        for module in (abi, native)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ctypes.Structure)
    }

    assert mirrors == {*CTYPES_MIRRORS.values(), abi.SequenceEntry}
    of_one = compiled["fields"]["mj_entry"]["sequences"][1] // abi.SEQUENCES
    assert ctypes.sizeof(abi.SequenceEntry) == of_one


def test_every_constant_of_the_headers_has_its_value_in_python(
    compiled: dict[str, dict[str, object]],
) -> None:
    expected = {name: v for name, v in compiled["values"].items() if name not in NOT_MIRRORED}

    assert expected == CONSTANTS
    assert set(NOT_MIRRORED) < set(compiled["values"])


def test_both_mirrors_of_the_number_of_arguments_are_the_same() -> None:
    assert abi.MAX_ARGS == notes.MAX_ARGS


def test_every_constant_of_the_arena_in_python_is_one_of_the_headers() -> None:
    bounds = {
        "LARGEST_RING", "LARGEST_ENTRY", "MOST_CPUS", "MOST_EDITS", "MOST_MARKERS", "MOST_PATCHES",
        "MOST_UNITS", "MOST_ISLANDS", "MOST_CALLERS", "MOST_SLOTS", "SMALLEST_PATCH",
        "MOST_AGGREGATE_PAGES",
    }  # fmt: skip
    derived = {
        "CONTROL", "TABLES", "OP_SIZE_SHIFT", "NO_LIMIT", "COUNT_SIZE", "CALLS_SIZE", "TURN_FULL",
        "RING_HEAD", "RING_BEGUN", "RING_HEAD_SIZE",
    }  # fmt: skip
    names = {name for name, v in vars(abi).items() if name.isupper() and name[0] != "_"}
    mirrored = {key.removeprefix("MJ_").removeprefix("ARENA_") for key in CONSTANTS}

    assert names - derived - bounds <= mirrored
    assert abi.CONTROL == abi.CODE_SIZE
    assert abi.ALIVE == abi.CONTROL + abi.PAGE
    assert abi.TABLES == abi.ALIVE + abi.PAGE
    assert abi.NO_LIMIT == (1 << 64) - 1
    assert ctypes.sizeof(abi.Control) <= abi.PAGE


def test_every_status_and_quiescence_of_the_helper_has_its_number(
    compiled: dict[str, dict[str, object]],
) -> None:
    in_header = re.findall(r"\bMJ_(\w+) = \d+", _without_comments(STOP))
    in_python = {name: getattr(native, name) for name in (*STATUSES, *QUIESCENCES, *FOLLOWED)}

    assert in_header == [*STATUSES, *QUIESCENCES, *FOLLOWED]
    assert in_python == compiled["statuses"]
    assert {n for n, v in vars(native).items() if n.isupper() and isinstance(v, int)} == {
        *STATUSES,
        *QUIESCENCES,
        *FOLLOWED,
        "MAX_EDIT",
        "CALL_TEXT",
        "FILTERS",
        "FILTER_ROOM",
        "GROW_MEMFD",
        "HOLD_ROOM",
        "STACK_PIECES",
    }
    assert compiled["fields"]["mj_edit"]["old_bytes"][1] == native.MAX_EDIT
    assert compiled["fields"]["mj_call"]["text"][1] == native.CALL_TEXT
    assert "#define MJ_GROW_MEMFD (~0ul)" in STOP.read_text()
    assert native.GROW_MEMFD == (1 << 64) - 1
    assert {name: strategy.number for name, strategy in STRATEGIES.items()} == {
        name.lower(): compiled["statuses"][name] for name in QUIESCENCES
    }


def test_packed_edits_are_what_the_compiler_lays_out(
    compiled: dict[str, dict[str, object]],
) -> None:
    fields = compiled["fields"]["mj_edit"]
    edit = Edit(RemoteAddress(0x1122334455667788), b"old", b"new", "", True, 5, True, True, True)

    packed = pack([edit])

    assert len(packed) == pack_module.SIZE == compiled["sizes"]["mj_edit"]
    values = {
        name: int.from_bytes(packed[at : at + size], "little")
        for name, (at, size) in fields.items()
        if not name.endswith("_bytes")
    }
    assert values == {
        "address": edit.address, "size": 3, "step": 5, "code": 1, "again": 1, "store": 1,
        "early": 1, "reserved": 0,
    }  # fmt: skip
    for name in ("old", "new"):
        at, size = fields[f"{name}_bytes"]
        assert packed[at : at + size] == name.encode().ljust(size, b"\0")


def test_runtime_is_built_for_this_layout_and_its_functions_are_inside_it(build: Path) -> None:
    code = Path(native.package_file("runtime.bin")).read_bytes()

    entry = abi.Entry.from_buffer_copy(code)

    assert (entry.magic, entry.version) == (abi.MAGIC, abi.VERSION)
    assert entry.size == len(code) <= abi.CODE_SIZE
    functions = {
        entry.record, entry.count, entry.trap, entry.restorer, entry.record_event, entry.pass_,
        entry.turn, entry.lose, entry.fetch,
    }  # fmt: skip
    assert len(functions) == 9
    assert all(ctypes.sizeof(abi.Entry) <= at < entry.size for at in functions)
    assert entry.size <= abi.RUNTIME_SIZE
    spans = sorted((sequence.start, sequence.end) for sequence in entry.sequences)
    assert all(start < end < entry.size for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    for sequence in entry.sequences:
        assert not any(start <= sequence.abort < end for start, end in spans)
        signature = code[sequence.abort - 4 : sequence.abort]
        assert signature == abi.RSEQ_SIGNATURE.to_bytes(4, "little")


def test_what_adding_a_record_comes_to_has_one_number_in_c_assembly_and_python() -> None:
    (enumeration,) = re.findall(r"enum \{ (MJ_DONE.*?) \}", (RUNTIME / "runtime.h").read_text())
    in_c = {name.removeprefix("MJ_"): at for at, name in enumerate(enumeration.split(", "))}
    defined = re.findall(r"^#define ([A-Z]+) (\d+)", (RUNTIME / "restart.S").read_text(), re.M)

    assert {name: int(value) for name, value in defined}.items() <= in_c.items()
    assert len(defined) == 5
    assert in_c["FULL"] == abi.TURN_FULL
    assert in_c["DONE"] == 0


def _defined(file: str, pattern: str, name: str) -> dict[str, int]:
    """Numbers that a part of the runtime states, which includes no headers."""
    matches = re.findall(pattern, (RUNTIME / file).read_text())
    assert matches, file
    return {name.format(part): int(value) for part, value in matches}


def test_numbers_of_the_kernel_are_those_of_its_headers(tmp_path: Path) -> None:
    known = {
        **KERNEL,
        **_defined("fetch.c", r"#define NR_(\w+) (\d+)", "__NR_{}"),
        **_defined("trap.c", r"#define NR_(\w+) (\d+)", "__NR_{}"),
        **_defined("wait.c", r"#define NR_(\w+) (\d+)", "__NR_{}"),
        **_defined("runtime.h", r"#define MJ_CLOCK_(MONOTONIC) (\d+)", "CLOCK_{}"),
        **_defined("record.c", r"CLOCK_OF_(COARSE) = (\d+)", "CLOCK_MONOTONIC_{}"),
        "RSEQ_SIG": abi.RSEQ_SIGNATURE,
    }
    lines = [f'printf("{n.replace(" ", "~")} %lu\\n", (long)({n}));' for n in known]
    includes = "".join(f"#include <{header}>\n" for header in KERNEL_HEADERS)
    source = f"int printf(const char *, ...);\n{includes}int main(void) {{ {''.join(lines)} }}"

    values = {name.replace("~", " "): int(value) for name, value in _run_c(tmp_path, source)}

    assert values == known


def test_handler_finds_the_register_that_it_changes_where_libc_has_it(tmp_path: Path) -> None:
    stated = dict(re.findall(r"#define UCONTEXT_(RIP) (\d+)", TRAP.read_text()))
    source = (
        "#define _GNU_SOURCE\n#include <stddef.h>\n#include <stdio.h>\n#include <ucontext.h>\n"
        "#include <signal.h>\nint main(void) {\n"
        'printf("%zu %zu\\n", offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP]), '
        "offsetof(siginfo_t, si_code)); }\n"
    )

    ((rip, code),) = _run_c(tmp_path, source)

    assert stated == {"RIP": rip}
    assert int(code) == 2 * 4  # ((const int32_t *)info)[2]
