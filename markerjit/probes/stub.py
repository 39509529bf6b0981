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

Most stubs have a fast path (fast.py) between 1 and 2, which counts and records without a call,
keeps operands and finds them. Then 2 to 5 stand behind the way back into the program.

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

import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from operator import itemgetter

from markerjit.abi import (
    SITE_ABOVE,
    SITE_CALLED,
)
from markerjit.model import (
    Constant,
    CType,
    Memory,
    Operand,
    RemoteAddress,
    Signature,
    Static,
    TypeClass,
    UsdtSite,
)
from markerjit.patch.slots import (
    SLOT_ADAPTER,
    SLOT_DATA,
    SLOT_STASH,
    SLOT_TAKES,
    SLOT_TOKEN,
)
from markerjit.probes.before import BEFORE_STUB
from markerjit.probes.fast import (
    DESCRIPTORS,
    WORDS_OF_ARENA,
    Fast,
    FastPath,
    Slot,
    before_stub,
    can_be_fast,
    ends_of,
)
from markerjit.probes.parts import Name
from markerjit.probes.stub_lines import (
    ANY_ENTRY,
    ANY_SITE,
    ANY_SLOT,
    BEGIN,
    END,
    below,
    calling_lines,
    depth,
    load,
)
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import (
    Movable,
    Part,
    assemble_anywhere,
    number,
)
from markerjit.x86.decode import plain_decoder
from markerjit.x86.encoding import WronglyAssembled
from markerjit.x86.forms import (
    CALL,
    FUNCTION,
    JMP_NEAR,
    NEAR_LENGTH,
    REACH,
    TAIL_CALL,
    depends,
    displacement_of,
    is_call,
    is_near_condition,
    jump_of_call,
    relative,
    skip_unless_taken,
)
from markerjit.x86.relocate import Obstacle, Relocated, Unmovable, copied_as_is, relocate

LARGEST = 2048
"""More bytes than any stub takes."""

NO_SLOT = RemoteAddress(0)
_WORD, _HALF_WORD = 8, 4
_NUMBERS_OF_SLOT, _WORDS_OF_SLOT = struct.Struct("<5Q"), struct.Struct(5 * "8s")
_ANY_NUMBER = 0x5AFE_5107_5AFE_8000
_ANY_HALF = 0x3C96_A500
"""Not the addresses of any slots, nor of anything else: the processor takes them for none."""
_JUMP = bytes([JMP_NEAR])
_HEADS = 1 << 10
_EXITS = 1 << 13
_SLOTS = 1 << 4
"""Exits of one function share their slots, and follow one another."""


class Displaced(NamedTuple):
    """The instructions that a site loses: their address, and their code."""

    address: RemoteAddress
    code: bytes


