"""What a program allocates, by call site: against a program that counts for itself."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import markerjit
from markerjit.facts.allocations import HEADER
from markerjit.session.allocations import MOST_BLOCKS
from tests.support.code_bytes import code_of
from tests.support.commands import cli, facts, running
from tests.support.markers import wait_until_on
from tests.support.programs import ROOT, Target
from tests.support.terminals import in_terminal, screen_of
from tests.support.timing import Limited, joined, wait_until

pytestmark = pytest.mark.live

PROGRAM = "truth_alloc"


class Seen(NamedTuple):
    blocks: int
    asked: int
    given: int
    live: int


def counts_of(program: Any) -> dict[str, Seen]:
    _, *pairs = program.command("counts").split()
    split = (pair.split("=") for pair in pairs)
    return {name: Seen(*map(int, numbers.split(","))) for name, numbers in split}


def since(before: dict[str, Seen], after: dict[str, Seen]) -> dict[str, Seen]:
    return {
        name: Seen(*(now - then for now, then in zip(after[name], seen, strict=True)))
        for name, seen in before.items()
    }


def by_function(allocations: markerjit.Allocations) -> dict[str, dict[str, int]]:
    sums: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for each in allocations.sites:
        for name, value in each._asdict().items():
            if isinstance(value, int):
                sums[each.site.function][name] += value
    return sums


def seen_by_us(allocations: markerjit.Allocations) -> dict[str, Seen]:
    return {
        name: Seen(each["allocations"], each["asked"], each["given"], each["live"])
        for name, each in by_function(allocations).items()
    }


@contextmanager
def following(session: markerjit.Session, **options: Any) -> Iterator[markerjit.AllocationTrace]:
    """A trace of allocations that another thread polls."""
    over = threading.Event()
    with session.trace_allocations(**options) as trace:

        def poll() -> None:
            while not over.is_set():
                if not trace.poll():
                    over.wait(0.002)

        thread = threading.Thread(target=poll)
        thread.start()
        try:
            yield trace
        finally:
            over.set()
            joined(thread)


@contextmanager
def at_work(program: Any) -> Iterator[None]:
    """The program allocates for as long as the context lasts, and has pauses, as what observes it
    needs the CPU, too."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.01):
            program.ask("run 20")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        joined(thread)


@pytest.mark.parametrize("read", [False, True])
def test_every_site_has_the_counts_and_bytes_of_the_program(
    target: Callable, *, read: bool
) -> None:
    program = target(PROGRAM)
    code = code_of(program)

    with markerjit.attach(program.pid) as session:
        program.ask("run 30")
        before = counts_of(program)
        with following(session, read=read) as trace:
            program.ask("run 1000")
        truth = since(before, counts_of(program))
    allocations = trace.allocations()

    seen = seen_by_us(allocations)
    assert {name: each.given for name, each in truth.items()} == {
        name: seen[name].given for name in truth
    } or not read
    assert {name: each._replace(given=0) for name, each in truth.items()} == {
        name: seen[name]._replace(given=0) for name in truth
    }
    for (
        name,
        each,
    ) in truth.items():  # the rule says up to 16 bytes less, of aligned blocks 32
        assert 0 <= each.given - seen[name].given <= (0 if read else 32 * each.blocks)
    assert (allocations.unknown_frees, allocations.unseen, allocations.no_site) == (0, 0, 0)
    assert (allocations.allocator, allocations.read) == ("glibc", read)
    assert code_of(program) == code


