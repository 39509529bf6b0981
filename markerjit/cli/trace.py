"""`markerjit trace TARGET PATTERN`: stream events or write a file, and switch off at the end.

A trace ends after --duration or --events, by Ctrl-C or SIGTERM, with the process, or when its
output is not read any more. The markers are off afterwards, except after a SIGKILL. Several
processes are traced together, and their events come in one order of time. `trace PATTERN -- COMMAND
ARGS...` starts a program: the trace ends with that, and has its exit code.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import markerjit
from markerjit.cli import arguments, output, recording, targets
from markerjit.cli.end import End, Output
from markerjit.cli.printer import POLL_S, Printer
from markerjit.facts import Json
from markerjit.facts.markers import left_out_facts
from markerjit.printable import counted

if TYPE_CHECKING:
    from markerjit.lowlevel import RecordType


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    targets.add_targets(parser)
    arguments.add_pattern(parser, default="*")
    arguments.add_mode(parser)
    arguments.add_quiesce(parser)
    parser.add_argument(
        "-d", "--duration", metavar="S", type=arguments.seconds, help="end after so long: 10s"
    )
    parser.add_argument(
        "-n", "--events", metavar="N", type=arguments.positive, help="end after so many events"
    )
    recording.add_probe(parser, ".c", ".py")
    recording.add_parts(parser)
    recording.add_growth(parser)
    recording.add_output(parser)
    parser.add_argument(
        "--lossless",
        action="store_true",
        help="MAKES THE PROCESS WAIT where it would lose events: a thread whose ring is full stops "
        "until there is room, with whatever locks it holds; up to 10 s for an event, and not for a "
        "trace that has read nothing for 2 s",
    )
    parser.add_argument(
        "--resume", action="store_true", help="begin with what a reader left that died"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="also trace all that the process starts from now on, by fork and exec, each from its "
        "first instruction. MAKES A FORK SLOWER, and each new process wait until its markers are "
        "on",
    )
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Stream until the end."""
    end = End()
    processes = targets.Chosen([0], by_pid=True) if options.program else targets.chosen(options)
    _check(options, processes)
    job = Job(options, end, recording.callback_of(options.probe), recording.parts(options))
    if job.callback and options.output:
        raise markerjit.Refused("a function in Python is called with the events; leave out -o")
    if options.program:
        return _launch(job)
    return _trace_or_follow(job, processes)


class Job(NamedTuple):
    """What is to be traced and how, whichever the processes are."""

    options: argparse.Namespace
    end: End
    callback: Callable[[markerjit.Event], object] | None
    parts: dict[str, Any]


def _check(options: argparse.Namespace, processes: targets.Chosen) -> None:
    """Refuse what cannot be, before anything is started or switched on."""
    if len(processes.pids) > 1 and options.time == "none":
        raise markerjit.Refused("without a time (--time none) several processes have no order")
    if options.lossless and options.probe.is_in_c:
        raise markerjit.Refused("a probe in C does not wait; leave out --lossless")
    if options.follow:
        _check_follow(options)
    if options.output:
        _check_output(options, processes)


def _check_follow(options: argparse.Namespace) -> None:
    """Refuse what a family cannot have."""
    for word, is_given in {
        "-o: its events are printed": options.output,
        "--lossless": options.lossless,
        "--resume": options.resume,
        "--time none: several processes have no order then": options.time == "none",
    }.items():
        if is_given:
            raise markerjit.Refused(f"a family is not traced with {word}; leave out one of both")


def _launch(job: Job) -> int:
    """Start a program, trace it from its entry point on, and return its exit code."""
    with markerjit.Launched(job.options.program) as program:
        if job.end.has_come:  # a signal, before there was a program to have it
            return 130
        job.end.leave_signals_to(program)
        if not program.wait_until_held():
            output.say("markerjit: the program ended before its entry point", error=True)
            return program.wait()
        try:
            _trace_or_follow(job, targets.Chosen([program.pid], by_pid=True), program)
        except markerjit.MarkerError as error:
            if not program.has_begun:
                raise
            output.say(f"markerjit: {error}", error=True)
        return program.wait()


def _trace_or_follow(
    job: Job, processes: targets.Chosen, program: markerjit.Launched | None = None
) -> int:
    if not job.options.follow:
        return _trace(job, processes, program)
    from markerjit.cli.follow import print_price, trace_family

    options = job.options
    printed = trace_family(
        options, job.end, job.callback, _request(job), processes.pids, program, targets.print_failed
    )
    count = printed.printer.count, printed.printer.left_out
    would_help = _remedies(printed.streams, options)
    _print_summary(*count, printed.streams, options, printed.printing, would_help)
    print_price(printed)
    return bool(printed.family.failed)


