"""Steps of threads into functions and out of them, as columns.

A step is an event, or one that stands for an event that never came. Those that open a call are

    ENTER    the entry of a function
    FRAME    a call that is open since before
    AGAIN    one that was closed without an exit, and is open after all

and those that close one are

    LEAVE    a return
    TAIL     a tail call: the last act of a function is a jump to another one
    CUT      the function was left without an exit (longjmp, an exception)
    STOP     nothing more is known of the call: its thread has ended, or events were lost
    PARK     the thread has left the stack that the call is on, and may come back to it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

ENTER, FRAME, AGAIN, LEAVE, TAIL, CUT, STOP, PARK = range(8)


class Steps(NamedTuple):
    """Steps in the order of threads, and those of a thread in the order of time.

    thread    the number of the thread: uint32
    function  the number of the function: int32
    kind      as above: uint8
    time      nanoseconds: int64
    stack     the stack pointer at the entry, which it is at the exit again: uint64
    """

    thread: Array
    function: Array
    kind: Array
    time: Array
    stack: Array

    @property
    def rows(self) -> int:
        """The number of steps."""
        return len(self.thread)

    def picked(self, rows: Array | slice) -> Steps:
        """The steps of these rows, or of this mask."""
        return Steps(*(column[rows] for column in self.columns()))

    def columns(self) -> tuple[Array, ...]:
        """The columns, as a tuple."""
        return tuple(self)


def steps_of(thread: object, function: object, kind: object, time: object, stack: object) -> Steps:
    """Steps from sequences of numbers."""
    return Steps(
        np.asarray(thread, np.uint32),
        np.asarray(function, np.int32),
        np.asarray(kind, np.uint8),
        np.asarray(time, np.int64),
        np.asarray(stack, np.uint64),
    )


NONE = steps_of((), (), (), (), ())


def joined(parts: list[Steps]) -> Steps:
    """Steps one behind the other."""
    columns = zip(*(part.columns() for part in parts), strict=True)
    return Steps(*(np.concatenate(column) for column in columns))


def by_thread(steps: Steps) -> Array:
    """The rows in the order of threads; those of a thread stay in their order. Few threads are
    sorted several times as fast by their places among them."""
    thread = steps.thread
    if len(thread) < 2 or not (thread[1:] < thread[:-1]).any():
        return np.arange(len(thread))
    if int(thread.max()) < 1 << 16:
        thread = thread.astype(np.uint16)
    return np.argsort(thread, kind="stable")
