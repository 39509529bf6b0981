"""`markerjit complete`, which is hidden: the candidates for the last word of a command line.

The scripts of `completion` call it. It finds out which argument is meant from the parser of the
command, so a new command or option needs nothing here; `values` has the candidates of each kind of
argument. It only reads, and says nothing where it cannot: a Tab is no place for an error.

The first line that is printed says whether the shell adds names of `files`, or of `commands` and
files, or nothing (`-`). The others are candidates. `words` prints each with what it means, behind a
tab. `bash` prints what replaces the end of the line as bash divides it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from markerjit.cli import output
from markerjit.cli.parser import COMMANDS, LAUNCHING, OPTIONS, command_parser
from markerjit.printable import printable
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser

MOST = 1000
"""Candidates that are printed, at most."""

_SAFE = re.compile(r"[\w.:@%+,/=!-]+", re.ASCII)
"""Of a candidate. Names come from other processes, and bash would run `$(...)` of one."""
_WORDS = re.compile(
    r"""(?:\\.|'[^']*(?:'|$)|"(?:\\.|[^"\\])*(?:"|$)|[^\s\\'"])+\\?|\\$""", re.DOTALL
)
_PIECES = re.compile(
    r"""\\(?P<escaped>.)|'(?P<single>[^']*)'?|"(?P<double>(?:\\.|[^"\\])*)"?|(?P<plain>[^\\'"]+)""",
    re.DOTALL,
)
_LISTINGS = (33, 63, 64)
"""COMP_TYPE of bash where candidates are listed, so that what they mean can be said."""


class Candidate(NamedTuple):
    """A word that may stand there, and what it means."""

    word: str
    meaning: str = ""


class Candidates(NamedTuple):
    """All that may stand at a place: words, and what the shell knows itself."""

    words: Sequence[Candidate] = ()
    others: str = "-"


class Place(NamedTuple):
    """Where the last word of a command line stands.

    action  the argument that is meant, or None
    prefix  the beginning of the word that is no part of its value, such as `--mode=`
    value   the rest of the word
    given   the values of the arguments before it, by `dest`
    """

    action: Action | None
    prefix: str
    value: str
    given: dict[str, list[str]]


def run(arguments: Sequence[str]) -> int:
    """Print the candidates: `bash LINE TYPE WORDBREAKS` or `words WORD...`."""
    form, *rest = arguments or ["words"]
    if form == "bash" and len(rest) == 3:
        line, kind, breaks = rest
        words = split(line)
        answer = candidates(words[1:])
        lines = in_bash(answer.words, words[-1], kind, breaks)
    elif form == "words":
        answer = candidates(rest)
        lines = [f"{word}\t{meaning}" if meaning else word for word, meaning in answer.words]
    else:
        return 2
    output.print_checked(answer.others, *lines[:MOST])  # harmless characters: see _SAFE
    return 0


def candidates(words: Sequence[str]) -> Candidates:
    """The candidates for the last of the words behind `markerjit`."""
    words = words or [""]
    *before, last = words
    if not before:
        texts = {**COMMANDS, **OPTIONS}
        shown = [(name, text) for name, text in texts.items() if last or name in COMMANDS]
        return Candidates(_matching(shown, "", last))
    command = before[0]
    if command not in COMMANDS:
        return Candidates()
    if "--" in before and command in LAUNCHING:
        return Candidates(others="commands" if before[-1] == "--" else "files")
    try:
        parser = command_parser(command, *before[1:])
    except SystemExit:  # what is there already is wrong usage
        return Candidates()
    if last.startswith("-") and "=" not in last:
        return Candidates(_matching(_options(parser), "", last))
    place = place_of(parser, before[1:], last)
    if place.action is None:
        return Candidates()
    return _of_place(place)


def _of_place(place: Place) -> Candidates:
    action = place.action
    assert action is not None
    if action.choices:
        meant = [(str(choice), "") for choice in action.choices]
        return Candidates(_matching(meant, place.prefix, place.value))
    from markerjit.cli import values

    names = [*action.option_strings, str(action.metavar or action.dest.upper())]
    kind = next((values.KINDS[name] for name in names if name in values.KINDS), None)
    if kind is None:
        return Candidates()
    start, values_of = kind.candidates(place.value, place.given)
    words = _matching(values_of, place.prefix + start, place.value[len(start) :])
    return Candidates(words, "files" if kind.files else "-")


def place_of(parser: ArgumentParser, before: Sequence[str], last: str) -> Place:
    """Where the last word stands, behind others."""
    options = {name: action for action in parser._actions for name in action.option_strings}
    positional = [action for action in parser._actions if not action.option_strings]
    given: dict[str, list[str]] = {}
    waiting: Action | None = None
    for word in before:
        name, equals, value = word.partition("=")
        if waiting:
            given.setdefault(waiting.dest, []).append(word)
            waiting = None
        elif word.startswith("-") and len(word) > 1:
            action = options.get(name if word.startswith("--") else word)
            takes_value = action is not None and action.nargs != 0
            if action is not None and takes_value and equals:
                given.setdefault(action.dest, []).append(value)
            elif takes_value:
                waiting = action
        elif positional:
            given.setdefault(positional[0].dest, []).append(word)
            if positional[0].nargs not in ("*", "+"):
                del positional[0]
    if waiting:
        return Place(waiting, "", last, given)
    name, equals, value = last.partition("=")
    if last.startswith("--") and equals:
        return Place(options.get(name), f"{name}=", value, given)
    return Place(positional[0] if positional else None, "", last, given)


def _options(parser: ArgumentParser) -> Iterable[tuple[str, str]]:
    for action in parser._actions:
        text = (action.help or "").partition(". ")[0].partition("; ")[0]
        for name in action.option_strings[-1:]:
            yield name, text.replace("%%", "%")


def _matching(meant: Iterable[tuple[str, str]], prefix: str, start: str) -> list[Candidate]:
    """The values that begin so, and may stand on a command line as they are; each with the prefix
    that the word has already."""
    return [
        Candidate(prefix + value, printable(meaning).replace("\t", " "))
        for value, meaning in dict(meant).items()
        if value.startswith(start) and _SAFE.fullmatch(value)
    ]


# ---- as bash has it ------------------------------------------------------------------------------


def split(line: str) -> list[str]:
    """The words of a line up to the cursor, without quotes; the last is the word at the cursor,
    which may be empty. Nothing is expanded."""
    words = [_unquoted(match[0]) for match in _WORDS.finditer(line)]
    end = max((match.end() for match in _WORDS.finditer(line)), default=0)
    return words if words and end == len(line) else [*words, ""]


def in_bash(meant: Sequence[Candidate], word: str, kind: str, breaks: str) -> list[str]:
    """The candidates as bash takes them: it divides words at more characters than a shell does, and
    replaces what stands behind the last of them."""
    start = max(word.rfind(character) for character in breaks or " ") + 1
    shown = len(meant) > 1 and kind.isdigit() and int(kind) in _LISTINGS
    return [
        f"{candidate.word[start:]}  ({candidate.meaning})"
        if shown and candidate.meaning
        else candidate.word[start:]
        for candidate in meant
    ]


def _unquoted(text: str) -> str:
    return "".join(
        match["escaped"] or match["single"] or match["plain"] or _without_escapes(match["double"])
        for match in _PIECES.finditer(text)
    )


def _without_escapes(text: str | None) -> str:
    return re.sub(r'\\([$`"\\])', r"\1", text or "")
