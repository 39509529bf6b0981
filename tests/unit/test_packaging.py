"""The wheel holds what a user needs, and the installed command helps to compile a program.

Builds from a clean copy of the checkout, without a network: the build uses the setuptools of the
running environment. What the installed command does beyond `--cflags` is tested elsewhere.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from markerjit.cli.manual import pages
from tests.support.choice import ALL_EXAMPLES, examples
from tests.support.programs import make

pytestmark = pytest.mark.slow

DEMO = ("kvload", "kvserver", "kvserver-none", "kvserver-nop", "kvserver-pointer")

PROGRAM = """
#include <markerjit/marker.h>
int main(int argc, char **argv) {
    (void)argv;
    MARK(started, "count %d", argc);
    return 0;
}
"""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command away from the checkout, so that nothing is found by accident."""
    environment = {
        k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MFLAGS", "PYTHONPATH"}
    }
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def clean_copy(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout as git has it: nothing that was built."""
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        version = "0"
    if tuple(map(int, version.split(".")[:2])) < (70, 1):
        pytest.skip("needs setuptools 70.1 or newer in this environment (make test installs it)")
    copy = tmp_path_factory.mktemp("copy") / "markerjit"
    unwanted = shutil.ignore_patterns(".*", "build", "dist", "_native", "__pycache__", "*.egg-info")
    shutil.copytree(repo, copy, ignore=unwanted)
    return copy


def _build(what: str, source: Path, into: Path) -> Path:
    """Call a hook of the build backend as pip would, and return the file that it made."""
    call = (
        "import sys; sys.path.insert(0, 'native'); import build_backend; "
        f"build_backend.build_{what}(sys.argv[1])"
    )
    run(sys.executable, "-c", call, into, cwd=source)
    (made,) = into.iterdir()
    return made


def lend(made_of: Path, to: Path) -> None:
    """Give a copy what was compiled of the same sources: compilers would only make it once more."""
    for made in ("build/obj", "build/targets", "build/runtime.elf", "markerjit/_native"):
        run("cp", "-a", "--parents", made, to, cwd=made_of)
    run("find", to / "build", to / "markerjit/_native", "-exec", "touch", "{}", "+")


@pytest.fixture(scope="module")
def wheel(repo: Path, clean_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It is compiled from the sources, but where the tests are chosen."""
    if examples(ALL_EXAMPLES) < ALL_EXAMPLES:
        make("native")
        lend(repo, clean_copy)
    into = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", into, clean_copy)
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `markerjit` of a fresh environment that holds the wheel.

    Its dependencies are lent by the running environment through one path, which is not a place
    where .pth files work, so the editable markerjit there stays out.
    """
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", python]
    run(*pip, "install", "--no-deps", "--no-index", "--no-compile", wheel)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(site, "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "markerjit"


def test_wheel_is_for_this_platform_and_any_python_3(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")


def test_wheel_holds_types_header_runtime_and_demo(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    assert {
        "markerjit/py.typed",
        "markerjit/_native/include/markerjit/abi.h",
        "markerjit/_native/include/markerjit/marker.h",
        "markerjit/_native/libmarkerjit.a",
        "markerjit/_native/libmjstop.so",
        "markerjit/_native/runtime.bin",
        *(f"markerjit/_native/demo/{name}" for name in DEMO),
    } <= names


def test_wheel_holds_nothing_but_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}

    others = {top for top in tops if not top.endswith((".dist-info", ".data"))}
    assert others == {"markerjit"}


def test_wheel_holds_the_manual_pages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition(".data/")[2] for name in archive.namelist() if ".data/" in name}

    assert names == {f"data/share/man/man1/{name}" for name, _ in pages()}


@pytest.fixture(scope="module")
def sdist(clean_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build("sdist", clean_copy, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    # tar itself: the tarfile of Debian 12 does not know the filters that later ones insist on.
    run("tar", "-xf", sdist, "-C", folder)
    (source,) = folder.iterdir()
    return source


def test_sdist_holds_sources_and_nothing_built(clean_copy: Path, sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    package = {
        str(path.relative_to(clean_copy))
        for path in (clean_copy / "markerjit").rglob("*")
        if path.suffix not in {".pyc", ""} and "_native" not in path.parts
    }

    assert {"Makefile", "native/build_backend.py", "native/include/markerjit/marker.h"} <= names
    assert package <= names
    assert not [name for name in names if "_native" in name or name.startswith("build")]


def test_what_is_compiled_of_the_sdist_is_that_of_the_checkout(
    clean_copy: Path, unpacked: Path
) -> None:
    assert sources_in(unpacked) == sources_in(clean_copy)


@pytest.mark.long("test_what_is_compiled_of_the_sdist_is_that_of_the_checkout")
def test_sdist_builds_the_same_wheel(
    clean_copy: Path, wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    """What was compiled of the same sources is lent to it."""
    lend(clean_copy, unpacked)

    again = _build("wheel", unpacked, tmp_path)

    with zipfile.ZipFile(again) as ours, zipfile.ZipFile(wheel) as theirs:
        assert sorted(ours.namelist()) == sorted(theirs.namelist())


def sources_in(folder: Path) -> dict[Path, bytes]:
    """All that is compiled, and what says how."""
    paths = [folder / "Makefile", *(folder / "native").rglob("*")]
    return {
        path.relative_to(folder): path.read_bytes()
        for path in paths
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_installed_demo_programs_can_be_run(installed: Path) -> None:
    native = installed.parent.parent.glob("lib/*/site-packages/markerjit/_native")

    modes = {path.name: os.access(path, os.X_OK) for n in native for path in (n / "demo").iterdir()}

    assert modes == dict.fromkeys(DEMO, True)


def test_cflags_of_the_installed_command_compile_a_program(
    installed: Path, repo: Path, tmp_path: Path, needs_tool: Callable[[str, str], str]
) -> None:
    if not (repo / "markerjit" / "cli" / "main.py").exists():
        pytest.skip("needs markerjit/cli/main.py, which is not written yet")
    compiler = needs_tool("gcc", "gcc")
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)

    flags = run(installed, "--cflags", cwd=tmp_path).split()

    assert not [flag for flag in flags if str(repo) in flag]
    run(compiler, *flags, "-Wall", "-Werror", "-o", program, source)
    run(program)
