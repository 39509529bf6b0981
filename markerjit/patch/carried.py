"""Entries of functions that are open for the sake of their exits: the changes that a plan makes for
them, as values.

An event of an exit has arguments of the entry. So while such events are wanted, the entry is open,
too, and its slot has a token, whether or not the slot has a probe. A token is never given twice, so
an exit cannot take arguments that were kept before the entry was closed.

    on    the token, before anything is opened
    off   the token goes before anything is closed: an exit that is left finds nothing then

What this does not do: find the entries and their exits (session/carrying.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.model import Change, RemoteAddress
from markerjit.patch.slots import SLOT_STASH, SLOT_TOKEN
from markerjit.patch.switchable import SiteState


def keep(entry: SiteState, token: int, stash: RemoteAddress) -> Iterator[Change]:
    """Make an entry keep its arguments in this stash; a token of 0 ends that."""
    if token and entry.stash != stash:
        yield _word(entry, SLOT_STASH, entry.stash, stash, "slot.stash")
    if entry.token != token:
        yield _word(entry, SLOT_TOKEN, entry.token, token, "slot.token")


def _word(state: SiteState, offset: int, old: int, new: int, what: str) -> Change:
    before, after = (number.to_bytes(8, "little") for number in (old, new))
    place = RemoteAddress(state.site.slot + offset)
    return Change(place, before, after, f"{state.site.marker}: {what}", code=False)
