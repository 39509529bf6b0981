"""`markerjit trace TARGET PATTERN`: stream events or write a file, and switch off at the end.

A trace ends after --duration or --events, by Ctrl-C or SIGTERM, with the process, or when its
output is not read any more. The markers are off afterwards, except after a SIGKILL. Several
processes are traced together, and their events come in one order of time. `trace PATTERN -- COMMAND
ARGS...` starts a program: the trace ends with that, and has its exit code.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import markerjit
from markerjit.cli import (
    arguments,
    gather,
    launching,
    output,
    progress,
    recording,
    streamed,
    targets,
)
from markerjit.cli.end import End, Output
from markerjit.cli.printer import POLL_S, Printer
from markerjit.cli.several import AloneFile, Files, check_several, files_of
from markerjit.facts import Json
from markerjit.facts.markers import left_out_facts
from markerjit.printable import counted
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.lowlevel import RecordType


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    targets.add_targets(parser)
    arguments.add_pattern(parser, default="*")
    arguments.add_mode(parser)
    arguments.add_breakpoints(parser)
    arguments.add_quiesce(parser)
    arguments.add_duration(parser)
    parser.add_argument(
        "-n", "--events", metavar="N", type=arguments.positive, help="end after N events"
    )
    recording.add_probe(parser, ".c", ".py")
    recording.add_parts(parser)
    recording.add_budget(parser)
    recording.add_growth(parser)
    recording.add_output(parser)
    recording.add_columns(parser)
    parser.add_argument(
        "--lossless",
        action="store_true",
        help="lose no event. MAKES THE PROCESS WAIT: a thread whose ring is full waits until there "
        "is room, and keeps its locks; up to 10 s for an event, and not for a trace that has read "
        "nothing for 2 s",
    )
    parser.add_argument(
        "--resume", action="store_true", help="begin with the events that a dead reader left"
    )
    gather.add_coming(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Stream until the end."""
    end = End()
    processes = _processes(options)
    _check(options, processes)
    template = recording.template_of(options)
    job = Job(
        options, end, recording.callback_of(options.probe), recording.parts(options), template
    )
    if template and (job.callback or gather.are_coming(options)):
        raise markerjit.Refused(
            "--columns and templates are for lines, and for processes that are there already; "
            "leave them out"
        )
    if job.callback and options.output:
        raise markerjit.Refused("a function in Python is called with the events; leave out -o")
    if options.program:
        trace = partial(_trace_or_follow, job)
        return launching.run_program(options, end, trace)
    return _trace_or_follow(job, processes)


def _processes(options: argparse.Namespace) -> targets.Chosen:
    """Those that are there. Of a program that is started the pid is not known yet, and others may
    come later."""
    if options.program:
        return targets.Chosen([0], by_pid=True)
    if options.new:
        return targets.Chosen([], by_pid=False)
    return targets.chosen(options)


class Job(NamedTuple):
    """What is to be traced and how, whichever the processes are."""

    options: argparse.Namespace
    end: End
    callback: Callable[[markerjit.Event], object] | None
    parts: dict[str, Any]
    template: markerjit.LineTemplate | None = None


def _origins(fleet: markerjit.Fleet) -> tuple[dict[RecordType, int], dict[str, str]]:
    """The process of each type of record, and the source of each marker."""
    sources: dict[str, str] = {}
    for pid, stream in fleet.streams.items():
        info = fleet.sessions[pid].trace_info(tuple(stream.types.values()), stream.clock())
        sources.update(info.sources)
    return _pids_by_type(fleet.streams), sources


def _check(options: argparse.Namespace, processes: targets.Chosen) -> None:
    """Refuse what cannot be, before anything is started or switched on."""
    if len(processes.pids) > 1 and options.time == "none":
        raise markerjit.Refused("without a time (--time none) several processes have no order")
    if options.budget and options.probe.is_in_c:
        raise markerjit.Refused("a probe in C has no budget; leave out --budget")
    if options.lossless and options.probe.is_in_c:
        raise markerjit.Refused("a probe in C does not wait; leave out --lossless")
    is_copied = streamed.is_standard_output(options)
    if gather.are_coming(options):
        gather.check_coming(options)
        _check_coming(options)
        if options.output:
            check_several(options)
    elif is_copied:
        streamed.check(options)
        if len(processes.pids) > 1:
            streamed.check_several(options)
    elif options.output:
        _check_output(options, processes)


