"""`markerjit stack PID`: where the threads of a process are, and which functions led there; now, or
as samples for a while."""

from __future__ import annotations

import argparse

import markerjit
from markerjit.cli import arguments, output
from markerjit.facts.stacks import (
    SAMPLES_HEADER,
    frame_words,
    samples_facts,
    samples_rows,
    samples_words,
    stacks_facts,
)
from markerjit.printable import counted

_DEPTH = 256
_SAMPLES = 100
_EVERY_S = 0.01
_ROWS = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.add_pid(parser)
    parser.add_argument("--tid", metavar="N", type=arguments.positive, help="only this thread")
    parser.add_argument(
        "--depth",
        metavar="N",
        type=arguments.positive,
        default=_DEPTH,
        help=f"at most N frames of each thread ({_DEPTH})",
    )
    parser.add_argument(
        "-n", "--samples", metavar="N", type=arguments.positive,
        help=f"look N times, and add up by function ({_SAMPLES} with -o)",
    )  # fmt: skip
    parser.add_argument(
        "--every", metavar="S", type=arguments.seconds, default=_EVERY_S,
        help="the time from one sample to the next (10ms)",
    )  # fmt: skip
    parser.add_argument(
        "--running", action="store_true",
        help="for samples: leave out threads that are in a system call",
    )  # fmt: skip
    parser.add_argument(
        "--top", metavar="N", type=arguments.positive, default=_ROWS,
        help=f"for samples: show N functions ({_ROWS})",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=arguments.file_name,
        help="also write the samples: .html or .svg (a flame graph), .speedscope.json or .folded",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the stacks, or samples of them."""
    if options.samples or options.output:
        return _sample(options)
    stacks = markerjit.stacks_of_process(options.pid, tid=options.tid, depth=options.depth)
    if options.json:
        output.print_json(stacks_facts(stacks))
        return 0
    for thread in stacks.threads:
        call = "" if thread.call is None else f", in system call {thread.call}"
        output.say(f"thread {thread.tid} ({thread.name}){call}")
        for frame in thread.frames:
            output.say(f"    {frame_words(frame)}", hanging=8)
        if thread.end:
            output.say(f"    {thread.end}")
    output.say(f"the process stood for {stacks.stood_ns / 1e6:.2f} ms")
    return 0


def _sample(options: argparse.Namespace) -> int:
    if options.output:
        markerjit.check_calls_file(options.output, force=options.force, slices=False)
    samples = markerjit.sample_stacks(
        options.pid,
        count=options.samples or _SAMPLES,
        every=options.every,
        tid=options.tid,
        depth=options.depth,
        running=options.running,
    )
    if options.output:
        markerjit.write_calls(samples, options.output, force=options.force)
    if options.json:
        output.print_json(samples_facts(samples))
    else:
        _print(samples, options.top)
    if samples.ended:
        raise markerjit.TargetGone(options.pid)
    return 0


def _print(samples: markerjit.StackSamples, top: int) -> None:
    rows = samples_rows(samples)
    output.print_table(SAMPLES_HEADER, rows[:top], may_be_cut=[len(SAMPLES_HEADER) - 1])
    if len(rows) > top:
        output.say(f"and {counted(len(rows) - top, 'more function')}; --top N shows more")
    output.say(samples_words(samples))
