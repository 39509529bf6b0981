"""The bodies of sites that nobody prepared: every form of operand, executed with known values."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from markerjit.abi import SINCE_TICKS, SITE_ABOVE, STASH_SIZE, TAKES_TIME, Stash
from markerjit.model import (
    Constant,
    CType,
    Duration,
    Kept,
    MappedObject,
    Operand,
    Place,
    Recipe,
    RemoteAddress,
    Signature,
    Static,
    TypeClass,
    UsdtSite,
    Vector,
)
from markerjit.probes import stub
from markerjit.probes.fast import Fast, FastPaths
from markerjit.probes.parts import Name
from markerjit.probes.record import words_to_stack
from markerjit.probes.stub import Displaced, Stub, code_of_stub, make_stub, stub_for
from markerjit.sites.operands import parse_operands
from markerjit.x86.assemble import number
from markerjit.x86.decode import decoder
from markerjit.x86.encoding import WronglyAssembled
from markerjit.x86.forms import (
    CONDITION_LENGTH,
    FUNCTION,
    INSTRUCTION,
    TAIL_CALL,
    code_form,
    exit_form,
    is_near_condition,
)
from markerjit.x86.relocate import Unmovable
from tests.support.own_arena import OwnArena, Slot
from tests.support.stub_host import (
    FLAGS,
    MAP_NORESERVE,
    NAMES,
    VALUES,
    Host,
    NoNames,
    Outcome,
    build_host,
    parsed,
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return build_host(tmp_path_factory.mktemp("stub"))


@pytest.fixture(params=[False, True], ids=["plain", "fast"])
def host(request: pytest.FixtureRequest, built: Host, fast: Fast) -> Iterator[Host]:
    """Its stubs have no fast path, or one for another probe than it has."""
    built.fast = fast if request.param else None
    yield built
    built.fast = None


@pytest.fixture(scope="module")
def fast(build: Path) -> Fast:
    own = OwnArena()
    made = FastPaths(own.arena).of(Signature("n", "", ()))
    assert made
    return made


def extended(value: int, size: int, *, signed: bool) -> int:
    low = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    return int.from_bytes(low, "little", signed=signed) & (1 << 64) - 1


REGISTERS = {8: [*NAMES], 4: [], 2: [], 1: []}
for _name in ("ax", "bx", "cx", "dx", "si", "di", "bp"):
    REGISTERS[4].append(f"e{_name}")
    REGISTERS[2].append(_name)
    REGISTERS[1].append(f"{_name[0]}l" if _name[1] == "x" else f"{_name}l")
for _number in range(8, 16):
    REGISTERS[4].append(f"r{_number}d")
    REGISTERS[2].append(f"r{_number}w")
    REGISTERS[1].append(f"r{_number}b")
ALL_REGISTERS = [(size, name) for size, names in REGISTERS.items() for name in names]


def whole(name: str) -> str:
    """The 64-bit register that a name is a part of."""
    if name in NAMES:
        return name
    if name[1].isdigit():
        return name.rstrip("dwb")
    core = name.removeprefix("e").removesuffix("l")
    return f"r{core if len(core) == 2 else core + 'x'}"


@pytest.mark.parametrize(("size", "name"), ALL_REGISTERS)
def test_a_register_of_any_width_is_passed_with_its_sign(host: Host, size: int, name: str) -> None:
    seen = host.run(*parsed(f"{size}@%{name} -{size}@%{name}"))

    assert seen
    value = seen.registers[whole(name)]
    assert seen.words[0] == extended(value, size, signed=False)
    assert seen.words[1] == extended(value, size, signed=True)
    assert seen.shape == 2
    assert seen.slot == ctypes.addressof(host.slot)


@pytest.mark.parametrize("letter", "abcd")
def test_a_high_byte_is_passed(host: Host, letter: str) -> None:
    seen = host.run(*parsed(f"1@%{letter}h -1@%{letter}h"))

    assert seen
    value = VALUES[f"r{letter}x"] >> 8
    assert seen.words[0] == extended(value, 1, signed=False)
    assert seen.words[1] == extended(value, 1, signed=True)


ADDRESSES = [
    (base, scaled)
    for base in (*NAMES, "")
    for scaled in ("", "rax", "rcx", "r12")
    if base != scaled  # one register cannot be chosen twice, and none is no address
]


@pytest.mark.product
@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize(("base", "scaled"), ADDRESSES)
def test_memory_is_loaded_from_base_offset_and_index(
    host: Host, size: int, base: str, scaled: str
) -> None:
    data = ctypes.create_string_buffer(bytes(range(0x70, 0xF0)))
    middle = ctypes.addressof(data) + 64
    registers = {}
    if scaled:
        registers[scaled] = 5
    offset = -24
    if base and base != "rsp":
        registers[base] = middle - offset - 5 * 8 * bool(scaled)
    elif scaled and not base:
        registers[scaled] = (middle - offset) // 8
        middle = registers[scaled] * 8 + offset
    else:  # what stands on the program's own stack, above its top
        top = ctypes.addressof(host.stack) + (1 << 15) & -16
        offset = 48
        middle = top + offset + 5 * 8 * bool(scaled)
        ctypes.memmove(middle, bytes(range(0xA0, 0xA8)), 8)
    place = f"{offset}({f'%{base}' if base else ''}{f',%{scaled},8' if scaled else ''})"
    expected = int.from_bytes(ctypes.string_at(middle, size), "little")

    seen = host.run(*parsed(f"{size}@{place} 4@$7 -{size}@{place}"), registers=registers)

    assert seen
    assert seen.words[0] == extended(expected, size, signed=False)
    assert seen.words[1] == 7
    assert seen.words[2] == extended(expected, size, signed=True)


def test_the_red_zone_is_loaded_and_stays(host: Host) -> None:
    top = ctypes.addressof(host.stack) + (1 << 15) & -16
    zone = bytes(range(128))
    ctypes.memmove(top - 128, zone, 128)

    seen = host.run(*parsed("8@-128(%rsp) 8@-8(%rsp)"))

    assert seen and seen.words[:2] == tuple(
        int.from_bytes(zone[at : at + 8], "little") for at in (0, 120)
    )
    assert ctypes.string_at(top - 128, 128) == zone


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("-4@$-1", (1 << 64) - 1),
        ("4@$-1", 0xFFFF_FFFF),
        ("4@$4294967295", 0xFFFF_FFFF),
        ("-4@$4294967295", (1 << 64) - 1),
        ("1@$255", 255),
        ("-1@$255", (1 << 64) - 1),
        ("8@$-1", (1 << 64) - 1),
        ("-8@$-9223372036854775808", 1 << 63),
        ("8@$0x123456789abcdef0", 0x1234_5678_9ABC_DEF0),
        ("2@$0", 0),
    ],
)
def test_a_constant_is_passed_with_its_size_and_sign(host: Host, text: str, word: int) -> None:
    seen = host.run(*parsed(text))

    assert seen and seen.words[0] == word


def test_a_static_variable_is_loaded_and_an_address_passed(host: Host) -> None:
    place = host.address("word")
    operands: tuple[Operand, ...] = (
        Static(place, "word"), Static(RemoteAddress(place + 4), "word"), Constant(place, "word"),
    )  # fmt: skip
    args = (
        CType(TypeClass.UNSIGNED, 8), CType(TypeClass.SIGNED, 2), CType(TypeClass.POINTER, 8),
    )  # fmt: skip

    seen = host.run(operands, args)

    assert seen and seen.words[:3] == (0x1122334455667788, 0x3344, place)


@pytest.mark.parametrize("number", range(16))
def test_doubles_and_floats_are_passed_as_doubles(host: Host, number: int) -> None:
    vectors = bytearray(256)
    vectors[16 * number : 16 * number + 16] = struct.pack("<f", 1.5) + bytes(range(12))
    as_double = struct.unpack("<d", vectors[16 * number : 16 * number + 8])[0]
    args = CType(TypeClass.FLOAT, 4), CType(TypeClass.FLOAT, 8), CType(TypeClass.UNSIGNED, 4)

    seen = host.run((Vector(number), Vector(number), Constant(3)), args, vectors=bytes(vectors))

    assert seen and seen.shape == 3 | 0b011 << 8
    assert struct.unpack("<2d", struct.pack("<2Q", *seen.words[:2])) == (1.5, as_double)
    assert seen.words[2] == 3


def test_a_float_in_memory_becomes_a_double_and_leaves_the_status(host: Host) -> None:
    data = ctypes.c_uint32(0x7FA0_0000)  # a signalling NaN: an exception, if it were not masked
    registers = {"rdi": ctypes.addressof(data)}

    seen = host.run(*parsed("4f@(%rdi) 8f@(%rdi)"), registers=registers)

    assert seen and seen.words[0] >> 51 == 0xFFF, "quiet by now"


def test_twelve_operands_arrive_in_their_order(host: Host) -> None:
    text = " ".join(f"4@${number}" for number in range(12))

    seen = host.run(*parsed(text))

    assert seen and seen.words[:12] == tuple(range(12))
    assert seen.shape == 12


def test_nothing_is_loaded_where_the_slot_has_no_probe(host: Host) -> None:
    assert host.run(*parsed("8@(%rax) 8@0(%rcx)"), on=False) is None


@pytest.mark.parametrize("on", [True, False])
def test_an_entry_keeps_nothing_in_a_child_that_was_forked_after_it_read_its_token(
    host: Host, on: bool
) -> None:
    """A signal handler may fork between the reads of the two words of a slot, which the child
    finds empty: it then has the token of its parent, and no memory to keep anything in."""
    host.slot.token, host.slot.stash = 5, 0
    try:
        seen = host.run(*parsed("8@%rdi"), on=on, keeps=True)
    finally:
        host.slot.token = 0

    assert (seen is not None) is on
    assert seen is None or seen.words[0] == VALUES["rdi"]


def test_flags_stay(host: Host) -> None:
    seen = host.run(*parsed("8@%rax"))

    # site.S saves them after its own stack is back, by instructions that change none.
    assert seen and seen.flags & 0x8D5 == FLAGS & 0x8D5


def test_a_probe_in_c_is_called_through_its_adapter(host: Host) -> None:
    host.slot.adapter = host.address("probe")
    operands, args = parsed("8@%rdi")
    original = host.address

    host.address = lambda name: RemoteAddress(  # type: ignore[method-assign]
        original(name) | (name == "probe")
    )
    try:
        seen = host.run(operands, args)
    finally:
        host.address = original  # type: ignore[method-assign]

    assert seen and seen.words[0] == VALUES["rdi"]


def test_an_offset_that_does_not_fit_any_more_is_refused(host: Host) -> None:
    with pytest.raises(WronglyAssembled, match="too far"):
        host.run(*parsed("8@2147483640(%rsp)"))


class Stashed(NamedTuple):
    """A slot of an entry that keeps what it is called with, and the memory for that."""

    entry: Slot
    memory: mmap.mmap
    own: OwnArena


@pytest.fixture(scope="module")
def stashed(build: Path) -> Stashed:
    own = OwnArena()
    memory = mmap.mmap(-1, STASH_SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    find, claim = (own.base + own.arena.entry.stash_find, own.base + own.arena.entry.stash_claim)
    memory[: ctypes.sizeof(Stash)] = bytes(Stash(claim=claim, find=find, ns_per_tick=1 << 31))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return Stashed(Slot(token=7, stash=address), memory, own)


def kept(host: Host, stashed: Stashed, takes: int) -> tuple[Outcome | None, int]:
    """The outcome of an exit whose probe takes so much of what its entry keeps, and the returns
    without an entry."""
    own = host.slot
    args = (CType(TypeClass.UNSIGNED, 8),) * 3
    host.slot = stashed.entry
    try:
        host.run(*parsed("8@%rdi"), on=False, keeps=True)
    finally:
        host.slot = own
    own.token, own.stash = 0, takes  # MJ_SLOT_UNMATCHED, MJ_SLOT_TAKES
    (rax,), _ = parsed("8@%rax")
    try:
        seen = host.run((rax, Duration(), Kept(0)), args, entry=stashed.entry)
        return seen, own.token
    finally:
        own.token = own.stash = 0


def test_a_probe_that_takes_the_time_gets_that_of_the_entry_with_a_bit_that_says_so(
    host: Host, stashed: Stashed
) -> None:
    seen, unmatched = kept(host, stashed, host.address("probe") + TAKES_TIME)

    assert seen and not unmatched
    assert seen.words[0] == VALUES["rax"]
    assert seen.words[1] >> SINCE_TICKS == 1
    assert seen.words[1] & (1 << SINCE_TICKS) - 1 > 0
    assert seen.words[2] == VALUES["rdi"]


@pytest.mark.parametrize("takes", [0, 16, 17], ids=["any", "another", "of another"])
def test_a_probe_of_which_the_slot_says_nothing_gets_the_duration(
    host: Host, stashed: Stashed, takes: int
) -> None:
    """Also while it is exchanged for another one: what the slot says is of that."""
    seen, unmatched = kept(host, stashed, takes)

    assert seen and not unmatched
    assert 0 < seen.words[1] < 1 << 40
    assert seen.words[2] == VALUES["rdi"]


def test_a_probe_that_takes_nothing_is_called_also_where_nothing_was_kept(
    host: Host, stashed: Stashed
) -> None:
    stashed.entry.token = 0

    try:
        seen, unmatched = kept(host, stashed, host.address("probe"))
    finally:
        stashed.entry.token = 7

    assert seen and not unmatched
    assert seen.words[0] == VALUES["rax"]


# ---- exits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 5, CONDITION_LENGTH])
def test_exit_on_a_condition_asks_for_it_unless_its_own_jump_leads_to_the_stub(size: int) -> None:
    leaving = bytes.fromhex("0f 85 00 10 00 00")  # jne
    at = RemoteAddress(0x401FFB)
    place = Place(MappedObject("/made", 0, None, False), at, "made")
    signature = Signature("func:made:return", "", ())
    site = UsdtSite(signature, place, at, exit_form(leaving[:size]), Recipe(()), at)

    stub = stub_for(site, RemoteAddress(0x500000), Displaced(at, leaving), RemoteAddress(0x600000))

    assert isinstance(stub, Stub)
    first = next(decoder().disasm(stub.code, 0x600000))
    back = next(part.start for part in stub.parts if part.name == Name.INTO_PROGRAM)
    if size < CONDITION_LENGTH:
        assert (first.mnemonic, int(first.op_str, 16)) == ("je", back)
    else:
        assert stub.parts[0].name == Name.RED_ZONE


@pytest.mark.parametrize("is_fast", [False, True], ids=["plain", "fast"])
def test_an_address_that_looks_like_a_number_to_be_put_in_stays(
    fast: Fast, *, is_fast: bool
) -> None:
    """Four bytes stand for a small number of an operand until it is known."""
    slot = RemoteAddress(0x7F00_0000_0000 | stub._ANY_HALF)
    displaced = Displaced(RemoteAddress(0x401000), bytes.fromhex("9090909090"))
    args = (CType(TypeClass.UNSIGNED, 8),)

    made = make_stub(
        Signature("made:one", "", args), (Constant(7),), slot, displaced, RemoteAddress(0x600000),
        fast=fast if is_fast else None,
    )  # fmt: skip

    assert isinstance(made, Stub)
    text = [f"{each.mnemonic} {each.op_str}" for each in decoder().disasm(made.code, 0x600000)]
    assert f"movabs rax, {slot:#x}" in text
    assert "mov eax, 7" in text


def test_stubs_of_thousands_of_places_are_laid_out_once(
    fast: Fast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What leads from one part of a stub to another depends on how long they are, and on nothing
    else. The code is the same but for the slot, the place and the way back."""
    signature = Signature("n", "", ())
    laid: list[object] = []
    woven = stub._woven

    def counting(*args: object) -> object:
        laid.append(args)
        return woven(*args)  # type: ignore[arg-type]

    def made(nth: int, code: bytes) -> Stub:
        displaced = Displaced(RemoteAddress(0x401000 + 0x10 * nth), code)
        slot, place = RemoteAddress(0x500000 + 0x40 * nth), 0x600000 + 0x1000 * nth
        stub = make_stub(signature, (), slot, displaced, RemoteAddress(place), fast=fast)
        assert isinstance(stub, Stub)
        return stub

    monkeypatch.setattr("markerjit.probes.stub._woven", counting)
    monkeypatch.setattr("markerjit.probes.stub._KNOWN", {})
    stub._head.cache_clear()

    stubs = [made(nth, bytes.fromhex("9090909090")) for nth in range(20)]
    assert len(laid) == 2  # the straight line, and the tail
    longer = made(0, bytes.fromhex("909090909090"))

    assert len(laid) == 4
    assert len(longer.code) == len(stubs[0].code) + 1
    for nth, each in enumerate(stubs):
        slot = struct.pack("<Q", 0x500000 + 0x40 * nth)
        assert each.code.count(slot) == stubs[0].code.count(struct.pack("<Q", 0x500000)) > 0
        assert len(each.code) == len(stubs[0].code)
        start, size, otherwise = struct.unpack_from("<8x3Q", each.before)
        place = 0x600000 + 0x1000 * nth
        first = struct.unpack_from("<8x3Q", stubs[0].before)
        assert (start - place, size, otherwise - place) == (
            first[0] - 0x600000, first[1], first[2] - 0x600000,
        )  # fmt: skip


