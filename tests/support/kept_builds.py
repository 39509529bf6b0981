"""Programs that a compiler has made before of the same, in build/kept.

It is for tests that compile one source in very many ways: what they look at is the program, each
time. A program is the same where all is that the compiler reads: the words of its command, every
source and header, those of the system too, by their bytes, and by size and time what it runs and
links by itself. Only what compiles is kept.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

from tests.support.programs import ROOT

KEPT = ROOT / "build" / "kept"
_PROGRAMS = ("cc1", "cc1plus", "lto1", "as", "ld", "collect2")
_LINKED = (
    *("crt1.o", "rcrt1.o", "crtbeginS.o", "libc.so.6", "libc.a", "libgcc.a", "libgcc_s.so.1"),
    *("libstdc++.so", "libm.so.6"),
)


def kept_or_made(
    command: Sequence[str], output: Path, make: Callable[[Sequence[str | Path]], None]
) -> None:
    """Have the program of a command, which is without its output. Where it is not kept, `make` is
    called with words that the command needs besides."""
    kept = KEPT / _key(command)
    if _fetch(kept, output):
        return
    with tempfile.TemporaryDirectory() as folder:
        read = Path(folder) / "read"
        make(["-MD", "-MF", read])
        _keep(kept, output, _files(read.read_text()))


def _fetch(kept: Path, output: Path) -> bool:
    try:
        known = json.loads(kept.with_suffix(".json").read_text())
        same = all(_digest(Path(path)) == digest for path, digest in known["read"].items())
        if not same or _digest(kept) != known["program"]:
            return False
        _copy(kept, output)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _copy(program: Path, target: Path) -> None:
    """By another process: what our own is writing, a child that another thread has just forked
    holds too, and the kernel executes no file that somebody may write."""
    subprocess.run(["cp", program, target], check=True, capture_output=True)


def _keep(kept: Path, output: Path, read: Sequence[str]) -> None:
    """The program first: where two do this at once, its digest says which one is there."""
    KEPT.mkdir(parents=True, exist_ok=True)
    known = {"program": _digest(output), "read": {path: _digest(Path(path)) for path in read}}
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        unfinished = Path(folder) / "one"
        _copy(output, unfinished)
        unfinished.replace(kept)
        unfinished.write_text(json.dumps(known))
        unfinished.replace(kept.with_suffix(".json"))


def _key(command: Sequence[str]) -> str:
    """Files that are not of the checkout have other names each time, and are known by bytes."""
    digest = blake2b(digest_size=20)
    for word in (*_tools(command[0]), *command):
        path = Path(word)
        is_made = path.is_absolute() and not path.is_relative_to(ROOT) and path.is_file()
        digest.update(f"{_digest(path) if is_made else word}\0".encode())
    return digest.hexdigest()


@cache
def _tools(compiler: str) -> tuple[str, ...]:
    """What a compiler runs and links by itself."""
    asked = [f"-print-prog-name={name}" for name in _PROGRAMS]
    asked += [f"-print-file-name={name}" for name in _LINKED]
    answers = [
        subprocess.run([compiler, words], capture_output=True, text=True, check=True).stdout.strip()
        for words in asked
    ]
    return tuple(_about(name) for name in (compiler, *answers))


def _about(name: str) -> str:
    path = os.path.realpath(shutil.which(name) or name)
    try:
        about = os.stat(path)
    except OSError:
        return name
    return f"{path} {about.st_size} {about.st_mtime_ns}"


def _files(rule: str) -> list[str]:
    """The files of a rule for make, in which a space of a name stands behind a backslash."""
    _, _, names = rule.replace("\\\n", " ").partition(": ")
    return [name.replace("\\ ", " ") for name in re.split(r"(?<!\\)\s+", names.strip())]


def _digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=20).hexdigest()
