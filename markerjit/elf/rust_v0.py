"""The names of Rust functions as they were written, where the newer of its two manglings was used.

`_RNvMNtCs1_2kv5storeNtB2_5Store3get` is `<kv::store::Store>::get`. Such a symbol says all of a
name: its crate, the types of an implementation, and the arguments of what is generic. It is written
as the compiler's own demangler does it, without what only tells crates of one name apart.

Symbols are those of whatever program there is. So what is read of one is bounded in depth, in
length and in time: references back within a symbol of 200 letters may stand for 2 to the 60 types.

What this does not do: raise for what is no such symbol, or write the part of one that it knows. A
symbol with a tag that came later stays as it is, and so does one with letters outside of ASCII,
which the compiler encodes.

Authority: The rustc book, v0 Symbol Format (RFC 2603); for the constants of structures, and for
patterns, of which that says nothing, the crate rustc-demangle, v0.rs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from markerjit.elf.written_in_rust import without_linker

_TYPES = {
    "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8",
    "i": "isize", "j": "usize", "l": "i32", "m": "u32", "n": "i128", "o": "u128", "p": "_",
    "s": "i16", "t": "u16", "u": "()", "v": "...", "x": "i64", "y": "u64", "z": "!",
}  # fmt: skip
_UNSIGNED, _SIGNED = "htmyoj", "aslxni"
_SPECIAL = {"C": "closure", "S": "shim"}
_BY_READER = {"\t": "\\t", "\r": "\\r", "\n": "\\n", "\\": "\\\\", "\0": "\\0"}

_NUMBER = re.compile(r"([0-9a-zA-Z]{0,11})_")
_LABEL = re.compile(r"(?:s([0-9a-zA-Z]{0,11})_)?(u?)(0|[1-9][0-9]{0,6})_?")
_NESTED = re.compile(r"(?:N[a-zA-Z])*")
_HEX = re.compile(r"([0-9a-f]*)_")
_CLOSURE = re.compile(r"\{closure(?::[^{}#]*)?#[0-9]+\}")
_BARE = re.compile(r"[\w:]+")
_DIGITS = {digit: value for value, digit in enumerate(
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)}  # fmt: skip

_END = "\0"
"""What follows a symbol, and is no tag."""
_LONGEST = 1 << 16
"""Letters of a symbol; those of asynchronous programs have thousands."""
_MOST = 1 << 15
"""Elements and letters of names that are read of one symbol, each as often as it is meant."""
_DEEPEST = 150
"""Elements within elements: each takes at most two calls, of the thousand that Python allows."""
_LONGEST_ENCODED = 512
"""Letters of an identifier: decoding takes time with the square of it."""
_LETTERS = 26
"""Lifetimes are 'a to 'z, and then '_26 and so on."""


@lru_cache(1 << 14)
def written(symbol: str) -> str | None:
    """`<kv::Store<u8> as core::fmt::Debug>::fmt`; None for what is no name of this mangling."""
    return _written(symbol, brief=False)


@lru_cache(1 << 14)
def written_briefly(symbol: str) -> str | None:
    """The same without the arguments of what is generic, and without the brackets round a type that
    has the function: `<kv::Store as core::fmt::Debug>::fmt`, `kv::Store::get`."""
    return _written(symbol, brief=True)


def as_before(name: str) -> str:
    """The name with closures as the older mangling has them, where they have no numbers."""
    return _CLOSURE.sub("{{closure}}", name) if "{closure" in name else name


def may_have(symbol: str, word: str) -> bool:
    """Whether a name of this symbol may have the word in it: what is known without reading it.

    A name consists of identifiers, each of which stands in the symbol as it is the first time, and
    of a few words and numbers of the language. Of an encoded one the letters of ASCII stand there.
    """
    if word in symbol:
        return True
    if word in _TAGS:
        return _TAGS[word] in symbol
    return (
        len(word) < 2
        or word in _WORDS
        or not word.isascii()
        or not word.strip("_x0123456789abcdef")
        or ("K" in symbol and _TEXT.search(symbol) is not None)
    )


_TAGS = {word: f"N{tag}" for tag, word in _SPECIAL.items()}
_WORDS = " ".join([*_TYPES.values(), *_SPECIAL.values(),
    "as dyn const mut fn for unsafe extern splat true false is null punycode"])  # fmt: skip
