"""A run of the bench as values for the report, every one checked.

A run may come from a file that was written by hand. A value that does not have the shape that
results.py gives it raises Refused, with its place in the file. The figures themselves are not
verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.apps.bench.sampling import core
from markerjit.apps.bench.sampling.core import Shared
from markerjit.apps.bench.sampling.form import (
    AGAIN,
    BASELINE,
    BASELINE_CLANG,
    CALL,
    FUNCTION,
    MODES,
    SAME,
    YARDSTICKS,
)
from markerjit.apps.bench.sampling.statistics import Estimate
from markerjit.errors import Refused
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.apps.bench.sampling.statistics import Array

VERSION = 2
OURS = "markerjit"
PEERS = "peers"
_MOST = 1e15
"""Numbers are below. So is no NaN."""
_KNOWN = ("additions", "additions, again", "more")
"""Forms whose cost is known: see controls.py."""
CONTROLS = "controls"
NONE = "no verdict"
NOTHING = ("not ", NONE)
"""The beginnings of verdicts that there is no difference, or that none can be seen."""

_CONTROLS = {BASELINE, BASELINE_CLANG, AGAIN, CALL, *YARDSTICKS}


class Instruction(NamedTuple):
    """A line of assembly; `hot` where it runs in each round."""

    address: int
    code: str
    text: str
    hot: bool


class Measured(NamedTuple):
    """A form in one part. Sizes are None where they were not counted. `samples` have a NaN where
    the cost is not of that run, and `shared` are the figures of such runs (core.py)."""

    name: str
    what: str
    baseline: str
    level: Estimate
    cost: Estimate
    verdict: str
    samples: Array
    instructions: float | None
    hot_bytes: float | None
    bytes: float | None
    data_bytes: float | None
    assembly: tuple[Instruction, ...]
    shared: Shared | None = None

    @property
    def is_baseline(self) -> bool:
        """Whether its cost is a difference to itself."""
        return self.name == self.baseline

    @property
    def group(self) -> str:
        """The group of the form, such as ours or the peers."""
        if self.name in _CONTROLS or self.name.endswith(_KNOWN) or self.name.startswith(SAME):
            return CONTROLS
        return OURS if self.name.partition(",")[0] in (*MODES, FUNCTION) else PEERS


class Part(NamedTuple):
    """One comparison. `sites`, `args` and `threads` are 0, and `load` and `measure` empty, where
    the setting has none. `again` is the difference between the baseline and its repetition, and
    `alone` the part of the runs that had the core to themselves."""

    kind: str
    title: str
    unit: str
    sites: float
    args: float
    threads: float
    computed: bool
    floor: float
    again: float
    noisy: str
    forms: tuple[Measured, ...]
    load: str = ""
    measure: str = ""
    alone: float = 1.0

    @property
    def of_core(self) -> str:
        """What is to be said of the core (core.py); "" where nothing is."""
        return core.sentence(self.alone, any(np.isnan(form.samples).any() for form in self.forms))

    def form(self, name: str) -> Measured | None:
        """The form of this name; None without one."""
        return next((form for form in self.forms if form.name == name), None)

    def baseline(self, form: Measured) -> Measured:
        """The form that a form is compared with."""
        return next(candidate for candidate in self.forms if candidate.name == form.baseline)

    def differs(self, form: Measured) -> bool:
        """Whether the verdict of a form says that it differs from its baseline."""
        return not (self.noisy or form.is_baseline or form.verdict.startswith(NOTHING))


class Report(NamedTuple):
    """A run."""

    machine: tuple[tuple[str, str], ...]
    missing: tuple[tuple[str, str], ...]
    parts: tuple[Part, ...]


def report(run: Mapping[str, Any]) -> Report:
    """A run, checked. Raises Refused."""
    whole = _mapping(run, "the run")
    if _get(whole, "version", "") != VERSION:
        raise Refused(f"not a result of markerjit bench: of another version, not {VERSION}")
    machine = _mapping(_get(whole, "machine", ""), "machine")
    for name, words in _mapping(machine.get("compilers", {}), "machine.compilers").items():
        at = f"machine.compilers.{name}"
        if not [_text(word, at) for word in _list(words, at)]:
            raise _wrong(at, "a name and flags", words)
    missing = _list(_get(whole, "missing", ""), "missing")
    return Report(
        tuple((_text(name, "machine"), _fact(value, f"machine.{name}"))
              for name, value in machine.items()),
        tuple((_text(_get(entry, "form", at), at), _text(_get(entry, "why", at), at))
              for at, entry in _each(missing, "missing")),
        tuple(_part(entry, at) for at, entry in _each(_get(whole, "parts", ""), "parts")),
    )  # fmt: skip


def _part(value: object, at: str) -> Part:
    part = _mapping(value, at)
    setting = _mapping(_get(part, "setting", at), f"{at}.setting")
    kind = _text(_get(part, "kind", at), f"{at}.kind")
    result = Part(
        kind,
        _text(_get(part, "title", at), f"{at}.title"),
        _text(part.get("unit", "ns"), f"{at}.unit"),
        _number(setting.get("sites", 0), f"{at}.setting.sites"),
        _number(setting.get("args", 0), f"{at}.setting.args"),
        _number(setting.get("threads", 0), f"{at}.setting.threads"),
        bool(setting.get("computed")),
        _number(_get(part, "floor", at), f"{at}.floor"),
        _number(_get(part, "again", at), f"{at}.again"),
        _text(_get(part, "noisy", at), f"{at}.noisy"),
        tuple(
            _form(entry, inner) for inner, entry in _each(_get(part, "forms", at), f"{at}.forms")
        ),
        _text(setting.get("load", ""), f"{at}.setting.load"),
        _text(setting.get("measure", ""), f"{at}.setting.measure"),
        _number(part.get("alone", 1), f"{at}.alone"),
    )
    if result.sites < 0 or result.args < 0 or (kind in ("large", "toggle") and not result.sites):
        raise _wrong(f"{at}.setting", "a number of sites or arguments", setting)
    if result.threads < 0 or (kind in ("active", "toggle") and not result.threads):
        raise _wrong(f"{at}.setting", "a number of threads", setting)
    _check_names(result, at)
    return result


def _check_names(part: Part, at: str) -> None:
    """Check that each form has a name of its own, and a baseline in the same part. Raises
    Refused."""
    names = [form.name for form in part.forms]
    if len(set(names)) != len(names):
        raise Refused(f"not a result of markerjit bench: {at} has two forms of one name")
    for form in part.forms:
        if form.baseline not in names:
            raise Refused(
                f"not a result of markerjit bench: {at} has no {form.baseline!r}, the baseline of "
                f"{form.name!r}"
            )
        if form.samples.shape != part.baseline(form).samples.shape:
            raise Refused(
                f"not a result of markerjit bench: {at}, {form.name!r} has not as many samples as "
                "its baseline"
            )


def _form(value: object, at: str) -> Measured:
    form = _mapping(value, at)
    return Measured(
        _text(_get(form, "name", at), f"{at}.name"),
        _text(_get(form, "what", at), f"{at}.what"),
        _text(_get(form, "baseline", at), f"{at}.baseline"),
        _estimate(_get(form, "level", at), f"{at}.level"),
        _estimate(_get(form, "cost", at), f"{at}.cost"),
        _text(_get(form, "verdict", at), f"{at}.verdict"),
        _taken(form, at),
        _count(form.get("instructions"), f"{at}.instructions"),
        _count(form.get("hot_bytes"), f"{at}.hot_bytes"),
        _count(form.get("bytes"), f"{at}.bytes"),
        _count(form.get("data_bytes"), f"{at}.data_bytes"),
        tuple(_instruction(entry, inner)
              for inner, entry in _each(form.get("assembly", []), f"{at}.assembly")),
        _shared(form["shared"], f"{at}.shared") if "shared" in form else None,
    )  # fmt: skip


def _shared(value: object, at: str) -> Shared:
    return Shared(*(_estimate(_get(value, name, at), f"{at}.{name}") for name in Shared._fields))


def _taken(form: Mapping[str, Any], at: str) -> Array:
    """The samples, without those that were left out. Each layout must keep one."""
    samples = _samples(_get(form, "samples", at), f"{at}.samples")
    if "left_out" not in form:
        return samples
    left_out = _samples(form["left_out"], f"{at}.left_out") != 0
    if left_out.shape != samples.shape or left_out.all(axis=1).any():
        numbers = "a number for each sample, and a 0 in each layout"
        raise _wrong(f"{at}.left_out", numbers, form["left_out"])
    return np.where(left_out, np.nan, samples)


def _instruction(value: object, at: str) -> Instruction:
    instruction = _mapping(value, at)
    address = _get(instruction, "address", at)
    if not isinstance(address, int):
        raise _wrong(f"{at}.address", "a whole number", address)
    code, text = (_text(_get(instruction, name, at), f"{at}.{name}") for name in ("code", "text"))
    return Instruction(address, code, text, bool(instruction.get("hot")))


def _estimate(value: object, at: str) -> Estimate:
    interval = _mapping(value, at)
    estimate = Estimate(
        *(_number(_get(interval, name, at), f"{at}.{name}") for name in Estimate._fields)
    )
    if estimate.low > estimate.high:
        raise _wrong(at, "an interval", value)
    return estimate


def _samples(value: object, at: str) -> Array:
    rows = [_numbers(row, inner) for inner, row in _each(value, at)]
    if not rows or not len(rows[0]) or len({len(row) for row in rows}) != 1:
        raise _wrong(at, "layouts by rounds, as many rounds in each", value)
    return np.array(rows)


def _numbers(value: object, at: str) -> Array:
    """A list of numbers. They are checked together: a run has a million of them."""
    numbers = _list(value, at)
    if {int, float}.issuperset(map(type, numbers)):
        array = np.array(numbers, dtype=np.float64)
        if (np.abs(array) < _MOST).all():
            return array
    return np.array([_number(number, at) for number in numbers], dtype=np.float64)


def _fact(value: object, at: str) -> str:
    """A fact of the machine, as text."""
    if isinstance(value, Mapping):
        return "\n".join(f"{_text(name, at)}: {_fact(fact, at)}" for name, fact in value.items())
    if isinstance(value, list):
        return " ".join(_fact(fact, at) for fact in value)
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, str | int):
        return str(value)
    raise _wrong(at, "a text or a number", value)


def _count(value: object, at: str) -> float | None:
    return None if value is None else _number(value, at)


def _number(value: object, at: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST:
        return float(value)
    raise _wrong(at, "a number", value)


def _text(value: object, at: str) -> str:
    if not isinstance(value, str):
        raise _wrong(at, "a text", value)
    return value


def _mapping(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(at, "an object", value)
    return value


def _list(value: object, at: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise _wrong(at, "a list", value)
    return value


def _each(value: object, at: str) -> list[tuple[str, Any]]:
    return [(f"{at}[{number}]", item) for number, item in enumerate(_list(value, at))]


def _get(value: object, key: str, at: str) -> Any:
    mapping = _mapping(value, at or "the run")
    if key not in mapping:
        raise Refused(f"not a result of markerjit bench: {at or 'the run'} has no {key!r}")
    return mapping[key]


def _wrong(at: str, expected: str, value: object) -> Refused:
    shown = repr(value)
    if len(shown) > 40:
        shown = f"{shown[:40]}…"
    return Refused(f"not a result of markerjit bench: {at} should be {expected}, not {shown}")
