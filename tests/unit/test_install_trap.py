"""Installing the SIGTRAP handler, step by step: what a thread would meet that traps in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from markerjit.abi import CONTROL, Control, Sigaction
from markerjit.arena.trap import install_trap
from markerjit.errors import Refused
from markerjit.remote.calls import Call, CallFailed, Result, Thread
from tests.support.own_arena import OwnArena, geometry_of

OLD, SEEN = CONTROL + Control.old_trap.offset, CONTROL + Control.seen_trap.offset
SIZE = 32
PROGRAMS_OWN = 0x5555_0000


class Moment(NamedTuple):
    """The action in force while a call is made, and what the arena says was there before."""

    action: Sigaction
    old: Sigaction


class Kernel:
    """rt_sigaction of a process, in the kernel's own order. `moments` are those between its steps,
    in which other threads run. With `fails` a call that would set an action fails."""

    def __init__(self, handler: int = 0) -> None:
        self.own = OwnArena(geometry_of(ring_size=4096, max_markers=1, max_patches=16))
        self.action = Sigaction(handler=handler)
        self.fails = False
        self.moments: list[Moment] = []

    def run(self, calls: Sequence[Call]) -> list[int]:
        self.note()
        for call in calls:
            _, new, old, _ = (int(arg) for arg in call.args if not isinstance(arg, Result))
            before = self.action
            if new:
                if self.fails:
                    raise CallFailed(call, 12, [])
                self.action = self.read(new - self.own.base)
                self.note()
            self.own.store.write(old - self.own.base, bytes(before))
            self.note()
        return [0] * len(calls)

    def run_alone(self, calls: Sequence[Call]) -> tuple[list[int], list[Thread]]:
        return self.run(calls), []

    def read(self, offset: int) -> Sigaction:
        return Sigaction.from_buffer_copy(self.own.store.read(offset, SIZE))

    def note(self) -> None:
        self.moments.append(Moment(self.action, self.read(OLD)))

    @property
    def ours(self) -> int:
        return int(self.own.base + self.own.arena.entry.trap)


@pytest.mark.parametrize("handler", [0, 1, PROGRAMS_OWN])
def test_no_thread_ever_meets_our_handler_with_itself_to_pass_on_to(handler: int) -> None:
    kernel = Kernel(handler)

    install_trap(kernel.own.arena, kernel)

    assert kernel.action.handler == kernel.ours
    installed = [one.old.handler for one in kernel.moments if one.action.handler == kernel.ours]
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

    assert {one.old.handler for one in kernel.moments} == {PROGRAMS_OWN}


def test_a_handler_that_the_program_has_put_in_our_place_is_not_replaced() -> None:
    kernel = Kernel()
    install_trap(kernel.own.arena, kernel)
    kernel.action = Sigaction(handler=PROGRAMS_OWN)

    with pytest.raises(Refused, match="its own SIGTRAP handler"):
        install_trap(kernel.own.arena, kernel)
    assert kernel.action.handler == PROGRAMS_OWN