def _check_coming(options: argparse.Namespace) -> None:
    """Refuse what programs that come and go cannot have."""
    for word, is_given in {
        "--lossless": options.lossless,
        "-o -: --json prints the same": options.output == "-",
        "--resume": options.resume,
        "--budget": options.budget,
        "--time none: several processes have no order then": options.time == "none",
    }.items():
        if is_given:
            raise markerjit.Refused(
                f"{'--follow' if options.follow else '--new'} is not possible with {word}; leave "
                "out one of them"
            )


def _trace_or_follow(
    job: Job, processes: targets.Chosen, program: markerjit.Launched | None = None
) -> int:
    if not gather.are_coming(job.options):
        return _trace(job, processes, program)
    from markerjit.cli.follow import print_programs, write_programs

    options = job.options
    if options.output:
        followed = write_programs(options, job.end, _request(job), processes.pids, program)
    else:
        followed = print_programs(
            options, job.end, job.callback, _request(job), processes.pids, program
        )
    streams, count = followed.streams, (followed.printed, followed.left_out)
    _print_summary(*count, streams, options, followed.printing, _remedies(streams, options))
    gather.print_price(followed.price, followed.programs, followed.plain)
    return int(followed.failed)


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
        budget=options.budget,
        **job.parts,
    )


def _trace(job: Job, processes: targets.Chosen, program: markerjit.Launched | None = None) -> int:
    """Stream until the end."""
    if job.options.output != "-":
        return _trace_into(job.options.output, job, processes, program)
    with streamed.spool_path(job.options) as path:
        return _trace_into(path, job, processes, program)


def _trace_into(
    path: str | None, job: Job, processes: targets.Chosen, program: markerjit.Launched | None
) -> int:
    """Print the events, or write them there. A program that waits is let go when its markers are
    on."""
    options, end, callback = job.options, job.end, job.callback
    with ExitStack() as stack:
        stack.callback(end.disarm)
        fleet = stack.enter_context(
            markerjit.Fleet(
                processes.pids, ring_size=options.ring_size, **arguments.vouched(options)
            )
        )
        after = stack.enter_context(ExitStack())  # is left when the markers are off
        stack.callback(fleet.end_traces)
        with progress.timed(f"switching on {options.pattern}"):
            by_pid = fleet.trace(_request(job))
        output.print_remarks_of(fleet.sessions.values(), options.pattern)
        streams = [*by_pid.values()]
        end.arm(streams, options.duration)
        launching.let_go(program)
        if options.lossless:
            output.say("lossless: where a ring is full, the process waits for us", error=True)
        targets.print_failed(fleet.failed)
        targets.print_workers(processes, fleet.sessions.values())
        output.print_left_out(left for stream in streams for left in stream.unswitched)
        _print_dropped(streams)
        taken = _Remarks(by_pid, options)
        printing = Output(end, streams)
        copier = None
        quota = recording.Quota(options.events)
        if path:
            if options.output == "-":
                copier = streamed.Copier(path, printing.write)
            files = (files_of if len(processes.pids) > 1 else AloneFile)(path, options, quota)
            _write_files(fleet, quota, files, end, taken, after, copier)
        else:
            pids = None if processes.is_single else _pids_by_type(by_pid)
            printer = Printer(options, streams, pids, callback, end, printing)
            if job.template:
                printer.use(job.template, *_origins(fleet))
            printer.print_until_end(taken.print_new)
    if copier:
        end.note_markers_off()
        copier.end()
        printing.write(b"")  # what the end has cut off
    taken.print_new()
    if not options.output:
        printer.print_rest()
        count = printer.count, printer.left_out
    else:
        count = quota.count(sum(stream.statistics().events for stream in streams)), 0
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
                f"another controller took the rings of process {pid}, because this trace had not "
                "read them for too long"
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


