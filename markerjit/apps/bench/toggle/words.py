"""The results of switching, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markerjit.apps.bench.sampling.figures import time_text
from markerjit.apps.bench.sampling.shapes import Measured, Part
from markerjit.apps.bench.sampling.statistics import Estimate
from markerjit.apps.bench.toggle.command import PASS, command_name
from markerjit.apps.bench.toggle.rounds import CALL, COMMAND, HELD, SLOWEST, STOPPED, Setting
from markerjit.apps.bench.toggle.ways import ASLEEP, BUSY, DEFAULT, LIBRARY, ON, WAYS, form_name

_ON = form_name(DEFAULT.name, ON)
_BY_LIBRARY = next(form_name(way.name, ON) for way in WAYS if way.door == LIBRARY)

MEASURED = (
    "How long does it take to switch the sites of a marker, and what does the program notice? A "
    "program with many sites and threads was switched on and off by each protocol and each way to "
    "keep threads from harm, in random order. A figure is the median of switches that were "
    "checked, with its 95 % interval."
)

METHOD = (
    "A program has many sites of one marker, each in a function of its own, and threads that go "
    "through them. Either all threads run, or one runs and the others sleep. Each thread reads "
    "the clock after every site, so it can notice a slow step. Every way has a process of its "
    "own. Processes that are not being switched stand at a gate. Figures of an open session are "
    "of switches that it has made before. The first switch, with its look at every site, is in "
    "the file.",
    "Each switch is checked before it counts. All bytes of the program's code are those from "
    "before the first switch, or exactly one more byte differs for each site. Hits arrive while "
    "the marker is on and stop when it is off. Every step has the right result. Before and after "
    "all rounds, one pass through all sites hits each of them once when they are on, and none "
    "when they are off.",
    "The time that the program was stopped is the controller's own: from the first thread that is"
    " interrupted to the last one that is resumed. The borrowed thread of membarrier is not in "
    "it. The slowest step is the program's own, within a window that begins with the switch. "
    "Beside it are windows of the same length in which the controller computes for as long as the"
    " first way's last switch took, and switches nothing, because on few CPUs the scheduler's "
    "pauses are longer than most stops. That switch fits into all windows of a setting. A longer "
    "switch lengthens its own window. If it does so by half in most rounds, the slowest step has "
    "no figure.",
    "Where more threads run than there are CPUs, the controller waits for its turn like any of "
    "them. This wait is most of its latency. It is not in the time that the program was stopped.",
)


def answer(parts: Sequence[Part]) -> Iterator[str]:
    """A few sentences for the least, and for the most of sites, of threads that run, and of those
    that sleep; all settings are in the plots."""
    by_setting: dict[Setting, dict[str, Part]] = {}
    for part in parts:
        setting = Setting(int(part.sites), int(part.threads), part.load)
        by_setting.setdefault(setting, {})[part.measure] = part
    for setting in _ends(list(by_setting)):
        title, by_measure = setting.title, by_setting[setting]
        text = "; ".join(_of_setting(by_measure))
        if text:
            yield f"{title}: {text}."


def _ends(settings: Sequence[Setting]) -> Sequence[Setting]:
    if not settings:
        return []
    ends = [min(settings), max(settings, key=lambda setting: setting.sites)]
    for load in (BUSY, ASLEEP):
        same = [setting for setting in settings if setting.load == load]
        ends += [max(same, key=lambda setting: setting.threads)] if same else []
    return list(dict.fromkeys(ends))


def _of_setting(parts: dict[str, Part]) -> Iterator[str]:
    if call := _form(parts, CALL, _ON):
        yield f"{_ON.replace(': ', ' ')} takes {span(call.level)} in an open session"
    if stopped := _form(parts, STOPPED, _ON):
        held = _form(parts, HELD, _ON)
        stood = f", all threads at once for {span(held.level)}" if held else ""
        yield f"the program is stopped for {span(stopped.level)}{stood}"
    if own := _form(parts, CALL, _BY_LIBRARY):
        yield f"the program itself takes {span(own.level)} with libmarkerjit"
    command, bare = (_form(parts, COMMAND, name) for name in (command_name(ON), PASS))
    if command and bare:
        yield (
            f"the whole command takes {span(command.level)}, of which a bare interpreter is "
            f"{span(bare.level)}"
        )
    if slowest := _form(parts, SLOWEST, _ON):
        yield _noticed(parts[SLOWEST], slowest)


def _noticed(part: Part, form: Measured) -> str:
    quiet = part.baseline(form).level
    if not part.differs(form):
        return (
            "the slowest step that the program notices cannot be distinguished from one without a "
            f"switch, {span(form.level)} and {span(quiet)}"
        )
    return f"the slowest step becomes {span(form.level)}, from {span(quiet)} without a switch"


def _form(parts: dict[str, Part], measure: str, name: str) -> Measured | None:
    return parts[measure].form(name) if measure in parts else None


def span(estimate: Estimate) -> str:
    """A time with its interval."""
    return f"{time_text(estimate.value)} ({time_text(estimate.low)} … {time_text(estimate.high)})"
