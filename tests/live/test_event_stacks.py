"""Stacks in events: beside what programs know of themselves, beside aggregates by stack, and in
files of every format after the process has gone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from tests.support.commands import cli, one_line, running
from tests.support.loading import Loading
from tests.support.markers import wait_until_on
from tests.support.timing import Limited

pytestmark = pytest.mark.live

TURNS = 40
SUFFIXES = (".ctf", ".ctf2", ".jsonl", ".json", ".pftrace", ".parquet", ".arrow")
PROGRAM = """
#include <markerjit/marker.h>
#include <stdio.h>
__attribute__((noipa)) static void leaf(int n) { MARK(leaf, "n %#x", n); }
__attribute__((noipa)) static void left(int n) { leaf(n); __asm__ volatile(""); }
__attribute__((noipa)) static void right(int n) { leaf(n); __asm__ volatile(""); }
int main(void) {
    puts("ready"); fflush(stdout);
    for (int n; scanf("%d", &n) == 1; puts("done"), fflush(stdout))
        for (int turn = 0; turn < n; turn++) {
            if (turn % 3) left(turn); else right(turn);
            __asm__ volatile("");
        }
}
"""


class Paths:
    """A program that comes to a marker by two ways, and says which by the number of the turn."""

    def __init__(self, folder: Path) -> None:
        source, program = folder / "paths.c", folder / "paths"
        source.write_text(PROGRAM)
        include = Path(__file__).parents[2] / "native" / "include"
        subprocess.run(["gcc", "-O1", f"-I{include}", "-o", program, source], check=True)
        self._process = Limited([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        self._line()

    def run(self, turns: int) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{turns}\n")
        self._process.stdin.flush()
        self._line()

    def end(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _line(self) -> None:
        assert self._process.stdout
        self._process.stdout.readline()


@pytest.fixture
def paths(tmp_path: Path) -> Any:
    program = Paths(tmp_path)
    yield program
    program.end()


def way(turn: int) -> list[str]:
    return ["leaf", "left" if turn % 3 else "right", "main"]


def names(event: markerjit.Event) -> list[str]:
    return [frame.function for frame in event.stack if frame.function]


def recorded(program: Any, pattern: str, stack: int = 64, **asked: Any) -> list[markerjit.Event]:
    with (
        markerjit.attach(program.pid) as session,
        session.trace(pattern, stack=stack, **asked) as stream,
    ):
        program.run(TURNS) if isinstance(program, Paths) else program.ask(f"run {TURNS}")
        events = stream.drain()
    assert not stream.statistics().lost
    return events


# ---- markers -------------------------------------------------------------------------------------


def test_an_event_of_a_marker_has_the_way_that_led_to_it(paths: Paths) -> None:
    events = recorded(paths, "leaf")

    assert [event.fields["n"] for event in events] == [*range(TURNS)]
    for event in events:
        assert names(event)[:3] == way(int(str(event.fields["n"]))), event
        assert names(event)[-1] == "_start" and event.stack_end == ""
        assert all(frame.object and frame.address for frame in event.stack)


def test_a_stack_goes_with_a_condition_a_sample_and_a_selection(paths: Paths) -> None:
    chosen = recorded(paths, "leaf", where="n % 2 == 1")
    sampled = recorded(paths, "leaf", sample="1/1")
    selected = recorded(paths, "leaf", select="twice=n*2", where="n > 3")
    narrow = recorded(paths, "leaf", fields=[])

    assert [event.fields["n"] for event in chosen] == [*range(1, TURNS, 2)]
    assert all(names(event)[:3] == way(int(str(event.fields["n"]))) for event in chosen)
    assert len(sampled) == TURNS and all(event.stack for event in sampled)
    assert [event.fields["twice"] for event in selected] == [*range(8, 2 * TURNS, 2)]
    assert names(selected[0])[:3] == way(4)
    assert {(*event.fields,) for event in narrow} == {("stack",)}


def test_fields_beside_a_stack_are_shown_as_their_format_says(paths: Paths) -> None:
    with markerjit.attach(paths.pid) as session, session.trace("leaf", stack=2) as stream:
        (field, stack) = stream.fields["leaf"]

    assert (field.name, field.conversion) == ("n", "#x") and stack.name == "stack"


def test_a_stack_has_as_many_frames_as_are_asked_for(paths: Paths) -> None:
    events = recorded(paths, "leaf", stack=2)

    assert {len(event.stack) for event in events} == {2}
    assert {event.stack_end for event in events} == {"[deeper]"}


def test_stacks_of_events_are_those_of_an_aggregate(target: Callable) -> None:
    """Through signal handlers, contexts and threads; with and without what an entry keeps."""
    program = target("truth_stacks")
    for pattern in ("func:truth_stacks:nested", "func:truth_stacks:held",
                    "func:truth_stacks:waited:return"):  # fmt: skip
        with markerjit.attach(program.pid) as session:
            with session.aggregate(pattern, "count()", by="stack") as adding:
                program.ask(f"run {TURNS}")
            keys = {row.key[0]: row.events for row in adding.read().rows}
            rows = {(key.frames, str(key.end)): count for key, count in keys.items()}
            with session.trace(pattern, stack=64) as stream:
                program.ask(f"run {TURNS}")
                events = stream.drain()

        assert Counter((event.stack, event.stack_end) for event in events) == rows, pattern


def test_a_usdt_probe_has_a_stack(target: Callable) -> None:
    events = recorded(target("truth_usdt"), "truth:turn")

    assert len(events) == TURNS
    assert {names(event)[-1] for event in events} == {"_start"}
    assert all("main" in names(event) for event in events)


# ---- files ---------------------------------------------------------------------------------------


@pytest.fixture
def written(paths: Paths, tmp_path: Path) -> Callable[[str], Path]:
    """The file of a trace of a process that has gone since."""

    def write(suffix: str) -> Path:
        path = tmp_path / f"trace{suffix}"
        with markerjit.attach(paths.pid) as session:
            with session.trace("leaf", stack=64) as stream:
                info = session.trace_info(tuple(stream.types.values()), stream.clock())
                sink = markerjit.open_sink(str(path), info)
                packets = markerjit.takes_packets(sink)
                for _ in range(2):
                    paths.run(TURNS // 2)
                    batch = stream.poll_batch(packets=packets, columns=not packets)
                    if batch:
                        sink.write(batch)
            rest = stream.rest(packets=packets, columns=not packets)
            if rest:
                sink.write(rest)
            sink.close({})
        paths.end()
        return path

    return write


def check(path: Path) -> list[tuple[Any, ...]]:
    trace = markerjit.open_trace(str(path))
    events = [*trace.events()]
    assert not trace.problems
    assert len(events) == TURNS
    for event in events:
        assert names(event)[:3] == way(int(str(event.fields["n"]))), path
        assert event.stack_end == ""
    return [event.stack for event in events]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_has_the_names_of_a_process_that_has_gone(
    written: Callable[[str], Path], suffix: str, tmp_path: Path
) -> None:
    path = written(suffix)

    stacks = check(path)

    for other in SUFFIXES:
        converted = tmp_path / f"converted{other}"
        markerjit.convert(markerjit.open_trace(str(path)), str(converted))
        assert check(converted) == stacks, other


def test_lines_of_text_have_the_names_alone(written: Callable[[str], Path]) -> None:
    path = written(".txt")

    stacks = check(path)

    assert ' stack="leaf < right < main < ' in path.read_text()
    assert {frame.address for stack in stacks for frame in stack} == {0}


def test_a_ctf_trace_without_its_stacks_can_be_read(written: Callable[[str], Path]) -> None:
    path = written(".ctf")
    (path / ".stacks.jsonl").write_text('{"stack":1}\nnonsense\n')

    trace = markerjit.open_trace(str(path))
    events = [*trace.events()]

    assert len(events) == TURNS and {event.stack for event in events} == {()}
    assert {event.fields["stack"] for event in events} == {None}
    assert trace.problems


def test_read_shows_asks_and_sums_up_stacks(written: Callable[[str], Path], tmp_path: Path) -> None:
    path = written(".ctf")

    lines = cli("read", path, "--fields", "stack").stdout.splitlines()
    asked = cli("read", path, "--where", '"left" in stack').stdout.splitlines()
    documents = [*map(json.loads, cli("read", path, "--json").stdout.splitlines())]
    sums = cli("read", path, "--stats").stdout
    picture = tmp_path / "stacks.folded"
    sentence = cli("read", path, "-o", picture).stdout

    assert len(lines) == TURNS and ' leaf stack="leaf < right < main < ' in lines[0]
    assert len(asked) == sum(turn % 3 > 0 for turn in range(TURNS // 2)) * 2
    first = documents[0]["fields"]["stack"]
    assert [frame["function"] for frame in first["frames"]][:3] == way(0) and first["end"] == ""
    assert "leaf stack: 2 different values" in sums
    assert sentence == f"{picture}: {TURNS} stacks, 0 lost\n"
    chains = dict(line.rsplit(" ", 1) for line in picture.read_text().splitlines())
    weights = {chain.split(";")[-2]: int(count) for chain, count in chains.items()}
    assert weights == {"left": len(asked), "right": TURNS - len(asked)}


@pytest.mark.parametrize("suffix", [".html", ".svg", ".speedscope.json"])
def test_stacks_of_a_file_become_a_flame_graph(
    written: Callable[[str], Path], suffix: str, tmp_path: Path
) -> None:
    path, picture = written(".parquet"), tmp_path / f"flames{suffix}"

    done = cli("read", path, "-o", picture)
    again = cli("read", path, "-o", picture)

    assert done.returncode == 0 and "right" in picture.read_text()
    assert again.returncode == 1 and "--force" in again.stderr


def test_a_flame_graph_needs_stacks(paths: Paths, tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl"
    with markerjit.attach(paths.pid) as session, session.trace("leaf") as stream:
        info = session.trace_info(tuple(stream.types.values()), stream.clock())
        markerjit.open_sink(str(path), info).close({})

    refused = cli("read", path, "-o", tmp_path / "a.folded")

    one_line(refused, "no event of it has a stack; markerjit trace --stack records them")


# ---- flight recorders, and the commands ----------------------------------------------------------


def test_a_flight_recorder_keeps_stacks(paths: Paths, tmp_path: Path) -> None:
    """Dumped by another controller than that which has begun it."""
    started = cli("flight", "start", paths.pid, "leaf", "--stack")
    paths.run(TURNS)
    for suffix in (".ctf", ".jsonl"):
        path = tmp_path / f"flight{suffix}"
        dumped = cli("flight", "dump", paths.pid, "-o", path)

        assert started.returncode == dumped.returncode == 0, dumped.stderr
        check(path)
    cli("flight", "stop", paths.pid)


def test_a_flight_recorder_of_a_process_that_has_ended_has_stacks(paths: Paths) -> None:
    with markerjit.attach(paths.pid) as session:
        session.record("leaf", stack=64)
        watch = session.watch_flight()
        paths.run(TURNS)
        paths.end()
        assert watch.wait()
        picture = watch.flight.picture()

    events = picture.batch.events()
    assert len(events) == TURNS
    assert all(names(event)[:3] == way(int(str(event.fields["n"]))) for event in events)


def test_a_program_that_is_started_has_stacks(paths: Paths, tmp_path: Path) -> None:
    path = tmp_path / "started.ctf"
    program = tmp_path / "paths"

    done = subprocess.run(
        [sys.executable, "-m", "markerjit", "trace", "leaf", "--stack", "-o", path, "--", program],
        input=f"{TURNS}\n", text=True, capture_output=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    check(path)


def test_what_a_program_starts_has_stacks_of_its_own(paths: Paths, tmp_path: Path) -> None:
    """A process that was forked and became another program; its marker is not there before."""
    program = f"echo {TURNS} | {tmp_path / 'paths'}"
    command = ["trace", "leaf", "--stack=3", "--follow", "--json", "--", "sh", "-c", program]

    done = cli(*command)

    documents = [json.loads(line) for line in done.stdout.splitlines() if '"leaf"' in line]
    assert len(documents) == TURNS, done.stderr
    for document in documents:
        stack = document["fields"]["stack"]
        functions = [frame["function"] for frame in stack["frames"]]
        assert functions == way(document["fields"]["n"]) and stack["end"] == "[deeper]"


def test_a_trace_replaces_one_with_stacks_by_force(
    written: Callable[[str], Path], tmp_path: Path
) -> None:
    path = written(".ctf")
    check(path)

    assert cli("read", path, "-o", tmp_path / "other.ctf").returncode == 0
    assert cli("read", path, "-o", tmp_path / "other.ctf").returncode == 1
    assert cli("read", path, "-o", tmp_path / "other.ctf", "--force").returncode == 0
    check(tmp_path / "other.ctf")


def test_several_processes_in_a_file_have_stacks(
    written: Callable[[str], Path], tmp_path: Path
) -> None:
    first = markerjit.open_trace(str(written(".jsonl")))
    for suffix in (".jsonl", ".pftrace", ".parquet", ".arrow"):
        path = tmp_path / f"joint{suffix}"
        markerjit.join_traces([first], str(path))
        (trace,) = markerjit.open_traces(str(path))

        stacks = [event.stack for event in trace.events()]
        assert stacks == [event.stack for event in first.events()] and all(stacks), suffix


def test_lines_without_a_header_have_stacks_again(
    written: Callable[[str], Path], tmp_path: Path
) -> None:
    path, lines = written(".jsonl"), tmp_path / "lines.jsonl"
    lines.write_text(cli("read", path, "--json").stdout)

    again = markerjit.open_trace(str(lines))

    assert [event.stack for event in again.events()] == check(path)


def test_trace_prints_stacks_and_status_says_so(paths: Paths) -> None:
    with running("trace", paths.pid, "leaf", "-n", "6", "--stack=3") as process:
        wait_until_on(paths.pid, lambda: "stack=stack(3)" in cli("status", paths.pid).stdout)
        paths.run(6)
        printed, _ = process.communicate()

    lines = printed.splitlines()
    assert len(lines) == 6
    assert lines[0].endswith('n=0 stack="leaf < right < main [deeper]"')
    assert lines[1].endswith('n=0x1 stack="leaf < left < main [deeper]"')


def test_on_records_stacks_for_a_later_reader(paths: Paths) -> None:
    cli("on", paths.pid, "leaf", "--probe", "record", "--stack")
    paths.run(TURNS)

    events = recorded(paths, "leaf", resume=True)

    assert len(events) == 2 * TURNS
    assert all(names(event)[:3] == way(int(str(event.fields["n"]))) for event in events)
    cli("off", paths.pid, "leaf")


@pytest.mark.parametrize("depth", ["0", "257", "x", "-1"])
def test_a_wrong_depth_is_refused(depth: str) -> None:
    refused = cli("trace", "1", "x", f"--stack={depth}")

    assert refused.returncode == 2
    assert "is not a number of frames from 1 to 256" in refused.stderr


def test_what_records_nothing_has_no_stack(paths: Paths) -> None:
    one_line(cli("on", paths.pid, "leaf", "--stack"), "--stack needs --probe record")
    with markerjit.attach(paths.pid) as session, pytest.raises(markerjit.BadArgument):
        session.on("leaf", stack=4)


def test_a_field_named_stack_is_not_taken_for_one(target: Callable) -> None:
    program = target("truth_stacks")
    with markerjit.attach(program.pid) as session:
        pattern = "func:truth_stacks:summed"
        with pytest.raises(markerjit.BadQuestion, match="two expressions are called stack"):
            session.trace(pattern, select="stack=arg0", stack=4).__enter__()
        with pytest.raises(markerjit.BadQuestion, match="given only once"):
            session.trace(pattern, select="*, *").__enter__()


# ---- objects that come and go --------------------------------------------------------------------


def test_stacks_go_through_objects_that_come_and_go(tmp_path: Path) -> None:
    loading = Loading(tmp_path)
    try:
        loading.ask("one.so", "hit")
        with (
            markerjit.attach(loading.pid) as session,
            session.trace("func:leaf", stack=64) as stream,
        ):
            loading.ask("hit")
            first = stream.poll() or stream.drain()
            loading.ask("close", "two.so", "hit")
            cut = stream.drain()
            loading.ask("hit")
            whole = stream.drain()
    finally:
        loading.close()

    assert names(first[0])[:4] == ["leaf", "one", "through", "main"]
    assert [event.stack_end for event in cut] == ["[no table]"]
    assert names(whole[0])[:4] == ["leaf", "two", "through", "main"]
