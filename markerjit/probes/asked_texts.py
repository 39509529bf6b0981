"""What a question asks of a text: a struct mj_asked behind its code, for native/src/runtime/ask.c.

The text is taken as the recorder takes it, and its first MAX_ASKED bytes are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from markerjit.abi import (
    ASK_CONTAINS,
    ASK_EQUALS,
    ASK_LENGTH,
    ASK_MISSING,
    ASK_SAME,
    ASK_STARTS,
    MAX_ASKED,
    Asked,
    AskedText,
)
from markerjit.model import Signature
from markerjit.probes.record import recording
from markerjit.questions.ir import Constant, Node, Slice, TextTest, Unary, Value
from markerjit.ring.types import TEXTS, Options

_FAR = 0xFFFF
"""Behind the end of every text."""
_WITH_CONSTANT = {"==": ASK_EQUALS, "startswith": ASK_STARTS, "contains": ASK_CONTAINS}
_OF_ONE = {"len": ASK_LENGTH, "missing": ASK_MISSING}


class TextArgument(NamedTuple):
    """An argument that is a text: its number, how the recorder takes it (MJ_OP_*), the most bytes
    that are looked at, and whether it is never read from a page that is only known to be there."""

    arg: int
    op: int
    limit: int
    careful: bool = False


def texts_of(signature: Signature, *, careful: bool = False) -> Mapping[str, TextArgument]:
    """The texts of a marker, by their names."""
    made = recording(signature, Options(text=MAX_ASKED))
    return {
        field.name: TextArgument(field.arg, made.ops[field.arg], made.limits[field.arg], careful)
        for field in made.type.fields
        if field.type in TEXTS
    }


def encoded(node: TextTest | Unary, texts: Mapping[str, TextArgument]) -> bytes:
    """What the runtime is asked for an expression about texts."""
    careful = any(text.careful for text in texts.values())
    if isinstance(node, Unary):
        return bytes(Asked(_OF_ONE[node.operator], careful, text=_part(node.operand, texts)))
    text, other = node.text, node.other
    if isinstance(text, Constant):
        text, other = other, text
    if not isinstance(other, Constant):
        return bytes(Asked(ASK_SAME, careful, text=_part(text, texts), other=_part(other, texts)))
    constant = other.value
    assert isinstance(constant, bytes)
    test = _WITH_CONSTANT[node.operator]
    return bytes(Asked(test, careful, len(constant), text=_part(text, texts))) + constant


def _part(node: Node, texts: Mapping[str, TextArgument]) -> AskedText:
    """A text, or a slice of one, or of a slice."""
    low, high = 0, _FAR
    while isinstance(node, Slice):
        end = _FAR if node.high is None else node.high
        low, high = node.low + low, min(end, node.low + high)
        node = node.text
    assert isinstance(node, Value)
    text = texts[node.name]
    return AskedText(text.arg, text.op, text.limit, min(low, _FAR), min(high, _FAR))