@pytest.mark.parametrize("value", [0, 5, 0x7FFF_FFFF, 0x8000_0000, 0x7F12_3456_789A, (1 << 64) - 1])
def test_stubs_that_differ_in_a_number_have_that_number(
    value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tail calls of a program have one head, whatever functions they lead to."""
    pointer = CType(TypeClass.POINTER, 8)
    signature = Signature("tail", "to %p first %p", (pointer, pointer))
    (first,) = parse_operands("8@%rdi", NoNames())  # type: ignore[arg-type]
    here = Displaced(RemoteAddress(0x401000), bytes.fromhex("9090909090"))
    slot, place = RemoteAddress(0x500000), RemoteAddress(0x600000)

    def made(constant: int) -> Stub:
        stub = make_stub(signature, (Constant(constant), first.operand), slot, here, place)
        assert isinstance(stub, Stub)
        return stub

    made(value ^ 1)
    with monkeypatch.context() as patched:
        patched.setattr("markerjit.probes.stub.assemble_anywhere", None)
        stub = made(value)

    texts = [insn.op_str for insn in decoder().disasm(stub.code, place)]
    assert f"{'e' if value < 1 << 31 else 'r'}ax, {number(value)}" in texts
    assert not any("5afe51075afe8" in text or "3c96a5" in text for text in texts)


@pytest.mark.parametrize(
    "name, own, kept",
    [("func:f", 3, 0), ("func:f", 0, 0), ("func:f:return", 2, 0), ("func:f:return", 2, 3)],
)
def test_the_stack_pointer_of_the_site_is_where_its_signature_says(
    name: str, own: int, kept: int
) -> None:
    names = [f"own{at}" for at in range(own)]
    operands: list[Operand] = [Constant(at) for at in range(own)]
    if kept:
        names += ["dur", *(f"kept{at}" for at in range(kept))]
        operands += [Duration(), *map(Kept, range(kept))]
    args = (CType(TypeClass.UNSIGNED, 8),) * len(names)
    signature = Signature(name, " ".join(f"{each} %lu" for each in names), args)

    to_stack = stub._named(0, operands) >> SITE_ABOVE

    assert words_to_stack(signature) == len(args) + to_stack


# ---- of thousands of sites -----------------------------------------------------------------------

LOST = {
    "pushes": "55 48 89 e5 53",
    "a register and a return": "5b c3 0f 1f 00",
    "pop, pop, return": "5b 5d c3",
    "a return": "c3",
    "ret n": "5b c2 08 00",
    "leave, return": "48 89 d8 c9 c3",
    "relative to rip": "48 8b 05 10 20 00 00",
    "relative to rip, return": "48 8b 05 10 20 00 00 c3",
    "a call": "e8 10 20 00 00",
    "a jump": "5d e9 10 20 00 00",
    "a short jump": "31 c0 eb 40",
    "on a condition": "85 ff 0f 84 10 20 00 00",
    "through memory": "5d ff 25 10 20 00 00",
    "nothing but a jump": "e9 10 20 00 00",
    "nothing but a jump back": "e9 f0 df ff ff",
    "nothing but a jump too far": "e9 00 01 00 80",
    "nothing but a jump into itself": "e9 fd ff ff ff",
    "nothing but a condition": "0f 84 10 20 00 00",
    "no instruction": "06",
    "endbr64": "f3 0f 1e fa 55",
}
OF_SITES = {
    "an entry": "8@%rdi 8@%rsi",
    "a number": "8@$77 8@%rdi",
    "a larger number": "8@$0x123456789a 8@%rdi",
    "a float": "8f@%xmm0",
    "in memory": "8@16(%rsp)",
    "none": "",
}


def usdt_site(kind: str, text: str, at: int, lost: bytes) -> UsdtSite:
    operands, args = parsed(text)
    names = {"entry": FUNCTION, "instruction": INSTRUCTION, "tail call": TAIL_CALL}
    head = lost if is_near_condition(lost) else lost[:5]
    form = exit_form(head) if kind == "exit" else code_form(names[kind], head)
    assert form
    place = Place(MappedObject("/made", 0, None, False), at, "made")
    signature = Signature("func:made", "", args)
    leaves = 0x400000 if kind == "exit" else None
    address = RemoteAddress(at)
    return UsdtSite(signature, place, address, form, Recipe(operands), leaves)


@pytest.mark.parametrize("text", OF_SITES.values(), ids=list(OF_SITES))
@pytest.mark.parametrize("kind", ["entry", "exit", "instruction", "tail call"])
@pytest.mark.parametrize("is_fast", [False, True], ids=["plain", "fast"])
def test_code_for_thousands_of_sites_is_that_of_each_stub(
    fast: Fast, kind: str, text: str, is_fast: bool
) -> None:
    """The second and third site of each are laid out as the first one, at other places."""
    usual = 0
    path = fast if is_fast else None
    for code in map(bytes.fromhex, LOST.values()):
        for nth in range(3):
            at, slot = 0x401003 + 0x1000 * nth, RemoteAddress(0x700000 + 64 * nth)
            site = usdt_site(kind, text, at, code)
            lost = Displaced(site.address, code)
            address = RemoteAddress(0x600000 + 0x770 * nth)
            entry = RemoteAddress(0x710000 + 64 * nth)

            single = stub_for(site, slot, lost, address, entry, head=code[:5], fast=path)
            made = code_of_stub(site, slot, lost, address, entry, head=code[:5], fast=path)

            if isinstance(single, Unmovable):
                assert made == single
            else:
                assert made == (single.code, single.before)
                usual += stub._usual_of(site, code, path) is not None
    assert bool(usual) is (kind != "tail call")
