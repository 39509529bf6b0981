"""Looks at a process and switches its markers, for one live view.

A marker that the view switches on belongs to the view: `end` switches it off again unless it is to
be kept. A switch in stages and a recording of events are held until they end or the view ends. All
calls must come from one thread, because a session belongs to one thread.

What this does not do: decide when to look, or show anything. Errors are raised unchanged, and the
view shows their sentences.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress

import markerjit
from markerjit.errors import MarkerError, Refused, TargetGone
from markerjit.explain import hot_path
from markerjit.facts.plans import memory_facts, stages_facts
from markerjit.facts.process import status_facts
from markerjit.model import Mode, Seccomp, Site
from markerjit.printable import counted
from markerjit.watch.model import SLOT_WORDS, Json, Look

SITES = 3
"""The number of sites of a marker that are shown in detail."""

EVENTS = 40
"""The number of last events that are shown."""

LOOK_S = 0.5
"""The seconds from one look to the next."""

SHARE = 4
"""Looks take at most a quarter of the time: slow looks are made less often."""

STRATEGIES = ("stop", "membarrier", "none")
AS_COMPILED = "as compiled"


class Operator:
    """A session with a process, for the markers that match the pattern. `seccomp` and `breakpoints`
    are as for attaching. Raises what attaching raises, and UnknownMarker."""

    def __init__(
        self,
        pid: int,
        pattern: str = "*",
        *,
        seccomp: Seccomp | str = Seccomp.READ,
        breakpoints: bool = False,
    ) -> None:
        self._pattern = pattern
        self._mine: set[str] = set()
        self._kept: set[str] = set()
        self._change = ExitStack()
        self._stepper: markerjit.Stepper | None = None
        self._stepped, self._steps_on = "", False
        self._way: tuple[str | None, str | None] = (None, None)
        self._recording = ExitStack()
        self._recorded = ""
        self._stream: markerjit.EventStream | None = None
        self._line: Callable[[markerjit.Event], str] = str
        self._events: deque[str] = deque(maxlen=EVENTS)
        self._session = markerjit.attach(pid, seccomp=seccomp, breakpoints=breakpoints)
        self.pid = pid
        self.command = self._session.command
        try:
            self._session.sites(pattern)
        except BaseException:
            self._session.close()
            raise

    # ---- looking -------------------------------------------------------------------------------

    def look(self, name: str = "") -> Look:
        """A look at all markers, with the details of one. Raises UnknownMarker when no marker
        matches the pattern any more, and TargetGone."""
        self._go_on()
        markers = self._session.statistics(self._pattern)
        arena = self._session.arena()
        values = self._session.probe_values() if arena else ()
        sites = [site for marker in markers if marker.name == name for site in marker.sites]
        is_recorded = self._stream is not None and self._recorded == name
        return Look(
            time.monotonic(),
            status_facts(self.pid, arena, markers, values, ()),
            name,
            [self._memory(site) for site in sites[:SITES]],
            stages_facts(self._stepper) if self._stepper else None,
            tuple(self._events) if is_recorded else None,
            frozenset(self._mine),
            frozenset(self._kept),
        )

    def _memory(self, site: Site) -> Json:
        size = 8 * len(SLOT_WORDS)
        slot = self._session.read(site.slot, size) if site.slot else b""
        return memory_facts(site, hot_path(self._session, site), slot)

    def _go_on(self) -> None:
        """Renew the lease of the switch that is being made, and take the new events."""
        if self._stepper and not self._stepper.is_finished:
            try:
                self._stepper.renew()
            except Refused as refused:
                if not refused.try_again:
                    self._end_change()
                    raise
        if self._stream is not None:
            self._events.extend(map(self._line, self._stream.poll()[-EVENTS:]))
            if self._stream.is_over():
                self._end_recording()

    def modes(self, name: str) -> Sequence[str]:
        """The modes that at least one site of a marker has."""
        sites = self._session.sites(name)
        return [str(mode) for mode in Mode if any(mode in site.form.modes for site in sites)]

    # ---- switching -----------------------------------------------------------------------------

    def switch_on(self, name: str, mode: str | None, quiesce: str | None) -> str:
        """Switch a marker on, or change its mode. Returns a sentence for the user. Raises what
        `Session.enable` raises."""
        self._refuse_in_stages()
        was_on = self._is_on(name)
        applied = self._session.enable(name, mode=mode, quiesce=quiesce)
        if not was_on:
            self._mine.add(name)
        return f"{name} is on{_stopped(applied)}"

    def switch_off(self, name: str, quiesce: str | None) -> str:
        """Switch a marker off. Returns a sentence for the user. Raises what `Session.disable`
        raises."""
        self._refuse_in_stages()
        if self._recorded == name:
            self._end_recording()
        applied = self._session.disable(name, quiesce=quiesce)
        self._forget(name)
        return f"{name} is off{_stopped(applied)}"

    def step(self, name: str, mode: str | None, quiesce: str | None) -> str:
        """Make the next stage of the switch that is being made, or begin one: on in this mode, or
        off where the marker is on in this mode already. Returns a sentence for the user. Raises
        what `Session.stepping` and `Stepper.step` raise."""
        if self._stepper and not self._stepper.is_finished:
            return self._step()
        self._end_change()
        on = not self._is_on(name, mode)
        stepping = self._session.stepping(name, on=on, mode=mode if on else None, quiesce=quiesce)
        self._stepper = stepper = self._change.enter_context(stepping)
        self._way = mode, quiesce
        self._stepped, self._steps_on = name, on and not self._is_on(name)
        if stepper.is_finished:
            self._end_change()
            return f"{name} is so already: no step is to be made"
        how = "on" if on else "off"
        number = counted(len(stepper.stages.stages), "stage")
        return f"switching {name} {how} in {number}: n makes the next, u takes all back"

    def _step(self) -> str:
        stepper = self._stepper
        assert stepper is not None
        try:
            steps = stepper.step()
        except Refused as refused:
            if not refused.try_again:
                self._end_change()
            raise
        if not stepper.is_finished:
            return f"stage {stepper.done} is made: {steps[-1].proves}"
        if self._steps_on:
            self._mine.add(self._stepped)
        elif not self._is_on(self._stepped):
            self._forget(self._stepped)
        return f"all stages are made: {steps[-1].proves}"

    def take_back(self) -> str:
        """Take back the switch that is being made in stages. Returns a sentence for the user."""
        if not self._stepper or self._stepper.is_finished:
            return "nothing is being made in stages"
        left_alone = self._stepper.take_back()
        self._end_change()
        return "; ".join(left_alone) or "the change is taken back; all bytes are as they were"

    def go_to(self, stage: int) -> str:
        """Bring the switch that is being made to this stage, forward or back. To go back, all
        stages are taken back, and the first ones are made again. Returns a sentence for the user.
        Raises what `step` raises, Refused once all stages are made, and ValueError where there is
        no such stage."""
        stepper = self._stepper
        if stepper is None:
            return "nothing is being made in stages"
        if not 0 <= stage <= len(stepper.stages.stages):
            raise ValueError(f"there is no stage {stage}")
        if stepper.is_finished:
            raise Refused("all stages are made, and the change is whole: n begins the way back")
        sentence = f"stage {stage} is where the change stands"
        if stage < stepper.done:
            name, way = self._stepped, self._way
            sentence = self.take_back()
            self.step(name, *way)
        while self._stepper and self._stepper.done < stage:
            sentence = self._step()
        return sentence

    def keep(self, name: str) -> str:
        """Choose whether a marker that the view has switched on stays on when the view ends; each
        call changes the choice. Returns a sentence for the user."""
        if name not in self._mine:
            return f"{name} was not switched on by this view, which leaves it as it is"
        self._kept ^= {name}
        return f"{name} {'stays on' if name in self._kept else 'goes off'} when this view ends"

    def record(self, name: str, mode: str | None, quiesce: str | None) -> str:
        """Begin to record the events of a marker, or end their recording. Returns a sentence for
        the user. Raises what `Session.trace` raises."""
        self._refuse_in_stages()
        recorded = self._recorded
        self._end_recording()
        if recorded and recorded == name:
            return f"the events of {name} are recorded no more"
        trace = self._session.trace(name, mode=mode, quiesce=quiesce)
        self._stream = self._recording.enter_context(trace)
        self._recorded = name
        self._line = markerjit.line_formatter(self._stream.fields, clock=self._stream.clock())
        return f"the events of {name} are recorded while it is on; e ends that"

    # ---- the end -------------------------------------------------------------------------------

    def end(self) -> list[str]:
        """Take back an unfinished switch, end the recording, and switch off the markers that the
        view has switched on, except those to be kept. Returns a sentence for each failure, and for
        each marker that stays on."""
        left = []
        with suppress(TargetGone):
            for tidy in (self._end_change, self._end_recording):
                try:
                    tidy()
                except TargetGone:
                    raise
                except MarkerError as error:
                    left.append(str(error))
            left += self._switch_off_mine()
        self._session.close()
        return left

    def _switch_off_mine(self) -> Iterable[str]:
        for name in sorted(self._mine):
            if name in self._kept:
                yield f"{name} stays on, as you asked"
                continue
            try:
                if any(marker.by == os.getpid() for marker in self._session.statistics(name)):
                    self._session.disable(name)
            except TargetGone:
                raise
            except MarkerError as error:
                yield f"{name} stays on: {error}"

    def _end_change(self) -> None:
        self._stepper = None
        self._change.close()

    def _end_recording(self) -> None:
        self._stream, self._recorded = None, ""
        self._events.clear()
        self._recording.close()

    def _refuse_in_stages(self) -> None:
        if self._stepper and not self._stepper.is_finished:
            raise Refused("a switch is being made in stages: n goes on with it, u takes it back")
        self._end_change()

    def _forget(self, name: str) -> None:
        self._mine.discard(name)
        self._kept.discard(name)

    def _is_on(self, name: str, mode: str | None = None) -> bool:
        """Whether a marker is on in all its formats, in this mode if one is given."""
        return all(
            marker.mode is not None and mode in (None, str(marker.mode))
            for marker in self._session.statistics(name)
        )


def _stopped(applied: markerjit.Applied) -> str:
    """The end of a sentence about a switch: how long its threads were stopped."""
    if not applied.threads:
        return "" if applied.written else "; nothing had to be written"
    stopped_us = (applied.stop + applied.held + applied.resume) / 1000
    return f"; {counted(applied.threads, 'thread')} stood for at most {stopped_us:.0f} µs"
