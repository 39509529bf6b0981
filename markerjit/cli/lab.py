"""`markerjit lab list|run|source`: experiments, each with a question before and a picture after.

With --web the same in a browser.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from markerjit.cli import arguments, browser, output, signals
from markerjit.cli.chart import chart_lines
from markerjit.errors import MarkerError
from markerjit.facts.lab import experiment_facts, outcome_facts
from markerjit.lab import EXPERIMENTS, Experiment, Outcome, Picture, Run, conduct, source_of

_WIDTH = 80
_INDENT = "  "
_TITLE, _SAFE, _DANGEROUS, _ANSWER = "1", "32", "31", "1"  # of ECMA-48: bold, green, red, bold
_CHOICES = "123456789"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        choices=("list", "run", "source"),
        help="list: the experiments; run: run some; source: print the source of some",
    )
    parser.add_argument("letters", metavar="LETTER", nargs="*", help="the letters of experiments")
    parser.add_argument("--all", action="store_true", help="every experiment")
    parser.add_argument("--no-ask", action="store_true", help="do not ask for a prediction")
    arguments.add_json(parser)
    arguments.add_web(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """List, run or show experiments. The exit code is 1 where a way with all its safeties did not
    go well."""
    if options.web == bool(options.action):
        raise MarkerError("name an action (list, run or source), or --web")
    if options.web:
        return _run_in_browser(options)
    if options.action == "list":
        return _list(options)
    if options.all == bool(options.letters):
        raise MarkerError("name the experiments, or --all; `markerjit lab list` has them")
    experiments = list(EXPERIMENTS.values()) if options.all else _chosen(options.letters)
    return _source(experiments) if options.action == "source" else _run(experiments, options)


def _run_in_browser(options: argparse.Namespace) -> int:
    browser.check()
    from concurrent.futures import ThreadPoolExecutor

    from markerjit.web.lab import Lab

    with signals.Held() as held, ThreadPoolExecutor(1) as thread:
        browser.serve(Lab(thread), options.port, lambda: held.code)
    return held.code


def _list(options: argparse.Namespace) -> int:
    if options.json:
        output.print_json(
            {"experiments": [experiment_facts(each) for each in EXPERIMENTS.values()]}
        )
        return 0
    for experiment in EXPERIMENTS.values():
        output.say(f"{experiment.letter}  {experiment.title}")
    return 0


def _source(experiments: Sequence[Experiment]) -> int:
    for experiment in experiments:
        for line in source_of(experiment).splitlines():
            output.say(line)
    return 0


def _run(experiments: Sequence[Experiment], options: argparse.Namespace) -> int:
    if options.json:
        outcomes = [_conduct(experiment) for experiment in experiments]
        output.print_json({"experiments": [outcome_facts(outcome) for outcome in outcomes]})
    else:
        page = _Page()
        outcomes = []
        for experiment in experiments:
            page.ask(experiment)
            prediction = None if options.no_ask else _prediction(experiment)
            outcomes.append(_conduct(experiment))
            page.show(outcomes[-1], prediction)
    return 0 if all(outcome.safe_ways_hold for outcome in outcomes) else 1


def _chosen(letters: Sequence[str]) -> list[Experiment]:
    for letter in letters:
        if letter not in EXPERIMENTS:
            raise MarkerError(f"there is no experiment '{letter}'; `markerjit lab list` has them")
    return [EXPERIMENTS[letter] for letter in letters]


def _prediction(experiment: Experiment) -> int | None:
    """The index of the choice that the user predicts; None where nobody is there to be asked."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    allowed = _CHOICES[: len(experiment.choices)]
    while True:
        try:
            answer = input(f"Your prediction ({', '.join(allowed)}; Enter for none): ").strip()
        except EOFError:
            output.say("")
            return None
        if not answer:
            return None
        if len(answer) == 1 and answer in allowed:
            return allowed.index(answer)


