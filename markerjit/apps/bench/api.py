"""The names that benches outside the package share with `markerjit bench`.

    compare     variants in rounds, differences with intervals, and their verdicts
    results     the file that `markerjit bench compare` reads
    report      such a file as values, and the parts of its page: drawings, the machine, the method

The other modules of the bench may change without notice. bench/real uses the names here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from markerjit.apps.bench.dormant.forms import FORMS
from markerjit.apps.bench.report import sheet, svg
from markerjit.apps.bench.report.svg import Scale, clean
from markerjit.apps.bench.sampling import machine, results
from markerjit.apps.bench.sampling.build import Missing, file_name, skips, why_missing
from markerjit.apps.bench.sampling.code import NotCounted, valgrind
from markerjit.apps.bench.sampling.compare import Comparison, is_narrow
from markerjit.apps.bench.sampling.figures import counted, noise
from markerjit.apps.bench.sampling.form import AGAIN, BASELINE, Form
from markerjit.apps.bench.sampling.shapes import NOTHING, Measured, Part, report
from markerjit.apps.bench.sampling.statistics import Estimate
from markerjit.apps.bench.table import about

if TYPE_CHECKING:
    from markerjit.apps.bench.sampling.statistics import Array as Array

__all__ = [
    "AGAIN",
    "BASELINE",
    "FORMS",
    "NOTHING",
    "Comparison",
    "Estimate",
    "Form",
    "Measured",
    "Missing",
    "NotCounted",
    "Part",
    "Scale",
    "about",
    "clean",
    "counted",
    "file_name",
    "is_narrow",
    "machine",
    "noise",
    "report",
    "results",
    "sheet",
    "skips",
    "svg",
    "valgrind",
    "why_missing",
]
