"""The code of an event that is a step of an allocator.

It computes the numbers of the step (called.py), and has the runtime take it
(native/src/runtime/heap.c). A struct mj_pairing behind the code describes the step.
"""

from __future__ import annotations

from markerjit.abi import TIME_MONOTONIC, TIME_TSC, Pairing
from markerjit.errors import BadQuestion
from markerjit.model import RemoteAddress, Signature
from markerjit.patch.request import HeapStep
from markerjit.probes.asking import known_of, scope_of_marker
from markerjit.probes.called import Runtime, code_of_call, draft_of_call, numbers_of
from markerjit.probes.question import QuestionCode
from markerjit.questions import Lack
from markerjit.questions.selection import Selection, select_again

BLOCK, ASKED, CALLER, STACK, HEADER = "block", "asked", "caller", "stack", "header"
"""Names of the numbers of a step. The first three are always there, in this order."""


def selection_of(signature: Signature, probe: HeapStep) -> Selection:
    """The numbers of a step that the events of a marker are. Raises BadQuestion."""
    selection = select_again(probe.select, scope_of_marker(signature))
    if isinstance(selection, Lack):
        raise BadQuestion(f"{signature.name} has no field {selection.name}", probe.select, 0, 0)
    return selection


def code_of(
    signature: Signature, probe: HeapStep, marker: RemoteAddress, runtime: Runtime
) -> QuestionCode:
    """The code of a marker whose entry is at `marker`. Raises BadQuestion and Unsupported."""
    selection = selection_of(signature, probe)
    names = [each.name for each in selection]
    numbers = numbers_of([each.node for each in selection])
    known = known_of(signature, runtime.process, runtime.careful)
    how = Pairing(
        marker=marker,
        time=TIME_TSC if probe.counter else TIME_MONOTONIC,
        step=dict(probe.kinds)[signature.name],
        gives=probe.gives,
        stack_at=names.index(STACK) + 1 if STACK in names else 0,
        header_at=names.index(HEADER) + 1 if HEADER in names else 0,
    )
    draft = draft_of_call(None, numbers, known)
    return code_of_call(draft, runtime, runtime.pair, bytes(how))
