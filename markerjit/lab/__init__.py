"""Guided experiments in sacrificial children: why live patching is hard, seen in a real process.

Each experiment is a module of its own, short enough to read. A dangerous run leaves exactly one
safety out, in a child that may die of it. A safe run uses the product's own protocols. An outcome
is always read from the child.

What this does not do: print (markerjit/cli/lab.py), or touch any process but its own children.
"""

from __future__ import annotations

import inspect
import sys

from markerjit.lab import (
    copy_on_write,
    cost,
    five_bytes,
    inside,
    killed,
    no_synchronising,
    one_byte,
    red_zone,
    registers,
    taken_away,
    two_bytes,
)
from markerjit.lab.experiment import Chart, Experiment, Outcome, Picture, Run, Tell, conduct
from markerjit.lab.processes import kill_all

__all__ = [
    "EXPERIMENTS",
    "Chart",
    "Experiment",
    "Outcome",
    "Picture",
    "Run",
    "Tell",
    "conduct",
    "kill_all",
    "source_of",
]

EXPERIMENTS = {
    experiment.letter: experiment
    for experiment in (
        one_byte.EXPERIMENT,
        two_bytes.EXPERIMENT,
        five_bytes.EXPERIMENT,
        inside.EXPERIMENT,
        no_synchronising.EXPERIMENT,
        copy_on_write.EXPERIMENT,
        taken_away.EXPERIMENT,
        red_zone.EXPERIMENT,
        cost.EXPERIMENT,
        killed.EXPERIMENT,
        registers.EXPERIMENT,
    )
}
"""All experiments, by letter."""


def source_of(experiment: Experiment) -> str:
    """The source of an experiment's module."""
    return inspect.getsource(sys.modules[experiment.conduct.__module__])
