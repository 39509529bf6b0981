"""Sites that a question can be asked of, before their probes. It only reads.

Markers that do not have a name of the question are left out, as where a stored trace is asked: no
event of theirs could meet it. So are those whose bodies make an ordinary C call: the code of a
question takes its values from the block of a preserving one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markerjit.errors import Reason, Refused, Unsupported
from markerjit.model import Signature, Site
from markerjit.patch.request import Probe
from markerjit.patch.switchable import LeftOut


class Askable(NamedTuple):
    """Sites that a question can be asked of, and the other markers."""

    sites: Sequence[Site]
    left_out: tuple[LeftOut, ...] = ()


def askable(sites: Sequence[Site], probe: Probe) -> Askable:
    """The sites that the question of a probe can be asked of: all, if it has none.

    Raises BadQuestion where it is wrong in itself, or for one of the markers, Unsupported where it
    has no code, and Refused where it can be asked of none of them.
    """
    if probe.question is None:
        return Askable(sites)
    from markerjit.probes.asking import ask_markers, draft_of_question
    from markerjit.questions import Lack

    text = probe.question.text
    left_out: dict[Signature, LeftOut] = {}
    preserving = {site.signature: site.body.preserving for site in reversed(sites)}
    signatures = list(preserving)
    for signature, question in zip(signatures, ask_markers(text, signatures), strict=True):
        name = signature.name
        if isinstance(question, Lack):
            sentence = f"no event of {name} meets the condition: no {question.name}"
            left_out[signature] = LeftOut(name, Reason.NO_QUESTION, sentence)
        elif not preserving[signature]:
            sentence = (
                f"{name} calls its probe as a C function, and a question needs the arguments in "
                "one block, as markers of the kinds jump, nop and pointer have them"
            )
            left_out[signature] = LeftOut(name, Reason.NO_QUESTION, sentence)
        else:
            try:
                draft_of_question(question, signature)
            except Unsupported as error:
                raise Unsupported(f"{name}: {error}") from None
    rest = [site for site in sites if site.signature not in left_out]
    if not rest:
        first = next(iter(left_out.values()))
        raise Refused(first.sentence, reason=Reason.NO_QUESTION)
    return Askable(rest, tuple(left_out.values()))
