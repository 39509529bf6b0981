"""The command that installs a missing package into this installation of Python."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig

_OF_DEBIAN = {"matplotlib", "numpy", "pandas"}
"""Packages that Debian 12 and later have as python3-NAME, in a recent enough version."""


def how_to_get(package: str, extra: str = "") -> str:
    """The command that installs a package. `extra` is the extra of markerjit that includes the
    package and its dependencies; "" for none."""
    ours = shlex.quote(f"markerjit[{extra}]") if extra else ""
    if _is_of_pipx():
        return f"pipx inject markerjit {ours or package}"
    is_environment = sys.prefix != sys.base_prefix
    if is_environment or not _is_managed_elsewhere():
        pip = _pip_of_environment() if is_environment else f"{shlex.quote(sys.executable)} -m pip"
        return f"{pip} install {package}" + (
            f", or the extra: {pip} install {ours}" if extra else ""
        )
    if package in _OF_DEBIAN:
        return f"apt-get install python3-{package}"
    return (
        f"this Python is the system's, which takes no packages from pip: python3 -m venv ENV, and "
        f"ENV/bin/pip install {ours or f'markerjit {package}'}"
    )


def _is_of_pipx() -> bool:
    """Whether this is an environment of pipx, which leaves a file in each."""
    return os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json"))


def _pip_of_environment() -> str:
    """The environment's own pip: `pip` where the environment is active, otherwise its path."""
    if os.path.realpath(os.environ.get("VIRTUAL_ENV", "")) == os.path.realpath(sys.prefix):
        return "pip"
    return shlex.quote(os.path.join(sys.prefix, "bin", "pip"))


def _is_managed_elsewhere() -> bool:
    """Whether the distribution keeps pip from installing here (PEP 668)."""
    return os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED"))