class Stub(NamedTuple):
    """The code of a stub. `pieces` are the addresses of pieces of it, with the parts of each from
    there on. `places` are the copies of the instructions that the site loses, by their addresses.
    `before` is what belongs to its fast path, b"" without one: it stands BEFORE_STUB bytes before
    the code."""

    code: bytes
    pieces: tuple[tuple[int, tuple[Part, ...]], ...]
    places: Mapping[int, int]
    before: bytes = b""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts, in their order: each byte of the code belongs to one of them."""
        return tuple(
            Part(name, at + start, at + stop)
            for at, parts in self.pieces
            for name, start, stop in parts
        )


def make_stub(
    signature: Signature,
    operands: tuple[Operand, ...],
    slot: RemoteAddress,
    displaced: Displaced,
    address: RemoteAddress,
    *,
    keeps: bool = False,
    fast: Fast | None = None,
) -> Stub | Unmovable:
    """The stub for `address`. `keeps`: that of a function's entry, which keeps operands. `fast`:
    its fast path, if its operands allow one. Returns Unmovable where an instruction of the site
    cannot be moved there.

    Raises WronglyAssembled, also for an operand whose displacement is too large.
    """
    made = _Made(address)
    head = _head_of(signature.args, operands, fast, keeps=keeps)
    made.probe(head, slot, _named(displaced.address, operands))
    obstacle = made.move(displaced)
    return obstacle or made.finished(displaced)


def make_exit_stub(
    signature: Signature,
    operands: tuple[Operand, ...],
    slot: RemoteAddress,
    displaced: Displaced,
    address: RemoteAddress,
    *,
    is_asked: bool,
    entry: RemoteAddress = NO_SLOT,
    fast: Fast | None = None,
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
    head = _head_of(signature.args, operands, fast)
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
    operands: tuple[Operand, ...],
    slot: RemoteAddress,
    call: Displaced,
    address: RemoteAddress,
    fast: Fast | None = None,
) -> Stub:
    """The stub that a call leads to in place of its function. So it finds what the function would
    find, and jumps there. Raises WronglyAssembled."""
    made = _Made(address)
    named = _named(call.address, operands) | SITE_CALLED
    made.probe(_head_of(signature.args, operands, fast), slot, named)
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
    fast: Fast | None = None,
) -> Stub | Unmovable:
    """The stub of a site, of whatever kind, whose head is opened with these bytes. `entry` is the
    slot of the entry whose operands an exit has. As `make_stub`."""
    signature, operands = site.signature, site.recipe.operands
    if site.form.name == CALL:
        if head == displaced.code and is_call(head):
            return make_call_stub(signature, operands, slot, displaced, address, fast)
        return make_stub(signature, _before_push(operands), slot, displaced, address, fast=fast)
    if site.form.name == TAIL_CALL and depends(displaced.code):
        is_asked = is_near_condition(head)
        return make_exit_stub(
            signature, operands, slot, displaced, address, is_asked=is_asked, fast=fast
        )
    if site.leaves is None:
        keeps = site.form.name == FUNCTION
        return make_stub(signature, operands, slot, displaced, address, keeps=keeps, fast=fast)
    is_asked = is_near_condition(site.form.head)
    return make_exit_stub(
        signature, operands, slot, displaced, address, is_asked=is_asked, entry=entry, fast=fast
    )


class Code(NamedTuple):
    """The code of a stub, and `before` as a `Stub` has it."""

    code: bytes
    before: bytes


def code_of_stub(
    site: UsdtSite,
    slot: RemoteAddress,
    displaced: Displaced,
    address: RemoteAddress,
    entry: RemoteAddress = NO_SLOT,
    *,
    head: bytes = b"",
    fast: Fast | None = None,
) -> Code | Unmovable:
    """The code of `stub_for`, for thousands of sites: most lose instructions that others lose, too,
    and that are copied as they are."""
    alike = _usual_of(site, displaced.code, fast)
    goes_to = displaced.address + len(displaced.code)
    if alike and alike[0].leads:
        goes_to = RemoteAddress(goes_to + displacement_of(displaced.code))
    if alike is None or goes_to - address - alike[0].tail_at not in REACH:
        stub = stub_for(site, slot, displaced, address, entry, head=head, fast=fast)
        return stub if isinstance(stub, Unmovable) else Code(stub.code, stub.before)
    usual, numbers = alike
    named = displaced.address + len(usual.first) + usual.named
    words = (*_words_for(slot, entry, named, fast), *numbers)
    back = _JUMP + relative(goes_to, address + usual.tail_at) if usual.goes_on else b""
    laid = usual.laid
    code = usual.first + laid.main(words) + usual.behind + back
    if not laid.tail or fast is None:
        return Code(code, b"")
    return Code(code + laid.tail(words), before_stub(fast, [address + end for end in laid.ends]))


class _Usual(NamedTuple):
    """Stubs of alike operands, of sites that lose the same instructions, which are copied as they
    are; or of exits that lose nothing but a jump out of the function, which ends the stub.

    first    those before the probe, and `behind` those behind it
    named    what is said of such a site, at address 0
    goes_on  whether a jump leads back into the program
    tail_at  where that ends, and the tail begins
    leads    that jump leads to where the displaced one does
    """

    laid: _Laid
    first: bytes
    behind: bytes
    named: int
    goes_on: bool
    tail_at: int
    leads: bool = False


def _usual_of(
    site: UsdtSite, code: bytes, fast: Fast | None
) -> tuple[_Usual, tuple[bytes, ...]] | None:
    """Of a site that loses this code, and the numbers of its operands; None of an unusual one."""
    if site.form.name in (CALL, TAIL_CALL):
        return None
    is_exit = site.leaves is not None
    operands = site.recipe.operands
    keeps = site.form.name == FUNCTION
    head = _head_of(site.signature.args, operands, fast, keeps=keeps)
    leads = is_exit and _is_jump_alone(code)
    key = b"" if leads else code, is_exit
    known = head.alike.usual
    if key not in known:
        if len(known) >= _EXITS:
            known.clear()
        if leads:
            laid = _laid_out(head.alike, operands, b"", is_exit=False)
            known[key] = laid and laid._replace(leads=True)
        else:
            known[key] = _laid_out(head.alike, operands, code, is_exit=is_exit)
    usual = known[key]
    return (usual, head.numbers) if usual else None


def _is_jump_alone(code: bytes) -> bool:
    """Whether all that an exit loses is a jump with a displacement of 32 bits that is always taken,
    and does not lead into itself."""
    is_jump = len(code) == NEAR_LENGTH and code.startswith(_JUMP)
    return is_jump and not -NEAR_LENGTH < displacement_of(code) < 0


def _laid_out(
    alike: _Alike, operands: Sequence[Operand], code: bytes, *, is_exit: bool
) -> _Usual | None:
    """How the stubs are laid out; None where an instruction is not copied as it is."""
    size = _before_last(code) if is_exit else 0
    if size is None or (is_exit and depends(code[size:])):
        return None
    first, behind = code[:size], code[size:]
    if first and not copied_as_is(first):
        return None
    goes_on = copied_as_is(behind) if behind else True
    if goes_on is None:
        return None
    tail_at = size + len(alike.main.code) + len(behind) + goes_on * NEAR_LENGTH
    return _Usual(alike.laid(size, tail_at), first, behind, _named(0, operands), goes_on, tail_at)


class _Made:
    """A stub in the making, for an address."""

    def __init__(self, address: RemoteAddress) -> None:
        self.at: int = address
        self.places: dict[int, int] = {}
        self._start = address
        self._code: list[bytes] = []
        self._pieces: list[tuple[int, tuple[Part, ...]]] = []
        self._head: _Head | None = None
        self._head_at = self._head_in = 0
        self._words: tuple[bytes, ...] = ()
        self._goes_on = True

    def add(self, name: Name, code: bytes) -> None:
        """Code that is a part by itself."""
        self._put(code, _whole(name, len(code)))

    def _put(self, code: bytes, parts: tuple[Part, ...]) -> None:
        self._pieces.append((self.at, parts))
        self._code.append(code)
        self.at += len(code)

    def probe(self, head: _Head, slot: RemoteAddress, named: int, entry: int = 0) -> None:
        """The call of the probe in a slot, with what the entry with that slot has kept. `named` is
        what is said of the site."""
        self._head, self._head_at, self._head_in = head, self.at, len(self._code)
        self._words = (*_words_for(slot, entry, named, head.fast), *head.numbers)
        self._put(head.alike.main.code, head.alike.main.parts)  # its words are put in at the end

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
        """The stub, which has left for the program already. Behind that stands the tail."""
        before = b""
        head = self._head
        if head:
            start = self._start
            laid = head.alike.laid(self._head_at - start, self.at - start)
            self._code[self._head_in] = laid.main(self._words)
            if laid.tail and head.alike.tail and head.fast:
                self._put(laid.tail(self._words), head.alike.tail.parts)
                before = before_stub(head.fast, [start + end for end in laid.ends])
        return Stub(b"".join(self._code), tuple(self._pieces), self.places, before)


@lru_cache
def _whole(name: Name, size: int) -> tuple[Part, ...]:
    """Code of this size as one part."""
    return (Part(name, 0, size),)


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


class _Goal(Enum):
    """What a displacement of a stub leads to: its main piece, its tail, or what stands before
    it."""

    MAIN = 0
    TAIL = 1
    DESCRIPTORS = 2


class _Piece(NamedTuple):
    """Code of all stubs with alike operands.

    words  where words are put in, how many bytes each has, and which ones of `_words_for` and of
           the numbers behind them
    leads  displacements of four bytes: where each is, where its instruction ends, and what it leads
           to: an offset from one of three places
    """

    code: bytes
    parts: tuple[Part, ...]
    words: tuple[tuple[int, int, int], ...]
    leads: tuple[tuple[int, int, _Goal, int], ...]


_Woven = Callable[[tuple[bytes, ...]], bytes]
"""Code with these words put in."""


class _Laid(NamedTuple):
    """The pieces of stubs that have them in the same places, and where the sequences begin and end,
    counted from the start of the stub."""

    main: _Woven
    tail: _Woven | None
    ends: tuple[int, ...]


class _Alike:
    """The code of all stubs with alike operands, up to the instructions that the site lost, and its
    tail where it has a fast path; and where sequences begin and end, for what stands before the
    stub."""

    def __init__(
        self, main: _Piece, tail: _Piece | None = None, ends: tuple[tuple[_Goal, int], ...] = ()
    ) -> None:
        self.main = main
        self.tail = tail
        self._ends = ends
        self.usual: dict[tuple[bytes, bool], _Usual | None] = {}
        self._laid: dict[tuple[int, int], _Laid] = {}

    def laid(self, main_at: int, tail_at: int) -> _Laid:
        """The pieces at these offsets from the start of a stub: what leads from one to another is
        the same for all stubs, wherever they are."""
        laid = self._laid.get((main_at, tail_at))
        if laid is None:
            goals = {_Goal.MAIN: main_at, _Goal.TAIL: tail_at, _Goal.DESCRIPTORS: -BEFORE_STUB}
            laid = _Laid(
                _woven(self.main, main_at, goals),
                _woven(self.tail, tail_at, goals) if self.tail else None,
                tuple(goals[goal] + offset for goal, offset in self._ends),
            )
            self._laid[main_at, tail_at] = laid
        return laid


def _woven(piece: _Piece, at: int, goals: Mapping[_Goal, int]) -> _Woven:
    """A piece at an offset from the start of a stub, for any words."""
    code = bytearray(piece.code)
    for place, end, goal, offset in piece.leads:
        distance = goals[goal] + offset - at - end
        code[place : place + _HALF_WORD] = distance.to_bytes(_HALF_WORD, "little", signed=True)
    between: list[bytes] = []
    order: list[int] = []
    done = 0
    words = sorted(piece.words)
    for nth, (place, size, index) in enumerate(words):
        between.append(bytes(code[done:place]))
        order += nth, len(words) + 1 + index
        done = place + size
    between.append(bytes(code[done:]))
    if not words:
        return lambda _: between[0]
    pick, known = itemgetter(*order, len(words)), tuple(between)
    return lambda words: b"".join(pick(known + words))


class _Head(NamedTuple):
    """The code of a stub, with its fast path if it has one, and the numbers of its operands."""

    alike: _Alike
    fast: Fast | None = None
    numbers: tuple[bytes, ...] = ()

    @property
    def code(self) -> bytes:
        """The code in the straight line, with placeholders."""
        return self.alike.main.code


_KNOWN: dict[tuple[int, int, int, bool], tuple[object, object, object, _Head]] = {}
"""Heads by what they are of, as the same values: thousands of sites have the same operands."""


def _head_of(
    args: tuple[CType, ...],
    operands: tuple[Operand, ...],
    fast: Fast | None,
    *,
    keeps: bool = False,
) -> _Head:
    """The head of a stub with these operands, and with a fast path if they allow one."""
    key = id(args), id(operands), id(fast), keeps
    known = _KNOWN.get(key)
    if known is None:
        if len(_KNOWN) >= _HEADS:
            _KNOWN.clear()
        head = _numbered(args, operands, fast, keeps=keeps)
        known = _KNOWN[key] = args, operands, fast, head  # which keeps their ids theirs
    return known[-1]


def _numbered(
    args: Sequence[CType], operands: Sequence[Operand], fast: Fast | None, *, keeps: bool
) -> _Head:
    """Where operands differ only in numbers, such as the functions that tail calls lead to, one
    head is assembled for all, and one for all arenas."""
    alike: list[Operand] = []
    numbers: list[bytes] = []
    for ctype, operand in zip(args, operands, strict=True):
        value = _number_of(operand, ctype)
        if value is None:
            alike.append(operand)
            continue
        size = _HALF_WORD if value < 1 << 31 else _WORD
        any_number = (_ANY_HALF if size == _HALF_WORD else _ANY_NUMBER) + len(alike)
        numbers.append(value.to_bytes(size, "little"))
        alike.append(
            Constant(any_number)
            if isinstance(operand, Constant)
            else Static(RemoteAddress(any_number), "")
        )
    anywhere = fast._replace(words=(), way=0) if fast else None
    head = _head(tuple(args), tuple(alike), anywhere, keeps=keeps)
    return _Head(head, fast, tuple(numbers))


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
    args: tuple[CType, ...], operands: tuple[Operand, ...], fast: Fast | None, *, keeps: bool
) -> _Alike:
    """The code of all stubs with these operands, of any slots and numbers."""
    calling = list(calling_lines(args, operands, keeps=keeps))
    if fast is None or not can_be_fast(args, operands):
        made = _assembled([*BEGIN, *calling, *END], (), operands, args)
        return _Alike(_piece(made, operands, args, {}))
    slot = Slot(ANY_SLOT, keeps, ANY_ENTRY, depth(0))
    path = FastPath(fast, args, operands, slot, partial(load, pushed=0))
    main = [*BEGIN, *path.straight(), *END]
    tail = [*path.tail(), *calling, "jmp none"]
    descriptors = DESCRIPTORS.keys()
    of_main, of_tail = _labels_in(main), _labels_in(tail)
    main_code = _assembled(main, descriptors | of_tail, operands, args)
    tail_code = _assembled(tail, descriptors | of_main, operands, args)
    goals = {name: (_Goal.DESCRIPTORS, at) for name, at in DESCRIPTORS.items()}
    goals |= {name: (_Goal.MAIN, at) for name, at in main_code.labels.items()}
    goals |= {name: (_Goal.TAIL, at) for name, at in tail_code.labels.items()}
    return _Alike(
        _piece(main_code, operands, args, goals),
        _piece(tail_code, operands, args, goals),
        tuple(goals[name] for name in ends_of(fast)),
    )


def _piece(
    made: Movable, operands: Sequence[Operand], args: Sequence[CType],
    goals: Mapping[str, tuple[_Goal, int]],
) -> _Piece:  # fmt: skip
    placed = _placeholders(operands, args)
    words = tuple(
        (match.start(), len(word), index)
        for index, word in enumerate(placed)
        for match in re.finditer(re.escape(word), made.code)
    )
    leads = tuple((at, end, *goals[name]) for at, end, name in made.references)
    return _Piece(made.code, made.parts, words, leads)


def _labels_in(source: Sequence[str]) -> set[str]:
    return {line[:-1] for line in source if line.endswith(":")}


def _assembled(
    source: Sequence[str], names: Collection[str], operands: Sequence[Operand],
    args: Sequence[CType],
) -> Movable:  # fmt: skip
    """The code of these lines, in which each number that others will be put in the place of stands
    as often as the lines name it."""
    made = assemble_anywhere(source, names)
    lines = "\n".join(source)
    for word in _placeholders(operands, args):
        if made.code.count(word) != lines.count(number(int.from_bytes(word, "little"))):
            raise WronglyAssembled("a number is not where it should be")
    return made


def _placeholders(operands: Sequence[Operand], args: Sequence[CType]) -> list[bytes]:
    """What stands in the place of `_words_for`, and of the numbers of these operands."""
    placed = [
        *_words(ANY_SLOT), *_words_of_entry(ANY_ENTRY), _word_of(ANY_SITE),
        *map(_word_of, WORDS_OF_ARENA),
    ]  # fmt: skip
    for operand, ctype in zip(operands, args, strict=True):
        value = _number_of(operand, ctype)
        if value is not None:
            placed.append(value.to_bytes(_HALF_WORD if value < 1 << 31 else _WORD, "little"))
    return placed


def _words_for(slot: RemoteAddress, entry: int, named: int, fast: Fast | None) -> tuple[bytes, ...]:
    """The words of a stub: of its slots, of its site, and of the arena."""
    arena = _words_of_arena(fast.words if fast else ())
    return (*_words(slot), *_words_of_entry(entry), _word_of(named), *arena)


@lru_cache
def _words_of_arena(words: tuple[tuple[int, int], ...]) -> tuple[bytes, ...]:
    known = dict(words)
    return tuple(_word_of(known.get(word, word)) for word in WORDS_OF_ARENA)


@lru_cache(_SLOTS)
def _words(slot: int) -> tuple[bytes, ...]:
    """The addresses of a slot, and of words of it, as movabs has them."""
    # SLOT_TOKEN is SLOT_UNMATCHED, and SLOT_STASH is SLOT_TAKES
    packed = _NUMBERS_OF_SLOT.pack(
        slot, slot + SLOT_DATA, slot + SLOT_ADAPTER, slot + SLOT_TOKEN, slot + SLOT_TAKES
    )
    return _WORDS_OF_SLOT.unpack(packed)


@lru_cache(_SLOTS)
def _words_of_entry(slot: int) -> tuple[bytes, ...]:
    return _word_of(slot + SLOT_TOKEN), _word_of(slot + SLOT_STASH)


def _word_of(value: int) -> bytes:
    return value.to_bytes(_WORD, "little")


def _named(site: int, operands: Sequence[Operand]) -> int:
    """What the stub of a site says of it: its address, and the words between the operands and the
    program's stack."""
    above = depth(below(operands)) // _WORD
    return site | above << SITE_ABOVE
