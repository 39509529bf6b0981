"""The parts of the code that is made for markers: their names, and the role that each plays.

A source (recorder.py, stub.py) has a heading where a part begins, so the assembler says where each
part ended up. The names are for people, in `explain`.
"""

from __future__ import annotations

from enum import StrEnum

from markerjit.x86.assemble import heading


class Role(StrEnum):
    """The role of a part on the way of an execution.

    HEAD      bytes of the program that a switch changes
    PROGRAM   other code of the program
    SLOT      what the slot holds
    SAVE      registers and arguments are put away or taken
    SEQUENCE  in a restartable sequence, before its end
    COMMIT    the last store of a restartable sequence: from then on it has happened
    WORK      other code on the usual way
    BACK      registers as they were, and the return
    RARE      not on the usual way: it was interrupted, or there is no room
    DATA      not executed
    """

    HEAD = "head"
    PROGRAM = "program"
    SLOT = "slot"
    SAVE = "save"
    SEQUENCE = "sequence"
    COMMIT = "commit"
    WORK = "work"
    BACK = "back"
    RARE = "rare"
    DATA = "data"


class Name(StrEnum):
    """The names of parts that are assembled. Each has one role, `role_of`."""

    # Of a recorder, in the order of their numbers in recorder.py
    SAVED = "registers are saved"
    NAMED = "the restartable sequence is named to the kernel"
    CPU = "the CPU is read (the restartable sequence begins)"
    CLAIM = "the position in the ring is claimed"
    CLOCK = "the clock"
    SINCE = "the duration is computed of the clock"
    RECORD = "the record is written"
    TEXT = "a text is copied"
    COMMIT = "commit: the ring's head moves behind the record"
    COUNT_NAMED = "the sequence that counts is named"
    COUNT_CPU = "the counter of this CPU is found"
    COUNT = "commit: the execution is counted"
    BACK = "the way back"
    ROOM = "no room in the page: the runtime makes some"
    LEFT = "left to the runtime"
    LOST = "the ring is full: counted as lost"
    INTERRUPTED = "interrupted before the commit"
    UNCOUNTED = "interrupted before it was counted"
    DESCRIPTOR = "descriptor of the sequence"
    COUNT_DESCRIPTOR = "descriptor of the sequence that counts"
    SIGNATURE = "signature, before what the kernel may jump to"
    PADDING = "padding"
    TAG = "the head of its records, and a tag that says their layout, for stubs"
    # Of the fast path of a stub
    IS_COUNT = "is it the probe that counts?"
    IS_RECORD = "is it a recorder of records with this layout?"
    KEEPS_ASKED = "are the operands kept for exits?"
    TAKEN = "the token of the entry is taken"
    CLAIMED = "a page of the stack gets its places"
    SLOW = "nothing was done: as without a fast path"
    # Of a stub
    RED_ZONE = "steps over the red zone, saves %rax and the flags"
    ASKED = "is there a probe?"
    KEPT = "what the entry has kept is looked for and pushed"
    OPERANDS = "the operands are pushed"
    SHAPE = "the slot and the shape are pushed"
    CALL = "the probe is called"
    KEEPS = "the operands are kept for the exits"
    DROPPED = "the words are taken off the stack"
    RESTORED = "%rax, the flags and the stack as they were"
    MOVED = "the instructions that the site lost"
    INTO_PROGRAM = "back into the program"


_ROLES = {
    Name.SAVED: Role.SAVE,
    Name.NAMED: Role.WORK,
    Name.CPU: Role.SEQUENCE,
    Name.CLAIM: Role.SEQUENCE,
    Name.CLOCK: Role.SEQUENCE,
    Name.SINCE: Role.SEQUENCE,
    Name.RECORD: Role.SEQUENCE,
    Name.TEXT: Role.SEQUENCE,
    Name.COMMIT: Role.COMMIT,
    Name.COUNT_NAMED: Role.WORK,
    Name.COUNT_CPU: Role.SEQUENCE,
    Name.COUNT: Role.COMMIT,
    Name.BACK: Role.BACK,
    Name.ROOM: Role.RARE,
    Name.LEFT: Role.RARE,
    Name.LOST: Role.RARE,
    Name.INTERRUPTED: Role.RARE,
    Name.UNCOUNTED: Role.RARE,
    Name.DESCRIPTOR: Role.DATA,
    Name.COUNT_DESCRIPTOR: Role.DATA,
    Name.SIGNATURE: Role.DATA,
    Name.PADDING: Role.DATA,
    Name.TAG: Role.DATA,
    Name.IS_COUNT: Role.WORK,
    Name.IS_RECORD: Role.WORK,
    Name.KEEPS_ASKED: Role.WORK,
    Name.TAKEN: Role.WORK,
    Name.CLAIMED: Role.RARE,
    Name.SLOW: Role.RARE,
    Name.RED_ZONE: Role.SAVE,
    Name.ASKED: Role.WORK,
    Name.KEPT: Role.WORK,
    Name.OPERANDS: Role.SAVE,
    Name.SHAPE: Role.SAVE,
    Name.CALL: Role.WORK,
    Name.KEEPS: Role.WORK,
    Name.DROPPED: Role.BACK,
    Name.RESTORED: Role.BACK,
    Name.MOVED: Role.PROGRAM,
    Name.INTO_PROGRAM: Role.BACK,
}


def part(name: Name) -> str:
    """The heading of a part."""
    return heading(name)


def role_of(name: str) -> Role:
    """The role of a part with this name."""
    return _ROLES[Name(name)]
