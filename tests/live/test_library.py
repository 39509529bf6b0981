"""libmarkerjit.a: probes set and taken away from inside the program.

Each program in tests/live/library holds cases, and says on standard error where one did not hold.
They are compiled here with the sources of the library, in all the ways in which it must work, each
once for the same sources.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.kept_builds import kept_or_made

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = Path(__file__).parent / "library"
LIBRARY = sorted([*(ROOT / "native/lib").glob("*.[cS]"), *(ROOT / "native/src/fence").glob("*.c")])

TEXT_MODES = ["jump", "nop", "immediate"]
MODES = [*TEXT_MODES, "pointer"]
COMMON_CASES = [
    "values",
    "counts",
    "inline_probe",
    "errors",
    "foreign",
    "several",
    "listing",
    "callbacks",
    "statistics",
    "vectors",
]
TEXT_CASES = ["altered", "shared"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
OPTIONS = ("-O2", "-pthread", "-I", str(ROOT / "native/include"))
OF_PROGRAMS = ("-DMJ_MODE=", "-DCYCLES=")
"""Flags that the library does not depend on."""
RACE = ("-include", str(PROGRAMS / "race.h"))

Build = Callable[..., Path]


PACKAGES = {"cc": "gcc", "c++": "g++", "gcc": "gcc", "clang": "clang", "musl-gcc": "musl-tools"}


def need(compiler: str) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"needs {compiler} (Debian package {PACKAGES[compiler]})")


def execute(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def run_tool(*command: str | Path) -> None:
    done = execute(*command)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stderr}"


def compile_once(command: Sequence[str | Path], output: Path) -> None:
    """Have the object or program of a command. What musl-gcc links is not known to kept_builds."""

    def compile_it(more: Sequence[str | Path]) -> None:
        run_tool(*command, *more, "-o", output)

    if command[0] == "musl-gcc" and "-c" not in command:
        compile_it([])
    else:
        kept_or_made([*map(str, command)], output, compile_it)


def assert_holds(program: Path, case: str, *args: str | Path) -> None:
    done = execute(program, case, *args)
    assert (done.returncode, done.stdout) == (0, "held\n"), f"{case}: {done.stderr}"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """build("cases", "-DMJ_MODE=nop", compiler="c++"): the program, once for each way to build."""
    folder = tmp_path_factory.mktemp("library")
    built: dict[tuple[str, ...], Path] = {}
    objects: dict[tuple[str, ...], list[Path]] = {}

    def library(compiler: str, flags: Sequence[str]) -> list[Path]:
        key = (compiler, *(flag for flag in flags if not flag.startswith(OF_PROGRAMS)))
        if key not in objects:
            made = [folder / f"{len(objects)}-{part.stem}.o" for part in LIBRARY]
            for part, path in zip(LIBRARY, made, strict=True):
                compile_once([*key, *OPTIONS, "-c", part], path)
            objects[key] = made
        return objects[key]

    def program(name: str, *flags: str, compiler: str = "cc") -> Path:
        need(compiler)
        key = (name, compiler, *flags)
        if key not in built:
            path = folder / f"{name}-{len(built)}"
            command = [compiler, *OPTIONS, *flags]
            command += ["-x", "c++" if compiler == "c++" else "c", PROGRAMS / f"{name}.c"]
            if "-shared" not in flags:
                # the library is C, whatever the program is
                command += ["-x", "none", *library("cc" if compiler == "c++" else compiler, flags)]
            compile_once(command, path)
            built[key] = path
        return built[key]

    return program


@pytest.fixture
def parts(build: Build) -> list[Path]:
    """Two shared objects with the same marker, of different kinds."""
    return [build("part", "-shared", "-fPIC", f"-DMJ_MODE={mode}") for mode in ("jump", "nop")]


# ---- the sources -------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_library_compiles_without_a_warning(compiler: str, tmp_path: Path) -> None:
    need(compiler)

    for source in LIBRARY:
        flags = ["-O2", "-fPIC", *WARNINGS, "-I", ROOT / "native/include"]
        run_tool(compiler, *flags, "-c", source, "-o", tmp_path / "library.o")


def test_library_exports_only_the_documented_functions(tmp_path: Path) -> None:
    header = (ROOT / "native/include/markerjit/probes.h").read_text()
    flags = ["-O2", "-fPIC", "-shared", "-I", ROOT / "native/include"]
    run_tool("cc", *flags, *LIBRARY, "-o", tmp_path / "library.so")

    symbols = execute("nm", "-D", "--defined-only", tmp_path / "library.so").stdout.split()[2::3]

    assert set(symbols) == set(re.findall(r"^(?:int|void) (marker_\w+)\(", header, re.MULTILINE))


# ---- one thread --------------------------------------------------------------------------------


@pytest.mark.product
@pytest.mark.parametrize("compiler", ["cc", "c++"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", COMMON_CASES)
def test_case_holds_for_each_kind_of_site_in_c_and_cpp(
    build: Build, case: str, mode: str, compiler: str
) -> None:
    assert_holds(build("cases", f"-DMJ_MODE={mode}", compiler=compiler), case)


@pytest.mark.parametrize("mode", TEXT_MODES)
@pytest.mark.parametrize("case", TEXT_CASES)
def test_code_that_is_not_as_noted_is_not_written(build: Build, case: str, mode: str) -> None:
    assert_holds(build("cases", f"-DMJ_MODE={mode}"), case)


@pytest.mark.parametrize("mode", ["sentinel", "direct", "symbol"])
def test_kind_that_cannot_be_switched_from_inside_is_refused(build: Build, mode: str) -> None:
    assert_holds(build("refused", f"-DMJ_MODE={mode}"), "refused")


def test_corrupt_notes_are_skipped_and_counted(build: Build) -> None:
    assert_holds(build("hostile"), "bad_notes_are_skipped")


def test_note_longer_than_its_segment_ends_the_walk(build: Build) -> None:
    part = build("part", "-shared", "-fPIC", "-DMJ_TEST_TRUNCATED_NOTE")

    assert_holds(build("objects"), "truncated_note", part, "")


# ---- several objects ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        "all_are_set",
        "all_or_none",
        "unloaded_while_set",
        "loaded_later",
        "probe_loads_objects",
        "objects_come_and_go",
    ],
)
def test_one_name_in_several_objects(build: Build, parts: list[Path], case: str) -> None:
    assert_holds(build("objects"), case, *parts)


# ---- threads -----------------------------------------------------------------------------------


@pytest.mark.long("test_no_thread_is_in_the_probe_after_any_of_two_thousand_disables")
def test_no_thread_is_in_the_probe_after_any_of_ten_thousand_disables(build: Build) -> None:
    assert_holds(build("hammer"), "cycles")


@pytest.mark.parametrize("mode", MODES)
def test_no_thread_is_in_the_probe_after_any_of_two_thousand_disables(
    build: Build, mode: str
) -> None:
    assert_holds(build("hammer", f"-DMJ_MODE={mode}", "-DCYCLES=2000"), "cycles")


def test_disable_without_waiting_is_caught(build: Build) -> None:
    program = build("hammer", "-DMJ_TEST_NO_WAIT")

    hammered = execute(program, "cycles")
    slept = execute(program, "sleeping_probe")

    assert hammered.returncode != 0
    assert slept.returncode == 1
    # The thread that was to wait sees it, or the other one, which finds the name free.
    assert re.search(r"finished|returned|expected -EBUSY", slept.stderr)


@pytest.mark.product
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", ["every_pass_is_a_hit", "sleeping_probe", "rivals"])
def test_threads_are_counted_and_waited_for(build: Build, case: str, mode: str) -> None:
    assert_holds(build("hammer", f"-DMJ_MODE={mode}", "-DCYCLES=2000"), case)


# ---- many sites --------------------------------------------------------------------------------

BULK_CASES = [
    "all_are_switched",
    "failure_anywhere_is_taken_back",
    "failure_to_take_back_is_said",
    "code_may_not_become_writable",
    "protections_are_kept",
    "page_becomes_shared",
]


@pytest.mark.product
@pytest.mark.parametrize("many", [64, 100_000], ids=["together", "one-by-one"])
@pytest.mark.parametrize("mode", TEXT_MODES)
@pytest.mark.parametrize("case", BULK_CASES)
def test_many_sites_are_written_all_or_none(build: Build, case: str, mode: str, many: int) -> None:
    assert_holds(build("bulk", f"-DMJ_MODE={mode}", f"-DMJ_MANY={many}", *RACE), case)


def test_code_that_cannot_be_protected_again_is_said(build: Build) -> None:
    program = build("bulk", "-DMJ_MODE=jump", "-DMJ_MANY=64", *RACE)  # as many as of themselves

    assert_holds(program, "code_stays_writable")


# ---- the fence by signals ----------------------------------------------------------------------

FENCE_CASES = [
    "every_thread_is_told_once",
    "blocking_thread_is_named",
    "late_answer_is_harmless",
    "threads_born_meanwhile_are_told",
    "threads_born_between_listings_are_told",
    "short_lives_are_lived_with",
    "first_thread_has_ended",
    "signals_in_use_are_left_alone",
    "foreign_signal_ends_the_process",
    "child_of_fork_has_its_own",
    "several_at_once",
]


@pytest.mark.parametrize("case", FENCE_CASES)
def test_fence_by_signals(build: Build, case: str) -> None:
    assert_holds(build("fence", *RACE), case)


# Each second one is long: with glibc make test has them all.
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.long] * (number % 2))
        for number, case in enumerate(FENCE_CASES)
    ],
)
def test_fence_by_signals_with_musl(build: Build, case: str) -> None:
    assert_holds(build("fence", *RACE, compiler="musl-gcc"), case)


def test_fence_by_signals_without_proc_says_so(build: Build) -> None:
    assert_holds(build("fence", *RACE, '-DMJ_PROC="/proc/none"'), "no_proc")


# ---- when something fails ----------------------------------------------------------------------


@pytest.mark.parametrize("mode", TEXT_MODES)
def test_write_that_fails_in_the_middle_is_rolled_back(build: Build, mode: str) -> None:
    assert_holds(build("faults", f"-DMJ_MODE={mode}", *RACE), "failed_write")


@pytest.mark.parametrize(
    "case",
    [
        "no_membarrier",
        "only_global_membarrier",
        "no_fence_at_all",
        "maps_cannot_be_queried",
        "memory_file_is_read_only",
        "nothing_can_be_written",
    ],
)
def test_kernel_that_refuses_a_call_is_lived_with(build: Build, case: str) -> None:
    assert_holds(build("faults", *RACE), case)


@pytest.mark.product
@pytest.mark.parametrize("mode", TEXT_MODES)
@pytest.mark.parametrize("case", ["several", "altered"])
def test_library_works_without_proc(build: Build, case: str, mode: str) -> None:
    assert_holds(build("cases", f"-DMJ_MODE={mode}", '-DMJ_PROC="/proc/none"'), case)


# ---- other ways to link ------------------------------------------------------------------------


@pytest.mark.product
@pytest.mark.parametrize("case", ["values", "several", "altered", "errors"])
@pytest.mark.parametrize("link", ["-static", "-static-pie", "-no-pie"])
def test_library_works_in_other_kinds_of_executable(build: Build, link: str, case: str) -> None:
    flags = [link] if link != "-static-pie" else [link, "-fPIE"]

    assert_holds(build("cases", *flags), case)


@pytest.mark.product
@pytest.mark.parametrize(
    "link", ["-static", "-pie", pytest.param("-no-pie", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("program", ["cases", "hammer"])
def test_library_works_with_musl(build: Build, program: str, link: str) -> None:
    flags = [link, "-DCYCLES=500", *(["-fPIE"] if link == "-pie" else [])]

    path = build(program, *flags, compiler="musl-gcc")

    for case in ["values", "several", "altered"] if program == "cases" else ["cycles", "rivals"]:
        assert_holds(path, case)


def test_library_works_with_clang(build: Build) -> None:
    program = build("cases", compiler="clang")

    for case in [*COMMON_CASES, *TEXT_CASES]:
        assert_holds(program, case)
