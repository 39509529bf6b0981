"""Sites that a question can be asked of, before their probes. It only reads.

Markers that do not have a name of the question are left out, as where a stored trace is asked: no
event of theirs could meet it. So are those whose bodies make an ordinary C call: the code of a
question takes its values from the block of a preserving one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from markerjit.errors import Reason, Refused, Unsupported
from markerjit.model import Signature, Site
from markerjit.patch.request import Probe
from markerjit.patch.switchable import LeftOut, reason_against_closed
from markerjit.sites.names import written_name
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:  # imported where something is asked
    from markerjit.questions import Lack

T = TypeVar("T")


class Askable(NamedTuple):
    """Sites that a question can be asked of, and the other markers."""

    sites: Sequence[Site]
    left_out: tuple[LeftOut, ...] = ()


def _lacks(signature: Signature, lack: Lack) -> str:
    return f"{written_name(signature.name)} has no field {lack.name}"


def _meets_none(signature: Signature, lack: Lack) -> str:
    return f"no event of {written_name(signature.name)} meets the condition: no {lack.name}"


def askable(sites: Sequence[Site], probe: Probe) -> Askable:
    """The sites that the question of a probe can be asked of: all, if it has none.

    Raises BadQuestion where it is wrong in itself, or for one of the markers, Unsupported where it
    has no code, and Refused where it can be asked of none of them.
    """
    if probe.question is None:
        return Askable(sites)
    from markerjit.probes.asking import ask_where, draft_of_question

    signatures = list(dict.fromkeys(site.signature for site in sites))
    divided = divide(sites, signatures, ask_where(probe.question, signatures), _meets_none)
    for signature, asked in divided.asked.items():
        try:
            draft_of_question(asked.question, signature, words=asked.words)
        except Unsupported as error:
            raise Unsupported(f"{signature.name}: {error}") from None
    return Askable(rest_of(sites, divided.left_out), tuple(divided.left_out.values()))


class Divided(NamedTuple, Generic[T]):
    """What a question is of each marker, and the other markers."""

    asked: Mapping[Signature, T]
    left_out: Mapping[Signature, LeftOut]


def divide(
    sites: Sequence[Site],
    signatures: Sequence[Signature],
    asked: Sequence[T | Lack],
    sentence: Callable[[Signature, Lack], str] = _lacks,
) -> Divided[T]:
    """The markers of these sites by what a question is of each: one that has no block lacks it
    whatever the question is."""
    from markerjit.questions import Lack

    without_block = blockless(sites)
    left_out: dict[Signature, LeftOut] = {}
    of_marker: dict[Signature, T] = {}
    for signature, each in zip(signatures, asked, strict=True):
        if signature in without_block:
            left_out[signature] = without_block[signature]
        elif isinstance(each, Lack):
            why = sentence(signature, each)
            left_out[signature] = LeftOut(signature.name, Reason.NO_QUESTION, why)
        else:
            of_marker[signature] = each
    return Divided(of_marker, left_out)


def rest_of(sites: Sequence[Site], left_out: Mapping[Signature, LeftOut]) -> list[Site]:
    """The sites whose markers are not left out. Raises Refused where all are."""
    rest = [site for site in sites if site.signature not in left_out]
    if not rest:
        first = next(iter(left_out.values()))
        raise Refused(first.sentence, reason=first.reason)
    return rest


def blockless(sites: Sequence[Site]) -> dict[Signature, LeftOut]:
    """Those of the markers that have no site with the arguments in a block: because of the way in
    which they call their probes, or because no site of theirs can be opened."""
    with_block = {site.signature for site in sites if site.body.preserving}
    return {
        site.signature: _no_block(site)
        for site in reversed(sites)
        if site.signature not in with_block
    }


def _no_block(site: Site) -> LeftOut:
    if site.form.closed:
        return LeftOut(site.marker, *reason_against_closed(site))
    sentence = (
        f"{site.marker} calls its probe as a C function, and a question needs the arguments in "
        "one block, as markers of the kinds jump, nop and pointer have them"
    )
    return LeftOut(site.marker, Reason.NO_QUESTION, sentence)