def _conduct(experiment: Experiment) -> Outcome:
    """Run an experiment, with a line of progress on a terminal."""
    last = ""

    def tell(name: str, tries: int, most: int) -> None:
        nonlocal last
        text = f"({experiment.letter}) {name}: {100 * tries // most}%"
        if text != last:
            output.print_progress(text)
            last = text

    if not sys.stderr.isatty():
        return conduct(experiment, lambda *_: None)
    try:
        return conduct(experiment, tell)
    finally:
        output.print_progress("")


class _Page:
    """An experiment in words, with colours by role where the output is a terminal."""

    def __init__(self) -> None:
        is_terminal = sys.stdout.isatty()
        self._coloured = output.is_coloured()
        self._width = min(shutil.get_terminal_size().columns, _WIDTH) if is_terminal else _WIDTH

    def ask(self, experiment: Experiment) -> None:
        """The question, and the choices."""
        self._say(f"({experiment.letter}) {experiment.title}", style=_TITLE)
        self._say()
        self._say(experiment.question)
        for number, choice in zip(_CHOICES, experiment.choices, strict=False):
            self._say(f"{number}. {choice}", indent=_INDENT, hanging=3)
        self._say()

    def show(self, outcome: Outcome, prediction: int | None) -> None:
        """What happened, the choice that came true, and the explanation."""
        experiment = outcome.experiment
        for run in outcome.runs:
            self._show_run(run, experiment)
        self._answer(outcome, prediction)
        self._say()
        for paragraph in experiment.explanation:
            self._say(paragraph)
            self._say()
        self._say("Read on:")
        for reference in experiment.references:
            self._say(reference, indent=_INDENT)
        self._say(f"The source: markerjit lab source {experiment.letter}")
        self._say()

    def _answer(self, outcome: Outcome, prediction: int | None) -> None:
        answer = outcome.answer
        if answer is None:
            self._say("What came true: this cannot be told from these runs.", style=_ANSWER)
            return
        choice = outcome.experiment.choices[answer]
        self._say(f"What came true: {_CHOICES[answer]}. {choice}.", style=_ANSWER)
        if prediction is not None:
            right = prediction == answer
            self._say("Your prediction was right." if right else "You predicted otherwise.")

    def _show_run(self, run: Run, experiment: Experiment) -> None:
        mark = "[safe]" if run.is_safe else "[dangerous]"
        self._say(f"{mark} {run.name}", style=_SAFE if run.is_safe else _DANGEROUS)
        if run.lacks:
            self._say(f"left out: {run.lacks}", indent=_INDENT)
        for line in _picture_lines(run.pictures):
            self._say(line, indent=_INDENT, fill=False)
        if run.chart:
            for line in chart_lines(run.chart, self._width - len(_INDENT)):
                self._say(line, indent=_INDENT, fill=False)
        for what, count in run.counts.items():
            self._say(f"{count:>13,}  {what}", indent=_INDENT, fill=False)
        self._say(run.story, indent=_INDENT)
        if not run.is_safe and run.went_well:
            self._say(f"The fault did not show up in {run.tries:,} tries. {experiment.forgiven}",
                      indent=_INDENT)  # fmt: skip
        self._say()

    def _say(
        self,
        text: str = "",
        *,
        indent: str = "",
        hanging: int = 0,
        style: str = "",
        fill: bool = True,
    ) -> None:
        lines = (
            textwrap.wrap(
                text,
                self._width,
                initial_indent=indent,
                subsequent_indent=indent + " " * hanging,
                break_on_hyphens=False,
            )
            if fill
            else [indent + text]
        )
        for line in lines or [""]:
            output.say(line, style=style if self._coloured else "")


def _picture_lines(pictures: Sequence[Picture]) -> Iterator[str]:
    captions = max((len(picture.caption) for picture in pictures), default=0)
    codes = max((len(picture.code) for picture in pictures), default=0) * 3 - 1
    for picture in pictures:
        assembly = "; ".join(picture.assembly)
        yield f"{picture.caption:<{captions}}  {picture.code.hex(' '):<{codes}}  {assembly}"
