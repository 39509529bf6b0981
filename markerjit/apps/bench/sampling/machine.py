"""The facts on which a figure depends besides the code: processor, kernel, compiler, load."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def about(compilers: dict[str, list[str]]) -> dict[str, Any]:
    """The facts by name, to be shown and kept in files. `compilers` are the flags with which each
    compiler was called."""
    facts = _first_processor()
    return {
        "processor": facts.get("model name", "unknown"),
        "family": f"{facts.get('cpu family', '?')}, model {facts.get('model', '?')}",
        "cpus": len(os.sched_getaffinity(0)),
        "virtual machine": _virtual_machine(facts),
        "governor": _text(_GOVERNOR) or "not shown",
        "kernel": platform.release(),
        "compilers": {name: [_first_line(name, "--version"), *flags]
                      for name, flags in compilers.items()},
        "markerjit": _version(),
    }  # fmt: skip


def load() -> float:
    """The load of the machine. The caller must ask for it before the bench adds to it."""
    return os.getloadavg()[0]


def quiet_cpu() -> int:
    """The last of the CPUs that we may use, because interrupts tend to go to the first."""
    return max(os.sched_getaffinity(0))


def _first_processor() -> dict[str, str]:
    text = _text(Path("/proc/cpuinfo")).split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _virtual_machine(facts: dict[str, str]) -> str:
    if "hypervisor" not in facts.get("flags", "").split():
        return "no"
    return _first_line("systemd-detect-virt", "--vm") or "yes"


def _first_line(*command: str) -> str:
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.split("\n", 1)[0].strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _version() -> str:
    try:
        return version("markerjit")
    except PackageNotFoundError:
        return "not installed"
