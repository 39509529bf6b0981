"""The SIGTRAP action of a process: the runtime's handler, put there before the first breakpoint.

It keeps the action that the program had before, and passes on to it what is not ours. Where an
older arena is in the process, that action is its handler, which still knows its own breakpoints: a
thread on its way into it, and a child of a fork that was made while they stood, find their way
through both. It passes on in its turn to what the program had at first.
"""

from __future__ import annotations

import markerjit.abi as abi
from markerjit.arena.arena import Arena
from markerjit.remote.calls import SYS_RT_SIGACTION, Call, Caller
from markerjit.remote.outcome import other_trap

_SIGTRAP = 5
_SIGACTION_SIZE = 32
_SA_SIGINFO, _SA_RESTORER, _SA_ONSTACK, _SA_RESTART = 4, 0x04000000, 0x08000000, 0x10000000
# SIGTRAP is not blocked while it is handled: a signal handler may interrupt ours and come to a
# breakpoint itself, and the kernel kills a process whose blocked SIGTRAP it has to deliver.
_SA_NODEFER = 0x40000000
_TRAP_FLAGS = _SA_SIGINFO | _SA_RESTORER | _SA_ONSTACK | _SA_RESTART | _SA_NODEFER


def install_trap(arena: Arena, caller: Caller) -> None:
    """Make the runtime's handler the action for SIGTRAP, keeping the old one to pass on to.

    It stays: a thread may be on its way into it at any moment. But the program may have put another
    in its place since, so it is looked at before each use. Raises Refused then: that one may pass
    on to ours, and ours to it would go round for ever.

    A controller that was killed here leaves `trap_installed` as INSTALLING. Whether the kernel has
    made the call is then in the flags of `old_trap`, which the kernel writes in that call.
    """
    seen, old = arena.control.offset("seen_trap"), arena.control.offset("old_trap")
    caller.run([_sigaction_call(0, arena.base + seen)])
    ours = arena.base + arena.entry.trap
    seen_action = _action(arena, seen)
    if seen_action.handler == ours:
        arena.control.write("trap_installed", abi.TRAP_INSTALLED)
        return
    if _was_installed(arena, old):
        raise other_trap(arena.pid)
    action = abi.Sigaction(
        mask=seen_action.mask & ~(1 << _SIGTRAP - 1) if seen_action.handler > 1 else 0,
        handler=ours,
        flags=_TRAP_FLAGS,
        restorer=arena.base + arena.entry.restorer,
    )
    # The kernel installs the new action before it writes the old one down. A thread that traps in
    # between finds the one that we have seen; were it ours, the handler would call itself.
    expected = abi.Sigaction(
        handler=seen_action.handler, flags=seen_action.flags | abi.TRAP_NOT_YET,
        restorer=seen_action.restorer, mask=seen_action.mask,
    )  # fmt: skip
    arena.store.write(old, bytes(expected))
    arena.control.write("trap_installed", abi.TRAP_INSTALLING)
    arena.store.write(seen, bytes(action))
    caller.run([_sigaction_call(arena.base + seen, arena.base + old)])
    if _action(arena, old).handler == ours:
        # A thread that a killed controller had borrowed has made its call only now, before ours.
        arena.store.write(old, bytes(seen_action))
    arena.control.write("trap_installed", abi.TRAP_INSTALLED)


def _was_installed(arena: Arena, old: int) -> bool:
    """Whether our handler was the action at any time."""
    installed = int(arena.control.now().trap_installed)
    if installed == abi.TRAP_INSTALLING:
        return not _action(arena, old).flags & abi.TRAP_NOT_YET
    return installed != abi.TRAP_NONE


def _action(arena: Arena, offset: int) -> abi.Sigaction:
    return abi.Sigaction.from_buffer_copy(arena.store.read(offset, _SIGACTION_SIZE))


def _sigaction_call(new: int, old: int) -> Call:
    return Call("rt_sigaction", SYS_RT_SIGACTION, (_SIGTRAP, new, old, 8))
