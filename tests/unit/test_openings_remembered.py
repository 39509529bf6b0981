"""How sites can be opened: scanned once for a build, and believed as far as it can be checked."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from markerjit.elf import FileImage
from markerjit.session import openings
from markerjit.session.openings import Openings, openings_of
from markerjit.spans import Closed, Code, Opening
from markerjit.spans.numbers import numbers_of, text_of
from tests.support.compilers import Elf

SOURCE = r"""
    .text
    .macro begin name
    .p2align 4
\name: .cfi_startproc
    .endm
    begin first
    nop
    mov $1000, %eax
    ret
    .cfi_endproc
    begin second
    nop
    mov $2000, %eax
    ret
    .cfi_endproc
    begin crowded
    nop
1:  ret
    jmp 1b
    .cfi_endproc
loose:
    nop
    ret
    begin last
    ret
    .cfi_endproc
"""
NAMES = ("first", "second", "crowded", "loose")
BUILD_ID = "0123456789abcdef"


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of the objects that were scanned, with a cache that is empty at first."""
    scanned: list[str] = []

    def code(image: FileImage) -> Code:
        scanned.append(image.name)
        return Code(image)

    monkeypatch.setattr(openings, "Code", code)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return scanned


def built(directory: Path, *, source: str = SOURCE, build_id: str = f"0x{BUILD_ID}") -> Path:
    text, path = directory / "object.S", directory / "object.so"
    text.write_text(source)
    options = ["-shared", "-nostdlib", f"-Wl,--build-id={build_id}"]
    subprocess.run(["gcc", *options, text, "-o", path], check=True)
    return path


def places(path: Path) -> list[int]:
    addresses = {symbol.name: symbol.address for symbol in Elf(path).symbols()}
    return [addresses[name] for name in NAMES]


def ask(path: Path, *names: str, others: tuple[int, ...] = ()) -> Openings:
    addresses = dict(zip(NAMES, places(path), strict=True))
    with FileImage(str(path)) as image:
        return openings_of(image, [addresses[name] for name in names], others)


def entry(directory: Path) -> Path:
    return directory / "cache" / "markerjit" / "verified" / f"openings-{BUILD_ID}"


def test_a_build_is_scanned_once_and_answers_the_same(tmp_path: Path, scans: list[str]) -> None:
    path = built(tmp_path)

    scanned, recalled = ask(path, *NAMES), ask(path, *NAMES)

    assert recalled == scanned
    assert {type(opening) for opening in scanned.values()} == {Opening, Closed}
    assert scans == [str(path)]


def test_one_scan_answers_for_the_other_sites_too(tmp_path: Path, scans: list[str]) -> None:
    path = built(tmp_path)

    ask(path, "first", others=tuple(places(path)))
    ask(path, "second")
    ask(path, "crowded")

    assert len(scans) == 1


def test_a_site_that_was_not_asked_for_is_added(tmp_path: Path, scans: list[str]) -> None:
    path = built(tmp_path)

    ask(path, "first")
    ask(path, "second")
    ask(path, "first", "second")

    assert len(scans) == 2


def test_another_object_with_the_same_build_id_is_scanned(tmp_path: Path, scans: list[str]) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    path = built(before)
    lying = built(after, source=SOURCE.replace("    ret\n", "    jmp first + 2\n", 1))

    ((_, by_jump),) = ask(path, "first").items()
    answer = ask(lying, "first")

    assert len(scans) == 2
    assert by_jump not in answer.values()
    with FileImage(str(lying)) as image:
        (address,) = answer
        assert answer == {address: openings.best_opening(Code(image), address)}