def _request(
    job: Job,
) -> Callable[[markerjit.Session], AbstractContextManager[markerjit.EventStream]]:
    """The trace that was asked for, for each session."""
    options = job.options
    growth = {} if options.ring_growth is None else {"ring_growth": options.ring_growth}
    mode = markerjit.Mode(options.mode) if options.mode else None
    return lambda session: session.trace(
        options.pattern,
        mode=mode,
        quiesce=options.quiesce,
        lossless=options.lossless,
        **growth,
        resume=options.resume,
        **job.parts,
    )


def _trace(job: Job, processes: targets.Chosen, program: markerjit.Launched | None = None) -> int:
    """Stream until the end. A program that waits is let go when its markers are on."""
    options, end, callback, _ = job
    with ExitStack() as stack:
        stack.callback(end.disarm)
        fleet = stack.enter_context(
            markerjit.Fleet(processes.pids, ring_size=options.ring_size, seccomp=options.seccomp)
        )
        after = stack.enter_context(ExitStack())  # is left when the markers are off
        stack.callback(fleet.end_traces)
        by_pid = fleet.trace(_request(job))
        streams = [*by_pid.values()]
        end.arm(streams, options.duration)
        if program and not program.go():
            output.say("the program had begun before its markers were on", error=True)
        if options.lossless:
            output.say("lossless: where a ring is full, the process waits for us", error=True)
        targets.print_failed(fleet.failed)
        for stream in streams:
            output.print_left_out(stream.unswitched)
        _print_dropped(streams)
        taken = _Taken(by_pid)
        printing = Output(end, streams)
        if options.output:
            _write_files(fleet, options, len(processes.pids) > 1, end, taken, after)
        else:
            pids = None if processes.is_single else _pids_by_type(by_pid)
            printer = Printer(options, streams, pids, callback, end, printing)
            printer.print_until_end(taken.print_new)
    taken.print_new()
    if not options.output:
        printer.print_rest()
        count = printer.count, printer.left_out
    else:
        count = sum(stream.statistics().events for stream in streams), 0
    would_help = _remedies(streams, options)
    _print_summary(*count, streams, options, printing, would_help)
    _refuse_lost(by_pid)
    if processes.by_pid and not program:
        for pid, stream in by_pid.items():
            if stream.target_ended:
                raise markerjit.TargetGone(pid)
    return bool(fleet.failed)


def _pids_by_type(
    streams: Mapping[int, markerjit.EventStream],
) -> dict[RecordType, int]:
    return {kind: pid for pid, stream in streams.items() for kind in stream.types.values()}


def _refuse_lost(streams: Mapping[int, markerjit.EventStream]) -> None:
    """Raise Refused where another controller has taken a stream's rings, or its markers."""
    for pid, stream in streams.items():
        if stream.dispossessed:
            raise markerjit.Refused(
                f"another controller took the rings of process {pid}: we did not read them for too "
                "long"
            )
        if stream.all_taken:
            raise markerjit.Refused(
                f"another controller took all markers of this trace of process {pid}"
            )


def _print_dropped(streams: Sequence[markerjit.EventStream]) -> None:
    dropped = sum(stream.dropped_bytes for stream in streams)
    if dropped:
        output.say(
            f"{-(-dropped >> 10)} KiB of events that an earlier reader left were dropped; "
            "--resume begins with them",
            error=True,
        )


class _Taken:
    """Markers that another controller has taken. Each is printed once."""

    def __init__(self, streams: Mapping[int, markerjit.EventStream]) -> None:
        self._streams = streams
        self._printed: set[tuple[int, str]] = set()

    def print_new(self) -> None:
        """Print the markers that were taken since the last call."""
        for pid, stream in self._streams.items():
            for marker in stream.statistics().taken:
                if (pid, marker) not in self._printed:
                    self._printed.add((pid, marker))
                    output.say(
                        f"markerjit: another controller took {marker} of process {pid}: its "
                        "events end here",
                        error=True,
                    )


def _write_files(
    fleet: markerjit.Fleet,
    options: argparse.Namespace,
    several: bool,
    end: End,
    taken: _Taken,
    closing: ExitStack,
) -> None:
    """Write a file, or for several processes a directory of traces. The caller ends the files by
    leaving `closing`, when no more events can come."""
    progress = recording.Progress()
    streams = [*fleet.streams.values()]
    for stream in streams[1:]:
        stream.use_clock_of(streams[0])  # so that the traces have one order of time
    writers = []
    for pid, stream in fleet.streams.items():
        path = _path_for(pid, options) if several else options.output
        writer = recording.Writer(fleet.sessions[pid], stream, path, options)
        closing.callback(writer.close)
        writers.append(writer)
    while not end.has_come and not all(stream.is_over() for stream in streams):
        busy = 0
        for writer in writers:
            busy += not end.has_come and writer.poll()
        taken.print_new()
        events = sum(stream.statistics().events for stream in streams)
        progress.show(events, sum(stream.statistics().lost for stream in streams))
        if options.events is not None and events >= options.events:
            break
        if not busy:
            time.sleep(POLL_S)
    progress.end()


