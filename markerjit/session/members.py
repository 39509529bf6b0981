"""Members of structures in what is asked of functions, by the types of their arguments.

    func:handle_request    --where 'req->length > 100 and req->method == 2'
    func:find:return       --where 'ret->next == 0'

A question is one text for all functions that it is asked of. So where several have a name, it has
to lead to the same place in all of them.

What this does not do: read memory, or compile a question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from markerjit.errors import BadQuestion
from markerjit.session.target import Target
from markerjit.sites import ProbeName, parse_name
from markerjit.sites.names import NameKind

if TYPE_CHECKING:  # imported where members are named
    from markerjit.questions.ir import Span
    from markerjit.questions.members import Written
    from markerjit.sites.functions import Described


class Members:
    """The members in what is asked of the functions of a name in a process. Nothing is looked at
    unless a text names some."""

    def __init__(self, target: Target, name: ProbeName) -> None:
        self._target = target
        self._parts = [part for part in name.parts or (name,) if part.kind is NameKind.FUNCTION]
        self._functions: Sequence[Described] | None = None
        self._written: list[Written] = []

    def without(self, text: str, *, are_selected: bool = False) -> str:
        """The text with members as reads of memory. That of what is no function is as it is: its
        members are refused where it is read. Raises BadQuestion."""
        if not self._parts:
            return text
        from markerjit.questions.members import bases

        if not bases(text, are_selected=are_selected):
            return text
        if self._functions is None:
            self._functions = self._described()
        if not self._functions:  # it is said of the name that there is no such function
            return text
        made = without_members(self._functions, text, are_selected=are_selected)
        self._written.append(made)
        return made.text

    def selected(self, select: str | None) -> str | None:
        """The same of a selection, where there is one."""
        if not isinstance(select, str):
            return select
        return self.without(select, are_selected=True)

    @contextmanager
    def said_before(self) -> Iterator[None]:
        """What is found wrong within the context is said of the text before."""
        try:
            yield
        except BadQuestion as error:
            for made in self._written:
                before = made.as_it_was(error)
                if before is not error:
                    raise before from None
            raise

    def _described(self) -> list[Described]:
        from markerjit.sites.functions import described_in_process
        from markerjit.sites.selection import has_caller, without_caller

        target = self._target
        target.look()
        read, maps = target.memory.read, target.seen.maps
        paths = [mapping.path for mapping in target.seen.files]
        return [
            each
            for part in self._parts
            for each in described_in_process(
                target.pid, read, maps, without_caller(part) if has_caller(part, paths) else part
            )
        ]


def without_members(
    functions: Sequence[Described], text: str, *, are_selected: bool = False
) -> Written:
    """The text with members of these functions' arguments as reads of memory; as it is where it
    names none. Raises BadQuestion."""
    from markerjit.questions.members import Written, bases, written

    named = bases(text, are_selected=are_selected)
    if not named:
        return Written(text, text, ())
    known = [each for each in functions if all(name in each.types for name, _ in named)]
    if not known:
        raise _unknown(functions, text, named)
    first = written(text, known[0].types, are_selected=are_selected)
    for other in known[1:]:
        try:
            is_same = written(text, other.types, are_selected=are_selected).text == first.text
        except BadQuestion:
            is_same = False
        if not is_same:
            raise _unlike(known[0], other, text, named)
    return first


def _unlike(
    first: Described, other: Described, text: str, named: Sequence[tuple[str, Span]]
) -> BadQuestion:
    name, span = next(
        (each for each in named if first.types[each[0]].text != other.types[each[0]].text), named[0]
    )
    return BadQuestion(
        f"{name} is {first.types[name].text} in {first.name}, and {other.types[name].text} in "
        f"{other.name}, whose members are at other offsets; name one of them",
        text, *span,
    )  # fmt: skip


def _unknown(
    functions: Sequence[Described], text: str, named: Sequence[tuple[str, Span]]
) -> BadQuestion:
    """Why nothing is known of a name."""
    described = [each for each in functions if each.types]
    if not described:
        (name, span), function = named[0], functions[0]
        return BadQuestion(f"the type of {name} is not known: {function.lacks}", text, *span)
    import difflib

    known = {name: None for each in described for name in each.types}
    name, span = next((each for each in named if each[0] not in known), named[0])
    nearest = difflib.get_close_matches(name, known)
    hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
    sentence = f"no function here has an argument {name} whose type is known{hint}"
    return BadQuestion(sentence, text, *span, tuple(sorted(known)))


def as_reads_in_file(path: str, pattern: str, text: str) -> str:
    """A question for functions of an executable or shared object, without members. Raises BadFile
    and BadQuestion."""
    from markerjit.sites.functions import described_in_file

    name = parse_name(pattern)
    parts = [part for part in name.parts or (name,) if part.kind is NameKind.FUNCTION]
    functions = [each for part in parts for each in described_in_file(path, part)]
    return without_members(functions, text).text if functions else text