class _Remarks:
    """Markers that another controller has taken, and what was done to keep to a budget. Each is
    printed once."""

    def __init__(
        self, streams: Mapping[int, markerjit.EventStream], options: argparse.Namespace
    ) -> None:
        self._streams = streams
        self._options = options
        self._printed: set[tuple[int, str]] = set()
        self._cuts = dict.fromkeys(streams, 0)

    def print_new(self) -> None:
        """Print what has happened since the last call."""
        from markerjit.facts.words import budget_words

        for pid, stream in self._streams.items():
            cuts = stream.cuts
            for cut in cuts[self._cuts[pid] :]:
                output.say(f"markerjit: {budget_words(pid, cut, self._options.budget)}", error=True)
            self._cuts[pid] = len(cuts)
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
    quota: recording.Quota,
    files: Files,
    end: End,
    taken: _Remarks,
    closing: ExitStack,
    copier: streamed.Copier | None,
) -> None:
    """Write files. The caller ends them by leaving `closing`, when no more events can come.
    Meanwhile a `copier` copies what is there."""
    progress = recording.Progress()
    streams = [*fleet.streams.values()]
    closing.callback(files.close)
    for pid, stream in fleet.streams.items():
        files.add(fleet.sessions[pid], stream)
    while not end.has_come and not all(stream.is_over() for stream in streams):
        busy = files.poll()
        if copier:
            copier.copy_new()
        taken.print_new()
        events = sum(stream.statistics().events for stream in streams)
        lost = sum(stream.statistics().lost for stream in streams)
        progress.show(quota.count(events), lost)
        if quota.is_used_up:
            break
        if not busy:
            time.sleep(POLL_S)
    progress.end()


def _check_output(options: argparse.Namespace, processes: targets.Chosen) -> None:
    """Refuse an output that cannot be written, before anything is switched on."""
    if len(processes.pids) == 1:
        markerjit.check_output(options.output, force=options.force)
    else:
        check_several(options)


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
            f"left out: {counted(others, 'event')} of an earlier reader, recorded with another "
            "time or thread id",
            error=True,
        )
    bad = sum(each.bad_records for each in statistics)
    damaged = sum(each.damaged_rings for each in statistics)
    if bad or damaged:
        output.say(
            f"{counted(bad, 'record')} and {counted(damaged, 'ring')} made no sense; "
            "is the process overwriting its memory?",
            error=True,
        )
    if printing.unread:
        output.say("our output is not read: what came last is not shown", error=True)
    if left_out and not options.events:
        output.say(
            f"recorded and not printed: {counted(left_out, 'more event')}; -o FILE keeps all",
            error=True,
        )
    waits = [stream.waits() for stream in streams]
    waited = sum(each.events for each in waits), sum(each.seconds for each in waits)
    grown = sum(stream.grown for stream in streams)
    unmatched = sum(stream.unmatched for stream in streams)
    held_back = sum(stream.held_back for stream in streams)
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
        if unmatched:
            summary["unmatched"] = unmatched
        if options.at_most:
            summary["held_back"] = held_back
        if options.budget:
            cuts = ((stream.pid, cut) for stream in streams for cut in stream.cuts)
            summary["cuts"] = [{"pid": pid, **cut._asdict()} for pid, cut in cuts]
        if options.lossless:
            summary["waited"] = dict(zip(("events", "seconds"), waited, strict=True))
        sys.stdout.write(printing.separator)
        output.print_json({"summary": summary})
        return
    where = f" in {options.output}" if options.output else ""
    if options.output == "-":
        where = " on standard output"
    output.say(f"{counted(count, 'event')}{where}, {lost:,} lost", error=True)
    if unmatched:
        from markerjit.facts.words import unmatched_words

        output.say(unmatched_words(unmatched), error=True)
    if options.at_most:
        output.say(f"{counted(held_back, 'event')} held back (--at-most)", error=True)
    if grown:
        output.say(
            f"rings grew by {-(-grown >> 10):,} KiB in all while this trace fell behind; that "
            "memory is given back",
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
        output=streamed.file_name(options),
        calls=options.probe.is_in_python,
        lossless=options.lossless,
        markers=len({kind.marker for kind in kinds}),
        fields=max((len(kind.fields) for kind in kinds), default=0),
    )