def test_frees_by_other_threads_failures_and_lifetimes_are_counted(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session, following(session) as trace:
        program.ask("run 500")
    sites = by_function(trace.allocations())

    assert sites["handed"]["other_thread"] == sites["handed"]["frees"] == 500
    assert sum(each["other_thread"] for each in sites.values()) == 500
    assert sites["denied"]["failed"] == 1000  # malloc and realloc, each time
    assert sum(each["failed"] for each in sites.values()) == 1000
    assert sites["denied"]["frees"] == sites["emptied"]["frees"] == 500
    assert sites["leaked"]["frees"] == 0
    assert sites["leaked"]["live"] == 50
    of_leaks = [each for each in trace.allocations().sites if each.site.function == "leaked"]
    assert all(each.oldest_ns and each.mean_ns is None for each in of_leaks)
    of_plain = [each for each in trace.allocations().sites if each.site.function == "plain"]
    assert all(
        each.median_ns and each.longest_ns and 0 < each.mean_ns <= each.longest_ns  # type: ignore[operator]
        for each in of_plain
    )


def test_frees_of_what_was_allocated_before_are_counted_by_themselves(target: Callable) -> None:
    program = target(PROGRAM)
    program.ask("run 3000")

    with markerjit.attach(program.pid) as session, following(session) as trace:
        program.ask("drop")
        program.ask("run 10")
    allocations = trace.allocations()

    assert allocations.unknown_frees == 300
    assert by_function(allocations)["leaked"]["live"] == 1


def test_threads_at_full_speed_are_counted_though_nobody_reads(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session, session.trace_allocations() as trace:
        program.ask("hot 300000")
    allocations = trace.allocations()

    hot = by_function(allocations)["be_hot"]
    assert hot["allocations"] == hot["frees"] == 600_000
    assert (hot["live"], hot["lost_frees"], hot["untracked"]) == (0, 0, 0)
    assert allocations.unseen == 0


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Target]:
    """A program that does nothing else: those of truth_alloc ask the kernel for large blocks."""
    path = tmp_path / "many"
    headers = [f"-I{ROOT}/native/targets", f"-I{ROOT}/native/include"]
    source = ROOT / "tests/live/alloc/many.c"
    subprocess.run(["gcc", "-O2", "-g", "-pthread", *headers, source, "-o", path], check=True)
    program = Target(path)
    program.wait_ready()
    yield program
    assert program.end() is None, program.errors()


def test_blocks_that_live_are_known_one_by_one_however_many(many: Target) -> None:
    with markerjit.attach(many.pid) as session, session.trace_allocations() as trace:
        many.ask("run 500000")
        meanwhile = trace.allocations()
        many.ask("drop")
    allocations = trace.allocations()

    then, now = (by_function(each)["leaked"] for each in (meanwhile, allocations))
    assert (then["allocations"], then["live"]) == (50_000, 50_000)
    assert then["live_asked"] == then["asked"] == many.ask("asked")["bytes"]
    assert (now["allocations"], now["frees"], now["live"]) == (50_000, 50_000, 0)
    assert now["untracked"] == allocations.unknown_frees == 0
    assert allocations.most_given >= then["live_given"]
    passing = by_function(meanwhile)["passing"]
    assert (passing["allocations"], passing["live"]) == (1_000_000, 0)


def test_one_after_the_other_has_room_for_as_many_blocks(target: Callable) -> None:
    program = target(PROGRAM)
    places = []

    with markerjit.attach(program.pid) as session:
        for _ in range(3):
            with session.trace_allocations() as trace:
                places.append(trace._source.size.slow_room)

    assert places == [MOST_BLOCKS] * 3


def test_markers_around_an_allocator_say_the_same(target: Callable) -> None:
    program = target(PROGRAM)

    with (
        markerjit.attach(program.pid) as session,
        following(session, allocs="truth_take", frees="truth_give") as trace,
    ):
        program.ask("pool 900")
    (site,) = trace.allocations().sites

    assert site.site == markerjit.CallSite(0, "truth_take")
    assert (site.allocations, site.frees, site.live) == (900, 810, 90)
    sizes = [number % 64 + 1 for number in range(900)]
    assert site.asked == site.given == sum(sizes)
    assert site.live_asked == sum(size for number, size in enumerate(sizes) if number % 10 == 0)


def test_an_address_that_is_given_out_again_ends_its_block(target: Callable) -> None:
    program = target(PROGRAM)

    with (
        markerjit.attach(program.pid) as session,
        following(session, allocs=["truth_take"], frees=["truth_give"]) as trace,
    ):
        program.ask("pool 2000")  # the pool has 1000 slots
    (site,) = trace.allocations().sites

    assert (site.allocations, site.frees, site.lost_frees, site.live) == (2000, 1800, 100, 100)


def test_functions_are_named_as_allocators(target: Callable) -> None:
    program = target(PROGRAM)

    with (
        markerjit.attach(program.pid) as session,
        following(session, allocs="func:libc.so*:malloc", frees="func:libc.so*:free") as trace,
    ):
        program.ask("run 200")
    sites = by_function(trace.allocations())

    assert sites["plain"]["allocations"] == sites["plain"]["frees"] == 200
    assert "zeroed" not in sites


# ---- other allocators ----------------------------------------------------------------------------

JEMALLOC, TCMALLOC = (
    f"/usr/lib/x86_64-linux-gnu/{name}" for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4")
)


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def installed(path: str, package: str) -> str:
    """The path, where the package is installed; skips otherwise."""
    if not Path(path).exists():
        pytest.skip(f"needs {path} (Debian package {package})")
    return path


@pytest.mark.product
@pytest.mark.parametrize("by", ["site", "stack"])
@pytest.mark.parametrize(("library", "allocator"), [(JEMALLOC, "jemalloc"), (TCMALLOC, "")])
def test_of_another_allocator_every_site_has_the_counts_of_the_program(
    target: Callable, ending: ExitStack, library: str, allocator: str, by: str
) -> None:
    path = str(target(PROGRAM).path)
    package = "libjemalloc2" if library == JEMALLOC else "libtcmalloc-minimal4"
    library = installed(library, package)
    program = Target(Path("/usr/bin/env"), f"LD_PRELOAD={library}", path)
    ending.callback(program.end)
    program.wait_ready()

    with markerjit.attach(program.pid) as session:
        program.ask("run 30")
        before = counts_of(program)
        with following(session, by=by) as trace:
            program.ask("run 500")
        truth = since(before, counts_of(program))
        assert not any(each.mode for each in session.status())
    allocations = trace.allocations()

    seen = seen_by_us(allocations)
    assert {name: each._replace(given=0) for name, each in truth.items()} == {
        name: seen[name]._replace(given=0) for name in truth
    }
    assert (allocations.unseen, allocations.unknown_frees) == (0, 0)
    assert allocations.allocator == allocator
    of_alignment = {
        "aligned",
        "bounded",
        "paged",
    }  # larger classes may be taken for these
    for name, each in truth.items():
        if not allocator:
            assert seen[name].given == seen[name].asked
        elif name in of_alignment:
            assert seen[name].asked <= seen[name].given <= each.given
        else:
            assert seen[name].given == each.given


def test_redis_keeps_a_block_for_each_value(tmp_path: Path, ending: ExitStack) -> None:
    path = tmp_path / "redis"
    server = Limited(
        [installed("/usr/bin/redis-server", "redis-server"),
         "--port", "0", "--unixsocket", path, "--save", ""],
        cwd=tmp_path, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    values = 500

    ending.callback(server.wait)
    ending.callback(server.terminate)
    with socket.socket(socket.AF_UNIX) as client:
        # The path is there before redis listens.
        wait_until(lambda: client.connect_ex(str(path)) == 0, "redis-server listens")
        with markerjit.attach(server.pid) as session, following(session, by="stack") as trace:
            for number in range(values):
                client.sendall(b"SET key:%d %s\r\n" % (number, b"x" * 3000))
                assert client.recv(100) == b"+OK\r\n"
    allocations = trace.allocations()

    assert (allocations.unseen, allocations.allocator) == (0, "jemalloc")
    of_values = range(3001, 3100)
    kept = [each for each in allocations.leaks if each.live_asked // each.live in of_values]
    assert sum(each.live for each in kept) == values
    for each in kept:
        assert "processCommand" in functions_of(each)
        assert functions_of(each)[-1] == "_start"


def test_a_function_without_a_symbol_is_followed_by_file_and_address(
    target: Callable, tmp_path: Path, ending: ExitStack
) -> None:
    path, stripped = target(PROGRAM).path, tmp_path / "stripped"
    listed = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    (entry,) = (line.split()[0] for line in listed.splitlines() if line.endswith(" leaked"))
    subprocess.run(["strip", "-o", stripped, path], check=True)
    program = Target(stripped)
    ending.callback(program.end)
    program.wait_ready()
    name = f"func:stripped+{int(entry, 16):#x}"

    with markerjit.attach(program.pid) as session:
        session.enable(f"{name},{name}:return")
        program.ask("run 50")
    with markerjit.attach(program.pid) as session:
        counts = {each.name: each.hits for each in session.status() if each.mode}
        session.disable(f"{name},{name}:return")
        left = [each.name for each in session.status() if each.mode]

    assert counts == {name: 50, f"{name}:return": 50}
    assert left == []


# ---- by stack ------------------------------------------------------------------------------------


def functions_of(site: markerjit.AllocationSite) -> list[str]:
    stack = site.site.stack
    assert stack is not None
    return [frame.function for frame in stack.frames]


def test_by_stack_every_site_has_the_counts_and_the_callers(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session:
        program.ask("run 30")
        before = counts_of(program)
        with following(session, by="stack") as trace:
            program.ask("run 500")
        truth = since(before, counts_of(program))
    allocations = trace.allocations()

    seen = seen_by_us(allocations)
    assert {name: each._replace(given=0) for name, each in truth.items()} == {
        name: seen[name]._replace(given=0) for name in truth
    }
    assert (allocations.depth, allocations.lost_stacks) == (64, 0)
    for each in allocations.sites:
        if each.site.function in truth:
            functions = functions_of(each)
            assert functions[:2] == [each.site.function, "main"]
            assert functions[-1] == "_start"
            assert not each.site.stack.end  # type: ignore[union-attr]


def test_a_layer_over_malloc_is_told_apart_by_its_callers(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session:
        with following(session, by="stack") as trace:
            program.ask("layers 300")
        with following(session) as by_caller:
            program.ask("layers 300")
    stacks: Counter[tuple[str, ...]] = Counter()  # a compiler may make two calls of one
    for each in trace.allocations().sites:
        *path, main = functions_of(each)[:3]
        assert main == "main"
        for name in ("allocations", "frees", "live_asked"):
            stacks[*path, name] += getattr(each, name)

    assert stacks == {
        ("layer", "left", "allocations"): 300,
        ("layer", "left", "frees"): 0,
        ("layer", "left", "live_asked"): 30000,
        ("layer", "right", "allocations"): 600,
        ("layer", "right", "frees"): 600,
        ("layer", "right", "live_asked"): 0,
    }
    (site,) = by_caller.allocations().sites
    assert (site.allocations, site.live, site.site.stack) == (900, 300, None)


@pytest.mark.parametrize("depth", [1, 2, 256])
def test_a_stack_has_as_many_frames_as_were_asked_for(target: Callable, depth: int) -> None:
    program = target(PROGRAM)

    with (
        markerjit.attach(program.pid) as session,
        following(session, by=f"stack({depth})") as trace,
    ):
        program.ask("layers 10")
    sites = trace.allocations().sites

    assert sum(each.allocations for each in sites) == 30
    assert {functions_of(each)[1] for each in sites if depth > 1} == (
        {"left", "right"} if depth > 1 else set()
    )
    for each in sites:
        functions = functions_of(each)
        assert functions[0] == "layer"
        assert (len(functions) == depth) is (depth < 3)
        assert bool(each.site.stack.end) is (depth < 3)  # type: ignore[union-attr]


def test_the_stacks_of_markers_begin_where_these_are(target: Callable) -> None:
    program = target(PROGRAM)

    with (
        markerjit.attach(program.pid) as session,
        following(session, allocs="truth_take", frees="truth_give", by="stack") as trace,
    ):
        program.ask("pool 900")
    (site,) = trace.allocations().sites

    assert (site.allocations, site.live) == (900, 90)
    assert functions_of(site)[0].removesuffix(".cold") in {"use_pool", "main"}
    assert functions_of(site)[-1] == "_start"


def test_files_have_whole_paths(target: Callable, tmp_path: Path) -> None:
    import xml.etree.ElementTree as ElementTree

    import pyarrow.parquet as parquet

    program = target(PROGRAM)
    with (
        markerjit.attach(program.pid) as session,
        following(session, by="stack") as trace,
    ):
        program.ask("layers 200")
    allocations = trace.allocations()

    for name in ("a.parquet", "a.folded", "a.svg", "a.speedscope.json"):
        markerjit.write_allocations(allocations, str(tmp_path / name))
    table = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    (line,) = (tmp_path / "a.folded").read_text().splitlines()
    chain, weight = line.rsplit(" ", 1)
    picture = ElementTree.parse(tmp_path / "a.svg").getroot()
    names = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    scope = json.loads((tmp_path / "a.speedscope.json").read_text())

    assert [row["stack"][:3] for row in table] == [functions_of(e)[:3] for e in allocations.sites]
    assert chain.split(";")[0] == "_start"
    assert chain.split(";")[-3:] == ["main", "left", "layer"]
    assert int(weight) == allocations.live_given == sum(scope["profiles"][0]["weights"])
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert "layer: 200 allocations, 200 blocks live" in names


def test_the_command_prints_stacks_below_their_numbers(target: Callable) -> None:
    program = target(PROGRAM)
    with running("alloc", program.pid, "--by", "stack", "--leaks") as command:
        wait_until_on(program.pid, lambda: "func:malloc" in cli("status", program.pid).stdout)
        program.ask("layers 50")
        command.send_signal(signal.SIGTERM)
        output = command.communicate()[0]

    head, layer, left, main, *_ = output.splitlines()
    assert head.startswith("LIVE 5200 B  BLOCKS 50  OLDEST ")
    assert [line.split("+")[0] for line in (layer, left, main)] == [
        "    layer", "    left", "    main",
    ]  # fmt: skip
    assert re.search(r"^150 allocations at \d stacks", output, re.MULTILINE)


def test_stacks_in_a_terminal_are_a_line_each_until_the_end(target: Callable) -> None:
    program = target(PROGRAM)

    with at_work(program):
        shown = in_terminal("alloc", program.pid, "-d", "1200ms", "--by", "stack", NO_COLOR="1")

    assert "plain < main < " in shown
    assert all(len(line) <= 80 for line in screen_of(shown))


@pytest.mark.parametrize("by", ["", "stack(0)", "stack(257)", "stack()", "stacks", "tid", 5])
def test_what_allocations_are_told_apart_by_is_checked(target: Callable, by: Any) -> None:
    program = target(PROGRAM)
    code = code_of(program)

    with (
        markerjit.attach(program.pid) as session,
        pytest.raises(markerjit.BadArgument, match=r"site, stack, or stack\(N\)"),
        session.trace_allocations(by=by),
    ):
        pass

    assert code_of(program) == code


# ---- its end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["site", "stack"])
def test_sites_have_names_though_the_process_ended_before_they_were_read(
    target: Callable, by: str
) -> None:
    program = Target(target(PROGRAM).path)
    program.wait_ready()

    with (
        markerjit.attach(program.pid) as session,
        session.trace_allocations(by=by) as trace,
    ):
        program.ask("run 50")  # nobody reads
        program.end()
        trace.wait()
    functions = by_function(trace.allocations())

    assert functions["leaked"]["live"] == 5
    assert {"plain", "zeroed", "grown", "handed"} <= functions.keys()


def test_a_limit_and_a_duration_end_it(target: Callable) -> None:
    program = target(PROGRAM)
    with markerjit.attach(program.pid) as session, at_work(program):
        limited = session.allocations(limit=100)
        timed = session.allocations(duration=0.2)

    assert limited.allocations >= 100
    assert timed.seconds >= 0.2


# ---- the command ---------------------------------------------------------------------------------


def test_the_command_prints_sites_and_what_has_to_be_known(target: Callable) -> None:
    program = target(PROGRAM)
    with running("alloc", program.pid) as command:
        wait_until_on(program.pid, lambda: "func:malloc" in cli("status", program.pid).stdout)
        program.ask("run 300")
        command.send_signal(signal.SIGINT)
        output = command.communicate()[0]

    assert command.returncode == 0
    header, *rows = output.splitlines()
    assert header.split() == [*HEADER]
    assert any(row.endswith("truth_alloc") and " leaked+0x" in row for row in rows)
    assert "bytes given: by the rules of glibc" in output
    assert re.search(r"^(\d+) of \1 markers are off", cli("status", program.pid).stdout)


def test_leaks_are_what_is_live_at_the_end(target: Callable) -> None:
    program = target(PROGRAM)
    with running("alloc", program.pid, "--leaks") as command:
        wait_until_on(program.pid, lambda: "func:malloc" in cli("status", program.pid).stdout)
        program.ask("run 300")
        command.send_signal(signal.SIGTERM)
        output = command.communicate()[0]

    header, row, *_ = output.splitlines()
    assert header.split() == ["LIVE", "BLOCKS", "OLDEST", "SITE"]
    assert row.split()[2] == "30"
    assert "leaked+0x" in row


def test_files_have_the_sites(target: Callable, tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    program = target(PROGRAM)
    with markerjit.attach(program.pid) as session, following(session) as trace:
        program.ask("run 200")
    allocations = trace.allocations()

    for name in ("a.parquet", "a.folded", "a.speedscope.json", "a.html"):
        markerjit.write_allocations(allocations, str(tmp_path / name))
    table = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    folded = (tmp_path / "a.folded").read_text().splitlines()
    scope = json.loads((tmp_path / "a.speedscope.json").read_text())

    assert [row["function"] for row in table] == [e.site.function for e in allocations.sites]
    assert sum(row["live_given"] for row in table) == allocations.live_given
    assert sum(int(line.rsplit(" ", 1)[1]) for line in folded) == allocations.live_given
    assert scope["profiles"][0]["unit"] == "bytes"
    assert sum(scope["profiles"][0]["weights"]) == allocations.live_given
    with pytest.raises(markerjit.Refused, match=r"a\.parquet"):
        markerjit.write_allocations(allocations, str(tmp_path / "a.parquet"))
    with pytest.raises(markerjit.Refused, match="suffix"):
        markerjit.write_allocations(allocations, str(tmp_path / "a.txt"))


def test_a_target_that_is_killed_leaves_what_was_seen(target: Callable) -> None:
    program = Target(target(PROGRAM).path)
    program.wait_ready()
    with running("alloc", program.pid) as command:
        wait_until_on(program.pid, lambda: "func:malloc" in cli("status", program.pid).stdout)
        program.ask("run 50")
        program.end()
        output, errors = command.communicate()

    assert command.returncode == 1
    assert "leaked+0x" in output or "truth_alloc+0x" in output
    assert str(program.pid) in errors


def test_a_target_that_is_killed_in_the_middle_of_a_step_leaves_numbers_that_fit(
    target: Callable,
) -> None:
    program = Target(target(PROGRAM).path)
    program.wait_ready()

    with markerjit.attach(program.pid) as session, session.trace_allocations() as trace:
        program.send("hot 100000000")
        wait_until(lambda: trace.allocations().allocations > 100_000, "it allocates")
        os.kill(program.pid, signal.SIGKILL)
        trace.wait()
    program.end()
    hot = by_function(trace.allocations())["be_hot"]

    assert trace.target_ended
    gone = hot["frees"] + hot["live"] + hot["lost_frees"] + hot["untracked"]
    assert hot["allocations"] > 100_000
    assert abs(hot["allocations"] - gone) <= 2 * 2  # each of two threads in one step


def test_libraries_that_come_and_go_leave_the_program_and_the_numbers_as_they_are(
    target: Callable, build: Path
) -> None:
    program = target("truth_dlopen")

    with markerjit.attach(program.pid) as session, following(session, by="stack") as trace:
        for _ in range(20):
            assert program.command(f"load {build}/truth_plugin.so").endswith("ok=1")
            assert program.ask("call 5") == {"ok": 1}
            assert program.command("unload").endswith("ok=1")
    allocations = trace.allocations()

    assert allocations.allocations > 20
    assert allocations.no_site == sum(each.untracked for each in allocations.sites) == 0
    for each in allocations.sites:
        assert each.frees + each.live + each.lost_frees == each.allocations


def test_a_child_is_not_followed_and_that_is_said(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session, following(session) as trace:
        program.ask("run 1")
        program.command("fork")
    allocations = trace.allocations()

    assert allocations.children == 1
    assert by_function(allocations)["plain"]["allocations"] == 1


def test_json_has_all_of_it(target: Callable) -> None:
    program = target(PROGRAM)

    with at_work(program):
        document = facts("alloc", program.pid, "-n", 500)

    assert document["allocations"] >= 500
    assert document["allocations"] == sum(each["allocations"] for each in document["sites"])
    assert document["pid"] == program.pid


@pytest.mark.parametrize("by", ["site", "stack"])
def test_json_of_leaks_has_the_sites_with_blocks_that_live(target: Callable, by: str) -> None:
    program = target(PROGRAM)
    with running("alloc", program.pid, "--leaks", "--json", "--by", by) as command:
        wait_until_on(program.pid, lambda: "func:malloc" in cli("status", program.pid).stdout)
        program.ask("run 300")
        command.send_signal(signal.SIGTERM)
        document = json.loads(command.communicate()[0])

    sites = document["sites"]
    assert sites and all(each["live"] > 0 for each in sites)
    assert document["live"] == sum(each["live"] for each in sites)
    assert document["allocations"] > sum(each["allocations"] for each in sites)
    assert all((each["site"]["stack"] is not None) == (by == "stack") for each in sites)


def test_a_terminal_of_80_columns_has_a_live_table(target: Callable) -> None:
    program = target(PROGRAM)

    with at_work(program):
        shown = in_terminal("alloc", program.pid, "-d", "1200ms", NO_COLOR="1")

    assert shown.count("Ctrl-C ends it") >= 1
    assert any(line.startswith("LIVE ") for line in screen_of(shown))
    assert all(len(line) <= 80 for line in screen_of(shown))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"allocs": "truth_take"}, markerjit.BadArgument, "given together"),
        ({"frees": "truth_give"}, markerjit.BadArgument, "given together"),
        ({"allocs": "truth_give", "frees": "truth_take"}, markerjit.BadArgument, "ptr and size"),
        ({"allocs": "truth_none", "frees": "truth_give"}, markerjit.UnknownMarker, "truth_none"),
        ({"allocs": "truth_*", "frees": "truth_give"}, markerjit.BadArgument, "ptr and size"),
        (
            {"allocs": "truth_take", "frees": "truth_give", "read": True},
            markerjit.BadArgument, "whose blocks are known",
        ),
    ],
)  # fmt: skip
def test_nonsense_is_refused_and_nothing_is_written(
    target: Callable, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    program = target(PROGRAM)
    code = code_of(program)

    with (
        markerjit.attach(program.pid) as session,
        pytest.raises(error, match=words),
        session.trace_allocations(**options),
    ):
        pass

    assert code_of(program) == code
