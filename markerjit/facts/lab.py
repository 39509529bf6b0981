"""The experiments of the lab, and what happened in them."""

from __future__ import annotations

from markerjit.facts import Json
from markerjit.lab import Chart, Experiment, Outcome, Picture, Run


def experiment_facts(experiment: Experiment) -> Json:
    """An experiment before it is run."""
    return {
        "letter": experiment.letter,
        "title": experiment.title,
        "question": experiment.question,
        "choices": list(experiment.choices),
    }


def outcome_facts(outcome: Outcome) -> Json:
    """An experiment with its runs. `answer` is the index of the correct choice, None where the runs
    cannot tell."""
    experiment = outcome.experiment
    return {
        **experiment_facts(experiment),
        "answer": outcome.answer,
        "safe_ways_hold": outcome.safe_ways_hold,
        "runs": [_run_facts(run) for run in outcome.runs],
        "forgiven": experiment.forgiven,
        "explanation": list(experiment.explanation),
        "references": list(experiment.references),
    }


def _run_facts(run: Run) -> Json:
    facts = run._asdict()
    facts["pictures"] = [_picture_facts(picture) for picture in run.pictures]
    facts["chart"] = run.chart and _chart_facts(run.chart)
    return {**facts, "is_safe": run.is_safe, "went_well": run.went_well}


def _picture_facts(picture: Picture) -> Json:
    return {
        "caption": picture.caption,
        "address": picture.address,
        "code": picture.code.hex(),
        "assembly": picture.assembly,
    }


def _chart_facts(chart: Chart) -> Json:
    return {**chart._asdict(), "bars": [bar._asdict() for bar in chart.bars]}
