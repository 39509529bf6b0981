"""Symbols of Rust's newer mangling: made by chance, or those of the standard library.

The first are right by the grammar of the rustc book: each reference goes back to an element of its
kind, and each lifetime to a binder that is around it.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import strategies as st

_BASIC = "abcdefhijlmnopstuvxyz"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LABELS = ("a", "kv", "Store", "get_or_insert", "_x", "9lives", "r", "E")
_ENCODED = ("gdel_5qa", "n84amf", "__ylb7e", "fq9h")


def base_62(value: int) -> str:
    """`_` is 0, and `0_` is 1."""
    if not value:
        return "_"
    value -= 1
    digits = _DIGITS[value % 62]
    while value := value // 62:
        digits = _DIGITS[value % 62] + digits
    return digits + "_"


@dataclass
class _Writer:
    """A symbol that is written from the front. Depth is what is left of it.

    one_of        a number below another one
    one_constant  writes a constant
    """

    one_of: Callable[[int], int]
    one_constant: Callable[[_Writer], None]
    text: str = ""
    paths: list[tuple[int, int]] = field(default_factory=list)
    types: list[tuple[int, int]] = field(default_factory=list)
    constants: list[tuple[int, int]] = field(default_factory=list)
    bound: int = 0

    def label(self, *, plain: bool = False) -> None:
        if not plain and not self.one_of(4):
            self.text += "s" + base_62(self.one_of(100))
        encoded = not plain and not self.one_of(8)
        words = _ENCODED if encoded else _LABELS
        word = words[self.one_of(len(words))]
        separator = "_" if word[0] in "_0123456789" else ""
        self.text += f"{'u' if encoded else ''}{len(word)}{separator}{word}"

    def referred(self, elements: list[tuple[int, int]]) -> bool:
        """Whether a reference to one of them was written. Lifetimes of them may be bound by as many
        binders as were around."""
        known = [start for start, bound in elements if bound <= self.bound]
        if not known or self.one_of(4):
            return False
        self.text += "B" + base_62(known[self.one_of(len(known))])
        return True

    def path(self, depth: int) -> None:
        if self.referred(self.paths):
            return
        start, bound = len(self.text), self.bound
        kind = self.one_of(7) if depth else 0
        if kind < 2:
            self.text += "C"
            self.label()
        elif kind < 4:
            special = not self.one_of(4)
            self.text += "N" + ("CSK"[self.one_of(3)] if special else "vt"[self.one_of(2)])
            self.path(depth - 1)
            if special and self.one_of(2):
                self.text += ("s" + base_62(self.one_of(9))) * self.one_of(2) + "0"
            else:
                self.label()
        elif kind == 4:
            self.text += "I"
            self.path(depth - 1)
            for _ in range(self.one_of(3)):
                self.argument(depth - 1)
            self.text += "E"
        else:
            self.implementation(depth)
        self.paths.append((start, bound))

    def implementation(self, depth: int) -> None:
        tag = "MXY"[self.one_of(3)]
        self.text += tag
        if tag != "Y":
            self.text += ("s" + base_62(self.one_of(9))) * self.one_of(2)
            self.path(0)
        self.type(depth - 1)
        if tag != "M":
            self.path(depth - 1)

    def argument(self, depth: int) -> None:
        kind = self.one_of(5)
        if not kind:
            self.text += "L" + base_62(self.one_of(self.bound + 1))
        elif kind == 1:
            self.text += "K"
            self.constant()
        else:
            self.type(depth)

    def constant(self) -> None:
        if not self.referred(self.constants):
            start = len(self.text)
            self.one_constant(self)
            self.constants.append((start, self.bound))

    def type(self, depth: int) -> None:
        if self.referred(self.types):
            return
        start, bound = len(self.text), self.bound
        kind = self.one_of(10) if depth > 0 else 0
        if kind < 2:
            self.text += _BASIC[self.one_of(len(_BASIC))]
        elif kind < 4:
            self.path(depth - 1)
        elif kind == 4:
            self.text += "RQ"[self.one_of(2)]
            if self.one_of(2):
                self.text += "L" + base_62(self.one_of(self.bound + 1))
            self.type(depth - 1)
        elif kind == 5:
            self.text += "POS"[self.one_of(3)]
            self.type(depth - 1)
        elif kind == 6:
            self.text += "A"
            self.type(depth - 1)
            self.text += f"j{self.one_of(300):x}_"
        elif kind == 7:
            self.text += "T"
            for _ in range(self.one_of(4)):
                self.type(depth - 1)
            self.text += "E"
        elif kind == 8:
            self.text += "F"
            self.binder()
            self.text += "U" * self.one_of(2) + ("", "KC", "K8C_unwind")[self.one_of(3)]
            for _ in range(self.one_of(3)):
                self.type(depth - 1)
            self.text += "E"
            self.type(depth - 1)
        else:
            self.object(depth)
        self.bound = bound
        if kind > 1:
            self.types.append((start, bound))

    def object(self, depth: int) -> None:
        bound = self.bound
        self.text += "D"
        self.binder()
        for _ in range(1 + self.one_of(2)):
            self.path(depth - 1)
            for _ in range(self.one_of(3)):
                self.text += "p"
                self.label(plain=True)
                self.type(depth - 1)
        self.bound = bound
        self.text += "EL" + base_62(self.one_of(self.bound + 1))

    def binder(self) -> None:
        if self.one_of(2):
            count = self.one_of(3)
            self.text += "G" + base_62(count)
            self.bound += count + 1


def _simple(writer: _Writer) -> None:
    """What older demanglers know, too."""
    writer.text += (
        "p", "j0_", "h7b_", "an80_", "lnb_", "x7fffffffffffffff_", "y12345678_", "b0_", "b1_",
        "c76_", "o123456789abcdef01_",
    )[writer.one_of(11)]  # fmt: skip


def _all(writer: _Writer) -> None:
    kind = writer.one_of(8)
    if kind < 2:
        _simple(writer)
    elif kind == 2:
        writer.text += "Re" + ("", "68692122_", "c3a4")[writer.one_of(3)].rstrip("_") + "_"
    elif kind == 3:
        writer.text += ("e6869_", "c2202_", "ca_")[writer.one_of(3)]
    elif kind == 4:
        writer.text += "RQ"[writer.one_of(2)]
        _all(writer)
    elif kind == 5:
        writer.text += "AT"[writer.one_of(2)]
        for _ in range(writer.one_of(3)):
            _all(writer)
        writer.text += "E"
    else:
        writer.text += "V"
        writer.path(1)
        shape = writer.one_of(3)
        writer.text += "UTS"[shape]
        for _ in range(writer.one_of(3) if shape else 0):
            if shape == 2:
                writer.label()
            _all(writer)
        writer.text += "E" if shape else ""


@st.composite
def symbols(draw: st.DrawFn) -> str:
    return _symbol(_Writer(lambda count: draw(st.integers(0, count - 1)), _all))


def older_symbols(count: int, seed: int) -> list[str]:
    """So many, with only the constants that all demanglers know."""
    one_of = random.Random(seed).randrange
    return [_symbol(_Writer(one_of, _simple)) for _ in range(count)]


def _symbol(writer: _Writer) -> str:
    writer.path(5)
    if not writer.one_of(3):
        writer.path(0)
    return "_R" + writer.text


def symbols_of_library() -> list[str]:
    """Those of Rust's standard library, where the compiler is installed."""
    need_rustc()
    folder = subprocess.run(
        ["rustc", "--print", "target-libdir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (library,) = Path(folder).glob("libstd-*.so")
    listed = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    return sorted({line.split()[-1] for line in listed.splitlines() if " _R" in line})


def need_rustc() -> None:
    if shutil.which("rustc") is None:
        pytest.skip("needs rustc (Debian package rustc)")
