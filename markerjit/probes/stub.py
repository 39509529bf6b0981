"""The body of a site that no compiler prepared: a stub, made from the site's recipe.

A thread comes to it from the jump or the breakpoint at the site. In this order the stub

     1  steps over the red zone, and saves %rax and the flags
     2  looks whether the slot has a probe, and goes to 6 where it has none: an operand is loaded
        only for a probe
     3  pushes the operands as words of 64 bits, the last one first, then the slot and the shape
        (abi.h, struct mj_slot)
     4  calls the probe, or the adapter of a probe that is a C function. Both change no register.
        Behind the call an instruction names the site, for the runtime (abi.h, MJ_SITE_ABOVE):
        from there the stack of the program can be walked
     5  takes the words off the stack
     6  restores %rax, the flags and the stack
     7  executes copies of the instructions that the site lost, and jumps behind them

The stub of a call is what the call leads to, and does 1 to 6 and jumps to the function; where it
could not be made the target, it is that of any instruction.

The stub of a function's exit executes copies of what stands before the exit first, then does 1 to
6, and the exit last.

The stub of a function's entry keeps the operands for the exits where its slot has a token: between
4 and 5, in the place of its stack pointer (native/src/runtime/stash.S), and the token last. So the
probe's own time is not counted as the function's. The stub of an exit that has operands of the
entry looks before 3 whether the probe that it found takes any (abi.h,
MJ_SLOT_TAKES). That probe is the one that it calls in 4, whatever the slot holds by then: another
one might take more. If so it looks

     a  for the place of its stack pointer, which is that of the entry again. Where the token there
        is not that of the entry's slot the entry was not seen. That is counted, and goes to 6
     b  takes the token away, so that nobody else gets the operands, and pushes them with the time:
        when the entry was, with a bit that says so, for a recorder, which reads the clock anyway;
        how long ago that was for any other probe

A signal handler that runs in between has another stack pointer, and so other places.

An operand in memory is loaded as the program itself would load it: the compiler has written it for
an expression that the program evaluates there. A float becomes a double, as in every record, with
the rounding and the masks of a fresh MXCSR, which is put back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from markerjit.abi import (
    RED_ZONE,
    SHAPE_FLOATS,
    SINCE_TICKS,
    SITE_ABOVE,
    SITE_CALLED,
    STASH_ARGS,
    TAKES_TIME,
    Stash,
)
from markerjit.abi import Kept as Place
from markerjit.model import (
    Constant,
    CType,
    Duration,
    General,
    HighByte,
    Kept,
    Memory,
    Operand,
    RemoteAddress,
    Signature,
    Static,
    TypeClass,
    UsdtSite,
    Vector,
)
from markerjit.patch.slots import SLOT_ADAPTER, SLOT_TAKES, SLOT_TOKEN, SLOT_UNMATCHED
from markerjit.probes.parts import Name, part
from markerjit.probes.record import WORDS_FOR_KEPT
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import Assembled, Part, WronglyAssembled, assemble, number, plus
from markerjit.x86.decode import plain_decoder
from markerjit.x86.forms import (
    CALL,
    FUNCTION,
    JMP_NEAR,
    NEAR_LENGTH,
    TAIL_CALL,
    depends,
    displacement_of,
    is_call,
    is_near_condition,
    jump_of_call,
    relative,
    skip_unless_taken,
)
from markerjit.x86.relocate import Obstacle, Relocated, Unmovable, relocate

LARGEST = 1536
"""More bytes than any stub takes."""

NO_SLOT = RemoteAddress(0)
_WORD, _HALF_WORD = 8, 4
_SAVED = 2 * _WORD
"""%rax, and below it the flags."""
_RAX = ("al", "ax", "eax", "rax")
_POINTERS = ("byte", "word", "dword", "qword")
_FRESH_MXCSR = 0x1F80
_ANY_SLOT = 0x5AFE_5107_5AFE_5107
_ANY_ENTRY = 0x5AFE_5107_5AFE_6007
_ANY_SITE = 0x5AFE_5107_5AFE_7007
_ANY_NUMBER = 0x5AFE_5107_5AFE_8000
_ANY_HALF = 0x3C96_A500
"""Not the addresses of any slots, nor of anything else: the processor takes them for none."""
_HEADS = 64
_EXITS = 1 << 13
_REACH = range(-(1 << 31), 1 << 31)


class Displaced(NamedTuple):
    """The instructions that a site loses: their address, and their code."""

    address: RemoteAddress
    code: bytes


class Stub(NamedTuple):
    """The code of a stub. Each byte belongs to one of the parts, which are in its order. `places`
    are the copies of the instructions that the site loses, by their addresses."""

    code: bytes
    parts: tuple[Part, ...]
    places: Mapping[int, int]


def make_stub(
    signature: Signature,
    operands: Sequence[Operand],
    slot: RemoteAddress,
    displaced: Displaced,
    address: RemoteAddress,
    *,
    keeps: bool = False,
) -> Stub | Unmovable:
    """The stub for `address`. `keeps`: that of a function's entry, which keeps operands. Returns
    Unmovable where an instruction of the site cannot be moved there.

    Raises WronglyAssembled, also for an operand whose displacement is too large.
    """
    made = _Made(address)
    head = _head_of(signature.args, tuple(operands), keeps=keeps)
    made.probe(head, slot, _named(displaced.address, operands))
    obstacle = made.move(displaced)
    return obstacle or made.finished(displaced)


def make_exit_stub(
    signature: Signature,
    operands: Sequence[Operand],
    slot: RemoteAddress,
    displaced: Displaced,
    address: RemoteAddress,
    *,
    is_asked: bool,
    entry: RemoteAddress = NO_SLOT,
) -> Stub | Unmovable:
    """The stub of an exit, which is the last one of the instructions that the site loses: the
    probe is called when the others were executed. `entry` is the slot of the function's entry where
    operands are of that. As `make_stub`.

    An exit may depend on a condition. `is_asked`: the head is that jump, with the stub for its
    target, so that the stub is reached only where the condition is met. By any other head it is
    reached always, and asks.
    """
    size = _before_last(displaced.code)
    if size is None:
        return Unmovable(Obstacle.UNDECODED, displaced.address)
    last = RemoteAddress(displaced.address + size)
    before = Displaced(displaced.address, displaced.code[:size])
    leaving = Displaced(last, displaced.code[size:])
    made = _Made(address)
    obstacle = made.move(before)
    if obstacle:
        return obstacle
    begins = made.at
    head = _head_of(signature.args, tuple(operands))
    named = _named(leaving.address, operands)
    if not depends(leaving.code):
        made.probe(head, slot, named, entry)
        obstacle = made.move(leaving)
    else:
        target = leaving.address + len(leaving.code) + displacement_of(leaving.code)
        if not is_asked:
            made.add(Name.MOVED, skip_unless_taken(leaving.code, len(head.code) + NEAR_LENGTH))
        made.probe(head, slot, named, entry)
        made.jump(target, Name.MOVED)
    made.places[leaving.address] = begins
    return obstacle or made.finished(displaced)


@lru_cache(_EXITS)
def _before_last(code: bytes) -> int | None:
    """Where the last instruction begins; None where there is none."""
    starts = [start for start, *_ in plain_decoder().disasm_lite(code, 0)]
    return starts[-1] if starts else None


def make_call_stub(
    signature: Signature,
    operands: Sequence[Operand],
    slot: RemoteAddress,
    call: Displaced,
    address: RemoteAddress,
) -> Stub:
    """The stub that a call leads to in place of its function. So it finds what the function would
    find, and jumps there. Raises WronglyAssembled."""
    made = _Made(address)
    named = _named(call.address, operands) | SITE_CALLED
    made.probe(_head_of(signature.args, tuple(operands)), slot, named)
    made.add(Name.MOVED, jump_of_call(call.code, call.address, made.at))
    return made.left()


def stub_for(
    site: UsdtSite,
    slot: RemoteAddress,
    displaced: Displaced,
    address: RemoteAddress,
    entry: RemoteAddress = NO_SLOT,
    *,
    head: bytes = b"",
) -> Stub | Unmovable:
    """The stub of a site, of whatever kind, whose head is opened with these bytes. `entry` is the
    slot of the entry whose operands an exit has. As `make_stub`."""
    signature, operands = site.signature, site.recipe.operands
    if site.form.name == CALL:
        if head == displaced.code and is_call(head):
            return make_call_stub(signature, operands, slot, displaced, address)
        return make_stub(signature, _before_push(operands), slot, displaced, address)
    if site.form.name == TAIL_CALL and depends(displaced.code):
        is_asked = is_near_condition(head)
        return make_exit_stub(signature, operands, slot, displaced, address, is_asked=is_asked)
    if site.leaves is None:
        keeps = site.form.name == FUNCTION
        return make_stub(signature, operands, slot, displaced, address, keeps=keeps)
    is_asked = is_near_condition(site.form.head)
    return make_exit_stub(
        signature, operands, slot, displaced, address, is_asked=is_asked, entry=entry
    )


class _Made:
    """A stub in the making, for an address."""

    def __init__(self, address: RemoteAddress) -> None:
        self.at: int = address
        self.places: dict[int, int] = {}
        self._code = b""
        self._parts: list[Part] = []
        self._goes_on = True

    def add(self, name: Name, code: bytes) -> None:
        """Code that is a part by itself."""
        self._parts.append(Part(name, self.at, self.at + len(code)))
        self._code += code
        self.at += len(code)

    def probe(self, head: _Head, slot: RemoteAddress, named: int, entry: int = 0) -> None:
        """The call of the probe in a slot, with what the entry with that slot has kept. `named` is
        what is said of the site."""
        at, made = self.at, head.assembled
        self._parts += [Part(name, at + start, at + stop) for name, start, stop in made.parts]
        code = _of_slots(made.code, slot, entry)
        code = code.replace(_word_of(_ANY_SITE), _word_of(named))
        for offset, word in head.numbers:
            code = code[:offset] + word + code[offset + len(word) :]
        self._code += code
        self.at += len(code)

    def move(self, displaced: Displaced) -> Unmovable | None:
        """Copies of instructions."""
        if not displaced.code:
            return None
        moved = relocate(displaced.code, displaced.address, self.at)
        if isinstance(moved, Unmovable):
            return moved
        self.places.update(moved.places)
        self._goes_on = moved.falls_through
        self.add(Name.MOVED, moved.code)
        return None

    def jump(self, target: int, name: Name) -> None:
        """A jump to an address."""
        displacement = relative(target, self.at + NEAR_LENGTH)
        self.add(name, bytes([JMP_NEAR]) + displacement)

    def finished(self, displaced: Displaced) -> Stub:
        """The stub, with the way back into the program."""
        if self._goes_on:
            self.jump(displaced.address + len(displaced.code), Name.INTO_PROGRAM)
        return self.left()

    def left(self) -> Stub:
        """The stub, which has left for the program already."""
        return Stub(self._code, tuple(self._parts), self.places)


def make_copies(displaced: Displaced, address: RemoteAddress) -> Relocated | Unmovable:
    """Copies for `address` of instructions that no probe stands at, and the way back behind them:
    they were lost to a hole."""
    moved = relocate(displaced.code, displaced.address, address)
    if isinstance(moved, Unmovable) or not moved.falls_through:
        return moved
    back = address + len(moved.code) + NEAR_LENGTH
    displacement = relative(displaced.address + len(displaced.code), back)
    return moved._replace(code=moved.code + bytes([JMP_NEAR]) + displacement)


def _before_push(operands: Sequence[Operand]) -> tuple[Operand, ...]:
    """The operands of a function's entry where the return address is not on the stack yet."""
    return tuple(
        operand._replace(offset=operand.offset - _WORD)
        if isinstance(operand, Memory) and operand.base == "rsp"
        else operand
        for operand in operands
    )


