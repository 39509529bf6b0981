"""The USDT probes of a process or of a file, by name, as they are now. Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from markerjit.arguments import check_path, check_text
from markerjit.elf import parse_format
from markerjit.errors import BadFile, BadNote
from markerjit.model import Field, Signature
from markerjit.printable import counted
from markerjit.session.target import Target
from markerjit.sites import ProbeName, parse_name
from markerjit.sites.usdt import (
    UsdtState,
    matching_usdt,
    usdt_of_file,
    usdt_states,
)
from markerjit.tuples import NamedTuple, brief
from markerjit.uncollected import uncollected


class UsdtProbe(NamedTuple):
    """A USDT probe: its name, `provider:name`, its fields and its sites. Sites whose arguments have
    other types are those of another probe of that name, as for markers."""

    name: str
    format: str
    fields: tuple[Field, ...]
    states: tuple[UsdtState, ...]

    def __repr__(self) -> str:
        return brief(self)


class UsdtView(NamedTuple):
    """The USDT probes that were found, and why others were left out."""

    probes: tuple[UsdtProbe, ...]
    problems: tuple[BadNote | BadFile, ...]

    def __repr__(self) -> str:
        problems = counted(len(self.problems), "problem")
        return f"<UsdtView of {counted(len(self.probes), 'probe')}, {problems}>"


class UsdtNeed(NamedTuple):
    """A USDT probe that is on in vain: the program passes it only while another one is on, too."""

    name: str
    needs: str

    def __repr__(self) -> str:
        return brief(self)


def usdt_of(target: Target, name: ProbeName) -> UsdtView:
    """The USDT probes of a process that a name is of. Raises what `matching_usdt` raises, and
    TargetGone."""
    target.check_open()
    with target.memory.watched(), uncollected():
        target.look()
        listed = target.usdt()
        sites = listed.sites if name.text == "*" else matching_usdt(listed, name)
        states = usdt_states(target.memory.read, sites)
        return UsdtView(_probes(_as_we_have_them(target, states)), listed.problems)


def usdt_needs_of(target: Target, globs: Sequence[str]) -> tuple[UsdtNeed, ...]:
    """What those USDT probes need that match a glob and that we have on. Raises TargetGone."""
    from markerjit.sites.providers import Providers

    probes = usdt_of(target, parse_name("*")).probes
    looked_at = {
        probe.name for probe in probes if any(state.mode or state.raised for state in probe.states)
    }
    providers = Providers()
    needs = set()
    for probe in probes:
        if not any(fnmatchcase(probe.name, glob) for glob in globs):
            continue
        provider, _, short = probe.name.partition(":")
        for state in probe.states:
            path = state.site.place.object.path
            needed = state.mode and providers.needed(provider, short, path)
            if needed and f"{provider}:{needed}" not in looked_at:
                needs.add(UsdtNeed(probe.name, f"{provider}:{needed}"))
    return tuple(sorted(needs))


def list_file_usdt(path: str, pattern: str = "*") -> UsdtView:
    """The USDT probes of an executable or shared object, and why others were left out.

    Raises BadFile, Unsupported, UnknownMarker.
    """
    check_path("path", path)
    check_text("pattern", pattern)
    name = parse_name(pattern)
    listed = usdt_of_file(os.fspath(path))
    sites = listed.sites if name.text == "*" else matching_usdt(listed, name)
    return UsdtView(_probes(map(UsdtState, sites)), listed.problems)


def _as_we_have_them(target: Target, states: Iterable[UsdtState]) -> Iterator[UsdtState]:
    """Those that we have opened are not altered."""
    ours = {state.site.address: state for state in target.states(target.seen.opened)}
    for state in states:
        known = ours.get(state.site.address)
        if known is None:
            yield state
        else:
            yield state._replace(problem=known.problem, mode=known.mode)


def _probes(states: Iterable[UsdtState]) -> tuple[UsdtProbe, ...]:
    by_signature: dict[Signature, list[UsdtState]] = {}
    for state in states:
        by_signature.setdefault(state.site.signature, []).append(state)
    return tuple(
        UsdtProbe(name, format_, parse_format(format_, args), tuple(group))
        for (name, format_, args), group in sorted(by_signature.items())
    )
