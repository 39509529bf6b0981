"""Arguments of functions by the names and types that debugging information gives them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit.elf import FileImage
from tests.support.code_bytes import code_of
from tests.support.commands import cli, python
from tests.support.programs import ROOT, Target

pytestmark = pytest.mark.live
pytest.importorskip("drgn", reason="drgn is not installed: pip install 'markerjit[debug]'")

PROGRAM = "truth_prototypes"
TURNS = 7
WORDS = ("zero", "one", "two")

EXPECTED: dict[str, Callable[[int], dict[str, object]]] = {
    "numbers": lambda i: {
        "c": -i, "s": 60000 + i, "i": -1000000 * i, "l": (1 << 63) + i, "b": i % 2 == 1,
        "e": 1 if i % 2 else -1,
    },
    "floats": lambda i: {"d": i / 2, "f": i / 4, "after": i},
    "many": lambda i: {
        "a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": -i, "h": i + 1, "x": i / 8,
    },
    "small": lambda i: {
        "span_start": WORDS[i % 3], "span_length": i, "point_x": float(i), "point_y": float(-i),
        "mixed_weight": i / 2, "mixed_number": i,
    },
    "spilled": lambda i: {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": i},
    "large": lambda i: {"number": i},
    "nothing": lambda i: {},
}  # fmt: skip


def recorded(program: Target, name: str) -> list[dict[str, object]]:
    name = f"func:{program.path.name}:{name}"
    attached = markerjit.attach(program.pid, breakpoints=True)  # for the one that does nothing
    with attached as session, session.trace(name) as stream:
        program.command(f"run {TURNS}")
        return [dict(event.fields) for event in stream.drain()]


def test_debugging_information_is_read_by_one_thread() -> None:
    """With several it is chance which of two functions with one name is known."""
    script = """
import os
import markerjit
from markerjit.elf import FileImage
view = markerjit.list_file_functions("build/targets/truth_prototypes", "func:numbers")
print(*(function.site.signature.format for function in view.functions))
print(len(os.listdir("/proc/self/task")), os.environ["OMP_NUM_THREADS"])
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "7", "OPENBLAS_NUM_THREADS": "1"}

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, text=True, capture_output=True,
        check=True,
    )  # fmt: skip

    formats, threads = done.stdout.splitlines()
    assert formats.startswith("c ")  # it was read
    assert threads == "1 7"


def without_drgn(*lines: str) -> str:
    """What a controller prints that has nothing to read debugging information with."""
    script = "\n".join(("import sys; sys.modules['drgn'] = None", "import markerjit", *lines))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("name", EXPECTED)
def test_arguments_are_those_of_the_calls(target: Callable[..., Target], name: str) -> None:
    program = target(PROGRAM)

    events = recorded(program, name)

    assert events == [EXPECTED[name](i) for i in range(TURNS)]


def test_texts_are_texts_and_other_pointers_are_numbers(target: Callable[..., Target]) -> None:
    program = target(PROGRAM)

    events = recorded(program, "texts")

    assert [event["text"] for event in events] == [WORDS[i % 3] for i in range(TURNS)]
    assert len({event["bytes"] for event in events}) == 1
    assert [event["anything"] for event in events] == list(range(TURNS))


def test_a_question_uses_the_names(target: Callable[..., Target]) -> None:
    program = target(PROGRAM)

    name, where = f"func:{PROGRAM}:numbers", "i < -1000000 and e == 1"
    with (
        markerjit.attach(program.pid) as session,
        session.trace(name, where=where) as stream,
    ):
        program.command(f"run {TURNS}")
        chosen = [event.fields["i"] for event in stream.drain()]

    assert chosen == [-3000000, -5000000]