class _Head(NamedTuple):
    """The code of a stub up to the instructions that the site lost, for any slots, and the numbers
    in it that are not yet those of its operands: the offset of each, and its bytes."""

    assembled: Assembled
    numbers: tuple[tuple[int, bytes], ...]

    @property
    def code(self) -> bytes:
        """The code with placeholders."""
        return self.assembled.code


@lru_cache(_EXITS)
def _head_of(args: Sequence[CType], operands: Sequence[Operand], *, keeps: bool = False) -> _Head:
    """The head of a stub with these operands. Where they differ only in numbers, such as the
    functions that tail calls lead to, one head is assembled for all."""
    alike: list[Operand] = []
    numbers: list[tuple[bytes, bytes]] = []
    for ctype, operand in zip(args, operands, strict=True):
        value = _number_of(operand, ctype)
        if value is None:
            alike.append(operand)
            continue
        size = _HALF_WORD if value < 1 << 31 else _WORD
        any_number = (_ANY_HALF if size == _HALF_WORD else _ANY_NUMBER) + len(alike)
        numbers.append((any_number.to_bytes(size, "little"), value.to_bytes(size, "little")))
        alike.append(
            Constant(any_number)
            if isinstance(operand, Constant)
            else Static(RemoteAddress(any_number), "")
        )
    head = _head(tuple(args), tuple(alike), keeps=keeps)
    if any(head.code.count(any_number) != 1 for any_number, _ in numbers):
        raise WronglyAssembled("a number is not where it should be")
    return _Head(head, tuple((head.code.index(any_), number) for any_, number in numbers))


