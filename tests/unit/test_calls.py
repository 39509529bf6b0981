"""Calls from steps of threads: stacks, what does not fit, the tree, the price, and files."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from markerjit.calls import files
from markerjit.calls.areas import Areas
from markerjit.calls.files import check_calls_file, folded, speedscope, write_calls
from markerjit.calls.flames import flames_of
from markerjit.calls.graph import OTHERS, CallGraph, sums_of
from markerjit.calls.page import page
from markerjit.calls.price import LONGEST_NS, Price
from markerjit.calls.repair import Apart, Repaired, repaired
from markerjit.calls.samples import SampledTree, StackSamples
from markerjit.calls.stacks import Stacks, _to_look_at
from markerjit.calls.steps import CUT, ENTER, LEAVE, TAIL, Steps, by_thread, steps_of
from markerjit.calls.threads import Threads
from markerjit.calls.tree import Tree
from markerjit.cli import read
from markerjit.errors import NoSuchProcess, Refused
from markerjit.session.calls import functions_named

NAMES = ("a", "b", "c", "d")
A, B, C, D = range(4)
TOP, FRAME_SIZE = 0x7FFC_0000_0000, 16


class Program:
    """Steps of made-up threads, and a tree of their calls."""

    def __init__(self, areas: Areas | None = None, **options: object) -> None:
        self.stacks = Stacks(areas)
        self._open: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        self.tree = Tree(len(NAMES), **options)  # type: ignore[arg-type]
        self.now = 0

    def run(self, text: str, thread: int = 0) -> Program:
        """`a` enters a function and `A` leaves it, each a nanosecond behind the last; `>A` is a
        tail call. A function is left at the stack pointer of its last entry."""
        steps = []
        tail = False
        for letter in text:
            if letter == ">":
                tail = True
                continue
            self.now += 1
            kind = ENTER if letter.islower() else TAIL if tail else LEAVE
            stack = self._stack_of(letter, thread)
            steps.append((thread, NAMES.index(letter.lower()), kind, self.now, stack))
            tail = False
        self.tree.add(self.stacks.advance(steps_of(*zip(*steps, strict=True))))
        return self

    def _stack_of(self, letter: str, thread: int) -> int:
        calls = self._open[thread]
        now = calls[-1][1] if calls else TOP
        if letter.islower():
            calls.append((letter, now - FRAME_SIZE))
            return now - FRAME_SIZE
        for at in reversed(range(len(calls))):
            if calls[at][0] == letter.lower():
                stack = calls[at][1]
                del calls[at:]
                return stack
        return now + FRAME_SIZE  # was entered before

    def at(self, *steps: tuple[str, int], thread: int = 0) -> Program:
        """The same with the stack pointer of each step."""
        made = []
        for letter, stack in steps:
            self.now += 1
            kind = ENTER if letter.islower() else LEAVE
            made.append((thread, NAMES.index(letter.lower()), kind, self.now, stack))
        self.tree.add(self.stacks.advance(steps_of(*zip(*made, strict=True))))
        return self

    def lose(self) -> Program:
        times = np.full(10, self.now, np.int64)
        self.tree.add(self.stacks.stop(times, ended=False))
        return self

    def graph(self) -> CallGraph:
        sums = sums_of(self.tree, self.stacks, NAMES, self.now)
        return CallGraph(1.0, *sums, NAMES, folded=self.tree.folded, command="made")

    def calls(self) -> dict[str, int]:
        return {each.name: each.calls for each in self.graph().functions if each.calls}

    def ways(self) -> dict[str, int]:
        """Calls by the chain of callers."""
        nodes = self.graph().nodes
        chain = [""]
        for node in nodes[1:]:
            chain.append(f"{chain[node.parent]}{node.name}")
        return {way: node.calls for way, node in zip(chain, nodes, strict=True) if node.calls}


def of(graph: CallGraph, name: str) -> object:
    return next(each for each in graph.functions if each.name == name)


def test_nested_calls_have_their_callers_and_times() -> None:
    graph = Program().run("abBcCA").graph()

    a, b = of(graph, "a"), of(graph, "b")
    assert (a.calls, a.total_ns, a.own_ns) == (1, 5, 3)
    assert (b.calls, b.total_ns, b.own_ns) == (1, 1, 1)
    assert (a.least_ns, a.mean_ns, a.largest_ns) == (5, 5.0, 5)
    assert [(each.caller, each.callee, each.calls) for each in graph.callees("a")] == [
        ("a", "b", 1), ("a", "c", 1),
    ]  # fmt: skip
    assert [each.caller for each in graph.callers("a")] == [""]


def test_recursion_counts_its_time_once() -> None:
    graph = Program().run("aaaAAA").graph()

    a = of(graph, "a")
    assert (a.calls, a.total_ns, a.own_ns) == (3, 5, 5)
    assert (a.least_ns, a.largest_ns) == (1, 5)


def test_a_tail_call_makes_way_for_its_callee() -> None:
    program = Program().run("ab>BcCA")

    assert program.ways() == {"a": 1, "ab": 1, "ac": 1}
    assert of(program.graph(), "b").tails == 1


def test_calls_that_are_cut_end_with_the_exit_of_their_caller() -> None:
    program = Program().run("abcAdD")

    graph = program.graph()
    assert [of(graph, name).cut for name in "abc"] == [0, 1, 1]
    assert program.ways() == {"a": 1, "ab": 1, "abc": 1, "d": 1}
    assert of(graph, "b").least_ns is None


def test_an_exit_without_an_entry_is_counted_and_nothing_else() -> None:
    program = Program().run("BaAC")

    assert program.calls() == {"a": 1}
    assert [of(program.graph(), name).without_entry for name in "bc"] == [1, 1]


def test_calls_go_on_from_one_batch_to_the_next() -> None:
    program = Program()
    for letter in "abcCBbBA":
        program.run(letter)

    assert program.ways() == {"a": 1, "ab": 2, "abc": 1}
    assert program.graph().nodes == Program().run("abcCBbBA").graph().nodes


def test_running_calls_count_up_to_now() -> None:
    graph = Program().run("abB").run("c").graph()

    a = of(graph, "a")
    assert (a.calls, a.total_ns, a.running, a.own_ns) == (1, 3, 1, 2)
    assert a.least_ns is None


def test_threads_have_stacks_of_their_own() -> None:
    program = Program().run("a", thread=1).run("b", thread=2).run("cC", thread=1)
    program.run("B", thread=2).run("A", thread=1)

    assert program.ways() == {"a": 1, "ac": 1, "b": 1}


def test_what_is_given_up_comes_back_with_the_exit_of_its_callee() -> None:
    program = Program().run("abc").lose().run("dDBcCA")

    assert program.ways() == {"a": 1, "ab": 1, "abc": 1, "d": 1, "ac": 1}
    a, b = (of(program.graph(), name) for name in "ab")
    assert (a.stopped, b.stopped) == (1, 1)
    assert (a.least_ns, a.without_entry, b.without_entry) == (None, 0, 0)
    assert all(each.own_ns >= 0 for each in program.graph().functions)


def test_the_calls_of_a_thread_that_ended_end_with_it() -> None:
    program = Program().run("ab", thread=1).run("c", thread=2)
    times = np.array([0, 9, 0])

    program.tree.add(program.stacks.stop(times, np.array([1], np.uint32), ended=True))

    graph = program.graph()
    assert [of(graph, name).stopped for name in "abc"] == [1, 1, 0]
    assert of(graph, "a").total_ns == 8
    program.run("aA", thread=1)
    assert program.ways() == {"a": 2, "ab": 1, "c": 1}


def test_only_what_is_below_a_function_counts() -> None:
    program = Program(roots=[B]).run("abcCBcCA")

    assert program.ways() == {"b": 1, "bc": 1}
    assert program.calls() == {"b": 1, "c": 1}


def test_deeper_calls_are_the_time_of_their_callers() -> None:
    graph = Program(depth=2).run("abcCBA").graph()

    assert [each.name for each in graph.functions] == ["b", "a"]
    assert of(graph, "b").own_ns == 3


def test_calls_that_find_no_room_in_the_tree_keep_their_numbers() -> None:
    program = Program(most=4).run("abcCBA")

    graph = program.graph()
    whole = Program().run("abcCBA").graph()
    assert graph.functions == whole.functions
    assert graph.folded == 1
    assert graph.callers("c")[0].caller == OTHERS
    assert whole.folded == 0


def made_up(
    seed: int,
) -> tuple[list[tuple[int, int, int, int, int]], dict[str, int]]:
    """Steps of three threads at random with longjmps, and the calls by their chains."""
    draw = random.Random(seed)
    stacks: dict[int, list[tuple[int, int, int]]] = {0: [], 1: [], 2: []}
    ways: Counter[str] = Counter()
    steps = []
    for time in range(1, 2000):
        thread = draw.randrange(3)
        stack = stacks[thread]
        if stack and (draw.random() < 0.5 or len(stack) > 8):
            if len(stack) > 2 and draw.random() < 0.1:
                stack.pop()  # is left by a longjmp to its caller
            function, place, _ = stack.pop()
            if draw.random() < 0.9:  # and otherwise by one, too
                steps.append((thread, function, LEAVE, time, place))
        else:
            function = draw.randrange(len(NAMES))
            place = stack[-1][2] if stack else TOP
            stack.append((function, place, place - 8 * draw.randrange(1, 9)))
            ways["".join(NAMES[each] for each, *_ in stack)] += 1
            steps.append((thread, function, ENTER, time, place))
    return steps, dict(ways)


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_looks_at_each_step_agrees(seed: int) -> None:
    steps, ways = made_up(seed)
    program = Program()
    draw = random.Random(seed)
    at = 0
    while at < len(steps):
        end = at + draw.randrange(1, 200)
        batch = steps_of(*zip(*steps[at:end], strict=True))
        program.tree.add(program.stacks.advance(batch.picked(by_thread(batch))))
        at = end
    program.now = 2000

    assert program.ways() == ways
    graph = program.graph()
    assert sum(each.own_ns for each in graph.functions) == sum(
        node.total_ns for node in graph.nodes if node.parent == 0
    )
    assert all(each.own_ns >= 0 for each in graph.functions)
    assert not any(each.without_entry for each in graph.functions)


def mended(functions: list[int], kinds: list[int], stacks: list[int]) -> Repaired:
    return repaired(functions, kinds, stacks, Apart(), Areas())


def test_steps_that_fit_are_left_as_they_are() -> None:
    made = mended([A, B, B, A], [ENTER, ENTER, LEAVE, LEAVE], [80, 64, 64, 80])

    assert made.rows == [0, 1, 2, 3]
    assert not made.without_entry


def test_a_cut_has_the_time_of_the_exit_behind_it() -> None:
    made = mended([A, B, A], [ENTER, ENTER, LEAVE], [80, 64, 80])

    assert made.rows == [0, 1, 2, 2]
    assert made.kinds == [ENTER, ENTER, CUT, LEAVE]
    assert made.functions == [A, B, B, A]


def test_many_threads_have_numbers_in_the_order_in_which_they_come() -> None:
    threads = Threads()

    first = threads.numbers(np.array([70, 5, 70], np.uint32))
    second = threads.numbers(np.array([9, 5], np.uint32))

    assert threads.tids[first].tolist() == [70, 5, 70]
    assert threads.tids[second].tolist() == [9, 5]
    assert len(threads) == 3


def test_more_threads_than_fit_into_sixteen_bits_are_sorted() -> None:
    steps = Steps(
        np.array([1 << 17, 3, 1 << 17, 3], np.uint32), np.zeros(4, np.int32),
        np.zeros(4, np.uint8), np.arange(4), np.zeros(4, np.uint64),
    )  # fmt: skip

    assert by_thread(steps).tolist() == [1, 3, 0, 2]


def test_the_price_is_the_shortest_time_between_events_of_a_thread_on_one_cpu() -> None:
    price = Price()
    assert price.event_ns() is None

    times = np.cumsum(np.where(np.arange(10_000) % 10, 500, 40))
    thread, cpu = np.zeros(10_000, np.uint32), np.zeros(10_000, np.uint16)
    price.add(thread, cpu, times)
    price.add(np.arange(10_000), cpu, np.arange(10_000))  # each of another thread

    assert price.event_ns() == 40


def test_events_that_are_never_close_have_no_price() -> None:
    price = Price()

    price.add(np.zeros(5000), np.zeros(5000), np.arange(5000) * (LONGEST_NS + 1))

    assert price.event_ns() is None


def test_collapsed_stacks_add_up_to_the_time_of_the_first_functions() -> None:
    graph = Program().run("abcCBAdD").graph()

    lines = dict(line.rsplit(" ", 1) for line in folded(flames_of(graph)).splitlines())

    assert lines == {"a": "2", "a;b": "2", "a;b;c": "1", "d": "1"}


def test_files_have_the_functions_of_cpp_as_they_were_written() -> None:
    symbol, written = "_ZN4Json5Value5asIntEv", "Json::Value::asInt()"
    graph = Program().run("abBA").graph()
    nodes = [node._replace(name=symbol) if node.name == "b" else node for node in graph.nodes]
    flames = flames_of(graph._replace(nodes=tuple(nodes)))

    assert folded(flames) == f"a 2\na;{written} 1\n"
    frames = json.loads(speedscope(flames))["shared"]["frames"]
    assert [frame["name"] for frame in frames] == ["a", written]
    assert f"{written}: 1 call, " in page(flames)
    assert symbol not in page(flames)


def test_speedscope_has_a_weight_for_each_stack() -> None:
    document = json.loads(speedscope(flames_of(Program().run("abBA").graph())))

    (profile,) = document["profiles"]
    assert [frame["name"] for frame in document["shared"]["frames"]] == ["a", "b"]
    assert profile["samples"] == [[0], [0, 1]]
    assert profile["weights"] == [2, 1]
    assert profile["endValue"] == 3


def test_the_page_has_a_box_for_each_function_and_fetches_nothing() -> None:
    graph = Program().run("abBA").graph()
    evil = graph._replace(command="<script>\x1b[31m", nodes=graph.nodes)

    text = page(flames_of(evil))

    assert text.count("<rect") == 2
    assert "<script" not in text and "http" not in text and "\x1b" not in text


@pytest.mark.parametrize("suffix", [".folded", ".collapsed", ".speedscope.json", ".html"])
def test_a_file_is_not_overwritten_unless_it_may_be(tmp_path: Path, suffix: str) -> None:
    graph = Program().run("aA").graph()
    path = str(tmp_path / f"calls{suffix}")

    write_calls(graph, path)

    with pytest.raises(Refused, match="exists already"):
        write_calls(graph, path)
    write_calls(graph, path, force=True)
    assert (tmp_path / f"calls{suffix}").stat().st_size


def test_all_functions_of_a_program_that_is_not_known_are_not_those_of_its_libraries() -> None:
    with pytest.raises(NoSuchProcess):
        functions_named(None, 1 << 22 | 1)  # more than any pid


def test_the_stacks_of_a_trace_are_drawn_in_all_forms() -> None:
    assert set(read._FLAMES) == set(files._WRITERS)


def test_files_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for name in ("calls", "calls.gif", "calls.json", "none/calls.folded"):
        with pytest.raises(Refused):
            check_calls_file(str(tmp_path / name))
    with pytest.raises(Refused, match="single calls"):
        write_calls(Program().run("aA").graph(), str(tmp_path / "calls.pftrace"))


# ---- stacks --------------------------------------------------------------------------------------

HEAP = 0x5555_0000_0000
TWO_MAPPINGS = [(HEAP, HEAP + (1 << 20)), (TOP - (1 << 20), TOP)]


def in_areas() -> Program:
    return Program(Areas(lambda: TWO_MAPPINGS))


def cut_of(program: Program, names: str = "abcd") -> list[int]:
    functions = {each.name: each.cut for each in program.graph().functions}
    return [functions.get(name, 0) for name in names]


def test_an_entry_at_the_place_of_a_call_says_that_it_was_left() -> None:
    # The callees of one call have their return addresses in one place.
    program = Program().at(("a", TOP - 16), ("b", TOP - 64), ("c", TOP - 64), ("C", TOP - 64))
    program.at(("A", TOP - 16))

    assert program.ways() == {"a": 1, "ab": 1, "ac": 1}
    assert cut_of(program) == [0, 1, 0, 0]


def test_an_entry_above_calls_says_that_all_of_them_were_left() -> None:
    program = Program().at(("a", TOP - 16), ("b", TOP - 64), ("c", TOP - 96), ("d", TOP - 24))
    program.at(("D", TOP - 24), ("A", TOP - 16))

    assert program.ways() == {"a": 1, "ab": 1, "abc": 1, "ad": 1}
    assert cut_of(program) == [0, 1, 1, 0]
    assert of(program.graph(), "c").least_ns is None


def test_an_exit_that_was_entered_before_says_that_calls_above_it_were_left() -> None:
    program = Program().at(("a", TOP - 64), ("C", TOP - 16), ("d", TOP - 64))

    assert program.ways() == {"a": 1, "d": 1}
    assert cut_of(program) == [1, 0, 0, 0]
    assert of(program.graph(), "c").without_entry == 1


def test_a_call_that_is_left_by_the_exit_of_another_function_is_cut() -> None:
    program = Program().at(("a", TOP - 16), ("b", TOP - 64), ("C", TOP - 64), ("A", TOP - 16))

    assert cut_of(program) == [0, 1, 0, 0]
    assert of(program.graph(), "c").without_entry == 1


@pytest.mark.parametrize("at", [HEAP + 4096, HEAP + 8192])
def test_a_handler_on_another_stack_is_called_by_what_it_has_interrupted(at: int) -> None:
    program = in_areas()
    for _ in range(2):
        program.at(("a", TOP - 16), ("b", at), ("c", at - 32), ("C", at - 32), ("B", at))
        program.at(("d", TOP - 64), ("D", TOP - 64), ("A", TOP - 16))

    assert program.ways() == {"a": 2, "ab": 2, "abc": 2, "ad": 2}
    assert cut_of(program) == [0, 0, 0, 0]


def test_a_coroutine_goes_on_below_what_resumes_it() -> None:
    program = in_areas()
    program.at(("a", TOP - 16), ("b", HEAP + 4096), ("c", HEAP + 4000), ("A", TOP - 16))

    assert [of(program.graph(), name).running for name in "abc"] == [0, 1, 1]

    program.at(("d", TOP - 16), ("C", HEAP + 4000), ("a", HEAP + 4000), ("A", HEAP + 4000))
    program.at(("B", HEAP + 4096), ("D", TOP - 16))

    assert program.calls() == {"a": 2, "b": 1, "c": 1, "d": 1}
    assert program.ways() == {"a": 1, "ab": 1, "abc": 1, "d": 1, "dba": 1}
    assert cut_of(program) == [0, 0, 0, 0]
    assert not any(each.running for each in program.graph().functions)
    assert all(each.own_ns >= 0 for each in program.graph().functions)


def test_a_stack_that_is_used_again_has_no_calls_of_before() -> None:
    program = in_areas()
    program.at(("a", TOP - 16), ("b", HEAP + 4096), ("c", HEAP + 4000), ("A", TOP - 16))
    program.at(("d", TOP - 16), ("b", HEAP + 4096), ("B", HEAP + 4096), ("D", TOP - 16))

    assert cut_of(program) == [0, 1, 1, 0]
    assert not any(each.running for each in program.graph().functions)


def test_calls_that_go_on_after_all_teach_where_their_stack_ends() -> None:
    # Two coroutines that switch to each other have their stacks side by side.
    low, high = HEAP + 4096 - 64, HEAP + 3 * 4096 - 64
    program = in_areas().at(("a", low), ("b", high), ("A", low), ("c", low), ("B", high))

    assert cut_of(program, "ab") == [0, 0]

    for _ in range(3):
        program.at(("d", high), ("C", low), ("c", low), ("D", high))

    assert program.calls() == {"a": 1, "b": 1, "c": 4, "d": 3}
    assert cut_of(program) == [0, 0, 0, 0]


def test_stacks_far_apart_in_one_mapping_are_told_apart() -> None:
    low, high = HEAP + (1 << 16), HEAP + (2 << 16)
    program = in_areas()
    program.at(("a", TOP - 16), ("b", high), ("A", TOP - 16), ("a", TOP - 16), ("c", low))
    program.at(("A", TOP - 16), ("a", TOP - 16), ("B", high), ("A", TOP - 16))
    program.at(("a", TOP - 16), ("C", low), ("A", TOP - 16))

    assert program.ways() == {"a": 4, "ab": 1, "ac": 1}
    assert cut_of(program) == [0, 0, 0, 0]


def test_parked_calls_of_a_thread_that_ended_end_with_it() -> None:
    program = in_areas()
    program.at(("a", TOP - 16), ("b", HEAP + 4096), ("A", TOP - 16))

    times = np.array([program.now], np.int64)
    program.tree.add(program.stacks.stop(times, np.array([0], np.uint32), ended=True))

    b = of(program.graph(), "b")
    assert (b.running, b.stopped, b.cut) == (0, 1, 0)


def test_mappings_are_read_again_for_new_addresses_at_once_and_for_others_after_a_second() -> None:
    looks, now = [], [5_000_000_000]
    mappings = [*TWO_MAPPINGS]
    areas = Areas(lambda: looks.append(1) or mappings, lambda: now[0])  # type: ignore[func-returns-value]
    gone = [TOP + 4096]

    def looks_for(addresses: list[int]) -> int:
        before = len(looks)
        areas.need(np.array(addresses, np.uint64))
        return len(looks) - before

    asked = ([HEAP, TOP - 8], gone, [TOP + 4104], [HEAP + 8])
    assert [looks_for(addresses) for addresses in asked] == [1, 1, 0, 0]
    assert areas.of(HEAP) == areas.of(HEAP + 4096) != areas.of(TOP - 8)

    # A thread of before has ended, and another one gets its stack at the same place.
    mappings.append((TOP + 4096, TOP + 8192))
    now[0] += 999_999_999
    assert looks_for(gone) == 0
    now[0] += 1
    assert looks_for(gone) == 1
    now[0] += 2_000_000_000
    assert looks_for(gone) == 0
    assert areas.of(TOP + 4096) != areas.of(TOP + 8192)


def test_what_lies_between_two_steps_is_not_looked_at_one_by_one() -> None:
    stack, functions, kinds, places = [TOP], [], [], []
    for letter in "a" + "bcCdDBbB" * 50 + "A":
        functions.append(NAMES.index(letter.lower()))
        kinds.append(ENTER if letter.islower() else LEAVE)
        if letter.islower():
            stack.append(stack[-1] - 16)
        places.append(stack[-1])
        if letter.isupper():
            stack.pop()
    rows = len(kinds)

    part = steps_of(np.zeros(rows), functions, kinds, range(rows), places)

    assert _to_look_at(part, Areas()).tolist() == [0, rows - 1]


# ---- samples of stacks ---------------------------------------------------------------------------


def samples_of(*stacks: str) -> StackSamples:
    tree = SampledTree()
    for stack in stacks:
        tree.add(stack)
    return StackSamples(1.0, len(stacks), 0, tree.stacks, 0, 0, tree.nodes, False, 7, "")


def test_samples_are_added_up_by_their_callers() -> None:
    samples = samples_of("ab", "abc", "ab", "d", "")

    assert samples.stacks == 5
    assert [tuple(node) for node in samples.nodes] == [
        ("", -1, 5, 1), ("a", 0, 3, 0), ("b", 1, 3, 2), ("c", 2, 1, 1), ("d", 0, 1, 1),
    ]  # fmt: skip


def test_a_function_counts_once_in_a_stack_that_has_it_twice() -> None:
    samples = samples_of("aba", "aa", "cb")

    assert [tuple(function) for function in samples.functions] == [
        ("a", 2, 2), ("b", 2, 1), ("c", 1, 0),
    ]  # fmt: skip


def test_samples_are_written_by_their_number(tmp_path: Path) -> None:
    samples = samples_of("ab", "abc", "ab", "d")

    lines = dict(line.rsplit(" ", 1) for line in folded(flames_of(samples)).splitlines())
    (profile,) = json.loads(speedscope(flames_of(samples)))["profiles"]
    write_calls(samples, str(tmp_path / "stacks.html"))

    assert lines == {"a;b": "2", "a;b;c": "1", "d": "1"}
    assert (profile["unit"], profile["endValue"], profile["name"]) == ("none", 4, "process 7")
    text = (tmp_path / "stacks.html").read_text()
    assert text.count("<rect") == 4
    assert "<title>b: 3 stacks (75.0%), own 2</title>" in text
