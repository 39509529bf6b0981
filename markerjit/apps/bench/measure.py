"""A whole run of the bench: the kinds of cost that are asked for, one after the other."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import markerjit
from markerjit.apps.bench.active import measure as active
from markerjit.apps.bench.active.listened import FORMS as LISTENED
from markerjit.apps.bench.course import Course, Show
from markerjit.apps.bench.dormant import check, own
from markerjit.apps.bench.dormant import measure as dormant
from markerjit.apps.bench.dormant.forms import FORMS as DORMANT
from markerjit.apps.bench.reading import measure as reading
from markerjit.apps.bench.reading.measure import FORMS as READING
from markerjit.apps.bench.sampling import kept, machine, results
from markerjit.apps.bench.sampling.build import CFLAGS, Missing
from markerjit.apps.bench.sampling.figures import counted
from markerjit.apps.bench.sampling.form import Form
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import OutOfTime, Piece, Plan, Progress
from markerjit.apps.bench.toggle import measure as toggle
from markerjit.apps.bench.toggle import once
from markerjit.apps.bench.toggle.ways import WAYS
from markerjit.errors import Refused
from markerjit.tuples import NamedTuple

_ENDING_S, _ENDING = 1.0, 0.05
"""What the end of a run takes: programs are ended and compilers asked. Of a short run a part."""
NATIVE = Path(markerjit.__file__).parent / "_native"


class Kind(NamedTuple):
    """A kind of cost: the function that measures it, which yields a result for each of its pieces,
    its share of the time, and the names of its forms. A usual kind is measured unless others are
    asked for."""

    measure: Callable[[Plan, Place, Progress], Generator[results.Measured]]
    pieces: Callable[[Plan], Iterator[Piece]]
    share: float
    forms: Sequence[str]
    is_usual: bool = True


def _alone(
    measure: Callable[[Plan, Place, Progress], results.Measured],
) -> Callable[[Plan, Place, Progress], Generator[results.Measured]]:
    """The function for a kind that has one piece."""

    def measured(plan: Plan, place: Place, progress: Progress) -> Generator[results.Measured]:
        yield measure(plan, place, progress)

    return measured


KINDS = {
    "dormant": Kind(dormant.measure, dormant.pieces, 2, [form.name for form in DORMANT]),
    "active": Kind(
        _alone(active.measure), active.pieces, 1,
        [listened.form.name for listened in LISTENED],
    ),
    "toggle": Kind(
        toggle.measure, toggle.pieces, 1, [*(way.name for way in WAYS), *once.WHATS]
    ),
    "reading": Kind(
        reading.measure, reading.pieces, 1, [form.name for form in READING], is_usual=False
    ),
    "check": Kind(check.measure, check.pieces, 1, [], is_usual=False),
}  # fmt: skip
"""All kinds of cost by name, in the order of a report."""
USUAL = tuple(name for name, kind in KINDS.items() if kind.is_usual)
_OWN = Kind(_alone(own.measure), own.pieces, 1, [form.name for form in own.FORMS])


class Run(NamedTuple):
    """A document as results.py keeps it, and the interruption that ended the run early."""

    document: dict[str, Any]
    interrupted: KeyboardInterrupt | None = None


def run(plan: Plan, show: Show, began: float | None = None) -> Run:
    """Measure. The time that was asked for is that since `began`, of the monotonic clock, and has
    room for what comes behind the last piece. The result of an interrupted run has the comparisons
    that were complete. Raises KeyboardInterrupt where none was, Refused, and DoesNotCompile."""
    if shutil.which(plan.compiler) is None:
        raise Refused(f"{plan.compiler} is not here; apt-get install gcc, or name one with --cc")
    kinds = list(_kinds(plan))
    whole = sum(kind.share for kind in kinds)
    plans = [plan._replace(seconds=plan.seconds * kind.share / whole) for kind in kinds]
    ahead = sorted(
        (
            (number, piece)
            for number, (kind, part) in enumerate(zip(kinds, plans, strict=True))
            for piece in kind.pieces(part)
        ),
        key=lambda each: each[1].rank,
    )
    course = Course(
        [piece for _, piece in ahead],
        plan.seconds - min(_ENDING_S, plan.seconds * _ENDING),
        show,
        may_leave=not plan.is_chosen,
        began=began,
    )
    by_kind = [results.Measured([], [], []) for _ in kinds]
    left: dict[int, list[str]] = {}
    interrupted = None
    load = machine.load()
    with ExitStack() as stack:
        place = stack.enter_context(place_for(plan.compiler))
        measuring = [
            stack.enter_context(
                closing(kind.measure(part._replace(grant=course.grant), place, course.tell))
            )
            for kind, part in zip(kinds, plans, strict=True)
        ]
        try:
            for number, piece in ahead:
                # A kind measures its pieces in order, so what comes after one that is left is too.
                is_left = number in left or not course.has_room(piece.steps)
                if not (piece.rank and not plan.is_chosen and is_left):
                    with suppress(OutOfTime):
                        by_kind[number] = by_kind[number].with_more(next(measuring[number]))
                        continue
                left.setdefault(number, []).append(piece.title)
                course.leave(piece.steps)
        except KeyboardInterrupt as error:
            if not any(measured.parts for measured in by_kind):
                raise
            interrupted = error
        course.end("ending the programs, and asking what the machine and its compilers are")
    result = results.Measured([], _left(left, kinds, plan.seconds), [])
    for measured in by_kind:
        result = result.with_more(measured)
    kept.tidy()
    compilers = {
        compiler: list(CFLAGS) for compiler in dict.fromkeys([plan.compiler, *result.compilers])
    }
    facts = machine.about(compilers) | {"load": load, "load at the end": machine.load()}
    if interrupted:
        done = counted(len(result.parts), "comparison")
        facts[results.ENDED_EARLY] = f"interrupted after {done}; what comes after is not here"
    return Run(results.whole(facts, result), interrupted)


def _left(
    titles: Mapping[int, Sequence[str]], kinds: Sequence[Kind], seconds: float
) -> list[Missing]:
    """The pieces for which there was no time, by the number of their kind."""
    names = {id(kind): name for name, kind in KINDS.items()}
    why = f"{seconds:g} s do not hold it here; more --seconds, or markerjit bench"
    return [
        Missing(Form("; ".join(own), (), ""), f"{why} {names[id(kinds[number])]}")
        for number, own in titles.items()
    ]


def _kinds(plan: Plan) -> Iterator[Kind]:
    """The kinds of the plan, without those whose forms were all left out by a choice of forms.
    Raises Refused for a pattern that matches no form."""
    kinds = [KINDS[name] for name in plan.kinds or USUAL]
    if plan.source:
        kinds = [_OWN]
    names = list(dict.fromkeys(name for kind in kinds for name in kind.forms))
    for pattern in plan.only:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = "; ".join(get_close_matches(pattern, names, 3, 0.0)) or "none at all"
            raise Refused(f"--only {pattern}: no form has that name; the nearest are {near}")
    for kind in kinds:
        matches = (fnmatchcase(name, pattern) for name in kind.forms for pattern in plan.only)
        if not plan.only or not kind.forms or any(matches):
            yield kind


@contextmanager
def place_for(compiler: str) -> Iterator[Place]:
    """The folders and the CPU of a run. The objects that are built there are removed at the end."""
    with tempfile.TemporaryDirectory(prefix="markerjit-bench-") as name:
        yield Place(
            NATIVE / "bench", NATIVE / "include", NATIVE / "bench", Path(name), compiler,
            machine.quiet_cpu(),
        )  # fmt: skip
