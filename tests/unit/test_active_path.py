"""The active path in words: a mark for each role, and a colour where the output takes colours."""

from __future__ import annotations

import re

import pytest

from markerjit.cli import active_path, output
from markerjit.cli.active_path import show_path, show_summary
from markerjit.explain import ActivePath, PathPart
from markerjit.model import (
    Body,
    Kind,
    MappedObject,
    Mode,
    Place,
    RemoteAddress,
    Signature,
    Site,
)
from markerjit.probes.parts import Name, Role, role_of
from markerjit.probes.reached import Piece
from markerjit.x86.decode import disassemble
from markerjit.x86.forms import marker_form

HEAD = RemoteAddress(0x5600_0000_1000)
SITE = Site(
    Signature("kv_get", "", ()),
    Place(MappedObject("/bin/kv", 0, None, False), HEAD, "kv.c:7"),
    HEAD,
    marker_form(Kind.JUMP, HEAD, HEAD + 32),
    Body(RemoteAddress(HEAD + 64), RemoteAddress(HEAD + 32), RemoteAddress(HEAD + 23)),
)
LONG = bytes.fromhex("64 48 c7 04 25 68 f9 ff ff 78 56 34 12")
"""mov qword ptr fs:[0xfffffffffffff968], 0x12345678: more than a line has room for."""


def part(role: Role, code: bytes, name: str = "", *, in_memory: bool = True) -> PathPart:
    piece = Piece(name or f"a part that is {role}", role, "there", HEAD, code, in_memory)
    data = role in (Role.DATA, Role.SLOT)
    return PathPart(piece, () if data else tuple(disassemble(code, HEAD)))


EVERY = ActivePath(
    SITE, Mode.JUMP, tuple(part(role, b"\x90\xc3") for role in Role), remarks=("a remark",)
)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_every_role_has_a_mark_of_its_own_and_a_meaning() -> None:
    looks = active_path._LOOKS

    assert set(looks) == set(Role)
    assert len({mark for mark, _, _ in looks.values()}) == len(Role)


def test_every_name_of_a_part_has_a_role() -> None:
    assert {role_of(name) for name in Name} <= set(Role)


@pytest.mark.parametrize("show", [show_path, show_summary])
def test_colours_add_nothing_that_the_marks_do_not_say(
    show: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(show)
    show(EVERY)
    without = capsys.readouterr().out

    monkeypatch.setattr(output, "is_coloured", lambda: True)
    show(EVERY)
    with_colours = capsys.readouterr().out

    assert "\x1b" not in without
    assert plain(with_colours) == without
    assert len(set(re.findall(r"\x1b\[([\d;]+)m", with_colours))) >= len(Role) - 2
    assert "a remark" in without


def test_each_line_of_a_part_has_its_mark(capsys: pytest.CaptureFixture[str]) -> None:
    show_path(ActivePath(SITE, Mode.JUMP, (part(Role.COMMIT, b"\x90\xc3"),)))

    lines = capsys.readouterr().out.splitlines()

    assert lines[3:6] == [
        "* a part that is commit",
        "*   560000001000 90                      nop",
        "*   560000001001 c3                      ret",
    ]


def test_long_instructions_and_names_are_wrapped_and_not_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "very " * 30 + "long"

    parts = part(Role.WORK, LONG, name), part(Role.DATA, bytes(20))
    show_path(ActivePath(SITE, Mode.JUMP, parts))
    shown = capsys.readouterr().out

    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    codes = [line[17:40] for line in lines if line[1:4] == "   "]
    assert bytes.fromhex("".join(codes)) == LONG + bytes(20)
    assert " ".join(line[41:] for line in lines if line[1:4] == "   ").split() == (
        ["mov", "qword", "ptr", "fs:[0xfffffffffffff968],", "0x12345678"]
    )
    assert shown.count("very") == 30


def test_parts_that_are_only_planned_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    show_path(ActivePath(SITE, Mode.JUMP, (part(Role.HEAD, b"\xeb\x00", in_memory=False),)))
    show_summary(ActivePath(SITE, Mode.JUMP, (part(Role.HEAD, b"\xeb\x00", in_memory=False),)))

    shown = capsys.readouterr().out

    assert "there, not in the process yet:" in shown
    assert shown.count("active path, as it would be") == 2
