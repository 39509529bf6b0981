"""The build backend of the package: runs `make native`, then lets setuptools do the rest.

Named in pyproject.toml. It exists so that `pip install .` needs no setup.py and no second copy of
the rules in the Makefile. It does not decide what goes into the package; setup.cfg does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent

ConfigSettings = dict[str, str | list[str] | None]


def build_wheel(
    wheel_directory: str,
    config_settings: ConfigSettings | None = None,
    metadata_directory: str | None = None,
) -> str:
    _make_native()
    _make_manual()
    # setuptools never removes a module from build/lib, so a renamed one would live on in wheels.
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: ConfigSettings | None = None,
    metadata_directory: str | None = None,
) -> str:
    _make_native()
    # A plain path in a .pth file. The other way, an import hook, costs milliseconds at every
    # start of Python, and type checkers cannot follow it.
    settings: ConfigSettings = {"editable_mode": "compat", **(config_settings or {})}
    return build_meta.build_editable(wheel_directory, settings, metadata_directory)


def _make_manual() -> None:
    """Make the manual pages anew. They come from the parsers of the commands, so an environment for
    builds that lacks what those import leaves them as they are: `make wheel` has made them before,
    and a wheel that pip makes by itself may have none, since pip installs none for a build."""
    subprocess.run(
        [sys.executable, "-m", "markerjit.cli.manual", "build/man"],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        check=False,
    )


def _make_native() -> None:
    """Build markerjit/_native, or end with make's own one-line reason.

    WERROR= because a compiler of the future may warn of what ours does not, which is no reason
    to refuse an installation. The outer make, if any, must not lend us its job slots.
    """
    if shutil.which("make") is None:
        sys.exit("markerjit: make is missing; install it with: apt-get install make")
    environment = {k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MFLAGS"}}
    done = subprocess.run(
        ["make", "--no-print-directory", "native", "WERROR="],
        cwd=ROOT,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        sys.exit("markerjit: the native part was not built; the reason is above")