def test_a_stripped_program_with_a_debug_file_of_its_build_has_the_names(
    target: Callable[..., Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stripped, debug = tmp_path / "stripped", tmp_path / "stripped.debug"
    shutil.copy(target(PROGRAM).path, stripped)
    for command in (
        ["objcopy", "--only-keep-debug", stripped, debug],
        ["objcopy", "--strip-debug", f"--add-gnu-debuglink={debug}", stripped],
    ):
        subprocess.run(command, check=True)

    named = cli("list", stripped, "func:numbers")
    debug.unlink()
    unnamed = cli("list", stripped, "func:numbers")

    assert "c: int, s: int, i: int, l: int, b: bool, e: int" in named.stdout
    assert "arg0 … arg5" in unnamed.stdout


def test_a_debug_file_that_debuginfod_has_downloaded_has_the_names(
    target: Callable[..., Target], tmp_path: Path
) -> None:
    """The client's cache has a folder for each build id; another build's there is not believed."""
    stripped, cache = tmp_path / "stripped", tmp_path / "cache"
    path = target(PROGRAM).path
    with FileImage(str(path)) as image:
        build_id = image.build_id()
    assert build_id
    folder = cache / build_id
    folder.mkdir(parents=True)
    debug = folder / "debuginfo"
    subprocess.run(["objcopy", "--only-keep-debug", path, debug], check=True)
    subprocess.run(["objcopy", "--strip-debug", path, stripped], check=True)

    def listed() -> str:
        command = "from markerjit.cli.main import main; main()"
        words = ("list", stripped, "func:numbers")
        return python(command, *words, DEBUGINFOD_CACHE_PATH=str(cache)).stdout

    named = listed()
    subprocess.run(["objcopy", "--only-keep-debug", target("truth_usdt").path, debug], check=True)
    others = listed()

    assert "c: int, s: int, i: int, l: int, b: bool, e: int" in named
    assert "arg0 … arg5" in others


def test_a_debug_file_of_another_build_is_not_believed(
    target: Callable[..., Target], tmp_path: Path
) -> None:
    stripped, debug = tmp_path / "stripped", tmp_path / "stripped.debug"
    shutil.copy(target(PROGRAM).path, stripped)
    other = target("truth_usdt").path
    subprocess.run(["objcopy", "--only-keep-debug", other, debug], check=True)
    subprocess.run(
        ["objcopy", "--strip-debug", f"--add-gnu-debuglink={debug}", stripped], check=True
    )

    listed = cli("list", stripped, "func:numbers")

    assert "arg0 … arg5" in listed.stdout


def test_functions_are_off_again_byte_for_byte(target: Callable[..., Target]) -> None:
    program = target(PROGRAM)
    before = code_of(program)

    recorded(program, "many")

    assert code_of(program) == before


def test_what_another_controller_records_by_its_types_is_not_repaired(
    target: Callable[..., Target],
) -> None:
    """A controller without the debugging information does not know its arguments."""
    program = target(PROGRAM)
    name = f"func:{program.path.name}:numbers"
    with markerjit.attach(program.pid) as session, session.trace(name) as stream:
        output = without_drgn(f"print(*markerjit.repair({program.pid}).sentences())")
        program.command(f"run {TURNS}")
        assert len(list(stream.drain())) == TURNS

    assert output == ""


def test_what_a_controller_switched_on_by_its_names_another_one_without_them_switches_off(
    target: Callable[..., Target],
) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    name = f"func:{program.path.name}:numbers"
    with markerjit.attach(program.pid) as session:
        session.on(name)
        program.command(f"run {TURNS}")

        output = without_drgn(
            f"with markerjit.attach({program.pid}) as session:",
            f"    (status,) = session.status({name!r})",
            "    print(status.mode, status.hits, status.fields)",
            f"    session.off({name!r})",
        )

    assert output == f"jump {TURNS} ()"
    assert code_of(program) == before


def test_closed_stub_for_other_arguments_is_not_used(target: Callable[..., Target]) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    name = f"func:{program.path.name}:numbers"
    names = EXPECTED["numbers"](1).keys()
    trace = (
        f"with markerjit.attach({program.pid}) as session, session.trace({name!r}):",
        f"    (status,) = session.status({name!r})",
        "    print(*(field.name for field in status.fields))",
    )

    assert recorded(program, "numbers")[1].keys() == names
    assert without_drgn(*trace).split() == [f"arg{number}" for number in range(6)]
    assert recorded(program, "numbers")[1].keys() == names
    assert code_of(program) == before


def test_array_without_bytes_takes_no_argument_and_no_time(tmp_path: Path) -> None:
    source, program = tmp_path / "odd.c", tmp_path / "odd"
    source.write_text(
        "struct none {}; struct odd { struct none many[1ul << 40]; int x; };\n"
        "int f(struct odd a, int b) { return a.x + b; }\n"
        "int main(void) { struct odd a = {.x = 1}; return f(a, 2); }\n"
    )
    subprocess.run(["gcc", "-g", "-o", program, source], check=True)

    view = markerjit.list_file_functions(program, "func:f")

    assert [field.name for field in view.functions[0].fields] == ["a_x", "b"]


def test_functions_of_cxx_have_the_names_of_their_own_source(tmp_path: Path) -> None:
    source, program = tmp_path / "named.cc", tmp_path / "named"
    source.write_text(
        "struct Request { long id; }; class Small { int x; };\n"
        "long handle(Request *request, int many) { return request->id + many; }\n"
        "namespace ns { double half(double value) { return value / 2; } }\n"
        "int overloaded(int one) { return one; }\n"
        "int overloaded(double one, int two) { return two + (int)one; }\n"
        "int by_value(Small small, int two) { return two + sizeof small; }\n"
        "int referred(int &one, int two) { return two + one; }\n"
        "int main() { int one = 1; Request request{1}; Small small{};\n"
        "return handle(&request, 2) + ns::half(3) + overloaded(1) + overloaded(2., 3)\n"
        "+ by_value(small, 1) + referred(one, 2); }\n"
    )
    subprocess.run(["g++", "-g", "-o", program, source], check=True)
    unknown = [f"arg{number}" for number in range(6)]

    view = markerjit.list_file_functions(program, "func:{handle,ns::half,by_value,referred}")
    overloaded = markerjit.list_file_functions(program, "func:overloaded").functions

    fields = [[field.name for field in each.fields] for each in view.functions]
    assert fields == [["request", "many"], ["value"], unknown, unknown]
    for function in overloaded:  # one of them, and by its own names
        names = ["one", "two"] if function.name.endswith("di") else ["one"]
        assert [field.name for field in function.fields] in (names, unknown)
