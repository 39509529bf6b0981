"""Names and types of the arguments of well-known USDT probes, as tables in TOML say them.

    [postgresql]
    query__start = "const char *query"

A probe's text is a parameter list of C. `char *` is a string, `char name[length]` the bytes of
another parameter's number, any other pointer a pointer, `bool` and `char` what they are in C. The
note decides the size and the sign of all others. A list with more or fewer parameters than the
probe has arguments is of another version, and is not used.

A table may say which probes a program passes only while another one is on, too, and of which files
this is so:

    [python.needs]
    "function__entry@*python3.11*" = "line"

The tables of the package are in providers/, one a provider. Those of the user are
markerjit/usdt/*.toml in $XDG_CONFIG_HOME, and win.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from markerjit.errors import BadFile
from markerjit.ours import config_folder, own_directory, read_own_file
from markerjit.sites.selection import is_of_object
from markerjit.tuples import NamedTuple

MAX_TABLE_BYTES = 1 << 20
_PACKAGE = Path(__file__).with_name("providers")
_FILE_NAME = re.compile(r"\w+", re.ASCII)
_PARAMETER = re.compile(
    r"\s*(?P<type>[A-Za-z_][\w\s]*?)(?P<stars>[\s*]*(?<=[\s*]))(?P<name>[A-Za-z_]\w*)\s*"
    r"(?:\[\s*(?P<length>\w+)\s*\])?\s*",
    re.ASCII,
)

Table = Mapping[str, str | Mapping[str, str]]
Tables = Mapping[str, Table]
_NEEDS = "needs"


class Parameter(NamedTuple):
    """A parameter of a probe: its name, and its type as C has it, without const and volatile.
    `length` is the name of the parameter with the number of bytes, or ""."""

    name: str
    type: str
    length: str = ""


class Providers:
    """The tables. They are read when a provider is first asked for; what is wrong with those of
    the user is in `problems`."""

    def __init__(self) -> None:
        self.problems: list[BadFile] = []
        self._tables: dict[str, Table] = {}
        self._user: dict[str, dict[str, str | Mapping[str, str]]] | None = None

    def parameters(self, provider: str, name: str) -> tuple[Parameter, ...] | None:
        """The parameters of a probe, or None where no table has it."""
        text = self._table(provider).get(name)
        return parse_parameters(text) if isinstance(text, str) else None

    def needed(self, provider: str, name: str, path: str) -> str:
        """The name of the probe that has to be on as well, for this one to be passed in a file of
        this path; "" where no table has one."""
        needs = self._table(provider).get(_NEEDS, {})
        if not isinstance(needs, str):
            for probe, needed in needs.items():
                probe, _, file = probe.partition("@")
                if probe == name and is_of_object(file, path):
                    return needed
        return ""

    def _table(self, provider: str) -> Table:
        if self._user is None:
            self._user = {}
            for table in self._users():
                for name, probes in table.items():
                    self._user.setdefault(name, {}).update(probes)
        if provider not in self._tables:
            own = self._user.get(provider, {})
            self._tables[provider] = {**_of_package(provider), **own}
        return self._tables[provider]

    def _users(self) -> Iterator[Tables]:
        base = config_folder()
        where = os.path.join(base, "markerjit", "usdt")
        try:
            with own_directory(base, ("markerjit", "usdt")) as directory:
                for name in sorted(os.listdir(directory)):
                    if name.endswith(".toml"):
                        with suppress(BadFile):
                            yield self._read(directory, name, where)
        except FileNotFoundError:
            return
        except OSError as error:
            self.problems.append(BadFile(f"{where}: {error.strerror or error}"))

    def _read(self, directory: int, name: str, where: str) -> Tables:
        path = os.path.join(where, name)
        try:
            return parse_tables(read_own_file(directory, name, MAX_TABLE_BYTES + 1))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            problem = BadFile(f"{path}: {reason}")
            self.problems.append(problem)
            raise problem from None


def parse_tables(data: bytes) -> Tables:
    """The tables of a file. Raises ValueError, with the reason."""
    if len(data) > MAX_TABLE_BYTES:
        raise ValueError(f"it has more than {MAX_TABLE_BYTES >> 20} MiB")
    try:
        tables = tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    for provider, probes in tables.items():
        if not isinstance(probes, dict):
            raise ValueError(f"{provider!r} is not a table of a provider")
        for probe, text in probes.items():
            if probe == _NEEDS and isinstance(text, dict):
                if not all(isinstance(needed, str) for needed in text.values()):
                    raise ValueError(f"{provider}.needs has something else than names of probes")
                continue
            if not isinstance(text, str) or parse_parameters(text) is None:
                raise ValueError(
                    f"{provider}:{probe} has no list of parameters: {str(text)[:60]!r}"
                )
    return tables


def parse_parameters(text: str) -> tuple[Parameter, ...] | None:
    """The parameters of a list; None where it is not one."""
    if text.strip() in ("", "void"):
        return ()
    matches = [_PARAMETER.fullmatch(part) for part in text.split(",")]
    parameters = []
    for match in matches:
        if match is None:
            return None
        words = [word for word in match["type"].split() if word not in ("const", "volatile")]
        stars = match["stars"].count("*") * "*"
        type_ = " ".join([*words, *([stars] if stars else [])])
        parameters.append(Parameter(match["name"], type_, match["length"] or ""))
    plain = {parameter.name for parameter in parameters if not parameter.length}
    texts = [parameter for parameter in parameters if parameter.length]
    if len({parameter.name for parameter in parameters}) < len(parameters):
        return None
    if any(text.type != "char" or text.length not in plain for text in texts):
        return None
    return tuple(parameters)


@cache
def _of_package(provider: str) -> Table:
    """The table of a provider in the package, which tests have checked."""
    if not _FILE_NAME.fullmatch(provider):
        return {}
    try:
        data = (_PACKAGE / f"{provider}.toml").read_bytes()
    except OSError:
        return {}
    return parse_tables(data).get(provider, {})
