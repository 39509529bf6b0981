"""Objects with USDT probes, from assembly written by hand: the notes are as sys/sdt.h writes them.

The macro here is our own, so that tests need no header of SystemTap.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

DEBIAN = {
    "/usr/lib/postgresql/15/bin/postgres": "postgresql-15",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6": "libstdc++6",
    "/usr/bin/python3.11": "python3.11-minimal",
    "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so": "openjdk-17-jre-headless",
    "/usr/bin/php8.2": "php8.2-cli",
    "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2": "libruby3.1",
    "/usr/lib/x86_64-linux-gnu/libvirt.so.0": "libvirt0",
}
"""Binaries of Debian 12 with USDT probes, and their packages."""

_BY_READELF = re.compile(
    r"Provider: (\S+)\s+Name: (\S+)\s+Location: (\S+), Base: \S+, Semaphore: (\S+)\s+Arguments:(.*)"
)

_MACRO = r"""
    .macro PROBE name, operands, semaphore=0, provider=made, code=0x90
990: .byte \code
    .pushsection .note.stapsdt,"","note"
    .balign 4
    .4byte 992f-991f, 994f-993f, 3
991: .asciz "stapsdt"
992: .balign 4
993: .8byte 990b
    .8byte _.stapsdt.base
    .8byte \semaphore
    .asciz "\provider"
    .asciz "\name"
    .asciz "\operands"
994: .balign 4
    .popsection
    .endm
    .pushsection .stapsdt.base,"aG","progbits",.stapsdt.base,comdat
    .weak _.stapsdt.base
    .hidden _.stapsdt.base
_.stapsdt.base: .space 1
    .size _.stapsdt.base, 1
    .popsection
    .data
    .globl counter
    .hidden counter
    .type counter, @object
counter: .quad 7, 9
    .size counter, 16
    .section .probes,"aw"
    .balign 2
raised: .2byte 0
    .text
    .globl main
main: nop
"""


def build(
    folder: Path, probes: Sequence[str], *options: str, compiler: str = "gcc", name: str = "made"
) -> Path:
    """An object with these lines, such as `PROBE one, "8@%rax"`; a shared one without options."""
    source, output = folder / f"{name}.s", folder / name
    source.write_text(_MACRO + "\n".join(probes) + '\n    ret\n    .section .note.GNU-stack,""\n')
    words = [compiler, *(options or ("-shared", "-nostdlib")), source, "-o", output]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


def debian(path: str) -> str:
    """The path, where the package is installed; skips otherwise."""
    if not Path(path).exists():
        pytest.skip(f"needs {path} (Debian package {DEBIAN[path]})")
    return path


def readelf_probes(path: str) -> list[tuple[str, str, int, int, str]]:
    """Provider, name, address, semaphore and operands of each note, as readelf has them."""
    text = subprocess.run(["readelf", "-nW", path], capture_output=True, text=True, check=True)
    return [
        (provider, name, int(site, 16), int(semaphore, 16), operands.strip())
        for provider, name, site, semaphore, operands in _BY_READELF.findall(text.stdout)
    ]