def _number_of(operand: Operand, ctype: CType) -> int | None:
    """The number, of 64 bits, that a stub loads as it is for an operand; None for any other."""
    match operand:
        case Constant(value) if ctype.size == _WORD and ctype.type_class is not TypeClass.FLOAT:
            return value & (1 << 64) - 1
        case Static(address):
            return address & (1 << 64) - 1
    return None


@lru_cache(_HEADS)
def _head(
    args: tuple[CType, ...], operands: tuple[Operand, ...], *, keeps: bool = False
) -> Assembled:
    """The code of all stubs with these operands, up to the instructions that the site lost: at
    address 0, of the slot _ANY_SLOT and the entry's slot _ANY_ENTRY. It is the same at every
    address."""
    source = list(_source(args, operands, keeps=keeps))
    head = assemble(source, 0, {})
    for word in (*_words(_ANY_SLOT), *_words_of_entry(_ANY_ENTRY), _word_of(_ANY_SITE)):
        named = sum(number(int.from_bytes(word, "little")) in line for line in source)
        if head.code.count(word) != named:
            raise WronglyAssembled("the slot is not where it should be")
    return head


def _of_slots(code: bytes, slot: RemoteAddress, entry: int) -> bytes:
    """The code with the addresses of these slots in place of _ANY_SLOT and _ANY_ENTRY."""
    places = [*zip(_words(_ANY_SLOT), _words(slot), strict=True)]
    places += zip(_words_of_entry(_ANY_ENTRY), _words_of_entry(entry), strict=True)
    for any_word, word in places:
        code = code.replace(any_word, word)
    return code


