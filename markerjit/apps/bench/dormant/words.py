"""The results of a run in sentences: the answer, the peers that are cheaper, and the method."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markerjit.apps.bench.dormant import knee
from markerjit.apps.bench.report.plots import interval
from markerjit.apps.bench.sampling.core import METHOD as OF_CORE
from markerjit.apps.bench.sampling.figures import counted
from markerjit.apps.bench.sampling.shapes import OURS, PEERS, Measured, Part, Report

DEFAULT = "jump"
"""The default mode of marker.h."""
_SHOWN = 0.005
"""Half of the last digit that is shown, in ns. A smaller difference is not called better."""
_NO_ARGUMENTS = "5-byte no-op"


def measured(report: Report) -> str:
    """The forms that were compared, in a paragraph."""
    parts = [part for part in report.parts if part.kind != "control"]
    forms = {form.name: form.group for part in parts for form in part.forms}
    ours, peers = ([name for name, group in forms.items() if group == side]
                   for side in (OURS, PEERS))  # fmt: skip
    if not ours:
        return "Nothing was measured."
    against = f", and {counted(len(peers), 'peer')} ({_listed(peers)})," if peers else ""
    return (
        "How much does a marker that is off slow a program down? "
        f"{counted(len(ours), 'form')} of a markerjit marker ({_listed(ours)}){against} were each "
        "put into the same source, and run against that source without a marker, in "
        f"{counted(len(parts), 'setting')}. A figure is what a form adds to one execution "
        "of its place, with its 95 % interval."
    )


def answer(report: Report) -> Iterator[str]:
    """A sentence or two for each setting. Of the settings with many sites, only those with the
    fewest and the most are included."""
    large = sorted(
        (part for part in report.parts if part.kind == "large"), key=lambda part: part.sites
    )
    for part in report.parts:
        if part.kind not in ("large", "control"):
            yield _of_part(part)
    for part in large[:1] + large[1:][-1:]:
        yield _of_part(part)
    if sentence := knee.sentence(knee.points(report)):
        yield sentence


def _of_part(part: Part) -> str:
    if part.noisy:
        return f"{_capital(part.title)}: {part.noisy}."
    ours = sorted(_group(part, OURS), key=_value)
    if not ours:
        return f"{_capital(part.title)}: no form of markerjit was measured."
    cheapest, costliest = ours[0], ours[-1]
    sentences = []
    if default := part.form(DEFAULT):
        sentences.append(f"{DEFAULT}, the default, {_costs(part, default)}")
    if cheapest.name != DEFAULT:
        sentences.append(
            f"the cheapest form of markerjit, {cheapest.name}, {_costs(part, cheapest)}"
        )
    if costliest.name != DEFAULT and costliest is not cheapest:
        sentences.append(f"the most expensive, {costliest.name}, {_costs(part, costliest)}")
    return f"{_capital(part.title)}: {'; '.join(sentences)}."


def _costs(part: Part, form: Measured) -> str:
    if not part.differs(form):
        return f"cannot be told from {form.baseline}, {interval(form.cost)} ns"
    return f"costs {interval(form.cost)} ns"


def better(report: Report) -> Iterator[str]:
    """A sentence for each setting in which the interval of a peer is below ours. Without one, a
    sentence that says so, or that the measurement cannot tell."""
    compared = [part for part in report.parts if _group(part, OURS) and _group(part, PEERS)]
    if not compared:
        return
    if all(part.noisy for part in compared):
        yield "The noise is too great to tell whether a peer is cheaper."
        return
    sentences = [sentence for part in report.parts if not part.noisy for sentence in _better(part)]
    yield from sentences
    if not sentences:
        noisy = sum(bool(part.noisy) for part in compared)
        untold = f"; in {noisy} of {len(compared)} settings it cannot be told" if noisy else ""
        yield (
            "No peer is cheaper than the cheapest form of markerjit, or than its default, by more "
            f"than the noise{untold}."
        )
    if any(_NO_ARGUMENTS in sentence for sentence in sentences):
        yield (
            f"The {_NO_ARGUMENTS} is a no-op and nothing else. No argument is kept at hand for "
            "it, and no way leads to a call behind it. It shows the least cost of any such "
            "place, and is not a tracer."
        )


def _better(part: Part) -> Iterator[str]:
    ours = sorted(_group(part, OURS), key=_value)
    peers = sorted(_group(part, PEERS), key=_value)
    default = part.form(DEFAULT)
    if not ours or not peers:
        return
    than_all = [peer for peer in peers if all(_is_cheaper(peer, mine, part) for mine in ours)]
    if than_all:
        yield (
            f"{_capital(part.title)}: {_with_costs(than_all)}: cheaper than every form of "
            f"markerjit, of which {ours[0].name} is the cheapest with {interval(ours[0].cost)} ns."
        )
    than_default = [
        peer for peer in peers
        if default and peer not in than_all and _is_cheaper(peer, default, part)
    ]  # fmt: skip
    if default and than_default:
        yield (
            f"{_capital(part.title)}: {_with_costs(than_default)}: cheaper than {DEFAULT}, the "
            f"default, with {interval(default.cost)} ns, but not than every form of markerjit."
        )


def _is_cheaper(form: Measured, other: Measured, part: Part) -> bool:
    """Whether the interval of `form` is below that of `other`, by more than the noise."""
    return other.cost.low - form.cost.high > max(part.floor, _SHOWN)


METHOD = (
    "All variants of a setting are one source, built by one compiler with the same options, "
    "except those that choose the form. Variants that need clang are compared with clang's code "
    "for the same source without a marker. Every figure is a difference to its own baseline, and "
    "so are those that are compared across compilers.",
    "One process loads all variants and runs them on one CPU. In a round each runs once in each "
    "of its layouts (the same code at other addresses), the forms of a layout one after the other"
    " in random order, for about 0.2 ms. The least of 3 repeats counts, because interruptions "
    "only add.",
    OF_CORE,
    "A difference is taken within its round. The estimate is the median over rounds and then the "
    "mean over layouts, because layout alone moves results, and no layout is the right one. The "
    "interval allows for both, by bootstrap over rounds and by Student's t over layouts, since a "
    "few layouts are a small sample of all possible ones. Where layouts differ, the interval is "
    "wide.",
    "The same code, built once more under another name, is measured, too. Its difference from "
    "itself is the noise floor. It stands at the same places as the first, so the effect of "
    "another layout is in the intervals and not in the floor. The floor is at least 0.3 % of the "
    "baseline, because known costs were measured wrong by that much. A form whose interval "
    "contains zero, or whose difference is within the floor, is reported as not distinguishable. "
    "That is not the same as free.",
    "No verdict is given at all if a plain call does not stand out of the noise, if the times of "
    "the code without a marker are spread by more than their median, or if it differs from itself"
    " by more than half of it.",
    "Instructions are counted while the code runs, by callgrind. Hot bytes are those of the "
    "instructions that run in each round. The small loop has everything in the caches and favours"
    " every form. The many sites are visited in an order without a pattern, which favours none. A"
    " real program is somewhere between.",
)
"""The method, in paragraphs."""


def _group(part: Part, group: str) -> list[Measured]:
    return [form for form in part.forms if form.group == group]


def _value(form: Measured) -> float:
    return form.cost.value


def _with_costs(forms: Iterable[Measured]) -> str:
    return _listed([f"{form.name} {interval(form.cost)} ns" for form in forms])


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
