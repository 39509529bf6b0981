"""Names of functions in the question that is asked of a `caller`, as addresses of their code.

    caller == "main"            the entry's return address is in main, or in a part of it
    caller in ("kv_*", "main")  in one of these; a name is a glob
    func:malloc@main            func:malloc, where caller == "main"

A question compares numbers, and knows no names. So each comparison is written anew, with the bounds
of the functions in this process, before it is read as a question. A return address is behind its
call, which may be the last instruction of a function: the bounds count from behind the start to the
end.

What this does not do: see a caller that has left a jump in its place (a tail call): the address is
that of its own caller.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from markerjit.errors import BadArgument, BadQuestion
from markerjit.questions.scope import CALLER, hidden
from markerjit.questions.syntax import event_name
from markerjit.session.target import Target
from markerjit.sites import ProbeName
from markerjit.sites.selection import has_caller, without_caller
from markerjit.tuples import NamedTuple

MOST = 64
"""Pieces of code that a comparison may be with: each is two comparisons in the process."""

Bounds = Callable[[str], tuple[range, ...]]


class Named(NamedTuple):
    """Markers, and the question that is asked of them; None without one."""

    name: ProbeName
    where: str | None


def by_callers(target: Target, name: ProbeName, where: str | None) -> Named:
    """The same without names of callers.

    Raises UnknownMarker where no function is called so, BadQuestion where too many are, and
    BadArgument for a list in which one has a caller.
    """
    paths = [mapping.path for mapping in target.seen.files]
    callers = [part for part in name.parts or (name,) if has_caller(part, paths)]
    if callers and name.parts:
        raise BadArgument(
            "pattern", name.text, f"{callers[0].text} by itself: its caller would be asked of all"
        )
    if callers:
        named = f"{CALLER} == {name.object!r}"
        where = named if where is None else f"{named} and ({where})"
        name = without_caller(name)
    if where is None or CALLER not in where:
        return Named(name, where)
    return Named(name, with_bounds(where, target.bounds))


def with_bounds(where: str, bounds: Bounds) -> str:
    """A question in which each name of a caller is written as the bounds of its code. What is no
    expression stays: that is said where it is read."""
    line = where.replace("\n", " ")
    try:
        tree = ast.parse(line.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return where
    text = line.strip().encode()
    for start, end, negated, names, asked in sorted(_comparisons(tree), reverse=True):
        spans = sorted({(each.start, each.stop) for glob in names for each in bounds(glob)})
        if len(spans) > MOST:
            what = f"it names {len(spans)} pieces of code; at most {MOST} can be compared with"
            raise BadQuestion(what, where, start, end)
        inside = " or ".join(f"{low:#x} < {asked} <= {high:#x}" for low, high in spans)
        written = f"(not ({inside}))" if negated else f"({inside})"
        text = text[:start] + written.encode() + text[end:]
    return text.decode()


class _Comparison(NamedTuple):
    """A comparison of the caller with names: where it is in the text, whether it is for others than
    these, the names, and how the caller is written."""

    start: int
    end: int
    negated: bool
    names: tuple[str, ...]
    caller: str


def _comparisons(tree: ast.AST) -> Iterator[_Comparison]:
    """Each comparison of the caller with names."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            continue
        left, right = node.left, node.comparators[0]
        if isinstance(left, ast.Constant):
            left, right = right, left
        caller = _caller(left)
        if not caller or node.end_col_offset is None:
            continue
        names = _names(right)
        if names and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
            negated = isinstance(node.ops[0], ast.NotEq | ast.NotIn)
            yield _Comparison(node.col_offset, node.end_col_offset, negated, names, caller)


def _caller(node: ast.expr) -> str:
    """How the caller is written: `caller`, or `event("caller")`; "" for anything else."""
    match node:
        case ast.Name(id=name) if name == CALLER:
            return CALLER
        case ast.Call() if event_name(node) == CALLER:
            return hidden(CALLER)
    return ""


def _names(node: ast.expr) -> tuple[str, ...]:
    """The texts of a constant, or of a tuple of them; () where it is anything else."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant)]
    names = tuple(text for text in texts if isinstance(text, str))
    return names if len(names) == len(parts) else ()
