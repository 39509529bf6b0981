"""`explain --where`: the types, the typed expression and the code of a question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from markerjit.cli import main
from markerjit.errors import BadQuestion
from markerjit.explain.question import explain_aggregate, explain_question
from markerjit.model import CType, Signature, TypeClass
from markerjit.questions.aggregates import parse_aggregate

I32, CHARS = CType(TypeClass.SIGNED, 4), CType(TypeClass.CHARS, 8)
STORE = Signature("store", "key %.*s size %d", (I32, CHARS, I32))
DELETE = Signature("delete", "key %s", (CHARS,))


def test_a_field_is_the_word_of_its_argument() -> None:
    (store,) = explain_question("size > 5", [STORE])

    assert store.types == {"key": "text", "size": "i32"}
    assert store.expression == ("> : bool", "  value size : i32", "  constant 5 : i32")
    assert [(line.text, line.part) for line in store.code][2:5] == [
        ("movsxd rax, dword ptr [rsp + 0x30]", "size"),
        ("cmp rax, 5", "size > 5"),
        ("jle no", "size > 5"),
    ]
    assert store.size > 0
    assert store.remark == ""


def test_a_marker_without_the_name_is_explained_too() -> None:
    store, delete = explain_question("size > 5", [STORE, DELETE])

    assert store.code
    assert delete.code == ()
    assert delete.remark == "no event meets the condition: no size"


def test_only_functions_have_a_caller() -> None:
    function = STORE._replace(name="func:store")

    (explained,) = explain_question("caller == 3", [function])

    assert "mov rax, qword ptr [rsp + " in explained.code[2].text
    with pytest.raises(BadQuestion, match="only the entry and the returns"):
        explain_question("caller == 3", [STORE])


def test_memory_the_clock_and_the_cpu_have_code() -> None:
    for text, line in (
        ("u32(size) == 1", "call load"),
        ('str(size + 8)[:3] == "a"', "call ask"),
        ("time > 3", "call clock"),
        ("stack(4) != 0", "call stack"),
        ("cpu == 3", "lsl eax, eax"),
    ):
        (explained,) = explain_question(text, [STORE])
        assert line in [each.text for each in explained.code], text


def test_the_command_shows_lines_and_facts(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", str(build / "truth_inline"), "*", "--where"]

    assert main.run([*arguments, "1 < 2"]) == 0
    shown = capsys.readouterr().out
    assert main.run([*arguments, "1 < 2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)

    assert "  constant 1 : bool\n" in shown
    assert "    jmp probe\n  no:\n    ret\n" in shown
    assert facts["question"] == "1 < 2"
    assert facts["markers"][0]["code"][-1] == {"line": "ret", "part": ""}


def test_a_question_is_explained_alone(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", str(build / "truth_inline"), "*", "--where", "1 < 2"]

    assert main.run([*arguments, "--all"]) == 1

    assert "leave out --all, --path, --mode, --quiesce" in capsys.readouterr().err


def test_an_aggregate_is_explained_by_its_parts() -> None:
    asked = parse_aggregate("hist(size / 2)", by="key[:4], size % 3", where="size > 5")

    store, delete = explain_aggregate(asked, [STORE, DELETE])

    assert [line for line in store.expression if not line.startswith(" ")] == [
        "condition", "key", "key", "value",
    ]  # fmt: skip
    parts = [line.part for line in store.code if line.part in ("size > 5", "size % 3", "size / 2")]
    assert [*dict.fromkeys(parts)] == ["size > 5", "size % 3", "size / 2"]
    assert "call runtime" in [line.text for line in store.code]
    assert [line.part for line in store.code if "idiv" in line.text] == ["size % 3", "size / 2"]
    assert store.size > 0
    assert (delete.code, delete.remark) == ((), "it adds nothing: no size")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--aggregate", "count()"), "code that has the runtime add, "),
        (("--aggregate", "sum(size)", "--by", "key[:2]", "--where", "size > 1"), "  value"),
        (("--where", "size > 1"), "code before the probe, "),
    ],
)
def test_explain_prints_an_aggregate(
    build: Path, options: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["explain", str(build / "kvserver"), "kv_hit", *options]) == 0
    assert any(line in each for each in capsys.readouterr().out.splitlines())


def test_a_key_is_of_an_aggregate(build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", str(build / "kvserver"), "kv_hit"]

    assert main.run([*arguments, "--by", "key"]) == 1
    assert "add --aggregate 'count()'" in capsys.readouterr().err
    assert main.run([*arguments, "--aggregate", "hist(sise)"]) == 1
    assert "did you mean size?" in capsys.readouterr().err
