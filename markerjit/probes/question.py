"""A question as code, which stands before a probe.

It is called as the probe is, by a preserving call (calls.py): the arguments are words on the stack,
and no register may change. Where the answer is yes it jumps to the probe, which finds everything as
if it had been called itself. Where the answer is no it returns.

     1  keep the registers that the code needs
     2  jump to `no` unless the condition is met
     3  have the registers back, and jump to the probe
     4  no: have the registers back, and return

A bool is computed by jumps, so that what follows the part that decides is not computed. A number is
computed in rax, with its right operand in rcx; a float in xmm15, with its right operand in xmm14.
In rax, an integer has the sign or the zeros of its own type in all 64 bits. What has to wait while
another operand is computed is in a word of the stack. No instruction can fault: divisors are
looked at before, and floats are computed under the usual MXCSR, whatever the program has in it.

A text is looked at by the runtime, by way of a gate that changes rax, rdi, r10 and r11. What it is
asked stands behind the code. Other memory is not read here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markerjit.abi import CALL_WORDS
from markerjit.errors import Unsupported
from markerjit.probes.asked_texts import TextArgument, encoded
from markerjit.questions.ir import (
    Binary,
    Choice,
    Compare,
    Constant,
    Convert,
    Logic,
    Node,
    Span,
    TextTest,
    Unary,
    Value,
)
from markerjit.questions.types import Type
from markerjit.x86.assemble import assemble, number, plus

NO = "no"
"""The label where a question that was answered with no goes on."""

_WORD, _VECTOR = 8, 16
_GENERAL = ("rax", "rcx", "rdx", "rdi", "r10", "r11")
_ASK = "call ask"
TID_OFFSET = 0x2D0
"""Where glibc 2.36 has the id of a thread, from its fs base."""
_MXCSR = 0x1F80
"""All exceptions masked, to the nearest, with denormal numbers: as a thread begins."""
_LEFT, _RIGHT = "rax", "rcx"
_LEFT_FLOAT, _RIGHT_FLOAT = "xmm15", "xmm14"
_HALVES = {"rax": "eax", "rcx": "ecx"}
_BYTES = {"rax": "al", "rcx": "cl"}
_SIGNED_JUMPS = {"==": "je", "!=": "jne", "<": "jl", "<=": "jle", ">": "jg", ">=": "jge"}
_UNSIGNED_JUMPS = {"==": "je", "!=": "jne", "<": "jb", "<=": "jbe", ">": "ja", ">=": "jae"}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_ON_INTEGERS = {"+": "add", "-": "sub", "*": "imul", "&": "and", "|": "or", "^": "xor"}
_ON_FLOATS = {"+": "addsd", "-": "subsd", "*": "mulsd", "/": "divsd"}


class Line(NamedTuple):
    """An instruction or a label, and the part of the question that it belongs to; None for what
    stands around the condition."""

    text: str
    span: Span | None


class Draft(NamedTuple):
    """The code of a question, and what it asks of texts, which stands behind it."""

    lines: list[Line]
    asked: tuple[bytes, ...] = ()


_NO_TEXTS: Mapping[str, TextArgument] = {}


def draft_of(
    condition: Node,
    arguments: Mapping[str, int],
    texts: Mapping[str, TextArgument] = _NO_TEXTS,
    tid_offset: int = TID_OFFSET,
) -> Draft:
    """The code of a condition. Its labels are `no` and names of its own; the probe is `probe`, the
    runtime's gate `ask`, and what is asked of texts `text0` and so on.

    `arguments` are the indices of the words that hold values, by name; what is not among them is
    `tid`. Raises Unsupported for what is neither a number nor about one of these texts, and for
    `tid` where `tid_offset` is negative.
    """
    draft = _Condition(arguments, texts, tid_offset, 0)
    draft.jump(condition, NO, when=False)
    used = {register for line in draft.lines for register in _mentioned(line.text)}
    pushed = [register for register in _GENERAL if register in used]
    vectors = [register for register in (_LEFT_FLOAT, _RIGHT_FLOAT) if register in used]
    below = _WORD * draft.most_words
    frame = below + _VECTOR * len(vectors) + (_WORD if vectors else 0)
    final = _Condition(arguments, texts, tid_offset, frame + _WORD * len(pushed) + CALL_WORDS)
    final.jump(condition, NO, when=False)
    places = [
        (f"xmmword ptr [rsp{plus(below + _VECTOR * index)}]", register)
        for index, register in enumerate(vectors)
    ]
    control = f"dword ptr [rsp + {number(frame - _WORD)}]" if vectors else ""
    usual = f"dword ptr [rsp + {number(frame - _WORD + 4)}]" if vectors else ""
    back = [
        *((f"ldmxcsr {control}",) if vectors else ()),
        *(f"movups {register}, {place}" for place, register in places),
        *((f"add rsp, {number(frame)}",) if frame else ()),
        *(f"pop {register}" for register in reversed(pushed)),
    ]
    keep = [
        "endbr64",
        *(f"push {register}" for register in pushed),
        *((f"sub rsp, {number(frame)}",) if frame else ()),
        *(f"movups {place}, {register}" for place, register in places),
        *((f"stmxcsr {control}", f"mov {usual}, {number(_MXCSR)}") if vectors else ()),
        *((f"ldmxcsr {usual}",) if vectors else ()),
    ]
    lines = [
        *(Line(text, None) for text in keep),  # 1
        *final.lines,  # 2
        *(Line(text, None) for text in (*back, "jmp probe")),  # 3
        *(Line(text, None) for text in (f"{NO}:", *back, "ret")),  # 4
    ]
    return Draft(lines, tuple(final.asked))


def make_question(draft: Draft, address: int, probe: int, ask: int) -> bytes:
    """The code at an address, a multiple of eight, before a probe, with what it asks the gate of
    texts at `ask`. Raises WronglyAssembled."""
    source = [line.text for line in draft.lines]
    names = {"probe": probe, "ask": ask}
    somewhere = {f"text{index}": address for index in range(len(draft.asked))}
    size = len(assemble(source, address, names | somewhere).code)
    places = {}
    behind = b""
    for index, asked in enumerate(draft.asked):
        behind += bytes(-(size + len(behind)) % _WORD)
        places[f"text{index}"] = address + size + len(behind)
        behind += asked
    return assemble(source, address, names | places).code + behind


def _mentioned(text: str) -> list[str]:
    """The registers of an instruction that have to be kept."""
    if text.split()[0] in ("cqo", "div", "idiv"):
        return ["rax", "rdx"]
    if text == _ASK:
        return ["rax", "rdi", "r10", "r11"]
    words = text.replace(",", " ").split()[1:]
    wide = {"eax": "rax", "al": "rax", "ecx": "rcx", "cl": "rcx", "edx": "rdx"}
    return [wide.get(word, word) for word in words]


def _immediate(node: Node) -> str | None:
    """An integer constant as an operand of a comparison, whose upper bits are its sign."""
    if isinstance(node, Constant) and isinstance(node.value, int):
        if 0 <= node.value < 1 << 31:
            return number(node.value)
        if node.type.signed and -(1 << 31) <= node.value < 0:
            return f"-{number(-node.value)}"
    return None


class _Condition:
    """The lines of a condition, one behind the other. `words` is where the arguments are, from
    rsp."""

    def __init__(
        self,
        arguments: Mapping[str, int],
        texts: Mapping[str, TextArgument],
        tid_offset: int,
        words: int,
    ) -> None:
        self._arguments = arguments
        self._texts = texts
        self._tid_offset = tid_offset
        self._words = words
        self._labels = 0
        self._kept = 0
        self.lines: list[Line] = []
        self.asked: list[bytes] = []
        self.most_words = 0

    def jump(self, node: Node, label: str, *, when: bool) -> None:
        """Jump to a label if a bool is as `when` says; otherwise go on."""
        match node:
            case Constant(value=value):
                if bool(value) is when:
                    self._emit(node, f"jmp {label}")
            case Unary(operator="not", operand=operand):
                self.jump(operand, label, when=not when)
            case Unary(operator="truth", operand=operand):
                zero = Constant(operand.type, 0, node.span)
                self._jump_compared(node, "!=", operand, zero, label, when)
            case Logic(operator=symbol, parts=parts):
                self._jump_decided(parts, label, when=when, decides=symbol == "or")
            case Compare(operator=symbol, left=left, right=right):
                self._jump_compared(node, symbol, left, right, label, when)
            case _:
                self._number(node)
                self._emit(node, "test rax, rax", f"{'jne' if when else 'je'} {label}")

    def _jump_decided(
        self, parts: Sequence[Node], label: str, *, when: bool, decides: bool
    ) -> None:
        """`and` or `or`, by what one of the parts has to be to decide it."""
        if when is decides:
            for part in parts:
                self.jump(part, label, when=when)
            return
        decided = self._label()
        for part in parts[:-1]:
            self.jump(part, decided, when=decides)
        self.jump(parts[-1], label, when=when)
        self._place(decided)

    def _jump_compared(
        self, node: Node, symbol: str, left: Node, right: Node, label: str, when: bool
    ) -> None:
        if left.type is Type.F64:
            self._jump_of_floats(node, symbol, left, right, label, when)
            return
        symbol = symbol if when else _OPPOSITE[symbol]
        if left.type.signed == right.type.signed:
            jumps = _SIGNED_JUMPS if left.type.signed else _UNSIGNED_JUMPS
            immediate = _immediate(right)
            if immediate is None:
                self._operands(left, right)
            else:
                self._number(left)
            self._emit(node, f"cmp rax, {immediate or _RIGHT}", f"{jumps[symbol]} {label}")
            return
        self._operands(left, right)
        # An i64 and a u64. A negative one is less than the other, whatever that is.
        register = _LEFT if left.type.signed else _RIGHT
        less = "<" if left.type.signed else ">"
        behind = self._label()
        is_met = symbol in (less, f"{less}=", "!=")
        self._emit(node, f"test {register}, {register}", f"js {label if is_met else behind}")
        self._emit(node, "cmp rax, rcx", f"{_UNSIGNED_JUMPS[symbol]} {label}")
        self._place(behind)

    def _jump_of_floats(
        self, node: Node, symbol: str, left: Node, right: Node, label: str, when: bool
    ) -> None:
        """What is compared with NaN is unordered: it sets the flags of `below`, `equal` and
        `parity`."""
        self._operands(left, right)
        if symbol in ("==", "!="):
            self._emit(node, f"ucomisd {_LEFT_FLOAT}, {_RIGHT_FLOAT}")
            if (symbol == "!=") is when:
                self._emit(node, f"jp {label}", f"jne {label}")
            else:
                unordered = self._label()
                self._emit(node, f"jp {unordered}", f"je {label}")
                self._place(unordered)
            return
        first, second = _LEFT_FLOAT, _RIGHT_FLOAT
        if symbol in ("<", "<="):
            first, second = second, first
        strict = symbol in ("<", ">")
        jump = ("ja" if strict else "jae") if when else ("jbe" if strict else "jb")
        self._emit(node, f"ucomisd {first}, {second}", f"{jump} {label}")

    def _number(self, node: Node) -> None:
        """Compute a number or a bool in rax, a float in xmm15."""
        match node:
            case Constant() | Value():
                self._leaf(node, right=False)
            case Convert(type=type_, operand=operand):
                self._number(operand)
                self._convert(node, operand.type, type_)
            case Unary(operator="-" | "~" | "log2" as symbol, operand=operand):
                self._number(operand)
                self._unary(node, symbol, operand.type)
            case Binary():
                self._binary(node)
            case Choice(condition=condition, yes=yes, no=no):
                other, behind = self._label(), self._label()
                self.jump(condition, other, when=False)
                self._number(yes)
                self._emit(node, f"jmp {behind}")
                self._place(other)
                self._number(no)
                self._place(behind)
            case Compare() | Logic() | Unary(operator="not" | "truth"):
                is_met, behind = self._label(), self._label()
                self.jump(node, is_met, when=True)
                self._emit(node, "xor eax, eax", f"jmp {behind}")
                self._place(is_met)
                self._emit(node, "mov eax, 1")
                self._place(behind)
            case TextTest() | Unary(operator="len" | "missing"):
                self._ask(node)
            case _:
                raise Unsupported("a question about memory has no code yet")

    def _ask(self, node: TextTest | Unary) -> None:
        """Have the runtime look at a text."""
        self._emit(node, f"lea rdi, [rip + text{len(self.asked)}]")
        self._emit(node, f"lea r10, [rsp + {number(self._words)}]", _ASK)
        self.asked.append(encoded(node, self._texts))

    def _leaf(self, node: Constant | Value, *, right: bool) -> None:
        register = _RIGHT if right else _LEFT
        vector = _RIGHT_FLOAT if right else _LEFT_FLOAT
        if isinstance(node, Constant):
            self._constant(node, register, vector)
            return
        half = _HALVES[register]
        if node.name not in self._arguments:
            self._thread(node, half)
            return
        place = f"[rsp + {number(self._words + _WORD * self._arguments[node.name])}]"
        match node.type:
            case Type.F64:
                self._emit(node, f"movsd {vector}, qword ptr {place}")
            case Type.BOOL:
                byte = _BYTES[register]
                self._emit(node, f"cmp byte ptr {place}, 0", f"setne {byte}")
                self._emit(node, f"movzx {half}, {byte}")
            case Type.U8 | Type.CHAR:
                self._emit(node, f"movzx {half}, byte ptr {place}")
            case Type.U16:
                self._emit(node, f"movzx {half}, word ptr {place}")
            case Type.U32:
                self._emit(node, f"mov {half}, dword ptr {place}")
            case Type.I8:
                self._emit(node, f"movsx {register}, byte ptr {place}")
            case Type.I16:
                self._emit(node, f"movsx {register}, word ptr {place}")
            case Type.I32:
                self._emit(node, f"movsxd {register}, dword ptr {place}")
            case _:
                self._emit(node, f"mov {register}, qword ptr {place}")

    def _thread(self, node: Value, half: str) -> None:
        """The id of the thread, where the thread library has it."""
        if self._tid_offset < 0:
            raise Unsupported("it is not known where the threads of this process have their ids")
        place = f"dword ptr fs:[{number(self._tid_offset)}]"
        # capstone has another name for the short form, which keystone takes for eax.
        self._emit(node, f"{'movabs' if half == 'eax' else 'mov'} {half}, {place}")

    def _constant(self, node: Constant, register: str, vector: str) -> None:
        if node.type is Type.F64:
            assert not isinstance(node.value, bytes)
            bits = struct.unpack("<Q", struct.pack("<d", node.value))[0]
        else:
            assert isinstance(node.value, int)
            bits = node.value & (1 << 64) - 1
        half = _HALVES[register]
        if bits == 0:
            self._emit(node, f"xor {half}, {half}")
        elif bits < 1 << 32:
            self._emit(node, f"mov {half}, {number(bits)}")
        elif bits >= (1 << 64) - (1 << 31):
            self._emit(node, f"mov {register}, {number(bits)}")
        else:
            self._emit(node, f"movabs {register}, {number(bits)}")
        if node.type is Type.F64:
            self._emit(node, f"movq {vector}, {register}")

    def _operands(self, left: Node, right: Node) -> None:
        """Compute both operands: rax and rcx, or xmm15 and xmm14."""
        if isinstance(right, Constant | Value):
            self._number(left)
            self._leaf(right, right=True)
            return
        if isinstance(left, Constant | Value):
            self._number(right)
            self._to_right(right)
            self._leaf(left, right=False)
            return
        word = f"qword ptr [rsp{plus(_WORD * self._kept)}]"
        is_float = left.type is Type.F64
        self._number(left)
        self._emit(left, f"movsd {word}, {_LEFT_FLOAT}" if is_float else f"mov {word}, rax")
        self._kept += 1
        self.most_words = max(self.most_words, self._kept)
        self._number(right)
        self._kept -= 1
        self._to_right(right)
        self._emit(left, f"movsd {_LEFT_FLOAT}, {word}" if is_float else f"mov rax, {word}")

    def _to_right(self, node: Node) -> None:
        is_float = node.type is Type.F64
        self._emit(node, f"movapd {_RIGHT_FLOAT}, {_LEFT_FLOAT}" if is_float else "mov rcx, rax")

    def _convert(self, node: Node, source: Type, target: Type) -> None:
        if target is Type.F64:
            if source in (Type.U64, Type.POINTER):
                self._float_of_unsigned(node)
            else:
                self._emit(node, f"cvtsi2sd {_LEFT_FLOAT}, rax")
        elif source is Type.F64:
            self._emit(node, f"cvttsd2si rax, {_LEFT_FLOAT}")
        elif target.bits < 64:
            self._fit(node, target)

    def _float_of_unsigned(self, node: Node) -> None:
        """The processor converts signed integers only. A larger one is halved and doubled, and its
        lowest bit is kept, by which it may have to be rounded up."""
        large, behind = self._label(), self._label()
        self._emit(node, "test rax, rax", f"js {large}", f"cvtsi2sd {_LEFT_FLOAT}, rax")
        self._emit(node, f"jmp {behind}")
        self._place(large)
        self._emit(node, "mov rcx, rax", "shr rax, 1", "and ecx, 1", "or rax, rcx")
        self._emit(node, f"cvtsi2sd {_LEFT_FLOAT}, rax")
        self._emit(node, f"addsd {_LEFT_FLOAT}, {_LEFT_FLOAT}")
        self._place(behind)

    def _fit(self, node: Node, type_: Type) -> None:
        """Give the upper bits of rax the sign, or the zeros, of a type of 32 bits."""
        if type_ is Type.I32:
            self._emit(node, "movsxd rax, eax")
        elif type_ is Type.U32:
            self._emit(node, "mov eax, eax")

    def _unary(self, node: Node, symbol: str, source: Type) -> None:
        if symbol == "log2":
            self._log2(node, signed=source.signed)
        elif source is Type.F64:
            self._emit(node, f"movq rax, {_LEFT_FLOAT}", "btc rax, 0x3f")
            self._emit(node, f"movq {_LEFT_FLOAT}, rax")
        else:
            self._emit(node, "neg rax" if symbol == "-" else "not rax")
            self._fit(node, node.type)

    def _log2(self, node: Node, *, signed: bool) -> None:
        none, behind = self._label(), self._label()
        self._emit(node, "test rax, rax", f"{'jle' if signed else 'je'} {none}", "bsr rax, rax")
        self._emit(node, f"jmp {behind}")
        self._place(none)
        self._emit(node, f"mov rax, {number((1 << 64) - 1)}")
        self._place(behind)

    def _binary(self, node: Binary) -> None:
        self._operands(node.left, node.right)
        symbol = node.operator
        if node.type is Type.F64:
            self._emit(node, f"{_ON_FLOATS[symbol]} {_LEFT_FLOAT}, {_RIGHT_FLOAT}")
        elif symbol in ("<<", ">>"):
            self._shift(node, left=symbol == "<<")
        elif symbol in ("/", "%"):
            self._divide(node, remainder=symbol == "%")
        else:
            self._emit(node, f"{_ON_INTEGERS[symbol]} rax, rcx")
            if symbol in ("+", "-", "*"):
                self._fit(node, node.type)

    def _shift(self, node: Binary, *, left: bool) -> None:
        gone, behind = self._label(), self._label()
        arithmetic = node.type.signed and not left
        self._emit(node, f"cmp rcx, {number(node.type.bits)}", f"jae {gone}")
        self._emit(node, "shl rax, cl" if left else "sar rax, cl" if arithmetic else "shr rax, cl")
        if left:
            self._fit(node, node.type)
        self._emit(node, f"jmp {behind}")
        self._place(gone)
        self._emit(node, "sar rax, 0x3f" if arithmetic else "xor eax, eax")
        self._place(behind)

    def _divide(self, node: Binary, *, remainder: bool) -> None:
        """By 0 it is 0. By -1 it is a negation: the processor refuses to divide the least integer
        by it. That of 32 bits is divided as one of 64, so that only the result is to be cut."""
        zero, behind = self._label(), self._label()
        self._emit(node, "test rcx, rcx", f"je {zero}")
        if node.type.signed:
            negation = self._label()
            self._emit(node, "cmp rcx, -1", f"je {negation}", "cqo", "idiv rcx")
        else:
            self._emit(node, "xor edx, edx", "div rcx")
        if remainder:
            self._emit(node, "mov rax, rdx")
        self._emit(node, f"jmp {behind}")
        if node.type.signed and not remainder:
            self._place(negation)
            self._emit(node, "neg rax", f"jmp {behind}")
        self._place(zero)
        if node.type.signed and remainder:
            self._place(negation)
        self._emit(node, "xor eax, eax")
        self._place(behind)
        if not remainder:
            self._fit(node, node.type)

    def _label(self) -> str:
        self._labels += 1
        return f"part{self._labels}"

    def _place(self, label: str) -> None:
        self.lines.append(Line(f"{label}:", None))

    def _emit(self, node: Node, *texts: str) -> None:
        self.lines += [Line(text, node.span) for text in texts]
