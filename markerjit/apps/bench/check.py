"""`markerjit bench check`: whether the bench may be believed on this machine.

The same code is measured against itself many times under different names: that has to come out as
not distinguishable, nineteen times in twenty at least. And costs that are known have to be found:
controls.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markerjit.apps.bench import results
from markerjit.apps.bench.compare import Limits, compare_objects
from markerjit.apps.bench.dormant import control, hot_objects
from markerjit.apps.bench.forms import AGAIN, BASELINE, FORMS, SAME
from markerjit.apps.bench.place import Place
from markerjit.apps.bench.plan import Plan, Progress

TIMES = 20
_NONE = next(one for one in FORMS if one.name == BASELINE)
_AGAIN = next(one for one in FORMS if one.name == AGAIN)
_FORMS = (
    _NONE,
    _AGAIN,
    *(_NONE._replace(name=f"{SAME} {n}", what="the same code") for n in range(1, TIMES + 1)),
)


def measure(plan: Plan, place: Place, progress: Progress) -> results.Found:
    """Known costs, and the same code with each number of arguments. Raises DoesNotCompile."""
    each = plan.seconds / (len(plan.args) + 1)
    parts = [control(each, plan.layouts, place, progress)]
    parts += [_same(args, each, plan, place, progress) for args in plan.args]
    return results.Found(parts, [], [])


def told(part: Mapping[str, Any]) -> str:
    """How often the same came out as the same; "" of another part."""
    verdicts = [one["verdict"] for one in part["forms"] if one["name"].startswith(SAME)]
    if not verdicts or part["noisy"]:
        return ""
    same = sum(one.startswith("not distinguishable") for one in verdicts)
    return f"{same} of {len(verdicts)} times the same code was not distinguishable from itself"


def _same(
    args: int, seconds: float, plan: Plan, place: Place, progress: Progress
) -> dict[str, Any]:
    title = f"the same code {TIMES} times: a small loop, {args} argument{'' if args == 1 else 's'}"
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        objects = hot_objects(_FORMS, args, False, plan.layouts, place, Path(name))
        found = compare_objects(objects, place, Limits(seconds), title, progress)
    return results.part("control", title, {"args": args}, found, _FORMS, {})