def test_what_was_known_of_a_file_is_not_remembered_of_the_one_that_took_its_place(
    tmp_path: Path, scans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at what is remembered and the copy that is scanned."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    path = built(before)
    lying = built(after, source=SOURCE.replace("    ret\n", "    jmp first + 2\n", 1))
    ask(path, "first")
    copy_of = openings._copy_of

    def changed(image: FileImage) -> AbstractContextManager[FileImage]:
        path.write_bytes(lying.read_bytes())
        return copy_of(image)

    monkeypatch.setattr(openings, "_copy_of", changed)
    ask(path, "second")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    for address, opening in ask(lying, "second").items():
        with FileImage(str(lying)) as image:
            assert opening == openings.best_opening(Code(image), address)


def test_an_object_without_a_build_id_is_not_remembered(tmp_path: Path, scans: list[str]) -> None:
    path = built(tmp_path, build_id="none")

    ask(path, "first")
    ask(path, "first")

    assert len(scans) == 2
    assert not (tmp_path / "cache").exists()


def test_a_large_object_is_not_copied(
    tmp_path: Path, scans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = built(tmp_path)
    monkeypatch.setattr(openings, "MAX_BYTES", path.stat().st_size - 1)

    ask(path, "first")

    assert len(scans) == 1
    assert not (tmp_path / "cache").exists()


def test_every_damaged_entry_is_ignored_and_written_again(tmp_path: Path, scans: list[str]) -> None:
    path = built(tmp_path)
    answer = ask(path, *NAMES)
    whole = entry(tmp_path).read_bytes()
    damaged = [whole[:length] for length in range(0, len(whole), 37)]
    damaged += [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 11)
    ]

    for number, content in enumerate(damaged, 2):
        entry(tmp_path).write_bytes(content)

        assert ask(path, *NAMES) == answer
        assert len(scans) == number
        assert entry(tmp_path).read_bytes() == whole


def _rules(text: dict[str, Any]) -> None:
    text["rules"] = "others"


def _digest(text: dict[str, Any]) -> None:
    text["digest"] = text["digest"][::-1]


def _openings(text: dict[str, Any]) -> dict[str, Any]:
    openings: dict[str, Any] = text["answers"]["openings"]
    return openings


def _code(text: dict[str, Any]) -> None:
    openings = _openings(text)
    openings["code"] = "cc" + openings["code"][2:]


def _number_of(text: dict[str, Any], table: str, column: int, number: int) -> None:
    """Have another number in the first row of a table."""
    columns = _openings(text)[table]
    numbers = numbers_of(columns[column])
    columns[column] = text_of([number, *numbers[1:].tolist()])


def _way(text: dict[str, Any]) -> None:
    _number_of(text, "openings", 1, 1000)


def _reason(text: dict[str, Any]) -> None:
    _number_of(text, "reasons", 1, -1)


def _order(text: dict[str, Any]) -> None:
    _number_of(text, "openings", 3, 1000)


def _rest(text: dict[str, Any]) -> None:
    _openings(text)["code"] += "90"


def _number(text: dict[str, Any]) -> None:
    text["answers"]["asked"] = text_of(numbers_of(text["answers"]["asked"])[:-1].tolist())


def _width(text: dict[str, Any]) -> None:
    column = _openings(text)["openings"][0]
    _openings(text)["openings"][0] = f"3{column[1:]}"


def _cut(text: dict[str, Any]) -> None:
    column = _openings(text)["openings"][0]
    _openings(text)["openings"][0] = column[:-2]


def _empty(text: dict[str, Any]) -> None:
    _openings(text)["openings"][0] = ""


def _shorter(text: dict[str, Any]) -> None:
    columns = _openings(text)["openings"]
    columns[2] = text_of(numbers_of(columns[2])[:-1].tolist())


def _fewer(text: dict[str, Any]) -> None:
    _openings(text)["openings"].pop()


def _list(text: dict[str, Any]) -> None:
    text["answers"] = []


@pytest.mark.parametrize(
    "change",
    [
        _rules, _digest, _code, _way, _reason, _order, _rest, _number, _width, _cut, _empty,
        _shorter, _fewer, _list,
    ],
)  # fmt: skip
def test_an_entry_that_does_not_fit_is_ignored(
    tmp_path: Path, scans: list[str], change: Callable[[dict[str, Any]], None]
) -> None:
    path = built(tmp_path)
    answer = ask(path, *NAMES)
    values = json.loads(entry(tmp_path).read_text().partition("\n")[2])
    change(values)
    text = json.dumps(values)
    checksum = hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
    entry(tmp_path).write_text(f"{checksum}\n{text}")

    assert ask(path, *NAMES) == answer
    assert len(scans) == 2


def test_an_entry_that_others_can_write_is_not_believed(tmp_path: Path, scans: list[str]) -> None:
    path = built(tmp_path)
    ask(path, "first")
    entry(tmp_path).chmod(0o622)

    ask(path, "first")
    ask(path, "first")

    assert len(scans) == 2
    assert entry(tmp_path).stat().st_mode & 0o777 == 0o600


def test_the_answers_are_of_the_bytes_that_were_digested(
    tmp_path: Path, scans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner who changes the file while it is scanned changes nothing."""
    path = built(tmp_path)
    whole = path.read_bytes()
    expected = ask(path, "first")
    os.unlink(entry(tmp_path))
    scan = openings._scanned

    def changing(question: object, image: FileImage, *rest: object) -> Openings:
        path.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
        try:
            return scan(question, image, *rest)
        finally:
            path.write_bytes(whole)

    monkeypatch.setattr(openings, "_scanned", changing)

    assert ask(path, "first") == expected
    assert ask(path, "first") == expected
    assert len(scans) == 2
