"""The kill matrix: every scenario of killed.py, with something going wrong at every point of it.

    python tests/races/matrix.py [--scenario GLOB]... [--fault kill|target|write|writes]
                                 [--short] [--spacing N] [--one] [--point GLOB] [--workers N]
                                 [--first KIND] [--shift N] [--still] [--sent-back] [--spoil WHAT]
                                 [--json]

For each point: a target of its own (truth_floats, its first thread of another kind each time), a
controller that meets the fault there, and then a look at everything: does the target run, are its
values right, is nobody stopped, is no signal blocked; what does `status` say; what does `repair`
do; is the code byte for byte as before or as wanted; do on, off and trace work again, with counts
that add up. What was found wrong is in `harm`, in words. Exit code 1 if anything was.

`kill` kills the controller, `target` the target; `write` makes one write fail, `writes` that one
and all later ones. `--short` takes each name of a point once or twice in each scenario, and
`--spacing 3` each name once, and a third of the rest. `--shift` gives points other kinds of first
threads. `--still` has the first thread, which is to be of kind epoll, sleep all the while;
`--sent-back` stops it, of kind nanosleep, just before each stop. `--spoil` damages the way back of
a borrowed thread, as a proof that this here sees it.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from killed import ROOT, SCENARIOS, Ending, Scenario, control, thinned, use_hooked_library
from victim import KINDS, Code, Victim

import markerjit

PROGRAM = ROOT / "build/targets/truth_floats"
EVERY = "floats_*"
BURST = 40
LISTEN_S = 60
ENDED = ("TargetGone", "NoSuchProcess")
_NOT_LOOKED_AT = ("seized", "interrupted")
"""Points at which a thread may stand whose interrupted call was not mended yet."""


class Way(NamedTuple):
    """A scenario when nothing goes wrong: its points, and code before and after."""

    points: tuple[str, ...]
    before: Code
    after: Code
    to_mend: bool


class Outcome(NamedTuple):
    """What one fault did.

    died      the controller was killed, at this point
    journal   it left a journal open       half      sites and slots neither as before nor as wanted
    borrowed  a thread was in its use      stopped   so many threads stood
    eintr     calls of the target that ended with EINTR
    repaired  what repair did: nothing, finished, rolled back, removed, switched off
    error     what the controller said     harm      what is wrong
    """

    scenario: str
    number: int
    point: str
    first: str
    died: bool
    journal: bool
    half: bool
    borrowed: bool
    stopped: int
    eintr: int
    repaired: str
    error: str
    harm: tuple[str, ...]


# ---- one fault -----------------------------------------------------------------------------------


@cache
def way_of(name: str) -> Way:
    """Do it once without a fault."""
    victim = Victim(PROGRAM, "read")
    try:
        SCENARIOS[name].prepare(victim.pid)
        to_mend = _arena_of(victim)[0]
        before = victim.code()
        ending = control(SCENARIOS[name], victim.pid)
        assert not ending.signal and not ending.error, ending
        return Way(ending.points, before, victim.code(), to_mend)
    finally:
        victim.end()


class Fault(NamedTuple):
    """What goes wrong. `first` is the kind of the target's first thread, "" for all in turn; with
    `still` it sleeps, with `sent_back` it has been stopped just before."""

    kind: str
    first: str
    shift: int
    still: bool
    sent_back: bool
    spoil: str


def meet(name: str, number: int, fault: Fault) -> Outcome:
    """Let the fault happen at point `number` (for write faults: at that write), and look."""
    scenario, way = SCENARIOS[name], way_of(name)
    turn = number + fault.shift + list(SCENARIOS).index(name)
    first = fault.first or KINDS[turn % len(KINDS)]
    victim = Victim(PROGRAM, first)
    try:
        scenario.prepare(victim.pid)
        victim.remember_places()
        if fault.kind == "target":
            return _target_killed(name, number, victim)
        others = victim.text_outside_sites()
        options: dict[str, Any] = {
            "kill": {"kill_at": number},
            "write": {"fail_at": number},
            "writes": {"fail_from": number},
        }[fault.kind]
        if fault.spoil:
            options["spoil"] = fault.spoil
        if fault.sent_back:
            options["sent_back"] = 1
        if fault.still:
            victim.be_still()
        ending = control(scenario, victim.pid, **options)
        halfway = victim.code()
        if fault.still:
            with contextlib.suppress(EOFError):  # it may have been harmed
                victim.ask("wake")
        looked = _Looked(victim, scenario, way, ending)
        looked.run(fault.kind)
        if victim.text_outside_sites() != others:
            looked.harm.append("code outside of sites has changed")
        return Outcome(
            name,
            number,
            ending.points[-1] if ending.signal else fault.kind,
            first,
            ending.signal == signal.SIGKILL and not ending.hung,
            looked.journal,
            halfway not in (way.before, way.after),
            any(victim.is_borrowed(*seen[1:]) for seen in ending.threads),
            sum(seen.state == "t" for seen in ending.threads),
            looked.eintr,
            looked.repaired,
            ending.error,
            tuple(looked.harm),
        )
    finally:
        victim.end()


class _Looked:
    """The look at a target after a controller met a fault, in the order in which it is done."""

    def __init__(self, victim: Victim, scenario: Scenario, way: Way, ending: Ending) -> None:
        self.victim = victim
        self.scenario = scenario
        self.way = way
        self.ending = ending
        self.harm: list[str] = []
        self.journal = False
        self.eintr = 0
        self.repaired = ""

    def run(self, fault: str) -> None:
        """Everything; an exception is harm, too."""
        forgiven = fault == "kill" and self.ending.points[-1] in _NOT_LOOKED_AT
        self.harm += self.victim.harm(eintr=forgiven)
        if any("the target ended" in sentence for sentence in self.harm):
            return
        try:
            self._judge_controller(fault)
            self._judge_status()
            self._repair()
            self._judge_code(fault)
            self._use_it_again()
            if fault == "kill":
                self._handle_traps_over_ours()
        except (markerjit.MarkerError, TimeoutError, EOFError, AssertionError) as error:
            self.harm.append(f"{type(error).__name__}: {error}")
        self.harm += self.victim.harm(eintr=forgiven)

    def _judge_controller(self, fault: str) -> None:
        ending = self.ending
        if ending.hung:
            self.harm.append("the controller hung")
        if ending.error.startswith("BUG"):
            self.harm.append(ending.error)
        if fault in ("write", "writes") and not ending.error:
            self.harm.append("a write failed, and the controller did not say so")
        self.eintr = self.victim.ask()["eintr"]

    def _judge_status(self) -> None:
        self.journal, to_mend = _arena_of(self.victim)
        points = Counter(self.ending.points)
        left = points["journal: opened"] - points["journal: close"]
        if left > 0 and not self.journal and self.ending.signal:
            self.harm.append("a change was in the making, and no journal is open")
        if self.journal and not to_mend:
            self.harm.append("a journal is open, and status says that nothing is to mend")
        if self.journal and not (points["journal: open"] or self.way.to_mend):
            self.harm.append("a journal is open that nobody opened")
        if self.journal and not self._is_left_paused():
            with markerjit.attach(self.victim.pid) as session:
                try:
                    session.enable(EVERY)
                except markerjit.Refused as refused:
                    if "markerjit repair" not in str(refused):
                        self.harm.append(f"refused without saying what to do: {refused}")
                else:
                    self.harm.append("a half done change was built upon")

    def _is_left_paused(self) -> bool:
        """The next controller takes such a change back. Here a repair is to do it."""
        with markerjit.View(self.victim.pid) as view:
            arena = view.arena()
        return arena is not None and arena.pause is not None

    def _repair(self) -> None:
        done = markerjit.repair(self.victim.pid)
        self.repaired = ", ".join(
            (
                done.journal,
                *(["switched off"] if done.switched_off else []),
                *(["removed"] if done.removed else []),
            )
        )
        self.harm += [f"left alone: {site}" for site in done.left_alone]
        if self.journal != (done.journal != "nothing"):
            self.harm.append(f"journal open: {self.journal}, repaired: {done.journal}")
        again = markerjit.repair(self.victim.pid)
        if again.anything:
            self.harm.append(f"the second repair found more: {again}")
        if _arena_of(self.victim)[0]:
            self.harm.append("the journal is open after the repair")

    def _judge_code(self, fault: str) -> None:
        code = self.victim.code()
        # A journal that stood open before is mended by now, so "as before" would be wrong.
        good = [self.way.after] if self.way.to_mend else [self.way.before, self.way.after]
        state = _state_of(self.victim)
        still_on = fault.startswith("write") and "STILL ON" in self.ending.error
        if code not in good and state not in self.scenario.also and not still_on:
            self.harm.append(f"neither as before nor as wanted: {state} {code}")
        if (
            fault == "write"
            and code != good[0]
            and state not in self.scenario.also
            and not still_on
        ):
            self.harm.append(f"not as it was before: {state}")
        self.harm += self.victim.tails_changed()
        descriptors, mapped = self.victim.memfds()
        with markerjit.View(self.victim.pid) as view:
            arenas = int(view.has_runtime)
        if (descriptors, mapped) != (arenas, arenas):
            self.harm.append(f"{descriptors} descriptors and {mapped} mappings, {arenas} arenas")

    def _use_it_again(self) -> None:
        """On, off and trace, and counts that add up; all is off in the end."""
        victim = self.victim
        with markerjit.attach(victim.pid) as session:
            started = victim.ask("pause")
            session.enable(EVERY)
            hits = {statistic.name: statistic.total for statistic in session.statistics()}
            victim.ask("resume")
            victim.wait_for("turns", 20)
            ended = victim.ask("pause")
            now = {statistic.name: statistic.total for statistic in session.statistics()}
            counted = now["floats_turn"] - hits["floats_turn"]
            if counted != ended["turns"] - started["turns"]:
                self.harm.append(f"{counted} counted of {ended['turns'] - started['turns']}")
            session.disable(EVERY)
            self._trace(session)
            heads = {site: victim.code().heads for site in victim.sites}
            if set(heads.values()) != {(b"\xeb\x05",) * len(victim.sites)}:
                self.harm.append(f"not dormant in the end: {heads}")
            victim.ask("resume")
        if victim.memfds() != (1, 1):
            self.harm.append(f"{victim.memfds()} descriptors and mappings of arenas")

    def _handle_traps_over_ours(self) -> None:
        """The program installs a SIGTRAP handler that passes on to what it finds, ours perhaps. A
        trap of its own comes to the handler that it had at first, once."""
        before = self.victim.ask("chain")["traps"]
        with markerjit.attach(self.victim.pid) as session:
            try:
                session.enable(EVERY, mode=markerjit.Mode.INT3)
            except markerjit.Refused as refused:
                if "its own SIGTRAP handler" not in str(refused):
                    raise
            session.disable(EVERY)
        passed = self.victim.ask("trap")["traps"] - before
        if passed != 1:
            self.harm.append(f"a trap came {passed} times to the program's own handler")

    def _trace(self, session: markerjit.Session) -> None:
        numbers: list[int] = []
        with session.trace("floats_burst") as events:
            events.keep()
            end = self.victim.ask(f"burst {BURST}")["burst"]
            deadline = time.monotonic() + LISTEN_S
            while len(numbers) < BURST and time.monotonic() < deadline:
                numbers += [event.fields["n"] for event in events.poll()]
            numbers += [event.fields["n"] for event in events.drain()]
        if numbers != list(range(end - BURST + 1, end + 1)):
            self.harm.append(f"traced {numbers}, executed {BURST} up to {end}")


def _target_killed(name: str, number: int, victim: Victim) -> Outcome:
    ending = control(SCENARIOS[name], victim.pid, kill_at=number, kill_target=1)
    harm = []
    if ending.hung:
        harm.append("the controller hung")
    if ending.signal:
        harm.append(f"the controller died of signal {ending.signal}")
    if ending.error and ending.error.split(":")[0] not in ENDED:
        harm.append(ending.error)
    later = ending.points[number:]
    # A trace ends quietly with its target; and where nobody is stopped, the last writes may be
    # faster than the end of a process that has been killed.
    quietly = any(word in name for word in ("trace", "record", "none"))
    if not ending.error and "mj_apply: call" in later and not quietly:
        harm.append("the controller did not notice")
    return Outcome(
        name,
        number,
        ending.points[number - 1] if len(ending.points) >= number else "",
        victim.first,
        died=False,
        journal=False,
        half=False,
        borrowed=any(victim.is_borrowed(*seen[1:]) for seen in ending.threads),
        stopped=sum(seen.state == "t" for seen in ending.threads),
        eintr=0,
        repaired="",
        error=ending.error,
        harm=tuple(harm),
    )


def _arena_of(victim: Victim) -> tuple[bool, bool]:
    """Whether a journal is open, and whether status names something to mend."""
    with markerjit.View(victim.pid) as view:
        arena = view.arena()
    if arena is None:
        return False, False
    return arena.writer is not None, arena.to_mend is not None


def _state_of(victim: Victim) -> str:
    with markerjit.View(victim.pid) as view:
        states = {
            f"{statistic.mode}:{statistic.probe}" if statistic.mode else "off"
            for statistic in view.statistics()
        }
        partly = any(statistic.partly for statistic in view.statistics())
    return " and ".join(sorted(states)) + (" (partly)" if partly else "")


# ---- many ----------------------------------------------------------------------------------------


def numbers_of(name: str, fault: str, short: bool) -> list[int]:
    """The points of a scenario at which the fault is to happen."""
    points = way_of(name).points
    if fault in ("write", "writes"):
        return list(range(1, points.count("write") + 1))
    everywhere = range(1, len(points) + 1)
    if not short:
        return list(everywhere)
    places = defaultdict(list)
    for number in everywhere:
        places[points[number - 1]].append(number)
    middle = {numbers[len(numbers) // 2] for numbers in places.values()}
    last = {places[name][-1] for name in ("written", "borrow: exit") if name in places}
    return sorted(middle | last)


def point_of(name: str, number: int, fault: str) -> str:
    """The name of the point at which a fault is to happen, or of the write that is to fail."""
    return f"write of {name}" if fault.startswith("write") else way_of(name).points[number - 1]


def meet_all(work: Sequence[tuple[str, int]], fault: Fault, *, workers: int) -> Iterator[Outcome]:
    """In processes beside each other, each with its share of the work."""
    children = []
    with selectors.DefaultSelector() as selector:
        for index in range(workers):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reading)
                _work(work[index::workers], writing, fault)
            os.close(writing)
            children.append(child)
            selector.register(reading, selectors.EVENT_READ, bytearray())
        while selector.get_map():
            for key, _ in selector.select():
                more = os.read(key.fd, 1 << 16)
                if not more:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                key.data.extend(more)
                while b"\n" in key.data:
                    line, _, rest = key.data.partition(b"\n")
                    key.data[:] = rest
                    fields = json.loads(line)
                    yield Outcome(*fields[:-1], tuple(fields[-1]))
    for child in children:
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit("a worker of the matrix failed")


def _work(share: Sequence[tuple[str, int]], writing: int, fault: Fault) -> NoReturn:
    code = 1
    try:
        for name, number in share:
            line = json.dumps(meet(name, number, fault))
            os.write(writing, line.encode() + b"\n")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line for each scenario, as docs/explanation/faults.md has it."""
    yield (
        "| operation | points | killed | journal open | half written | threads stopped | "
        "thread borrowed | repaired | EINTR | harmed |"
    )
    yield "| --- |" + " ---: |" * 9
    rows = {}
    for outcome in outcomes:
        rows.setdefault(outcome.scenario, []).append(outcome)
    for name, row in [*rows.items(), ("all", list(outcomes))]:
        mended = [outcome for outcome in row if outcome.repaired not in ("", "nothing")]
        numbers = (
            len(row),
            sum(outcome.died for outcome in row),
            sum(outcome.journal for outcome in row),
            sum(outcome.half for outcome in row),
            sum(outcome.stopped > 0 for outcome in row),
            sum(outcome.borrowed for outcome in row),
            len(mended),
            sum(outcome.eintr > 0 for outcome in row),
            sum(bool(outcome.harm) for outcome in row),
        )
        yield f"| {name} | " + " | ".join(map(str, numbers)) + " |"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", action="append", default=[])
    parser.add_argument("--fault", choices=("kill", "target", "write", "writes"), default="kill")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--spacing", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shift", type=int, default=0)
    parser.add_argument("--first", choices=("", *KINDS), default="")
    parser.add_argument("--one", action="store_true", help="the first of these points only")
    parser.add_argument("--still", action="store_true")
    parser.add_argument("--sent-back", action="store_true")
    parser.add_argument("--spoil", default="")
    parser.add_argument("--point", help="only points of names that match this glob", default="*")
    parser.add_argument("--json", action="store_true", help="a line for each fault")
    options = parser.parse_args()
    globs = options.scenario or ["*"]
    with tempfile.TemporaryDirectory() as cache_directory:
        os.environ["XDG_CACHE_HOME"] = cache_directory
        use_hooked_library()
        places = [
            ((name, number), point)
            for name in SCENARIOS
            if any(fnmatch.fnmatch(name, glob) for glob in globs)
            for number in numbers_of(name, options.fault, options.short)
            if fnmatch.fnmatch(point := point_of(name, number, options.fault), options.point)
        ]
        work = [*thinned(places, options.spacing)]
        outcomes = []
        if options.one:
            del work[1:]
        fault = Fault(
            options.fault, options.first, options.shift, options.still, options.sent_back,
            options.spoil,
        )  # fmt: skip
        for outcome in meet_all(work, fault, workers=min(options.workers, len(work))):
            outcomes.append(outcome)
            if options.json:
                print(json.dumps(outcome._asdict()), flush=True)
            for harm in outcome.harm:
                where = f"{outcome.number} ({outcome.point}, {outcome.first})"
                print(f"{outcome.scenario} {where}: {harm}", file=sys.stderr)
    if not options.json:
        print(
            "\n".join(
                table(sorted(outcomes, key=lambda outcome: list(SCENARIOS).index(outcome.scenario)))
            )
        )
    return int(any(outcome.harm for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
