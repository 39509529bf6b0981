"""What commands import. Start-up is part of a command's latency, and `status` has to be at hand.

Each runs in a fresh interpreter that prints the modules that it had in the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import python

ROOT = Path(__file__).resolve().parent.parent.parent
SLOW = {"capstone", "numpy", "psutil", "elftools", "keystone", "dataclasses", "inspect"}
OPINION, ASSEMBLING = "markerjit.x86.opinion", "markerjit.x86.encoding"
RUN = """
import sys
before = set(sys.modules)
from markerjit.cli.main import run
try:
    code = run(sys.argv[1:])
except SystemExit as end:  # of --help
    code = end.code
print("MODULES", code, *sorted(set(sys.modules) - before))
"""

BASIC = ("__future__", "enum", "errno", "gc")
PARSER = (*BASIC, "argparse", "importlib", "textwrap")
LOOKING = (
    *(*PARSER, "bisect", "collections.abc", "contextlib", "ctypes", "fcntl", "fnmatch"),
    *("math", "select", "signal", "struct", "typing", "warnings"),
)
"""What of the standard library commands import that only look."""

pytestmark = pytest.mark.live

Target = Callable[..., Any]


def modules(*arguments: object, cache: Path) -> set[str]:
    """What a command imported, the names of packages only."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.splitlines()[-1].split()
    assert (done.returncode, last[:2]) == (0, ["MODULES", "0"]), done.stderr
    return {name.split(".")[0] for name in last[2:]} | set(last[2:])


