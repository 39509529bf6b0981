"""The code of a question's expressions: conditions as jumps, numbers in registers.

A bool is computed by jumps, so that nothing is computed behind the part that decides. A number is
computed in rax, with its right operand in rcx; a float in xmm15, with its right operand in xmm14.
In rax, an integer has the sign or the zeros of its own type in all 64 bits. What has to wait while
another operand is computed is in a word of the stack. No instruction can fault: divisors are looked
at before, and floats are computed under the usual MXCSR, whatever the program has in it.

Texts, memory and the clock are read by the runtime, by way of gates that change rax, rdi, r10 and
r11. What it is asked of texts stands behind the code. The code itself looks at a text where that is
simple: one that is compared with constants (compared.py), or with another text (alike.py), whose
length is asked for, or in which a constant is searched (searched.py).

What this does not do: the code around an expression, which keeps registers (question.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from markerjit.errors import Unsupported
from markerjit.probes.alike import Alike
from markerjit.probes.asked_texts import TextArgument, encoded, texts_in_memory
from markerjit.probes.compared import Comparison
from markerjit.probes.searched import Length, Missing, Search
from markerjit.questions.ir import (
    Binary,
    Choice,
    Compare,
    Constant,
    Convert,
    Load,
    Logic,
    Node,
    Slice,
    Span,
    Stack,
    TextAt,
    TextTest,
    Unary,
    Value,
    may_be_missing,
)
from markerjit.questions.scope import CPU, TIME, hidden
from markerjit.questions.types import Type
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number, plus

ASK, LOAD, CLOCK, STACK = "call ask", "call load", "call clock", "call stack"
"""Calls of the runtime's gates."""
TID_OFFSET = 0x2D0
"""Where glibc 2.36 has the id of a thread, from its fs base."""