def _words(slot: int) -> list[bytes]:
    """The addresses of a slot, and of words of it, as movabs has them."""
    offsets = (0, SLOT_ADAPTER, SLOT_TOKEN, SLOT_TAKES)  # SLOT_TOKEN is SLOT_UNMATCHED, too
    return [_word_of(slot + offset) for offset in offsets]


def _words_of_entry(slot: int) -> list[bytes]:
    return [_word_of(slot + SLOT_TOKEN)]


def _word_of(value: int) -> bytes:
    return value.to_bytes(_WORD, "little")


def _named(site: int, operands: Sequence[Operand]) -> int:
    """What the stub of a site says of it: its address, and the words between the operands and the
    program's stack."""
    above = _depth(_below(operands)) // _WORD
    return site | above << SITE_ABOVE


def _below(operands: Sequence[Operand]) -> int:
    """Bytes that are pushed before the operands."""
    has_kept = any(isinstance(operand, Duration | Kept) for operand in operands)
    return len(_PUSHED) * _WORD if has_kept else 0


def _source(args: Sequence[CType], operands: Sequence[Operand], *, keeps: bool) -> Iterator[str]:
    slot = _ANY_SLOT
    kept = [operand for operand in operands if isinstance(operand, Duration | Kept)]
    own = operands[: len(operands) - len(kept)]
    below = _below(operands)
    count = len(operands)
    floats = sum(
        1 << index for index, ctype in enumerate(args) if ctype.type_class is TypeClass.FLOAT
    )
    yield part(Name.RED_ZONE)
    yield f"lea rsp, [rsp - {number(RED_ZONE)}]"  # 1
    yield "push rax"
    yield "lahf"
    yield "seto al"
    yield "push rax"
    yield part(Name.ASKED)
    yield f"movabs rax, {number(slot)}"  # 2
    if kept:
        yield "mov rax, qword ptr [rax]"
        yield "test rax, rax"
    else:
        yield "cmp qword ptr [rax], 0"
    if keeps:
        yield "jne asked"
        yield f"cmp qword ptr [rax + {number(SLOT_TOKEN)}], 0"
    yield "je none"
    if kept:
        yield part(Name.KEPT)
        yield from _push_kept(len(kept) - 1)  # a, b
    yield part(Name.OPERANDS)
    if keeps:
        yield "asked:"
    pushed = below + _WORD * len(kept)
    for operand, ctype in zip(reversed(own), reversed(args[: len(own)]), strict=True):
        yield from _word(operand, ctype, pushed)  # 3
        yield "push rax"
        pushed += _WORD
    yield part(Name.SHAPE)
    yield f"movabs rax, {number(slot)}"
    yield "push rax"
    yield f"push {number(count | floats << SHAPE_FLOATS)}"
    yield part(Name.CALL)
    if kept:
        yield f"mov rax, qword ptr [rsp + {number((count + 2) * _WORD + below - _WORD)}]"  # 4
    else:
        yield "mov rax, qword ptr [rax]"  # 4
    yield "test al, 1"
    yield "je call_it"
    yield f"movabs rax, {number(slot + SLOT_ADAPTER)}"
    yield "mov rax, qword ptr [rax]"
    yield "call_it:"
    if not kept:
        yield "test rax, rax"  # it may have gone since
        yield "je gone"
    yield "call rax"
    if not kept:
        yield "gone:"
    yield f"movabs rax, {number(_ANY_SITE)}"
    if keeps:
        yield part(Name.KEEPS)
        yield from _keep(count)
    yield part(Name.DROPPED)
    yield f"lea rsp, [rsp + {number(_WORD * (count + 2) + below)}]"  # 5
    yield part(Name.RESTORED)
    yield "none:"
    yield "pop rax"  # 6
    yield "add al, 0x7f"
    yield "sahf"
    yield "pop rax"
    yield f"lea rsp, [rsp + {number(RED_ZONE)}]"


