"""Installing the SIGTRAP handler, step by step: what a thread would meet that traps in between."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import pytest

import markerjit.abi as abi
from markerjit.abi import CONTROL, Control, Sigaction
from markerjit.arena.trap import install_trap
from markerjit.errors import Refused
from markerjit.remote.calls import Call, CallFailed, Result, Thread
from tests.support.own_arena import OwnArena, geometry_of

OLD, SEEN = CONTROL + Control.old_trap.offset, CONTROL + Control.seen_trap.offset
SIZE = 32
PROGRAMS_OWN = 0x5555_0000


PROGRAMS_NEXT = 0x6666_0000
STEPS = 12
"""More than an installation has."""


class Killed(BaseException):
    """The controller, in the middle."""


class Moment(NamedTuple):
    """The action in force while a call is made, and what the arena says was there before."""

    action: Sigaction
    old: Sigaction


class Kernel:
    """rt_sigaction of a process, in the kernel's own order. `moments` are those between its steps,
    in which other threads run. With `fails` a call that would set an action fails. The controller
    is killed at step `killed_at`: a write, or a side of a call."""

    def __init__(self, handler: int = 0) -> None:
        self.own = OwnArena(geometry_of(ring_size=4096, max_markers=1, max_patches=16))
        self.action = Sigaction(handler=handler)
        self.fails = False
        self.moments: list[Moment] = []
        self.killed_at = 0
        self._write = self.own.store.write
        self.own.store.write = self._write_step

    def _step(self) -> None:
        self.killed_at -= 1
        if not self.killed_at:
            raise Killed

    def _write_step(self, offset: int, data: bytes) -> None:
        self._step()
        self._write(offset, data)

    def run(self, calls: Sequence[Call]) -> list[int]:
        self.note()
        self._step()
        for call in calls:
            _, new, old, _ = (int(arg) for arg in call.args if not isinstance(arg, Result))
            before = self.action
            if new:
                if self.fails:
                    raise CallFailed(call, 12, [])
                self.action = self.read(new - self.own.base)
                self.note()
            self._write(old - self.own.base, bytes(before))
            self.note()
        self._step()
        return [0] * len(calls)

    def run_alone(self, calls: Sequence[Call]) -> tuple[list[int], list[Thread]]:
        return self.run(calls), []

    def read(self, offset: int) -> Sigaction:
        return Sigaction.from_buffer_copy(self.own.store.read(offset, SIZE))

    def note(self) -> None:
        self.moments.append(Moment(self.action, self.read(OLD)))

    def chain(self, before: dict[int, int]) -> list[int]:
        """The handlers that a trap which is not ours goes through; `before` are those that the
        program's own pass on to."""
        handlers, handler = [], self.action.handler
        while handler > 1 and len(handlers) < STEPS:
            handlers.append(handler)
            handler = self.read(OLD).handler if handler == self.ours else before[handler]
        return handlers

    @property
    def ours(self) -> int:
        return int(self.own.base + self.own.arena.entry.trap)


@pytest.mark.parametrize("handler", [0, 1, PROGRAMS_OWN])
def test_no_thread_ever_meets_our_handler_with_itself_to_pass_on_to(handler: int) -> None:
    kernel = Kernel(handler)

    install_trap(kernel.own.arena, kernel)

    assert kernel.action.handler == kernel.ours
    installed = [
        moment.old.handler for moment in kernel.moments if moment.action.handler == kernel.ours
    ]
    assert installed
    assert set(installed) == {handler}


def test_an_installation_that_fails_can_be_made_again() -> None:
    kernel = Kernel(PROGRAMS_OWN)
    kernel.fails = True
    with pytest.raises(CallFailed):
        install_trap(kernel.own.arena, kernel)
    assert kernel.action.handler == PROGRAMS_OWN
    kernel.fails = False

    install_trap(kernel.own.arena, kernel)

    assert kernel.read(OLD).handler == PROGRAMS_OWN
    assert kernel.action.handler == kernel.ours


def test_a_handler_that_is_there_already_is_not_installed_again() -> None:
    kernel = Kernel(PROGRAMS_OWN)
    install_trap(kernel.own.arena, kernel)
    kernel.moments.clear()

    install_trap(kernel.own.arena, kernel)

    assert {moment.old.handler for moment in kernel.moments} == {PROGRAMS_OWN}


def test_a_handler_that_the_program_has_put_in_our_place_is_not_replaced() -> None:
    kernel = Kernel()
    install_trap(kernel.own.arena, kernel)
    kernel.action = Sigaction(handler=PROGRAMS_OWN)

    with pytest.raises(Refused, match="its own SIGTRAP handler"):
        install_trap(kernel.own.arena, kernel)
    assert kernel.action.handler == PROGRAMS_OWN


# ---- a controller that is killed -----------------------------------------------------------------


def killed_at(step: int, handler: int = PROGRAMS_OWN) -> Kernel:
    """A process whose first controller was killed at this step of the installation."""
    kernel = Kernel(handler)
    kernel.killed_at = step
    with contextlib.suppress(Killed):
        install_trap(kernel.own.arena, kernel)
    kernel.killed_at = 0
    return kernel


@pytest.mark.parametrize("step", range(1, STEPS))
@pytest.mark.parametrize("handler", [0, PROGRAMS_OWN])
def test_the_next_controller_installs_it_after_a_kill(step: int, handler: int) -> None:
    kernel = killed_at(step, handler)

    install_trap(kernel.own.arena, kernel)

    assert kernel.action.handler == kernel.ours
    assert kernel.read(OLD).handler == handler
    assert kernel.own.arena.control.now().trap_installed == abi.TRAP_INSTALLED


@pytest.mark.parametrize("step", range(1, STEPS))
def test_a_program_that_passes_on_to_ours_after_a_kill_never_goes_round(step: int) -> None:
    kernel = killed_at(step)
    replaced, kernel.action = kernel.action, Sigaction(handler=PROGRAMS_NEXT)
    before = {PROGRAMS_OWN: 0, PROGRAMS_NEXT: int(replaced.handler)}

    if replaced.handler == kernel.ours:
        with pytest.raises(Refused, match="its own SIGTRAP handler"):
            install_trap(kernel.own.arena, kernel)
    else:
        install_trap(kernel.own.arena, kernel)

    chain = kernel.chain(before)
    assert len(chain) == len(set(chain))
    assert {PROGRAMS_NEXT, PROGRAMS_OWN} <= set(chain)


def test_kills_come_before_and_after_the_call_that_installs_it() -> None:
    installed = [kernel.action.handler == kernel.ours for kernel in map(killed_at, range(1, STEPS))]

    assert {False, True} == set(installed)


def test_a_call_of_a_killed_controller_that_comes_late_does_not_lose_the_old_action() -> None:
    kernel = Kernel(PROGRAMS_OWN)
    kernel.fails = True
    with pytest.raises(CallFailed):
        install_trap(kernel.own.arena, kernel)
    kernel.fails = False
    run = kernel.run

    def run_after_a_late_one(calls: Sequence[Call]) -> list[int]:
        return run(calls * 2 if int(calls[0].args[1]) else calls)

    kernel.run = run_after_a_late_one

    install_trap(kernel.own.arena, kernel)

    assert kernel.action.handler == kernel.ours
    assert kernel.read(OLD).handler == PROGRAMS_OWN
