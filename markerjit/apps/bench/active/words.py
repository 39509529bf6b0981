"""The results of a run with listeners in sentences, and the method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markerjit.apps.bench.active.listened import COUNT, EMPTY, FORMS, RECORD
from markerjit.apps.bench.sampling.core import METHOD as OF_CORE
from markerjit.apps.bench.sampling.figures import figure, times
from markerjit.apps.bench.sampling.form import FUNCTION
from markerjit.apps.bench.sampling.shapes import OURS, PEERS, Measured, Part

_MODE = "jump"
"""The default mode of marker.h."""
_DOES = {EMPTY: "with an empty probe", COUNT: "counting", RECORD: "recording"}
_JOBS = {form.form.name: form.does for form in FORMS}
_TO = {COUNT: "count", RECORD: "record"}


def measured(parts: Sequence[Part]) -> str:
    """The forms that were compared."""
    peers = dict.fromkeys(form.name.split(",")[0] for part in parts for form in part.forms
                          if form.group == PEERS)  # fmt: skip
    against = f" The peers are {_listed(list(peers))}." if peers else ""
    return (
        "How much does a marker that is on slow a program down? A figure is the cost of one "
        "execution of its place above the same loop without a marker, for each thread, by the "
        f"way in which the place is patched and by the work that is done there.{against}"
    )


def answer(parts: Sequence[Part]) -> Iterator[str]:
    """Sentences with the costs, for each number of threads."""
    for part in parts:
        text = " ".join(filter(None, [_of_default(part), *(_beside(part, job) for job in _TO)]))
        yield f"{_threads(part)}: {part.noisy or text or 'nothing of markerjit was measured.'}"


def better(parts: Sequence[Part]) -> Iterator[str]:
    """The peers that cost less than a form of ours that does the same."""
    for job in _TO:
        sentences = [
            sentence for part in parts if not part.noisy for sentence in _better(part, job)
        ]
        yield from sentences
        compared = [part for part in parts if _doing(part, job, OURS) and _doing(part, job, PEERS)]
        noisy = [part for part in compared if part.noisy]
        if sentences or not compared:
            continue
        if len(noisy) == len(compared):
            yield f"To {_TO[job]}: the noise is too great to tell whether a peer is cheaper."
            continue
        threads = _listed([_threads(part) for part in noisy])
        untold = f"; of {threads} it cannot be told" if noisy else ""
        yield (
            f"To {_TO[job]}, no peer is cheaper than any form of markerjit by more than the noise"
            f"{untold}."
        )


METHOD = (
    "Each form is a loop of a program that was started before. Each listener (markerjit, the "
    "kernel, a debugger) is switched on once and stays on. A debugger has a program of its own, "
    "with the same loops. In each round each form runs in each layout, in random order, in "
    "threads that are bound to a CPU each and begin together. It runs for as many executions as "
    "take about 0.2 ms, but never for less than four. The least of 3 repeats counts. A figure is "
    "the mean over the threads.",
    OF_CORE,
    "Each listener counts. At the end its count must be equal to the executions of the loops. If "
    "it is not, there is no figure. The record is two ints, time and thread id. The ring is "
    "drained between runs and was filled once before, so that nothing is lost and its pages are "
    "present. A flight recorder overwrites its ring.",
    "Places for peers are no-ops, which are the cheapest places for them. The kernel emulates a "
    "one-byte no-op behind its breakpoint. Since Linux 6.18 it may replace a five-byte one by a "
    "call, without a breakpoint. Our own ptrace tracer only reads one register and lets the "
    "thread go on behind the no-op. Beside one thread the tracer is bound to that thread's CPU, "
    "where it is cheapest. Beside several threads the kernel places it. Take the figure of gdb as"
    " an order of magnitude.",
    "An empty probe in C costs more than the counter. The runtime saves the registers for it, and "
    "counts the threads that enter and leave the probe, on each CPU, so that the probe can be "
    "removed safely.",
)
"""The method, in paragraphs."""


def _threads(part: Part) -> str:
    number = f"{part.threads:.0f}"
    return f"{number} thread" if number == "1" else f"{number} threads, each on a CPU"


def _of_default(part: Part) -> str:
    costs = [
        f"{_cost(form)} {_DOES[job]}"
        for job in _DOES
        if (form := part.form(f"{_MODE}, {'empty probe' if job == EMPTY else job}"))
    ]
    return f"{_MODE}, the default, costs {_listed(costs)}." if costs else ""


def _beside(part: Part, job: str) -> str:
    """The forms that do the same, each with its cost as a multiple."""
    base = part.form(f"{_MODE}, {job}")
    if base is None or not part.differs(base) or base.cost.low <= 0:
        return ""
    peers = [*_doing(part, job, PEERS), *(form for form in [part.form(f"int3, {job}")] if form)]
    costs = [
        f"{_short(form)} {figure(form.cost.value)} ns "
        f"({times(form.cost.value / base.cost.value)} times as much)"
        for form in sorted(peers, key=_value)
        if part.differs(form)
    ]
    return f"To {_TO[job]}, {'; '.join(costs)}." if costs else ""


def _better(part: Part, job: str) -> Iterator[str]:
    """A sentence for each of our forms for which a cheaper peer does the same."""
    for own in _doing(part, job, OURS):
        cheaper = [
            form
            for form in sorted(_doing(part, job, PEERS), key=_value)
            if own.cost.low - form.cost.high > part.floor and part.differs(own)
        ]
        if cheaper:
            costs = _listed([f"{_short(form)} {_cost(form)}" for form in cheaper])
            yield f"{_threads(part)}: {costs}, less than {own.name} with {_cost(own)}."


def _doing(part: Part, job: str, group: str) -> list[Measured]:
    """The forms that do a job, without functions, which are compared only with each other."""
    forms = [form for form in part.forms if not form.name.startswith(FUNCTION)]
    return [form for form in forms if form.group == group and _JOBS.get(form.name) == job]


def _value(form: Measured) -> float:
    return form.cost.value


def _short(form: Measured) -> str:
    """The name of a form without its job, and without a comma."""
    name = form.name.removesuffix(f", {COUNT}").removesuffix(f", {RECORD}")
    return name.replace(", ", " at a ")


def _cost(form: Measured) -> str:
    cost = form.cost
    return f"{figure(cost.value)} ns ({figure(cost.low)} … {figure(cost.high)})".replace("-", "−")


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