_USED = ("rcx", "rdx", "r11")
"""Registers that keeping and finding needs, besides rax."""
_PUSHED = ("rax", *_USED)
"""What an exit pushes before the operands: the probe, and those."""
assert len(_PUSHED) == WORDS_FOR_KEPT


def _keep(count: int) -> Iterator[str]:
    """Keep the first of the words, which stand above the slot and the shape."""
    above = len(_USED) * _WORD
    words = above + 2 * _WORD
    yield f"movabs rax, {number(_ANY_SLOT + SLOT_TOKEN)}"
    yield "cmp qword ptr [rax], 0"
    yield "je forgotten"
    yield from (f"push {name}" for name in _USED)
    yield "mov r11, qword ptr [rax]"
    yield "mov rdx, qword ptr [rax + 8]"  # SLOT_STASH
    # 0 in a child that a signal handler has forked since: its slots are empty.
    yield "test rdx, rdx"
    yield "je lost"
    yield f"lea rax, [rsp + {number(_depth(words + _WORD * count))}]"
    yield f"call qword ptr [rdx{plus(Stash.claim.offset)}]"
    yield "test rax, rax"
    yield "je lost"
    yield f"mov qword ptr [rax{plus(Place.token.offset)}], 0"
    for index in range(min(count, STASH_ARGS)):
        yield f"mov rcx, qword ptr [rsp + {number(words + _WORD * index)}]"
        yield f"mov qword ptr [rax{plus(Place.args.offset + _WORD * index)}], rcx"
    yield "mov rcx, rax"
    yield "rdtsc"
    yield "shl rdx, 0x20"
    yield "or rax, rdx"
    yield f"mov qword ptr [rcx{plus(Place.time.offset)}], rax"
    yield f"mov qword ptr [rcx{plus(Place.token.offset)}], r11"
    yield "lost:"
    yield from (f"pop {name}" for name in reversed(_USED))
    yield "forgotten:"