"""What is in names without being in symbols; a lifetime is a single letter."""
_TEXT = re.compile("[ce][0-9a-f]{2,}_")
"""Constants that are letters or texts, encoded."""


def _written(symbol: str, *, brief: bool) -> str | None:
    if not symbol.startswith("_R") or len(symbol) > _LONGEST or not symbol.isascii():
        return None
    reader = _Reader(symbol[2:], brief)
    try:
        name = reader.name()
    except _Unknown:
        return None
    return name if name.isprintable() else None


class _Unknown(Exception):
    """The symbol has something that is not known here, or too much."""


class _Reader:
    """A symbol without its prefix, read from the front. The methods of a grammar's element return
    it as it is written. They take the depth at which it stands, and raise _Unknown."""

    def __init__(self, text: str, brief: bool) -> None:
        self._text = text + _END
        self._brief = brief
        self._at = 0
        self._left = _MOST
        self._bound = 0  # lifetimes, by all the binders around
        self._is_skipped = False  # what is read, and not written

    def name(self) -> str:
        """The whole symbol."""
        name = self._path(0, is_value=True)
        if self._text[self._at : self._at + 1].isupper():
            self._skip(self._path, 0, False)  # the crate that has this instance
        suffix = self._text[self._at : -1]
        if suffix and suffix[0] not in ".$":
            raise _Unknown
        return name + without_linker(suffix)

    # What the grammar is made of.

    def _step(self, depth: int) -> str:
        """The tag of the next element."""
        at = self._at
        self._at = at + 1
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise _Unknown
        return self._text[at]

    def _has(self, tag: str) -> bool:
        if self._text.startswith(tag, self._at):
            self._at += len(tag)
            return True
        return False

    def _matched(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _Unknown
        self._at = match.end()
        return match

    def _number(self) -> int:
        return _number(self._matched(_NUMBER)[1])

    def _label(self) -> tuple[str | None, str]:
        """An identifier with the digits that tell those of one name apart."""
        match = self._matched(_LABEL)
        digits, encoded, length = match.groups()
        start = match.end()
        self._at = end = start + int(length)
        self._left -= end - start + 1
        if end >= len(self._text) or self._left < 0:
            raise _Unknown
        label = self._text[start:end]
        return digits, _decoded(label) if encoded else label

    def _referred(self, read: Callable[..., str], *args: int | bool) -> str:
        """The element of the same kind that stands at an earlier place."""
        start = self._at - 1
        place = self._number()
        if place >= start:
            raise _Unknown
        if self._is_skipped:
            return ""
        behind, self._at = self._at, place
        element = read(*args)
        self._at = behind
        return element

    def _list(self, read: Callable[..., str], *args: int | bool) -> list[str]:
        """Elements up to the end of a list."""
        elements: list[str] = []
        while not self._has("E"):
            elements.append(read(*args))
        return elements

    # Paths.

    def _path(self, depth: int, is_value: bool) -> str:
        """Of a value, or else of a type: `f::<T>` and `Vec<T>`."""
        nested = self._matched(_NESTED)[0]
        path = self._root(depth, is_value)
        for namespace in reversed(nested[1::2]):
            path = self._within(path, namespace)
        return path

    def _root(self, depth: int, is_value: bool) -> str:
        tag = self._step(depth)
        if tag == "C":
            return self._label()[1]
        if tag == "B":
            return self._referred(self._path, depth + 1, is_value)
        if tag == "I":
            path = self._path(depth + 1, is_value)
            if self._brief:
                self._skip(self._arguments, depth + 1)
                return path
            arguments = self._arguments(depth + 1)
            return f"{path}{'::' if is_value else ''}<{', '.join(arguments)}>"
        if tag in "MX":
            self._implementation(depth + 1)
        elif tag != "Y":
            raise _Unknown
        of = self._type(depth + 1)
        if tag == "M":
            return of if self._brief and _BARE.fullmatch(of) else f"<{of}>"
        return f"<{of} as {self._path(depth + 1, is_value=False)}>"

    def _within(self, path: str, namespace: str) -> str:
        digits, label = self._label()
        if namespace >= "a":
            return f"{path}::{label}" if label else path
        number = 0 if digits is None else _number(digits) + 1
        kind = _SPECIAL.get(namespace, namespace)
        return f"{path}::{{{kind}{':' if label else ''}{label}#{number}}}"

    def _implementation(self, depth: int) -> None:
        """Where an implementation stands in the source, which is not written."""
        if self._has("s"):
            self._number()
        self._skip(self._path, depth, False)

    def _skip(self, read: Callable[..., object], *args: int | bool) -> None:
        """An element that is not written: what it refers to is not read."""
        before, self._is_skipped = self._is_skipped, True
        read(*args)
        self._is_skipped = before

    def _arguments(self, depth: int) -> list[str]:
        return self._list(self._argument, depth)

    def _argument(self, depth: int) -> str:
        """Of something generic."""
        if self._has("L"):
            return self._lifetime(self._number())
        if self._has("K"):
            return self._constant(depth, is_within=False)
        return self._type(depth)

    def _lifetime(self, number: int) -> str:
        """By how many binders it is inside of."""
        if not number or self._is_skipped:
            return "'_"
        level = self._bound - number
        if level < 0:
            raise _Unknown
        return f"'{chr(ord('a') + level)}" if level < _LETTERS else f"'_{level}"

    # Types.

    def _type(self, depth: int) -> str:
        tag = self._step(depth)
        if tag in _TYPES:
            return _TYPES[tag]
        if tag in "CNMXYI":
            self._at -= 1
            return self._path(depth, is_value=False)
        if tag == "B":
            return self._referred(self._type, depth + 1)
        if tag in "RQ":
            number = self._number() if self._has("L") else 0
            lifetime = f"{self._lifetime(number)} " if number else ""
            return f"&{lifetime}{'mut ' if tag == 'Q' else ''}{self._type(depth + 1)}"
        if tag == "T":
            types = self._list(self._type, depth + 1)
            return f"({types[0]},)" if len(types) == 1 else f"({', '.join(types)})"
        if tag in "PO":
            return f"*{'const' if tag == 'P' else 'mut'} {self._type(depth + 1)}"
        if tag == "S":
            return f"[{self._type(depth + 1)}]"
        if tag == "A":
            return f"[{self._type(depth + 1)}; {self._constant(depth + 1, is_within=True)}]"
        if tag == "F":
            return self._bound_in(self._function, depth + 1)
        if tag == "D":
            traits = self._bound_in(self._traits, depth + 1)
            if not self._has("L"):
                raise _Unknown
            number = self._number()
            return f"dyn {traits}" + (f" + {self._lifetime(number)}" if number else "")
        if tag == "w":
            return f"#[splat] {self._type(depth + 1)}"
        if tag == "W":
            return f"{self._type(depth + 1)} is {self._pattern(depth + 1)}"
        raise _Unknown

    def _bound_in(self, read: Callable[[int], str], depth: int) -> str:
        """`for<'a, 'b> ` and what these lifetimes are bound in."""
        number = self._number() + 1 if self._has("G") else 0
        self._left -= number
        if self._left < 0:
            raise _Unknown
        self._bound += number
        lifetimes = ", ".join(map(self._lifetime, range(number, 0, -1)))
        text = read(depth)
        self._bound -= number
        return f"for<{lifetimes}> {text}" if lifetimes else text

    def _function(self, depth: int) -> str:
        unsafe = "unsafe " if self._has("U") else ""
        abi = ""
        if self._has("K"):
            name = "C" if self._has("C") else self._label()[1].replace("_", "-")
            abi = f'extern "{name}" '
        types = ", ".join(self._list(self._type, depth))
        returned = "" if self._has("u") else f" -> {self._type(depth)}"
        return f"{unsafe}{abi}fn({types}){returned}"

    def _traits(self, depth: int) -> str:
        return " + ".join(self._list(self._trait, depth))

    def _trait(self, depth: int) -> str:
        """A trait of an object, with what its associated types are."""
        is_generic = self._is_generic()
        trait = self._path(depth, is_value=False)
        bindings: list[str] = []
        while self._has("p"):
            label = self._label()[1]
            bindings.append(f"{label} = {self._type(depth)}")
        if self._brief or not bindings:
            return trait
        opened = f"{trait[:-1]}, " if is_generic else f"{trait}<"
        return f"{opened}{', '.join(bindings)}>"

    def _is_generic(self) -> bool:
        """Whether the path that follows has arguments, also where it refers to one."""
        start = self._at
        while self._has("B"):
            before = self._at - 1
            self._at = self._number()
            if self._at >= before:
                raise _Unknown
        is_generic = self._text.startswith("I", self._at)
        self._at = start
        return is_generic

    def _pattern(self, depth: int) -> str:
        """What is left of the values of a type."""
        tag = self._step(depth)
        if tag == "R":
            first = self._constant(depth + 1, is_within=False)
            return f"{first}..={self._constant(depth + 1, is_within=False)}"
        if tag == "O":
            return " | ".join(self._list(self._pattern, depth + 1))
        if tag == "N":
            return "!null"
        raise _Unknown

    # Constants.

    def _constant(self, depth: int, is_within: bool) -> str:
        """Within another one, or by itself, where all but the simple ones are in braces."""
        tag = self._step(depth)
        if tag == "p":
            return "_"
        if tag == "B":
            return self._referred(self._constant, depth + 1, is_within)
        if tag in _UNSIGNED:
            return self._integer()
        if tag in _SIGNED:
            return f"-{self._integer()}" if self._has("n") else self._integer()
        if tag == "b":
            return self._chosen({"0": "false", "1": "true"})
        if tag == "c":
            return self._letter()
        if tag == "R" and self._has("e"):
            return self._literal()
        expression = self._expression(tag, depth + 1)
        return expression if is_within else f"{{{expression}}}"

    def _integer(self) -> str:
        digits = self._digits()
        return str(int(digits or "0", 16)) if len(digits.lstrip("0")) <= 16 else f"0x{digits}"

    def _digits(self) -> str:
        digits = self._matched(_HEX)[1]
        self._left -= len(digits)
        return digits

    def _chosen(self, texts: dict[str, str]) -> str:
        digits = self._digits().lstrip("0") or "0"
        if digits not in texts:
            raise _Unknown
        return texts[digits]

    def _letter(self) -> str:
        number = int(self._digits() or "0", 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise _Unknown
        return f"'{_escaped(chr(number), chr(39))}'"

    def _literal(self) -> str:
        try:
            text = bytes.fromhex(self._digits()).decode()
        except ValueError:
            raise _Unknown from None
        return '"' + "".join(_escaped(letter, '"') for letter in text) + '"'

    def _expression(self, tag: str, depth: int) -> str:
        if tag == "e":
            return f"*{self._literal()}"
        if tag in "RQ":
            mutable = "mut " if tag == "Q" else ""
            return f"&{mutable}{self._constant(depth, is_within=True)}"
        if tag == "A":
            return f"[{', '.join(self._list(self._constant, depth, True))}]"
        if tag == "T":
            members = self._list(self._constant, depth, True)
            return f"({members[0]},)" if len(members) == 1 else f"({', '.join(members)})"
        if tag == "V":
            return self._structure(depth)
        raise _Unknown

    def _structure(self, depth: int) -> str:
        path = self._path(depth, is_value=True)
        kind = self._step(depth)
        if kind == "U":
            return path
        if kind == "T":
            return f"{path}({', '.join(self._list(self._constant, depth, True))})"
        if kind == "S":
            return f"{path} {{ {', '.join(self._list(self._member, depth))} }}"
        raise _Unknown

    def _member(self, depth: int) -> str:
        label = self._label()[1]
        return f"{label}: {self._constant(depth, is_within=True)}"


def _number(digits: str) -> int:
    """Of base 62, where none is 0 and "0" is 1."""
    if not digits:
        return 0
    value = 0
    for digit in digits:
        value = value * 62 + _DIGITS[digit]
    return value + 1


def _decoded(label: str) -> str:
    """An identifier that was encoded, by Punycode with another separator; as it is where it is not
    right, or nothing to print."""
    plain, _, encoded = label.rpartition("_")
    standard = f"{plain}-{encoded}" if plain else encoded
    try:
        text = standard.encode().decode("punycode") if len(standard) <= _LONGEST_ENCODED else ""
    except ValueError:
        text = ""
    return text if text.isprintable() and text else f"punycode{{{standard}}}"


def _escaped(letter: str, quote: str) -> str:
    if letter in _BY_READER:
        return _BY_READER[letter]
    if letter == quote:
        return f"\\{letter}"
    return letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}"
