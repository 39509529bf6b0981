"""The stacks of threads, as a document and in words."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from markerjit.elf.demangle import demangled
from markerjit.facts import Json
from markerjit.printable import counted

if TYPE_CHECKING:
    from markerjit.calls.samples import StackSamples
    from markerjit.session.stacks import Stacks, ThreadStack
    from markerjit.unwind.frames import Frame, WalkedStack


def stacks_facts(stacks: Stacks) -> Json:
    """The stacks of a process's threads."""
    return {
        "pid": stacks.pid,
        "command": stacks.command,
        "stood_ns": stacks.stood_ns,
        "threads": [_thread_facts(thread) for thread in stacks.threads],
    }


SAMPLES_HEADER = ("OWN", "SHARE", "TOTAL", "FUNCTION")


def samples_facts(samples: StackSamples) -> Json:
    """Samples of stacks."""
    return {
        "pid": samples.pid,
        "command": samples.command,
        "seconds": round(samples.seconds, 6),
        "looks": samples.looks,
        "missed": samples.missed,
        "stacks": samples.stacks,
        "stood_ns": samples.stood_ns,
        "longest_ns": samples.longest_ns,
        "ended": samples.ended,
        "nodes": [{**node._asdict(), "text": demangled(node.name)} for node in samples.nodes],
    }


def samples_rows(samples: StackSamples) -> list[list[str]]:
    """A row for each function: in how many stacks it was the last one, and in how many at all."""
    return [
        [
            f"{function.own:,}",
            f"{function.own / max(samples.stacks, 1):.1%}",
            f"{function.samples:,}",
            demangled(function.name),
        ]
        for function in samples.functions
    ]


def samples_words(samples: StackSamples) -> str:
    """How much was seen, and what that took of the process."""
    mean_ms = samples.stood_ns / max(samples.looks, 1) / 1e6
    missed = f" ({samples.missed:,} more were missed)" if samples.missed else ""
    return (
        f"{counted(samples.stacks, 'stack')} in {counted(samples.looks, 'look')}{missed} in "
        f"{samples.seconds:.3f} s; the process stood for {mean_ms:.2f} ms each, at most for "
        f"{samples.longest_ns / 1e6:.2f} ms"
    )


def frame_words(frame: Frame) -> str:
    """`function+0x2f libkv.so`; the place in the object in place of a function without a name."""
    name = os.path.basename(frame.object) or frame.object
    if not name:
        return f"{frame.address:#x}"
    if not frame.function:
        return f"{name}+{frame.place:#x}"
    return f"{demangled(frame.function)}+{frame.offset:#x} {name}"


def stack_facts(stack: WalkedStack) -> Json:
    """The stack of an event."""
    return {
        "frames": [_frame_facts(frame) for frame in stack.frames],
        "end": stack.end.name.lower(),
    }


def stack_lines(stack: WalkedStack) -> list[str]:
    """A line for each frame, the innermost first, and one for what ends it too early."""
    return [*map(frame_words, stack.frames), *([str(stack.end)] if stack.end else [])]


def _thread_facts(thread: ThreadStack) -> Json:
    return {
        "tid": thread.tid,
        "name": thread.name,
        "frames": [_frame_facts(frame) for frame in thread.frames],
        "end": thread.end.name.lower(),
        "call": thread.call,
    }


def _frame_facts(frame: Frame) -> Json:
    return {
        "address": frame.address,
        "function": demangled(frame.function) or None,
        "offset": frame.offset if frame.function else None,
        "object": frame.object or None,
        "place": frame.place if frame.object else None,
    }