def _path_for(pid: int, options: argparse.Namespace) -> str:
    return os.path.join(options.output, f"pid-{pid}.ctf")


def _check_output(options: argparse.Namespace, processes: targets.Chosen) -> None:
    """Refuse an output that cannot be written, before anything is switched on."""
    if len(processes.pids) == 1:
        markerjit.check_output(options.output, force=options.force)
    elif options.output.rstrip("/").endswith(".ctf"):
        if not os.path.isdir(options.output):
            markerjit.check_output(options.output)
            os.mkdir(options.output)
        for pid in processes.pids:
            markerjit.check_output(_path_for(pid, options), force=options.force)
    else:
        raise markerjit.Refused(
            "several processes are written as CTF: name a directory that ends in .ctf, and viewers "
            "show all of it in one order of time"
        )


def _print_summary(
    count: int,
    left_out: int,
    streams: Sequence[markerjit.EventStream],
    options: argparse.Namespace,
    printing: Output,
    would_help: Sequence[str],
) -> None:
    """Print the last line, and what would have helped where events were lost."""
    statistics = [stream.statistics() for stream in streams]
    lost = sum(each.lost for each in statistics)
    others = sum(stream.left_out for stream in streams) if options.resume else 0
    if others:
        output.say(
            f"{others} events that an earlier reader left were recorded with another time or "
            "thread id, and are left out",
            error=True,
        )
    bad = sum(each.bad_records for each in statistics)
    damaged = sum(each.damaged_rings for each in statistics)
    if bad or damaged:
        output.say(
            f"{bad} records and {damaged} rings made no sense; "
            "is the process overwriting its memory?",
            error=True,
        )
    if printing.unread:
        output.say("our output is not read: what came last is not shown", error=True)
    if left_out and not options.events:
        output.say(
            f"{counted(left_out, 'more event')} were recorded and not printed: "
            "-o FILE keeps all of them",
            error=True,
        )
    waits = [stream.waits() for stream in streams]
    waited = sum(each.events for each in waits), sum(each.seconds for each in waits)
    grown = sum(stream.grown for stream in streams)
    if options.json and not printing.unread:
        taken = [name for each in statistics for name in each.taken]
        summary: Json = {
            "events": count,
            "lost": lost,
            "not_shown": left_out,
            "taken": taken,
        }
        unswitched = [marker for stream in streams for marker in stream.unswitched]
        if unswitched:
            summary["left_out"] = left_out_facts(unswitched)
        if lost:
            summary["would_help"] = [*would_help]
        if grown:
            summary["grown"] = grown
        if options.lossless:
            summary["waited"] = dict(zip(("events", "seconds"), waited, strict=True))
        sys.stdout.write(printing.separator)
        output.print_json({"summary": summary})
        return
    where = f" in {options.output}" if options.output else ""
    output.say(f"{counted(count, 'event')}{where}, {lost} lost", error=True)
    if grown:
        output.say(
            f"rings grew by {-(-grown >> 10)} KiB in all while this trace fell behind; that memory "
            "is given back",
            error=True,
        )
    if options.lossless:
        output.say(
            f"{counted(waited[0], 'event')} waited for this trace, {waited[1]:.3f} s in all "
            "(--lossless)",
            error=True,
        )
    if lost:
        for stream in streams:
            recording.print_losses(stream.lost())
        colon = "; this would have helped:" if would_help else ""
        output.say(f"lost events found their ring full{colon}", error=True)
        for line in would_help:
            output.say(f"  {line}", error=True)


def _remedies(streams: Sequence[markerjit.EventStream], options: argparse.Namespace) -> list[str]:
    """What would have kept events from being lost."""
    from markerjit.facts.traces import remedies  # which imports numpy; a Tab needs none of it

    if not streams:
        return []
    kinds = [kind for stream in streams for kind in stream.types.values()]
    return remedies(
        ring_size=min(stream.ring_size for stream in streams),
        output=options.output,
        calls=options.probe.is_in_python,
        lossless=options.lossless,
        markers=len({kind.marker for kind in kinds}),
        fields=max((len(kind.fields) for kind in kinds), default=0),
    )
