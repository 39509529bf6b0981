"""The manual pages, made from the parsers of the command line, as `--help` is.

`python -m markerjit.cli.manual FOLDER` writes markerjit.1, and markerjit-COMMAND.1 for each
command (`make man`). They are in the language of man(7), in plain roff requests that each man
program knows. The longer texts stay in docs/reference/commands.md, which a test holds to the same
options.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from markerjit import __version__
from markerjit.cli.examples import EXAMPLES
from markerjit.cli.parser import COMMANDS, DESCRIPTION, OPTIONS, command_parser, sentence

if TYPE_CHECKING:
    from argparse import Action

_EXIT_CODES = {
    "0": "done",
    "1": "refused or failed, with a line of reason on standard error",
    "2": "wrong usage",
    "128 and more": "ended by a signal, whose number is 128 less",
}
_GLYPHS = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
"""Characters that roff reads as something else, or prints as something else than was typed."""


def main() -> None:
    """Write all pages into a folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / name).write_text(text)


def pages() -> Iterator[tuple[str, str]]:
    """The file name and the text of each page."""
    yield "markerjit.1", _page_of_all()
    for command in COMMANDS:
        yield f"markerjit-{command}.1", _page_of(command)


def _page_of_all() -> str:
    commands = [
        line
        for name, text in COMMANDS.items()
        for line in (".TP", f"\\fBmarkerjit\\-{_escaped(name)}\\fR(1)", _line(text))
    ]
    options = [
        line
        for name, text in OPTIONS.items()
        for line in (".TP", f"\\fB{_escaped(name)}\\fR", _line(text))
    ]
    return _page(
        "markerjit",
        "markers in running programs",
        [".B markerjit", "\\fICOMMAND\\fR \\fIARGUMENTS\\fR..."],
        [_line(DESCRIPTION), ".SH COMMANDS", *commands, ".SH OPTIONS", *options],
        "",
    )


def _page_of(command: str) -> str:
    parser = command_parser(command)
    arguments = [action for action in parser._actions if not action.option_strings]
    options = [action for action in parser._actions if action.option_strings]
    body = [_line(sentence(COMMANDS[command]))]
    for title, actions in (("ARGUMENTS", arguments), ("OPTIONS", options)):
        if actions:
            body.append(f".SH {title}")
            body += [line for action in actions for line in _entry(action)]
    body.append(".SH EXAMPLES")
    for line, meaning in EXAMPLES[command]:
        body += [".TP", f"\\fB{_escaped(line)}\\fR", _line(meaning)]
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    synopsis = [_line(usage)]
    return _page(f"markerjit-{command}", COMMANDS[command], synopsis, body, "markerjit")


def _entry(action: Action) -> list[str]:
    """An argument or option with its meaning."""
    value = _value(action)
    if not action.option_strings:
        names = value
    else:
        names = ", ".join(
            f"\\fB{_escaped(name)}\\fR" + (f" {value}" if action.nargs != 0 else "")
            for name in action.option_strings
        )
    text = (action.help or "").replace("%%", "%")
    return [".TP", names, _line(text or "see the reference")]


def _value(action: Action) -> str:
    if action.metavar is None and action.choices:
        return "{" + ",".join(f"\\fB{_escaped(str(choice))}\\fR" for choice in action.choices) + "}"
    return f"\\fI{_escaped(str(action.metavar or action.dest.upper()))}\\fR"


def _page(name: str, purpose: str, synopsis: Sequence[str], body: Sequence[str], see: str) -> str:
    codes = [line for code, text in _EXIT_CODES.items() for line in (".TP", code, _line(text))]
    lines = [
        f'.TH {_escaped(name.upper())} 1 "" "markerjit {_escaped(__version__)}" "markerjit"',
        ".nh",  # else a name that is copied from the page may have a hyphen in it
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(purpose)}",
        ".SH SYNOPSIS",
        *synopsis,
        ".SH DESCRIPTION",
        *body,
        ".SH EXIT STATUS",
        *codes,
    ]
    if see:
        lines += [".SH SEE ALSO", f".BR {see} (1)"]
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    """A line of text, which no request can begin."""
    escaped = _escaped(" ".join(text.split()))
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def _escaped(text: str) -> str:
    """Text as roff takes it, in ASCII."""
    return "".join(
        _GLYPHS.get(character, character) if character.isascii() else f"\\[u{ord(character):04X}]"
        for character in text
    )


if __name__ == "__main__":
    main()
