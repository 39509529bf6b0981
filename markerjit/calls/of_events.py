"""The stacks of the events of traces, added up: for a flame graph of what was recorded.

Needs numpy, as all that reads columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from markerjit.arguments import check_all, check_callable
from markerjit.calls.samples import SampledTree, WeighedStacks
from markerjit.errors import Refused
from markerjit.frames import StackText
from markerjit.model import Field, FieldType, Value
from markerjit.ring.types import RecordType
from markerjit.trace.reading import Trace

_NONE = "[no stack]"


def weigh_stacks(
    traces: Sequence[Trace], select: Callable[[str], bool] = lambda name: True
) -> WeighedStacks:
    """The stacks of the events of traces, each with the number of events that had it, as
    `write_calls` writes them. `select` chooses markers by name. Raises Refused where no event has a
    stack (`stack` of `Session.trace`), and what reading raises."""
    check_all("traces", traces, Trace)
    check_callable("select", select)
    kinds = [kind for trace in traces for kind in trace.info.types if select(kind.marker)]
    markers = sorted({kind.marker for kind in kinds if stack_field(kind)})
    if not markers:
        raise Refused("no event of it has a stack; markerjit trace --stack records them")
    from markerjit.trace.records import values

    counts: Counter[Value] = Counter()
    for trace in traces:
        for batch in trace.batches():
            for columns in batch:
                field = stack_field(columns.type)
                if field and select(columns.type.marker):
                    counts.update(values(field, columns.fields[field.name]))
    tree = SampledTree()
    for stack, count in counts.items():
        has_frames = isinstance(stack, StackText) and bool(stack.frames)
        tree.add(StackText(stack).labels if has_frames else (_NONE,), count)
    return WeighedStacks(tree.nodes, "event", f"events of {', '.join(markers)}")


def stack_field(kind: RecordType) -> Field | None:
    """The first field that is a stack; None where records have none."""
    return next((field for field in kind.fields if field.type is FieldType.STACK), None)