def _push_kept(args: int) -> Iterator[str]:
    """Push so many arguments of the entry, and how long ago it was. The registers that were used
    are then as before."""
    above = len(_PUSHED) * _WORD
    probe = f"qword ptr [rsp + {number(above - _WORD)}]"
    yield from (f"push {name}" for name in _PUSHED)
    yield f"movabs rcx, {number(_ANY_SLOT + SLOT_TAKES)}"
    yield "cmp rax, qword ptr [rcx]"
    yield "je unneeded"
    yield f"movabs rax, {number(_ANY_ENTRY + SLOT_TOKEN)}"
    yield "mov r11, qword ptr [rax]"
    yield "test r11, r11"
    yield "je unmatched"
    yield "mov rdx, qword ptr [rax + 8]"  # SLOT_STASH, 0 in a child as above
    yield "test rdx, rdx"
    yield "je unmatched"
    yield f"lea rax, [rsp + {number(_depth(above))}]"
    yield f"call qword ptr [rdx{plus(Stash.find.offset)}]"  # a
    yield "test rax, rax"
    yield "je unmatched"
    yield f"cmp qword ptr [rax{plus(Place.token.offset)}], r11"
    yield "jne unmatched"
    yield f"mov qword ptr [rax{plus(Place.token.offset)}], 0"  # b
    yield "mov r11, rax"
    yield f"movabs rax, {number(_ANY_SLOT + SLOT_TAKES)}"
    yield "mov rcx, qword ptr [rax]"
    yield f"sub rcx, {number(TAKES_TIME)}"
    yield f"mov rax, qword ptr [r11{plus(Place.time.offset)}]"
    yield f"cmp rcx, {probe}"
    yield "je takes_time"
    yield f"mov rcx, qword ptr [rdx{plus(Stash.ns_per_tick.offset)}]"
    yield "rdtsc"
    yield "shl rdx, 0x20"
    yield "or rax, rdx"
    yield f"sub rax, qword ptr [r11{plus(Place.time.offset)}]"
    yield "jae later"
    yield "xor eax, eax"  # another CPU's counter is some ticks behind
    yield "later:"
    yield "mul rcx"
    yield "shrd rax, rdx, 0x20"
    yield "jmp lasted"
    yield "takes_time:"
    yield f"bts rax, {number(SINCE_TICKS)}"
    yield "lasted:"
    for index in reversed(range(args)):
        yield f"push qword ptr [r11{plus(Place.args.offset + _WORD * index)}]"
    yield "push rax"
    yield "jmp ready"
    yield "unmatched:"
    yield f"movabs rax, {number(_ANY_SLOT + SLOT_UNMATCHED)}"
    yield "lock inc qword ptr [rax]"
    yield from (f"pop {name}" for name in reversed(_PUSHED))
    yield "jmp none"
    yield "unneeded:"
    for _ in range(args + 1):
        yield "push 0"
    yield "ready:"
    for index, name in enumerate(reversed(_USED)):
        yield f"mov {name}, qword ptr [rsp{plus(_WORD * (args + 1 + index))}]"


def _word(operand: Operand, ctype: CType, pushed: int) -> Iterator[str]:
    """The value of an operand in rax, extended to 64 bits. `pushed` bytes stand below what is
    saved."""
    if ctype.type_class is TypeClass.FLOAT:
        yield from _double(operand, ctype, pushed)
        return
    match operand:
        case Constant(value):
            yield _load_number(_extended(value, ctype))
        case Static(address):
            yield _load_number(address)
            yield _loaded("[rax]", ctype)
        case Memory():
            yield from _program_rax(operand, pushed)
            yield _loaded(_place(operand, pushed), ctype)
        case HighByte("ah"):
            yield _loaded(f"[rsp + {number(_WORD + pushed + 1)}]", ctype)
        case HighByte(name):
            yield f"{'movsx' if _is_signed(ctype) else 'movzx'} eax, {name}"
            if _is_signed(ctype):
                yield "cdqe"
        case General(names) if names == _RAX:
            yield _loaded(f"[rsp + {number(_WORD + pushed)}]", ctype)
        case General(names) if names[-1] == "rsp":
            yield f"lea rax, [rsp + {number(_depth(pushed))}]"
            yield from _register(_RAX, ctype)
        case General(names):
            yield from _register(names, ctype)
        case Vector(register):
            yield f"movq rax, xmm{register}"
        case Kept() | Duration():
            raise AssertionError("what an entry has kept is pushed by `_push_kept`")