@pytest.mark.pythons
def test_every_module_is_imported_without_a_warning() -> None:
    """With the package that it needs, which newer Pythons do not all have here."""
    program = """
import importlib, pkgutil, markerjit
for module in pkgutil.walk_packages(["markerjit"], "markerjit."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except markerjit.Unsupported as error:
        print(error)
    else:
        print("MODULE")
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines.count("MODULE") > 600
    assert all(line == "MODULE" or "markerjit[" in line for line in lines), lines


def test_the_door_imports_nothing_of_the_house() -> None:
    program = "import sys, markerjit; print(*[n for n in sys.modules if 'markerjit' in n])"

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["markerjit"]


def test_status_imports_no_foreign_package_and_nothing_native(
    target: Target, tmp_path: Path
) -> None:
    program = target("truth_inline")

    loaded = modules("status", program.pid, cache=tmp_path)

    assert not loaded & SLOW
    assert not loaded & {"json", "hashlib", "difflib", "subprocess", "asyncio"}
    assert "markerjit.session.session" not in loaded
    assert "markerjit.remote.calls" not in loaded


def test_looking_at_stubs_imports_nothing_that_makes_them(target: Target, tmp_path: Path) -> None:
    """They stay where they are when a function is off again. (numpy, for the names of functions,
    imports inspect.)"""
    program = target("truth_returns")
    modules("on", program.pid, "func:truth_returns:*", cache=tmp_path)

    for command in ("status", "off", "status"):
        loaded = modules(command, program.pid, cache=tmp_path)

        assert not loaded & (SLOW - {"numpy", "inspect"}), command
        assert "markerjit.probes.stub" not in loaded, command


def test_list_imports_no_foreign_package(target: Target, tmp_path: Path) -> None:
    program = target("truth_inline")

    assert not modules("list", program.pid, cache=tmp_path) & SLOW
    assert not modules("list", program.path, cache=tmp_path) & SLOW


@cache
def with_all(*names: str) -> set[str]:
    """These modules of the standard library, and what they import themselves."""
    program = f"import sys, {', '.join(names)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def foreign(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] != "markerjit"}


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.startswith("markerjit.")}


def test_version_and_help_import_no_house(tmp_path: Path) -> None:
    version = modules("--version", cache=tmp_path)
    shown = modules("--help", cache=tmp_path)

    assert foreign(version) <= with_all(*BASIC)
    assert foreign(shown) <= with_all(*PARSER)
    assert ours(version) | ours(shown) <= {
        *("markerjit.cli", "markerjit.cli.main", "markerjit.cli.parser"),
        *("markerjit.errors", "markerjit.printable"),
    }


def test_commands_that_look_import_this_and_nothing_else(target: Target, tmp_path: Path) -> None:
    program = target("truth_inline")

    for command in ("status", "list"):
        loaded = modules(command, program.pid, cache=tmp_path)

        assert foreign(loaded) <= with_all(*LOOKING), command
        assert len(ours(loaded)) <= 84, command
        assert not ours(loaded) & {
            *("markerjit.patch.plan", "markerjit.patch.protocol", "markerjit.quiesce.strategies"),
            *("markerjit.remote.native", "markerjit.memory.fake"),
        }, command


def test_a_switch_imports_little_more_and_nothing_that_records(
    target: Target, tmp_path: Path
) -> None:
    program = target("truth_inline")
    modules("on", program.pid, "truth_*", cache=tmp_path)

    for command in ("on", "off"):
        loaded = modules(command, program.pid, "truth_*", cache=tmp_path)

        assert foreign(loaded) <= with_all(*LOOKING, "_blake2"), command
        assert len(ours(loaded)) <= 136, command
        assert not ours(loaded) & {
            *("markerjit.trace", "markerjit.events.stream", "markerjit.events.flight"),
            *("markerjit.session.trace", "markerjit.session.flight", "markerjit.session.watch"),
            *("markerjit.probes.loaded", "markerjit.session.unfinished"),
        }, command


def test_no_command_of_these_has_typing_define_a_named_tuple(
    target: Target, tmp_path: Path
) -> None:
    """That compiles each annotation: the module tuples does not."""
    program = target("truth_inline")
    defined = "import typing\ntyping.NamedTupleMeta.__new__ = lambda *a: print('TYPING', *a)"

    for command in (("status", program.pid), ("on", program.pid, "truth_*")):
        done = subprocess.run(
            [sys.executable, "-c", defined + RUN, *map(str, command)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

        assert "MODULES 0" in done.stdout, done.stderr
        assert "TYPING" not in done.stdout


def test_on_asks_the_library_of_capstone_about_a_build_that_is_new_and_never_again(
    target: Target, tmp_path: Path
) -> None:
    program = target("truth_inline")

    first = modules("on", program.pid, "truth_*", cache=tmp_path)
    again = modules("on", program.pid, "truth_*", cache=tmp_path)
    off = modules("off", program.pid, "truth_*", cache=tmp_path)

    assert OPINION in first
    assert not first & SLOW  # not its package
    assert not (again | off) & {*SLOW, OPINION}


def test_another_process_of_the_same_build_needs_no_capstone(
    target: Target, tmp_path: Path
) -> None:
    first, other = target("truth_inline"), target("truth_inline")

    modules("on", first.pid, "truth_*", cache=tmp_path)

    assert OPINION not in modules("on", other.pid, "truth_*", cache=tmp_path)


def test_a_cache_that_cannot_be_written_costs_time_only(target: Target, tmp_path: Path) -> None:
    program = target("truth_inline")
    nowhere = tmp_path / "file"
    nowhere.touch()

    assert OPINION in modules("on", program.pid, "truth_*", cache=nowhere)
    assert OPINION in modules("off", program.pid, "truth_*", cache=nowhere)


def test_trace_assembles_once_and_needs_numpy_only(target: Target, tmp_path: Path) -> None:
    program = target("truth_inline")
    trace = ("trace", program.pid, "truth_*", "--duration", "0.2")

    first = modules(*trace, cache=tmp_path)
    again = modules(*trace, cache=tmp_path)

    assert ASSEMBLING in first - again
    for loaded in first, again:
        assert "numpy" in loaded
        assert not loaded & {"capstone", "keystone", "psutil", "elftools", "pyarrow", "perfetto"}


def test_a_command_that_writes_a_table_imports_no_pandas(target: Target, tmp_path: Path) -> None:
    """pyarrow would import it to see whether what it is given is a data frame."""
    pytest.importorskip("pyarrow", reason="needs pyarrow (pip install markerjit[parquet])")
    program = target("truth_inline")
    shown = "import atexit, sys\natexit.register(lambda: print(*sys.modules))\n"
    command = "from markerjit.cli.main import main\nmain()"
    trace = ("trace", program.pid, "truth_*", "--duration", "0.1", "-o", tmp_path / "a.parquet")

    loaded = python(shown + command, *trace).stdout.split()

    assert "pyarrow" in loaded
    assert "pandas" not in loaded


@pytest.mark.parametrize("how", ["import pandas", "importlib.import_module('pandas')"])
def test_pandas_is_refused_to_our_code_and_not_to_a_users(how: str) -> None:
    """A function of the user's may be called with each event, and have any package."""
    pytest.importorskip("pandas", reason="needs pandas (pip install pandas)")
    program = f"""
import importlib, sys
from markerjit.cli.main import _NoDataFrames
sys.meta_path.insert(0, _NoDataFrames)
for name in "markerjit.trace.table", "my_probe":
    try:
        exec("import importlib; {how}", {{"__name__": name}})
        print(name, "has it")
    except ModuleNotFoundError as error:
        print(name, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == [
        "markerjit.trace.table no command makes data frames", "my_probe has it",
    ]  # fmt: skip


def words_of(program: str, *, cache: Path) -> list[str]:
    """What a Python program prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_a_question_imports_no_foreign_package(target: Target, tmp_path: Path) -> None:
    """But numpy, where what was added up is read."""
    program = (
        "import sys, markerjit\n"
        f"with markerjit.attach({target('truth_keys').pid}) as session:\n"
        "    key = dict(by='key, text[:5]', where='value > 3 and text != \"key-1\"')\n"
        "    with session.aggregate('truth_key', 'hist(value)', **key):\n"
        "        pass\n"
        "    with session.latency('truth_key', 'truth_plain', by='tid'):\n"
        "        pass\n"
        "    session.on('truth_key', where='value > 3 and text.startswith(\"key\")')\n"
        "    session.off('truth_key')\n"
        "print(*sys.modules)\n"
    )

    loaded = {*words_of(program, cache=tmp_path)}

    assert ASSEMBLING in loaded
    assert not loaded & {*SLOW, "difflib", "tokenize"}


def test_numpy_is_imported_after_the_markers_are_on(target: Target, tmp_path: Path) -> None:
    program = (
        "import sys, markerjit\n"
        f"with markerjit.attach({target('truth_inline').pid}) as session:\n"
        "    with session.trace('truth_*') as stream:\n"
        "        print('numpy' in sys.modules)\n"
    )

    assert words_of(program, cache=tmp_path) == ["False"]
