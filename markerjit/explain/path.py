"""The active path of a site: all that an execution runs through, from the head to the probe and
back, in parts with names.

For a site that is on, every byte is read from the process. For a site that is off, this is the path
that a switch would make. Parts that the process has already are read from it, too. The head, the
slot and the recorder are those that would be written, and are marked so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import product

from markerjit.abi import CODE_SIZE, PROBE_COUNTED
from markerjit.arena.arena import Arena
from markerjit.errors import MarkerError, MemoryFault, NoSuchProcess, TargetGone
from markerjit.explain.stub_path import Arranged, Way, arranged
from markerjit.memory.pages import Page, page_at
from markerjit.model import Mode, RemoteAddress, Site, UsdtSite
from markerjit.patch.plan import SiteState
from markerjit.patch.request import Probe
from markerjit.patch.slots import SLOT_ADAPTER, SLOT_DATA
from markerjit.probes.fast import Fast, known_path
from markerjit.probes.parts import Role, role_of
from markerjit.probes.reached import Content, Piece, Reached, pieces_of, planned, reached
from markerjit.probes.recorder import TAG_BEFORE, TAG_SIZE, tag_before, tag_of
from markerjit.probes.recorders import nothing_read, probe_of
from markerjit.probes.stub import Displaced, Stub, stub_for
from markerjit.session.opened import jump_of, way_before
from markerjit.session.target import Target
from markerjit.sites import parse_name
from markerjit.sites.verify import dormant_code
from markerjit.tuples import NamedTuple
from markerjit.x86.decode import Instruction, disassemble
from markerjit.x86.forms import NEAR_LENGTH, STUBBED, is_breakpoint

_PROGRAM = "the program"
_BODY = "the body"
_STUB = "the stub, which is the body"
_SLOT = "the slot"
_BODY_BYTES = 512
_MOST_DISPLACED = 19
"""Bytes of instructions that a stub may have copies of: four, and an instruction of fifteen."""
_HOLE = "the hole: jumps to the body"
_HEADS = {
    Mode.JUMP: "the head: jumps to the body",
    Mode.NOP: "the head: jumps to the body",
    Mode.INT3: "the head: a breakpoint",
    Mode.POINTER: "the head: asks the slot for a probe",
    Mode.SENTINEL: "the head: calls what the slot has",
    Mode.IMMEDIATE: "the head: a number that the program tests",
}


class PathPart(NamedTuple):
    """A part of the path: a Piece, decoded. Data has no instructions."""

    piece: Piece
    instructions: tuple[Instruction, ...]


class ActivePath(NamedTuple):
    """The active path of a site.

    mode     how the site is on, or would be
    parts    on the usual way, in the order in which they are executed
    rest     what belongs to the same code and is not on the usual way
    remarks  what else there is to say, or why something is missing, a sentence each
    page     the page in which the site is
    """

    site: Site
    mode: Mode | None
    parts: tuple[PathPart, ...]
    rest: tuple[PathPart, ...] = ()
    remarks: tuple[str, ...] = ()
    page: Page | None = None


def paths_of_process(
    pid: int, pattern: str, *, mode: Mode | None = None, probe: str = "count"
) -> Mapping[RemoteAddress, ActivePath]:
    """The path of every site of a process whose marker matches, by its address. `mode` and `probe`
    ("count" or "record") are for sites that are off. The process was there a moment ago: raises
    TargetGone, else as `attach` does, and UnknownMarker."""
    try:
        seen_again = Target(pid)
    except NoSuchProcess:
        raise TargetGone(pid) from None
    with closing(seen_again) as target:
        states = target.states(tuple(target.matching(parse_name(pattern))))
        asked = probe_of(probe, nothing_read(probe))
        return {
            state.site.address: _Pathfinder(target, state, mode, asked)
            .path()
            ._replace(page=page_at(pid, target.seen.maps, state.site.address))
            for state in states
        }


class MadeStub(NamedTuple):
    """A stub, as it is in memory: its parts, and its fast path."""

    pieces: tuple[Piece, ...]
    fast: Fast | None


class _Pathfinder:
    """Puts the path of one site together."""

    def __init__(self, target: Target, state: SiteState, mode: Mode | None, probe: Probe) -> None:
        self._target = target
        self._read = target.memory.read
        self._state = state
        self._site = state.site
        self._probe = probe
        self._is_on = state.mode is not None
        ways = state.site.form.ways
        self._mode = state.mode or (mode if mode in ways else next(iter(ways), None))
        self._remarks: list[str] = []

    def path(self) -> ActivePath:
        """The path."""
        if self._state.problem:
            return self._without("the code is neither off nor on, so nobody knows where it leads")
        if self._mode is None:
            return self._without(self._site.form.closed or "the site cannot be switched")
        try:
            made = self._made_stub()
            way = Way.CALLS if made is None else self._way_through(made.fast)
            body = self._body() if made is None else arranged(made.pieces, way)
            usual, rest = [*self._head(), *body.before], list(body.rest)
            for behind_slot in self._behind_slot(is_called=way is Way.CALLS):
                usual += behind_slot.usual
                rest += behind_slot.rest
                self._remarks += behind_slot.remarks
            usual += body.behind
        except MemoryFault as fault:
            return self._without(f"cannot be read: {fault}")
        parts, others = ([_decoded(piece) for piece in pieces] for pieces in (usual, rest))
        return ActivePath(self._site, self._mode, tuple(parts), tuple(others), tuple(self._remarks))

    def _without(self, remark: str) -> ActivePath:
        return ActivePath(self._site, self._state.mode, (), remarks=(remark,))

    # ---- the head --------------------------------------------------------------------------------

    def _head(self) -> Iterator[Piece]:
        assert self._mode
        form = self._site.form
        start, code = dormant_code(self._read, self._site)
        if self._is_on:
            code = self._read(start, len(code))
        else:
            at, new = form.lead, form.ways[self._mode]
            code = code[:at] + new + code[at + len(new) :]
        if form.head and is_breakpoint(code[form.lead :]):
            code = code[: form.lead + 1]  # nothing behind it is executed
        is_written = self._is_on or not form.head
        if code:
            yield Piece(_HEADS[self._mode], Role.HEAD, _PROGRAM, start, code, is_written)
        if self._mode is Mode.INT3:
            self._remarks.append(
                "at the breakpoint the kernel calls the runtime's handler of SIGTRAP, which sends "
                "the thread to the body"
            )
        hole = self._site.body.hole
        if hole and self._mode is Mode.JUMP:
            at, jump = jump_of(hole), hole.after[-NEAR_LENGTH:]
            if self._is_on:
                jump = self._read(at, NEAR_LENGTH)
            yield Piece(_HOLE, Role.HEAD, _PROGRAM, at, jump, self._is_on)

    # ---- the body --------------------------------------------------------------------------------

    def _body(self) -> Arranged:
        """The instructions of a marker's body that are executed before the call of the probe, and
        behind it."""
        body = self._site.body
        if not body.entry or body.idle or self._site.form.name in STUBBED:
            return Arranged((), ())
        code = self._body_code()
        # By the slot's word. Arguments that call functions of the program do so by their address.
        calls = [each for each in code if re.match(r"call (?!0x)", each.text)]
        if not calls:
            return Arranged((_of(code, "the body", Role.PROGRAM),), ())
        at = code.index(calls[-1]) + 1
        return Arranged(
            (_of(code[:at], "arguments are pushed, the probe is called", Role.SAVE),),
            (_of(code[at:], "back into the program", Role.BACK),) if code[at:] else (),
        )

    def _body_code(self) -> list[Instruction]:
        """The instructions up to the jump back into the program, as far as they lie in a row."""
        body = self._site.body
        code: bytes = b""
        for size in (_BODY_BYTES, _BODY_BYTES // 8):
            try:
                code = self._read(body.entry, size)
                break
            except MemoryFault:
                continue
        shown: list[Instruction] = []
        for instruction in disassemble(code, body.entry):
            shown.append(instruction)
            if instruction.text in ("ret", f"jmp {body.end:#x}"):
                break
        return shown

    def _made_stub(self) -> MadeStub | None:
        """The stub of a USDT probe or a function, whose parts the assembler says: it is made once
        more. None for the body of a marker, and where that makes another one."""
        site = self._site
        if site.form.name not in STUBBED or not site.body.entry:
            return None
        recipe = self._target.recipe_of(site)
        made = recipe and self._made_again(recipe)
        if not made:
            self._remarks.append(
                f"the stub at {site.body.entry:#x} is not as this markerjit makes it: its "
                "parts are not known"
            )
            return None
        stub, fast = made
        pieces = tuple(
            Piece(
                part.name, role_of(part.name), _STUB, part.start,
                stub.code[part.start - site.body.entry : part.end - site.body.entry],
            )
            for part in stub.parts
        )  # fmt: skip
        return MadeStub(pieces, fast)

    def _way_through(self, fast: Fast | None) -> Way:
        """The way of an execution, by the probe that the slot has, or would have."""
        arena = self._target.seen.arena
        if fast is None or arena is None or not arena.is_current:
            return Way.CALLS
        if self._is_on:
            probe, tag = self._state.probe, b""
            if fast.layout:
                tag = self._read(RemoteAddress(probe - TAG_BEFORE), TAG_SIZE)
        else:
            plan = planned(arena, self._site.signature, self._probe, preserving=True)
            probe, tag = plan.content.probe, b""
            if plan.recorder:
                tag = tag_before(plan.recorder)
        if probe == arena.count_probe(preserving=True):
            return Way.COUNTS
        return Way.RECORDS if fast.layout and tag == tag_of(fast.layout) else Way.CALLS

    def _made_again(self, recipe: UsdtSite) -> tuple[Stub, Fast | None] | None:
        """The stub, as it is in memory. How many instructions it has copies of is not written
        down, so each number is tried."""
        site = self._site
        entry = self._target.entry_of(site)
        slot_of_entry = entry.slot if entry else RemoteAddress(0)
        behind = RemoteAddress(site.address + len(site.form.head))
        lost = site.form.head + self._read(behind, _MOST_DISPLACED - len(site.form.head))
        sizes = [each.address + len(each.code) - site.address
                 for each in disassemble(lost, site.address)]  # fmt: skip
        way = way_before(self._read, site.body.entry)
        paths = known_path(self._target.seen.arena, recipe.signature, way), None
        for size, fast in product(sizes, paths):
            try:
                displaced = Displaced(site.address, lost[:size])
                stub = stub_for(
                    recipe, site.slot, displaced, site.body.entry, slot_of_entry,
                    head=site.form.head, fast=fast,
                )  # fmt: skip
            except MarkerError:
                return None
            if isinstance(stub, Stub) and self._read(site.body.entry, len(stub.code)) == stub.code:
                return stub, fast
        return None

    # ---- the slot, and what it leads to ----------------------------------------------------------

    def _behind_slot(self, *, is_called: bool) -> Iterator[Reached]:
        """The words of the slot, and the code that they lead to when the probe is called."""
        preserving = self._site.body.preserving
        state = self._state
        if self._is_on:
            content = Content(state.probe, state.data, state.adapter)
            yield Reached(usual=tuple(self._slot(content)))
            if not is_called:
                return
            arena = self._arena_of(content.probe)
            if arena is None:
                yield Reached(remarks=(_foreign(content.probe),))
                return
            yield reached(arena, self._read, content, preserving=preserving)
            return
        arena = self._target.seen.arena
        if arena is None or not arena.is_current:
            yield Reached(remarks=("the slot and what it leads to are known when the runtime is in "
                                   "the process: `on` puts it there",))  # fmt: skip
            return
        plan = planned(arena, self._site.signature, self._probe, preserving=preserving)
        yield Reached(usual=tuple(self._slot(plan.content)))
        if not is_called:
            return
        if plan.recorder:
            yield pieces_of(plan.recorder, plan.recorder.code, in_memory=False)
        else:
            yield reached(arena, self._read, plan.content, preserving=preserving)

    def _slot(self, content: Content) -> Iterator[Piece]:
        """The words of the slot that are read on the way."""
        slot = self._site.slot
        if not slot:
            return
        words = [("its probe", 0, content.probe), ("the probe's data", SLOT_DATA, content.data)]
        if content.probe & PROBE_COUNTED and content.adapter:
            words.append(("the adapter", SLOT_ADAPTER, content.adapter))
        for name, offset, word in words:
            yield Piece(
                f"the slot: {name} is {word:#x}", Role.SLOT, _SLOT, slot + offset,
                word.to_bytes(8, "little"), self._is_on,
            )  # fmt: skip

    def _arena_of(self, probe: RemoteAddress) -> Arena | None:
        """The arena in whose code a probe is, if its layout is ours."""
        for arena in self._target.seen.arenas.open:
            if arena.base <= probe < arena.base + CODE_SIZE and arena.is_current:
                return arena
        return None


def _foreign(probe: RemoteAddress) -> str:
    if not probe:
        return "the slot is empty, so nothing is called"
    return f"{probe:#x} is code of the program's own, or of another markerjit: it is not shown"


def _of(code: list[Instruction], name: str, role: Role) -> Piece:
    return Piece(name, role, _BODY, code[0].address, b"".join(each.code for each in code))


def _decoded(piece: Piece) -> PathPart:
    data = piece.role in (Role.DATA, Role.SLOT)
    return PathPart(piece, () if data else tuple(disassemble(piece.code, piece.address)))
