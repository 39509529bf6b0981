"""Aggregates by stack: beside what programs know of themselves, and beside gdb."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit import StackEnd, WalkedStack
from markerjit.session.allocation_sites import Sites
from markerjit.session.walked import WalkedStacks
from tests.support.commands import cli, one_line, running
from tests.support.loading import Loading, build
from tests.support.markers import wait_until_on

pytestmark = pytest.mark.live

TURNS = 40


def functions(stack: Any) -> list[str]:
    """The innermost first, as far as they have names."""
    assert isinstance(stack, WalkedStack)
    return [frame.function for frame in stack.frames if frame.function]


def counted(program: Any, pattern: str, *, by: str = "stack", turns: int = TURNS) -> list[tuple]:
    """The functions of each stack, its end, and how many events had it, after some turns."""
    with markerjit.attach(program.pid) as session:
        with session.aggregate(pattern, "count()", by=by) as adding:
            program.ask(f"run {turns}")
        answers = adding.read()
    assert not answers.lost_stacks
    return [(functions(row.key[-1]), row.key[-1].end, row.events) for row in answers.rows]


# ---- functions -----------------------------------------------------------------------------------


def test_an_entry_has_the_stack_that_led_to_it(target: Callable) -> None:
    """Threads with frames at all distances from a page, each with a stack of its own."""
    rows = counted(target("truth_stacks"), "func:truth_stacks:waited")

    assert sum(count for *_, count in rows) == 6 * TURNS
    assert {(*names[:2], end) for names, end, _ in rows} == {("waited", "wait_deep", "")}


def test_a_stack_goes_through_a_signal_and_its_own_stack(target: Callable) -> None:
    rows = counted(target("truth_stacks"), "func:truth_stacks:nested")

    assert {end for _, end, _ in rows} == {StackEnd.OUTERMOST}
    plain = [(names, count) for names, _, count in rows if "handle" not in names]
    handled = [(names, count) for names, _, count in rows if "handle" in names]
    assert sum(count for _, count in plain) == sum(count for _, count in handled) == TURNS
    assert {tuple(names[:1]) for names, _ in plain} == {("nested",)}
    for names, _ in handled:
        assert names[:2] == ["nested", "handle"] and names.index("raise") < names.index("nested", 1)
        assert names[-2:] == ["__libc_start_main", "_start"]


def test_a_stack_of_a_context_ends_where_the_context_does(target: Callable) -> None:
    rows = counted(target("truth_stacks"), "func:truth_stacks:held")

    assert sum(count for *_, count in rows) == 4 * TURNS
    assert {names[0] for names, *_ in rows} == {"held"}


def test_an_exit_has_the_stack_of_its_function(target: Callable) -> None:
    """With what the entry has kept, and without."""
    program = target("truth_stacks")
    for by in ("stack", "dur > 0, stack"):
        rows = counted(program, "func:truth_stacks:waited:return", by=by)

        assert sum(count for *_, count in rows) == 6 * TURNS
        assert {(*names[:2], end) for names, end, _ in rows} == {("waited", "wait_deep", "")}


def test_a_stack_has_as_many_frames_as_are_asked_for(target: Callable) -> None:
    rows = counted(target("truth_stacks"), "func:truth_stacks:summed", by="stack(2)")

    ((names, end, count),) = rows
    assert count == TURNS and end is StackEnd.DEEPER
    assert names[0] == "summed" and len(names) == 2


# ---- markers -------------------------------------------------------------------------------------


def test_a_marker_has_the_stack_of_its_function(target: Callable) -> None:
    program = target("truth_keys", "2", "--keys", "4")
    with markerjit.attach(program.pid) as session:
        with session.aggregate("truth_key", "count()", by="stack") as adding:
            program.ask("null 30")
        answers = adding.read()

    assert answers.events == 30
    for row in answers.rows:
        names = functions(row.key[0])
        assert row.key[0].end is StackEnd.OUTERMOST and names[-1] == "_start", names
        assert "main" in names


# ---- objects that come and go --------------------------------------------------------------------


@pytest.fixture
def loading(tmp_path: Path) -> Any:
    program = Loading(tmp_path)
    yield program
    program.close()


@contextmanager
def leaves(pid: int) -> Iterator[markerjit.AddingUp]:
    with markerjit.attach(pid) as session, session.aggregate(
        "func:leaf", "count()", by="stack"
    ) as adding:  # fmt: skip
        yield adding


def test_an_object_that_came_later_has_no_table_until_the_next_look(loading: Any) -> None:
    with leaves(loading.pid) as adding:
        loading.ask("one.so", "hit", "hit")
        before = {tuple(functions(row.key[0])): row for row in adding.read().rows}
        loading.ask("hit")
        after = adding.read()

    ((names, row),) = before.items()
    assert names == ("leaf",) and row.key[0].end is StackEnd.NO_TABLE and row.events == 2
    (row,) = (row for row in after.rows if len(row.key[0].frames) > 1)
    assert functions(row.key[0])[:4] == ["leaf", "one", "through", "main"]
    assert row.key[0].end is StackEnd.OUTERMOST and row.events == 1


def test_the_table_of_an_object_that_went_is_not_used_for_another_one(loading: Any) -> None:
    """The second one comes into the place of the first, with frames of another size."""
    loading.ask("one.so", "hit")
    place = mapped(loading.pid, "one.so")
    with leaves(loading.pid) as adding:
        loading.ask("hit")
        first = adding.read()
        loading.ask("close", "two.so", "hit")
        assert mapped(loading.pid, "two.so") == place, "it came to another place"
        adding.read()
        loading.ask("hit")
        last = adding.read()

    assert functions(first.rows[0].key[0])[:4] == ["leaf", "one", "through", "main"]
    ends = {(len(row.key[0].frames), row.key[0].end): row for row in last.rows}
    cut = next(row for (count, end), row in ends.items() if end is StackEnd.NO_TABLE)
    assert len(cut.key[0].frames) == 2 and cut.events == 1
    whole = [functions(row.key[0])[:4] for row in last.rows if row is not cut]
    assert ["leaf", "two", "through", "main"] in whole


def swapped(loading: Any) -> None:
    """Another object in the place of the first, with the same functions at the same addresses."""
    place = mapped(loading.pid, "one.so")
    loading.ask("close", "six.so")
    assert mapped(loading.pid, "six.so") == place, "it came to another place"


def paths(answers: Any) -> Counter:
    """How many events had each stack, up to main."""
    counts: Counter = Counter()
    for row in answers.rows:
        labels = [frame.label for frame in row.key[0].frames]
        counts[tuple(labels[:4])] += row.events
    return counts


def test_stacks_through_the_same_addresses_have_the_names_of_their_own_objects(
    loading: Any,
) -> None:
    loading.ask("one.so")
    with leaves(loading.pid) as adding:
        loading.ask(*["hit"] * 3)
        adding.read()
        swapped(loading)
        adding.read()
        loading.ask(*["hit"] * 5)
    last = adding.read()

    first, second = (("leaf", name, "through", "main") for name in ("one", "six"))
    assert paths(last) == {first: 3, second: 5}


def test_a_stack_that_is_read_late_has_the_names_of_its_objects(loading: Any) -> None:
    """No number is read before the object has gone, and another one has come to its place."""
    loading.ask("one.so")
    with leaves(loading.pid) as adding:
        loading.ask("hit")
        swapped(loading)
        last = adding.read()

    assert paths(last) == {("leaf", "one", "through", "main"): 1}


def test_an_object_that_came_between_two_looks_is_unknown(loading: Any) -> None:
    """It stands where the first one was, and nobody has seen that it came."""
    loading.ask("one.so")
    with leaves(loading.pid) as adding:
        loading.ask(*["hit"] * 3)
        adding.read()
        swapped(loading)
        loading.ask(*["hit"] * 5)
        swapped_once = adding.read()
        loading.ask(*["hit"] * 7)
    last = adding.read()

    first, second = (("leaf", name, "through", "main") for name in ("one", "six"))
    assert paths(swapped_once) == {first: 3, ("leaf", "[unknown object]"): 5}
    assert paths(last) == {first: 3, ("leaf", "[unknown object]"): 5, second: 7}


def test_another_reader_does_not_name_what_it_has_not_seen(loading: Any) -> None:
    """The second one comes when the first object has gone: it has seen no more than the numbers."""
    loading.ask("one.so")
    with leaves(loading.pid) as adding:
        loading.ask("hit")
        adding.read()
        swapped(loading)
        adding.read()
        with markerjit.attach(loading.pid) as session:
            switcher = session._switcher
            late = WalkedStacks(switcher)
            late.look()
            numbers = [number for number in range(2, 60) if late.of(number)]
            labels = [[frame.label for frame in late.of(number).frames[:4]] for number in numbers]

    assert ["leaf", "[unknown object]", "[unknown object]", "main"] in labels
    assert not any("six" in each or "one" in each for each in labels)


# ---- the same of single addresses ----------------------------------------------------------------


def callers(answers: Any) -> Counter:
    """How many events had each name of a caller, without its distance and address."""
    counts: Counter = Counter()
    for row in answers.rows:
        counts[row.names[0].rpartition("+")[0] or row.names[0].rpartition(" ")[0]] += row.events
    return counts


@contextmanager
def leaves_by_caller(pid: int) -> Iterator[markerjit.AddingUp]:
    with markerjit.attach(pid) as session, session.aggregate(
        "func:leaf", "count()", by="caller"
    ) as adding:  # fmt: skip
        yield adding


def test_a_caller_in_an_object_that_came_later_has_a_name(loading: Any) -> None:
    with leaves_by_caller(loading.pid) as adding:
        loading.ask("one.so", "hit", "hit")
        assert callers(adding.read()) == {"one": 2}


def test_a_caller_whose_object_has_gone_keeps_its_name(loading: Any) -> None:
    loading.ask("one.so")
    with leaves_by_caller(loading.pid) as adding:
        loading.ask("hit", "close")
    assert callers(adding.read()) == {"one": 1}


def test_an_address_at_which_two_objects_were_has_the_name_of_neither(loading: Any) -> None:
    loading.ask("one.so")
    with leaves_by_caller(loading.pid) as adding:
        loading.ask(*["hit"] * 3)
        assert callers(adding.read()) == {"one": 3}
        swapped(loading)
        loading.ask(*["hit"] * 5)
        assert callers(adding.read()) == {"[unknown object]": 8}
    assert callers(adding.read()) == {"[unknown object]": 8}


def test_an_object_that_comes_back_to_its_place_has_its_name(loading: Any) -> None:
    loading.ask("one.so", "hit")
    place = mapped(loading.pid, "one.so")
    with leaves_by_caller(loading.pid) as adding:
        loading.ask("hit", "close")
        adding.read()
        loading.ask("one.so", "hit")
        assert mapped(loading.pid, "one.so") == place, "it came to another place"
        assert callers(adding.read()) == {"one": 2}


def test_sites_of_allocations_are_named_in_the_same_way(loading: Any) -> None:
    loading.ask("one.so")
    with markerjit.attach(loading.pid) as session:
        target = session._switcher.target
        address = mapped(loading.pid, "one.so") + 0x1000 + 1
        sites = Sites(target, None, 0, {})
        before = sites.of(address)
        swapped(loading)
        sites.look()
        after = sites.of(address)

    assert os.path.basename(before.object) == "one.so"
    assert (after.function, after.object) == (f"[unknown object] {address:#x}", "")


def mapped(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return min(int(line.split("-")[0], 16) for line in lines if line.endswith(name))


# ---- the command ---------------------------------------------------------------------------------


def while_it_counts(program: Any, *arguments: object) -> str:
    with running(*arguments, stderr=None) as process:
        wait_until_on(program.pid, lambda: "added up" in cli("status", program.pid).stdout)
        program.ask(f"run {TURNS}")
        process.terminate()
        printed, _ = process.communicate()
    assert process.returncode == 0
    return printed


def test_counts_by_stack_are_printed_and_drawn(target: Callable, tmp_path: Path) -> None:
    program = target("truth_stacks")
    picture = tmp_path / "counts.folded"

    printed = while_it_counts(
        program, "count", program.pid, "func:truth_stacks:summed", "--by", "stack", "-o", picture
    )

    lines = printed.splitlines()
    assert lines[0] == f"COUNT {TURNS}  % 100.0  STACK summed"
    assert lines[1].strip() == "summed+0x0 truth_stacks" and lines[-2].endswith("truth_stacks")
    assert lines[-1] == f"1 key, {TURNS} events"
    (chain,) = picture.read_text().splitlines()
    assert chain.startswith("_start;__libc_start_main;") and chain.endswith(f";summed {TURNS}")


def test_sums_by_stack_weigh_what_was_added_up(target: Callable, tmp_path: Path) -> None:
    program = target("truth_stacks")
    picture = tmp_path / "sums.folded"

    printed = while_it_counts(
        program, "stat", program.pid, "func:truth_stacks:summed", "3", "--by", "tid, stack",
        "--json", "-o", picture,
    )  # fmt: skip

    (row,) = json.loads(printed)["rows"]
    tid, stack = row["key"]
    assert tid == program.pid and stack["end"] == "outermost"
    assert stack["frames"][0]["function"] == "summed" and stack["frames"][0]["offset"] == 0
    assert picture.read_text().startswith(f"{tid};_start;")
    assert picture.read_text().endswith(f" {3 * TURNS}\n")


def test_a_picture_needs_stacks(target: Callable, tmp_path: Path) -> None:
    program = target("truth_stacks")

    refused = cli("count", program.pid, "func:truth_stacks:summed", "-o", tmp_path / "a.html")

    one_line(refused, "-o writes stacks; add --by stack")


@pytest.mark.parametrize("depth", ["0", "257", "x", "-1", "1.5", "tid"])
def test_a_wrong_number_of_frames_is_refused(target: Callable, depth: str) -> None:
    program = target("truth_stacks")

    with markerjit.attach(program.pid) as session, pytest.raises(markerjit.BadQuestion):
        session.aggregate("func:truth_stacks:summed", "count()", by=f"stack({depth})").__enter__()


ENDS = """
__attribute__((noinline)) void leaf(void) { __asm__ volatile("nop; nop; nop; nop; nop; nop"); }
__attribute__((noinline)) void above(void) { leaf(); __asm__ volatile(""); }
int main(int argc, char **argv) { for (int n = 0; n < 6 + argc; n++) above(); return 0; }
"""


def test_stacks_of_a_program_that_has_ended_have_names(tmp_path: Path) -> None:
    (tmp_path / "ends.c").write_text(ENDS)
    build(tmp_path, "ends", "ends.c")

    printed = cli("count", "func:leaf", "--by", "stack", "--", tmp_path / "ends").stdout

    lines = [line.split("+")[0].strip() for line in printed.splitlines()]
    assert lines[0] == "COUNT 7  % 100.0  STACK leaf"
    assert lines[1:4] == ["leaf", "above", "main"]


def test_what_no_reader_would_look_up_is_refused(target: Callable) -> None:
    program = target("truth_stacks")
    name = "func:truth_stacks:summed"

    paired = cli("latency", program.pid, name, "func:truth_stacks:tripled", "--by", "stack")

    assert paired.returncode == 1
    assert "a latency from one marker to another has no stack in its key" in paired.stderr


def test_the_durations_of_calls_are_added_up_by_stack(target: Callable) -> None:
    program = target("truth_stacks")
    name = "func:truth_stacks:waited"

    with markerjit.attach(program.pid) as session:
        with session.latency(name, by="stack") as latency:
            program.ask(f"run {TURNS}")
        rows = latency.read().rows

    calls, events = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for row in rows:
        calls[tuple(functions(row.key[0]))] += row.calls
    for names, _, count in counted(program, name):
        events[tuple(names)] += count
    assert sum(calls.values()) == 6 * TURNS
    assert calls == events
    assert all(0 < row.longest_ns <= row.sum_ns for row in rows)  # type: ignore[operator]


def test_the_command_prints_the_frames_of_calls_below_their_times(target: Callable) -> None:
    program = target("truth_stacks")
    name = "func:truth_stacks:summed"

    with running("latency", program.pid, name, "--by", "stack(3)") as command:
        wait_until_on(program.pid, lambda: "summed" in cli("status", program.pid).stdout)
        program.ask("run 10")
        command.send_signal(signal.SIGINT)
        lines = command.communicate()[0].splitlines()

    assert lines[0].startswith("stack(3) summed  CALLS ")
    assert lines[1].startswith("    summed+0x")
    assert not lines[2].startswith("    summed+0x")
