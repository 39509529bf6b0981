"""`markerjit demo`: the main job in under a minute, on a server that is part of the package."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice

import markerjit
from markerjit.apps import showcase
from markerjit.cli import arguments, output, signals
from markerjit.doctor import GOOD, examine_machine
from markerjit.facts import words
from markerjit.printable import counted

_SHOWN = 6


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--rounds", metavar="N", type=arguments.positive, default=5, help="rounds of measuring (5)"
    )
    parser.add_argument(
        "--slice",
        metavar="S",
        type=arguments.seconds,
        default=0.4,
        help="seconds of load for each variant and round (default 0.4)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the demo. Returns 1 when anything was not as it should be."""
    cpus = os.cpu_count()
    output.say(f"markerjit demo: a key-value server under load, {cpus} CPUs, 127.0.0.1 only")
    with signals.Raised(), ExitStack() as stack:  # the servers are ended
        builds = ("kvserver-none", "kvserver", "kvserver-nop", "kvserver-pointer")
        none, jump, nop, pointer = (stack.enter_context(showcase.server(name)) for name in builds)
        marked = (jump, nop, pointer)
        before = [showcase.text_of(server.pid) for server in marked]
        _show_markers(jump)
        _show_live(jump, pointer)
        _show_costs(showcase.variants(none, jump, nop, pointer), options)
        return _show_unchanged(marked, before)


def _title(text: str) -> None:
    output.say("")
    output.say(f"── {text} " + "─" * max(0, 76 - len(text)))


def _show_markers(server: showcase.Server) -> None:
    _title(f"1. its markers, all off (markerjit list {server.pid})")
    with markerjit.View(server.pid) as view:
        output.print_table(
            ["MARKER", "FIELDS", "SOURCE"],
            [
                [marker.name, words.field_words(marker.fields), marker.sites[0].source]
                for marker in view.statistics()
            ],
        )


def _show_live(jump: showcase.Server, pointer: showcase.Server) -> None:
    _title("2. switched on and off while it serves")
    with showcase.load(jump, 30) as loading, markerjit.attach(jump.pid) as session:
        session.plan("*")  # loads the disassembler and compares the sites with their notes
        _show_events(session, markerjit.Mode.JUMP, "one byte of the jump is patched")
        _show_events(session, markerjit.Mode.INT3, "a breakpoint, handled inside the server")
        loading.terminate()
        summary = showcase.finish(loading)
    with showcase.load(pointer, 30) as loading, markerjit.attach(pointer.pid) as session:
        session.plan("*")
        _show_events(session, markerjit.Mode.POINTER, "the same source built with MJ_MODE=pointer")
        loading.terminate()
        showcase.finish(loading)
    output.say("")
    output.say(
        f"{summary['requests']:,} requests of the first server were answered meanwhile, "
        f"{summary['errors']} failed, {summary['wrong']} replies were wrong"
    )


def _show_events(session: markerjit.Session, mode: markerjit.Mode, explained: str) -> None:
    started = time.perf_counter()
    with session.trace("kv_[hms]*", mode=mode) as stream:
        took_ms = (time.perf_counter() - started) * 1e3
        output.say("")
        output.say(f"mode {mode}: {explained}; three markers live after {took_ms:.1f} ms")
        to_line = markerjit.line_formatter(stream.fields)
        for event in islice(stream, _SHOWN):
            output.say(f"  {to_line(event)}")
    states = {marker.name: words.state_words(marker) for marker in session.statistics()}
    if set(states.values()) != {"off"}:
        raise markerjit.MarkerError(f"still on: {states}")
    output.say("  and off again")


def _show_costs(variants: Sequence[showcase.Variant], options: argparse.Namespace) -> None:
    _title("3. what each costs: requests/s, beside a build without markers")

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            output.print_progress(text)

    costs = showcase.measure(
        variants, rounds=options.rounds, slice_s=options.slice, progress=progress
    )
    if sys.stderr.isatty():
        output.print_progress("")
    output.print_table(
        ["MARKERS", "REQUESTS/S", "RATIO", "SPREAD"],
        [
            [
                cost.name,
                f"{cost.rate:,.0f}",
                f"{cost.ratio:.3f}",
                f"{cost.least:.2f}–{cost.most:.2f}",
            ]
            for cost in costs
        ],
    )
    output.say(
        f"medians of {counted(options.rounds, 'interleaved round')}, {options.slice:g} s each; "
        "dormant: all 7 markers off;"
    )
    output.say("on: kv_command records one event for each request, with a string")
    for finding in examine_machine():
        if finding.what == "strings" and finding.level != GOOD:
            output.say(finding.found)


def _show_unchanged(
    servers: Sequence[showcase.Server], before: Sequence[dict[tuple[str, int], bytes]]
) -> int:
    _title("4. afterwards")
    after = [showcase.text_of(server.pid) for server in servers]
    size = sum(len(code) for texts in after for code in texts.values())
    if list(before) != after:
        output.say("the code of a server is NOT what it was")
        return 1
    objects = sum(map(len, after))
    output.say(
        f"every byte of code is as it was: {size:,} bytes in {objects} mapped objects of "
        f"{len(servers)} servers"
    )
    output.say("next: markerjit explain, markerjit trace; the README's tour says how")
    return 0
