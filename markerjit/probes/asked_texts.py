"""The tests that a question makes of a text: a struct mj_asked behind its code, for
native/src/runtime/ask.c.

The text is taken as the recorder takes it, and its first MAX_ASKED bytes are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

from markerjit.abi import (
    ASK_CONTAINS,
    ASK_EQUALS,
    ASK_LENGTH,
    ASK_MISSING,
    ASK_SAME,
    ASK_STARTS,
    MAX_ASKED,
    OP_STRING,
    Asked,
    AskedText,
)
from markerjit.model import Signature
from markerjit.probes.record import recording
from markerjit.questions.ir import Constant, Node, Slice, TextAt, TextTest, Unary, Value, operands
from markerjit.ring.types import TEXTS, Options
from markerjit.tuples import NamedTuple

_FAR = 0xFFFF
"""Behind the end of every text."""
_WITH_CONSTANT = {"==": ASK_EQUALS, "startswith": ASK_STARTS, "contains": ASK_CONTAINS}
_OF_ONE = {"len": ASK_LENGTH, "missing": ASK_MISSING}


class TextArgument(NamedTuple):
    """An argument that is a text: its number, how the recorder takes it (MJ_OP_*), and the most
    bytes that are looked at."""

    arg: int
    op: int
    limit: int


def texts_of(signature: Signature) -> Mapping[str, TextArgument]:
    """The texts of a marker, by their names."""
    made = recording(signature, Options(text=MAX_ASKED))
    return {
        field.name: TextArgument(field.arg, made.ops[field.arg], made.limits[field.arg])
        for field in made.type.fields
        if field.type in TEXTS
    }


def texts_in_memory(node: TextTest | Unary) -> list[TextAt]:
    """The texts in memory that an expression is about."""
    texts = []
    for text in operands(node):
        while isinstance(text, Slice):
            text = text.text
        if isinstance(text, TextAt):
            texts.append(text)
    return texts


def encoded(
    node: TextTest | Unary,
    texts: Mapping[str, TextArgument],
    in_memory: Mapping[TextAt, int],
    *,
    careful: bool,
) -> bytes:
    """The query to the runtime for an expression about texts. The texts are arguments, or texts in
    memory, which are named by the word that has their address, counted from the arguments. With
    `careful`, or if a text is in memory, the runtime never reads a page merely because it is known
    to be mapped: the program may hold a pointer to memory that it has freed, and not follow it."""
    careful = careful or bool(in_memory)

    def part(text: Node) -> AskedText:
        return asked_text(text, texts, in_memory)

    if isinstance(node, Unary):
        return bytes(Asked(_OF_ONE[node.operator], careful, text=part(node.operand)))
    text, other = node.text, node.other
    if isinstance(text, Constant):
        text, other = other, text
    if not isinstance(other, Constant):
        return bytes(Asked(ASK_SAME, careful, text=part(text), other=part(other)))
    constant = other.value
    assert isinstance(constant, bytes)
    test = _WITH_CONSTANT[node.operator]
    return bytes(Asked(test, careful, len(constant), text=part(text))) + constant


def asked_text(
    node: Node, texts: Mapping[str, TextArgument], in_memory: Mapping[TextAt, int]
) -> AskedText:
    """A text, or a slice of one, or of a slice, as the runtime takes it."""
    low, high = 0, _FAR
    while isinstance(node, Slice):
        end = _FAR if node.high is None else node.high
        low, high = node.low + low, min(end, node.low + high)
        node = node.text
    ends = (min(low, _FAR), min(high, _FAR))
    if isinstance(node, TextAt):
        return AskedText(in_memory[node], OP_STRING, MAX_ASKED, *ends)
    assert isinstance(node, Value)
    text = texts[node.name]
    return AskedText(text.arg, text.op, text.limit, *ends)