def _double(operand: Operand, ctype: CType, pushed: int) -> Iterator[str]:
    """A double, or a float as one, in rax."""
    if ctype.size == _WORD:
        yield from _word(operand, CType(TypeClass.UNSIGNED, _WORD), pushed)
        return
    match operand:
        case Vector(register):
            yield f"movd eax, xmm{register}"
        case _:
            yield from _word(operand, CType(TypeClass.UNSIGNED, ctype.size), pushed)
    yield "sub rsp, 0x20"
    yield "movups xmmword ptr [rsp + 0x10], xmm0"
    yield "stmxcsr dword ptr [rsp + 8]"
    yield f"mov dword ptr [rsp], {number(_FRESH_MXCSR)}"
    yield "ldmxcsr dword ptr [rsp]"
    yield "movd xmm0, eax"
    yield "cvtss2sd xmm0, xmm0"
    yield "movq rax, xmm0"
    yield "ldmxcsr dword ptr [rsp + 8]"
    yield "movups xmm0, xmmword ptr [rsp + 0x10]"
    yield "add rsp, 0x20"


def _register(names: Sequence[str], ctype: CType) -> Iterator[str]:
    size_bits = ctype.size.bit_length() - 1
    name = names[size_bits]
    if ctype.size == _WORD:
        if names != _RAX:
            yield f"mov rax, {name}"
    elif _is_signed(ctype):
        yield f"{'movsxd' if ctype.size == 4 else 'movsx'} rax, {name}"
    elif ctype.size == 4:
        yield f"mov eax, {name}"  # clears the upper half
    else:
        yield f"movzx eax, {name}"


def _loaded(place: str, ctype: CType) -> str:
    """rax from memory."""
    pointer = _POINTERS[ctype.size.bit_length() - 1]
    if ctype.size == _WORD:
        return f"mov rax, {pointer} ptr {place}"
    if _is_signed(ctype):
        return f"{'movsxd' if ctype.size == 4 else 'movsx'} rax, {pointer} ptr {place}"
    return f"{'mov' if ctype.size == 4 else 'movzx'} eax, {pointer} ptr {place}"


def _program_rax(operand: Memory, pushed: int) -> Iterator[str]:
    """What the program has in rax, where the address needs it."""
    if "rax" in (operand.base, operand.scaled):
        yield f"mov rax, qword ptr [rsp + {number(_WORD + pushed)}]"


def _place(operand: Memory, pushed: int) -> str:
    offset = operand.offset + (_depth(pushed) if operand.base == "rsp" else 0)
    if offset not in _REACH:
        raise WronglyAssembled(f"{offset:#x} is too far from a register")
    parts = [operand.base] if operand.base else []
    if operand.scaled:
        scaled = f"{operand.scaled}*{operand.scale}" if operand.scale > 1 else operand.scaled
        parts.append(scaled)
    if not parts:
        raise WronglyAssembled("an address without a register")
    sign = f" - {number(-offset)}" if offset < 0 else plus(offset)
    return f"[{' + '.join(parts)}{sign}]"


def _depth(pushed: int) -> int:
    """From rsp to what it was at the site."""
    return RED_ZONE + _SAVED + pushed


def _load_number(value: int) -> str:
    """rax = a number of 64 bits."""
    word = value & (1 << 64) - 1
    if word < 1 << 31:
        return f"mov eax, {number(word)}"
    return f"movabs rax, {number(word)}"


def _extended(value: int, ctype: CType) -> int:
    bits = ctype.size * 8
    low = value & (1 << bits) - 1
    return low - (1 << bits) if _is_signed(ctype) and low >> bits - 1 else low


def _is_signed(ctype: CType) -> bool:
    return ctype.type_class is TypeClass.SIGNED
