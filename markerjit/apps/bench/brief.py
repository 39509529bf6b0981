"""A brief run of the bench, of some seconds, for the lab: the cost of a dormant site.

It needs no compiler. Its loops were compiled with the product, from the bench's source, in the
forms and layouts that a run with a compiler would have. The bench measures, and has the statistics.

    python -m markerjit.apps.bench.brief PARENT SECONDS

A program of its own, which ends with its parent. It prints `progress PERCENT` now and then, and at
last `result` with a document in JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from markerjit.apps.bench.dormant.forms import FORMS
from markerjit.apps.bench.measure import NATIVE
from markerjit.apps.bench.sampling import machine, results
from markerjit.apps.bench.sampling.build import Object, file_name
from markerjit.apps.bench.sampling.compare import Comparison, Limits, compare_objects
from markerjit.apps.bench.sampling.form import AGAIN, BASELINE, CALL
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Progress
from markerjit.apps.bench.sampling.results import Measured
from markerjit.apps.bench.sampling.shapes import report
from markerjit.errors import MarkerError

LAYOUTS = 8
NAMES = (BASELINE, AGAIN, "jump", "5-byte no-op", CALL)
BRIEF_FORMS = tuple(form for form in FORMS if form.name in NAMES)
BUILT = NATIVE / "bench" / "brief"
_TITLE = "a small loop, 2 arguments, which the loop needs anyway"
_PR_SET_PDEATHSIG = 1


def objects() -> list[Object]:
    """The loops. Raises MarkerError where they were not built."""
    built = [
        Object(form, layout, BUILT / f"hot-{file_name(form)}-{layout}.so")
        for form in BRIEF_FORMS
        for layout in range(LAYOUTS)
    ]
    for each in built:
        if not each.path.is_file():
            raise MarkerError(
                f"{each.path.name} is not built; run make native, or install the package again"
            )
    return built


def measure(seconds: float, progress: Progress) -> dict[str, Any]:
    """Measure for this time. Raises MarkerError where the loops cannot be run."""
    place = Place(
        NATIVE / "bench", NATIVE / "include", NATIVE / "bench", Path(), "", machine.quiet_cpu()
    )
    # No interval is so narrow that it ends the run: each run takes the same time.
    return facts(compare_objects(objects(), place, Limits(seconds, 0), _TITLE, progress))


def facts(comparison: Comparison) -> dict[str, Any]:
    """The result of a comparison, in ns for an iteration of the loop. `differs` follows the
    verdict."""
    part = results.part("hot", _TITLE, {"args": 2}, comparison, BRIEF_FORMS, {})
    (checked,) = report(results.whole({}, Measured([part], [], []))).parts
    layouts, rounds = checked.forms[0].samples.shape
    return {
        "layouts": layouts,
        "rounds": rounds,
        "executions": comparison.executions,
        "level": checked.forms[0].level._asdict(),
        "floor": checked.floor,
        "noisy": checked.noisy,
        "forms": [
            {"name": form.name, **form.cost._asdict(), "differs": checked.differs(form)}
            for form in checked.forms
        ],
    }


def main() -> None:
    """Measure and print the result. The process is killed when the parent dies."""
    parent, seconds = int(sys.argv[1]), float(sys.argv[2])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that call
        os._exit(1)
    try:
        result = measure(seconds, lambda _, done: _say(f"progress {100 * done:.0f}"))
    except MarkerError as error:
        sys.exit(f"{error}")
    _say(f"result {json.dumps(result)}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
