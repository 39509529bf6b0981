"""The contents of a live view, as values. Each is made from the one before and a new look.

A look has the documents that `status --json` and `explain --json` print, so a web page can show the
same. This module adds what takes several looks: rates, and bytes that have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markerjit.printable import counted
from markerjit.tuples import NamedTuple

Json = dict[str, Any]

SAMPLES = 60
"""Rates that are kept for each marker."""

LIT_S = 3.0
"""The seconds for which a changed byte stays lit."""

SLOT_WORDS = ("probe", "data")


class Look(NamedTuple):
    """A look at the process.

    at_s      the time of the look, CLOCK_MONOTONIC
    status    the document of `status --json`
    name      the marker that is shown in detail, "" for none
    sites     its first sites in memory (facts.plans.memory_facts)
    change    the switch that is being made in stages (facts.plans.stages_facts), None without one
    events    its last events, a line each; None while they are not recorded
    mine      the names of markers that this view has switched on
    kept      the names among `mine` whose markers stay on when the view ends
    """

    at_s: float
    status: Json
    name: str = ""
    sites: Sequence[Json] = ()
    change: Json | None = None
    events: Sequence[str] | None = None
    mine: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()


class Row(NamedTuple):
    """A marker. `rate` is in hits per second, None before the second look. `rates` are the last
    rates, the newest at the end. `cost_ns` is the cost of a hit, None where it was not measured."""

    name: str
    state: str
    is_on: bool
    rate: float | None
    rates: tuple[float, ...]
    hits: int
    lost: int
    cost_ns: float | None
    is_mine: bool
    is_kept: bool
    is_altered: bool


class Byte(NamedTuple):
    """A byte in memory. `lit`: it changed within the last LIT_S seconds."""

    value: int
    lit: bool


class Piece(NamedTuple):
    """Bytes at an address, with the text that names them."""

    address: int
    data: tuple[Byte, ...]
    text: str


class Place(NamedTuple):
    """A site in memory: its source, its hot path, and the words of its slot."""

    source: str
    code: tuple[Piece, ...]
    slot: tuple[Piece, ...]


class Step(NamedTuple):
    """A step in words. `writes`: it writes to the process."""

    sentence: str
    writes: bool


class Stage(NamedTuple):
    """A stage of a switch that is being made. Number 0 has the steps before the first stage."""

    number: int
    steps: tuple[Step, ...]
    is_made: bool


class Histogram(NamedTuple):
    """A histogram of a probe in C: the number of values in each bucket that has any, and the lowest
    and highest value of these buckets."""

    name: str
    numbers: tuple[int, ...]
    low: int
    high: int


class Counts(NamedTuple):
    """The counters and histograms of a file of probes in C. A histogram without values is left
    out."""

    source: str
    counters: tuple[tuple[str, int], ...]
    histograms: tuple[Histogram, ...]


class Detail(NamedTuple):
    """One marker in detail. `counts` are those of the C file whose probe it calls, None without
    one."""

    row: Row
    format: str
    kind: str
    source: str
    more_sites: int
    holder: str
    since: int
    places: tuple[Place, ...]
    stages: tuple[Stage, ...]
    journal: str
    events: tuple[str, ...] | None
    counts: Counts | None = None


class Shown(NamedTuple):
    """All contents of the view.

    detail  the chosen marker; None where no marker of that name is there
    trouble what is left to repair in the process; "" for nothing
    lit     the moment until which each byte is lit, by address
    memory  the bytes of the chosen marker, by address, to compare with the next look
    """

    at_s: float
    pid: int
    rows: tuple[Row, ...]
    detail: Detail | None
    runtime: str
    trouble: str
    lit: Mapping[int, float]
    memory: Mapping[int, int]


EMPTY = Shown(0.0, 0, (), None, "", "", {}, {})


def show(before: Shown, look: Look, costs: Mapping[str, float] | None = None) -> Shown:
    """The contents after a look. `costs` are nanoseconds of a hit by mode and probe, as `markerjit
    bench` names them: "jump, count"."""
    known = {row.name: row for row in before.rows}
    passed_s = look.at_s - before.at_s if before.rows else 0.0
    markers = _by_name(look.status["markers"])
    rows = tuple(
        _row(name, entries, known.get(name), passed_s, look, costs or {})
        for name, entries in markers.items()
    )
    memory = {address: value for site in look.sites for address, value in _bytes_of(site)}
    lit = _lit(before, memory, look.at_s)
    chosen = next((row for row in rows if row.name == look.name), None)
    detail = chosen and _detail(chosen, markers[chosen.name], look, lit)
    arena = look.status["arena"]
    return Shown(
        look.at_s, look.status["pid"], rows, detail,
        _runtime(arena), (arena and arena["to_mend"]) or "", lit, memory,
    )  # fmt: skip


def _by_name(markers: Iterable[Json]) -> dict[str, list[Json]]:
    """Markers of one name and several formats are switched together."""
    named: dict[str, list[Json]] = {}
    for marker in markers:
        named.setdefault(marker["name"], []).append(marker)
    return named


def _row(
    name: str, markers: Sequence[Json], before: Row | None, passed_s: float, look: Look,
    costs: Mapping[str, float],
) -> Row:  # fmt: skip
    hits = sum(marker["total"] for marker in markers)
    rate, rates = None, before.rates if before else ()
    if before and passed_s > 0:
        rate = max(hits - before.hits, 0) / passed_s
        rates = (*rates, rate)[-SAMPLES:]
    altered = any(site["altered"] for marker in markers for site in marker["sites"])
    on = [marker for marker in markers if marker["on"]]
    return Row(
        name, _state(markers, on, altered=altered), bool(on), rate, rates, hits,
        sum(marker["lost"] for marker in markers),
        costs.get(f"{on[0]['mode']}, {on[0]['probe']}") if on else None,
        name in look.mine, name in look.kept, altered,
    )  # fmt: skip


def _state(markers: Sequence[Json], on: Sequence[Json], *, altered: bool) -> str:
    if altered and not on:
        return "altered"
    if not on:
        return "off"
    first = on[0]
    partly = len(on) < len(markers) or any(marker["partly"] for marker in on)
    return f"{first['mode']}, {first['probe'] or '?'}{', partly' if partly else ''}"


# ---- memory --------------------------------------------------------------------------------------


def _bytes_of(site: Json) -> Iterable[tuple[int, int]]:
    for line in site["code"]:
        yield from enumerate(bytes.fromhex(line["bytes"]), line["address"])
    yield from enumerate(bytes.fromhex(site["slot_bytes"]), site["slot"])


def _lit(before: Shown, memory: Mapping[int, int], now_s: float) -> dict[int, float]:
    """The moment until which each byte is lit, by address."""
    lit = {at: until for at, until in before.lit.items() if until > now_s and at in memory}
    for address, value in memory.items():
        if before.memory.get(address, value) != value:
            lit[address] = now_s + LIT_S
    return lit


def _piece(address: int, data: bytes, text: str, lit: Mapping[int, float]) -> Piece:
    shown = tuple(Byte(value, address + at in lit) for at, value in enumerate(data))
    return Piece(address, shown, text)


def _place(site: Json, lit: Mapping[int, float]) -> Place:
    code = tuple(
        _piece(line["address"], bytes.fromhex(line["bytes"]), line["text"], lit)
        for line in site["code"]
    )
    words = bytes.fromhex(site["slot_bytes"])
    slot = tuple(
        _piece(site["slot"] + 8 * at, words[8 * at : 8 * at + 8], name, lit)
        for at, name in enumerate(SLOT_WORDS)
        if words[8 * at : 8 * at + 8]
    )
    return Place(site["source"], code, slot)


# ---- one marker ----------------------------------------------------------------------------------


def _detail(row: Row, markers: Sequence[Json], look: Look, lit: Mapping[int, float]) -> Detail:
    first = next((marker for marker in markers if marker["on"]), markers[0])
    sites = [site for marker in markers for site in marker["sites"]]
    by = f"pid {first['by']}" if first["by"] else ""
    return Detail(
        row, first["format"], first["kind"], sites[0]["source"], len(sites) - 1,
        f"{by} ({first['held']})" if first["held"] else by,
        first["since"] or 0,
        tuple(_place(site, lit) for site in look.sites),
        _stages(look.change), _journal(look.status["arena"], look.change),
        None if look.events is None else tuple(look.events),
        _counts(first["probe"] or "", look.status.get("probes", ())),
    )  # fmt: skip


def _counts(probe: str, files: Iterable[Json]) -> Counts | None:
    """The counts of the file of a probe, `FILE.c:function`. Of several files of that name the
    newest counts."""
    source = probe.rpartition(":")[0]
    file = next((each for each in reversed(list(files)) if each["source"] == source), None)
    if file is None:
        return None
    return Counts(
        source,
        tuple(file["counters"].items()),
        tuple(
            Histogram(
                name, tuple(bucket["number"] for bucket in buckets),
                buckets[0]["low"], buckets[-1]["high"],
            )
            for name, buckets in file["histograms"].items() if buckets
        ),
    )  # fmt: skip


def _stages(change: Json | None) -> tuple[Stage, ...]:
    if not change:
        return ()
    return tuple(
        Stage(number, tuple(map(_step, steps)), is_made=number <= change["done"])
        for number, steps in enumerate([change["opening"], *change["stages"]])
    )


def _step(step: Json) -> Step:
    return Step(f"{step['number']:>2} {step['sentence']}", step["verb"] == "write")


def _journal(arena: Json | None, change: Json | None) -> str:
    if change and not change["finished"]:
        edits = sum(step["verb"] == "write" for stage in change["stages"] for step in stage)
        left_s = arena["paused_s"] if arena else None
        lease = f", lease {left_s:.0f} s" if left_s is not None else ""
        return f"open: our {counted(edits, 'edit')}{lease}"
    if not arena:
        return "none: the runtime is not in the process"
    if not arena["writer"]:
        return "empty"
    if arena["paused_s"] is not None:
        return f"open: pid {arena['writer']} makes a change in stages"
    return f"open: pid {arena['writer']} makes a change"


def _runtime(arena: Json | None) -> str:
    if not arena:
        return "no runtime in the process yet"
    reader = f", pid {arena['reader']} records" if arena["reader"] else ""
    return f"runtime put there by pid {arena['owner']}{reader}"