_WORD = 8
_FARTHEST = -128
"""Words below the arguments at most where the address of a text is (struct mj_asked_text)."""
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
    stands around the expressions. `source` is the number of the expression, of several."""

    text: str
    span: Span | None
    source: int = 0


class Known(NamedTuple):
    """What the code of a question has to know of its marker and process.

    arguments   the indices of the words that hold values, by name
    texts       those that are texts
    tid_offset  where from its fs base a thread has its id; negative where that is not known
    has_clock   whether the runtime can read the clock
    careful     whether texts are never read from a page merely because it is known to be mapped.
                Memory at a computed address never is: the program may hold a pointer to memory that
                it has freed, and not follow it
    is_stub     whether the probe is called by a stub, which names its site
    rseq_offset where from its fs base a thread has its struct rseq; 0: restartable sequences are
                not used
    """

    arguments: Mapping[str, int]
    texts: Mapping[str, TextArgument] = {}
    tid_offset: int = TID_OFFSET
    has_clock: bool = True
    careful: bool = False
    is_stub: bool = False
    rseq_offset: int = 0


Looked = Comparison | Alike | Length | Search | Missing
"""What the code of a question finds of texts by itself."""

_TIMES, _CPUS = (TIME, hidden(TIME)), (CPU, hidden(CPU))


def _is_simple(node: Node) -> bool:
    """Whether the expression can be computed in one register, without changing another."""
    return isinstance(node, Constant) or (isinstance(node, Value) and node.name not in _TIMES)


def _immediate(node: Node) -> str | None:
    """An integer constant as an operand of a comparison, whose upper bits are its sign."""
    if isinstance(node, Constant) and isinstance(node.value, int):
        if 0 <= node.value < 1 << 31:
            return number(node.value)
        if node.type.signed and -(1 << 31) <= node.value < 0:
            return f"-{number(-node.value)}"
    return None


class Computing:
    """The lines that compute expressions, one behind the other.

    Offsets from rsp: `kept` is where words are kept, `words` where the arguments are.
    """

    def __init__(self, known: Known, kept: int, words: int) -> None:
        self._known = known
        self._words = words
        self._kept_at = kept
        self._labels = 0
        self._kept = 0
        self._missing = ""
        self.lines: list[Line] = []
        self.asked: list[bytes] = []
        self.compared: list[Looked] = []
        self.most_words = 0
        self.source = 0

    def store(self, node: Node, at: int, missing_at: int | None = None) -> None:
        """Compute a number, and put it into the word at this offset from rsp; 0 where it is
        missing, and then also 1 into the word at `missing_at`."""
        missing = self._label()
        if node.type is Type.F64 and isinstance(node, Value):  # no vector register has to be kept
            self._emit(node, f"mov rax, qword ptr {self._argument(node)}")
        else:
            with self._missing_at(missing):
                self._number(node)
            if node.type is Type.F64:
                self._emit(node, f"movq rax, {_LEFT_FLOAT}")
        if may_be_missing(node):
            behind = self._label()
            self._emit(node, f"jmp {behind}")
            self._place(missing)
            self._emit(node, "xor eax, eax")
            if missing_at is not None:
                self._emit(node, f"mov qword ptr [rsp{plus(missing_at)}], {number(1)}")
            self._place(behind)
        self._emit(node, f"mov qword ptr [rsp{plus(at)}], rax")

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
                compared = Compare(Type.BOOL, "!=", operand, zero, node.span)
                self._jump_tested(compared, label, when=when, missing=False)
            case Logic(operator="or", parts=parts) if tests := self._together(parts):
                self._ask(node, tests)
                self._emit(node, "test rax, rax", f"{'jne' if when else 'je'} {label}")
            case Logic(operator=symbol, parts=parts):
                self._jump_decided(parts, label, when=when, decides=symbol == "or")
            case Compare(operator=symbol):
                self._jump_tested(node, label, when=when, missing=symbol == "!=")
            case Unary(operator="missing", operand=operand) if operand.type is not Type.TEXT:
                self._jump_missing(operand, label, when=when)
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

    @contextmanager
    def _missing_at(self, label: str) -> Iterator[None]:
        """Within the block, jump to a label if a computed number is missing."""
        before, self._missing = self._missing, label
        yield
        self._missing = before

    def _jump_tested(self, node: Compare, label: str, *, when: bool, missing: bool) -> None:
        """A comparison, and its answer where an operand is missing."""
        behind = self._label()
        with self._missing_at(label if missing is when else behind):
            self._jump_compared(node, node.operator, node.left, node.right, label, when)
        if may_be_missing(node.left) or may_be_missing(node.right):
            self._place(behind)

    def _jump_missing(self, operand: Node, label: str, *, when: bool) -> None:
        behind = self._label()
        with self._missing_at(label if when else behind):
            self._number(operand)
        if not when:
            self._emit(operand, f"jmp {label}")
            self._place(behind)

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
        """A comparison with NaN is unordered: it sets the flags of `below`, `equal` and
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
            case Load():
                self._load(node)
            case Stack():
                self._stack(node)
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
            case (
                TextTest()
                | Unary(operator="len")
                | Unary(operator="missing", operand=Value(type=Type.TEXT) | Slice() | TextAt())
            ):
                self._ask(node, (node,))
            case Compare() | Logic() | Unary(operator="not" | "truth" | "missing"):
                is_met, behind = self._label(), self._label()
                self.jump(node, is_met, when=True)
                self._emit(node, "xor eax, eax", f"jmp {behind}")
                self._place(is_met)
                self._emit(node, "mov eax, 1")
                self._place(behind)
            case _:
                raise Unsupported(f"there is no code for {type(node).__name__} as a number")

    def _ask(self, node: Node, tests: Sequence[TextTest | Unary]) -> None:
        """Have the runtime look at texts, until one of these tests says yes. The addresses of texts
        in memory are kept meanwhile."""
        missing, behind = self._label(), self._label()
        addresses: dict[TextAt, int] = {}
        before = self._kept
        with self._missing_at(missing):
            for text in (text for test in tests for text in texts_in_memory(test)):
                self._number(text.address)
                addresses[text] = self._keep(text, "rax")
        below = {text: word - self._words // _WORD for text, word in addresses.items()}
        if any(place < _FARTHEST for place in below.values()):
            raise Unsupported("the question is too deep for a text in memory")
        first = len(self.asked)
        compared = self._comparison(first, tests)
        if compared:
            self._emit(node, *compared.lines(self._words, self._known.rseq_offset))
            self.compared.append(compared)
        for index, test in enumerate(tests, first):
            if index > first:
                self._emit(node, "test rax, rax", f"jne answered{first}")
            self._emit(node, f"lea rdi, [rip + text{index}]")
            self._emit(node, f"lea r10, [rsp + {number(self._words)}]", ASK)
            self.asked.append(encoded(test, self._known.texts, below, careful=self._known.careful))
        if compared:
            self._place(f"answered{first}")
        self._kept = before
        if any(may_be_missing(text.address) for text in addresses):
            is_missing = isinstance(node, Unary) and node.operator == "missing"
            self._emit(node, f"jmp {behind}")
            self._place(missing)
            self._emit(node, "mov eax, 1" if is_missing else "xor eax, eax")
            self._place(behind)

    def _together(self, parts: Sequence[Node]) -> Sequence[TextTest]:
        """The parts of an `or` that are comparisons of one text; none where there are others."""
        tests = [part for part in parts if isinstance(part, TextTest)]
        return tests if len(tests) == len(parts) and self._comparison(0, tests) else ()

    def _comparison(self, index: int, tests: Sequence[TextTest | Unary]) -> Looked | None:
        """What is asked of a text, where the runtime is asked only now and then."""
        if self._known.careful or not self._known.rseq_offset:
            return None
        texts, node = self._known.texts, tests[0]
        if isinstance(node, Unary):
            return Length.of(index, node, texts) or Missing.of(index, node, texts)
        comparison = Comparison.of(index, tests, texts)
        if comparison or len(tests) > 1:
            return comparison
        return Alike.of(index, node, texts) or Search.of(index, node, texts)

    def _keep(self, node: Node, register: str) -> int:
        """Keep a register in a word. Returns the word's number, from rsp."""
        self._emit(node, f"mov {self._word()}, {register}")
        at = self._kept_at // _WORD + self._kept
        self._kept += 1
        self.most_words = max(self.most_words, self._kept)
        return at

    def _word(self) -> str:
        """The next word that is free to keep something in."""
        return f"qword ptr [rsp{plus(self._kept_at + _WORD * self._kept)}]"

    def _load(self, node: Load) -> None:
        """Have the runtime read a number in memory."""
        self._number(node.address)
        word = self._word()
        place = word.removeprefix("qword ptr ")
        self._emit(node, "mov rdi, rax", f"mov {word}, {number(node.size)}")
        self._emit(node, f"lea r10, {place}", LOAD, "test rax, rax", f"je {self._missing}")
        if node.single:
            self._emit(node, f"cvtss2sd {_LEFT_FLOAT}, dword ptr {place}")
        elif node.type is Type.F64:
            self._emit(node, f"movsd {_LEFT_FLOAT}, qword ptr {place}")
        else:
            self._read_word(node.type, place, _LEFT, node)
        self.most_words = max(self.most_words, self._kept + 1)

    def _stack(self, node: Stack) -> None:
        """Have the runtime walk the stack. Its number is in rax."""
        is_stub = "mov r11d, 1" if self._known.is_stub else "xor r11d, r11d"
        self._emit(node, f"mov edi, {number(node.depth)}")
        self._emit(node, f"lea r10, [rsp + {number(self._words)}]", is_stub, STACK)

    def _leaf(self, node: Node, *, right: bool) -> None:
        register = _RIGHT if right else _LEFT
        vector = _RIGHT_FLOAT if right else _LEFT_FLOAT
        if isinstance(node, Constant):
            self._constant(node, register, vector)
            return
        assert isinstance(node, Value)
        half = _HALVES[register]
        if node.name not in self._known.arguments:
            self._of_thread(node, half)
            return
        place = self._argument(node)
        if node.type is Type.F64:
            self._emit(node, f"movsd {vector}, qword ptr {place}")
        else:
            self._read_word(node.type, place, register, node)

    def _argument(self, node: Value) -> str:
        """Where the word of an argument is."""
        return f"[rsp + {number(self._words + _WORD * self._known.arguments[node.name])}]"

    def _read_word(self, type_: Type, place: str, register: str, node: Node) -> None:
        """An integer of this type in a word, extended to 64 bits."""
        half = _HALVES[register]
        match type_:
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

    def _of_thread(self, node: Value, half: str) -> None:
        """The time, the CPU, or the id of the thread, where the thread library has it."""
        if node.name in _TIMES:
            if not self._known.has_clock:
                raise Unsupported("this process has no vDSO that we know, so time is not known")
            self._emit(node, CLOCK)
            return
        if node.name in _CPUS:
            # Segment 15 of the GDT, ring 3. Its limit has the number of the CPU.
            self._emit(node, f"mov {half}, 0x7b", f"lsl {half}, {half}", f"and {half}, 0xfff")
            return
        if self._known.tid_offset < 0:
            raise Unsupported("it is not known where the threads of this process keep their ids")
        place = f"dword ptr fs:[{number(self._known.tid_offset)}]"
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
        if _is_simple(right):
            self._number(left)
            self._leaf(right, right=True)
            return
        if _is_simple(left):
            self._number(right)
            self._to_right(right)
            self._leaf(left, right=False)
            return
        word = self._word()
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
        self.lines += [Line(text, node.span, self.source) for text in texts]
