"""What is added up by key in a process, against what the program counts for itself: with signals,
many threads, forks, without restartable sequences, and with more keys than there is room for."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import markerjit
from markerjit.arena.aggregates import Aggregates
from markerjit.session import aggregate
from markerjit.session.switch import Switcher
from tests.support.buckets import compare_with_histogram, compare_with_quantiles
from tests.support.commands import cli, one_line, python_started
from tests.support.keys import forbid_sequences, run_for_a_while, truth_of
from tests.support.processes import text_of

pytestmark = pytest.mark.live


@pytest.mark.product
@pytest.mark.parametrize(
    "arguments",
    [("1",), ("4",), ("2", "--timer"), ("2", "--pin"), ("8", "--timer", "--keys", "1000")],
)
@pytest.mark.parametrize("sequences", [True, False], ids=["restartable", "shared"])
def test_statistics_by_key_are_those_of_the_program(
    target: Callable, tmp_path: Path, arguments: tuple[str, ...], sequences: bool
) -> None:
    program = target("truth_keys", *arguments)
    before = text_of(program.pid)
    if not sequences:
        with markerjit.attach(program.pid) as session:
            session.enable("truth_key")
            session.disable("truth_key")
        forbid_sequences(program.pid)
    with markerjit.attach(program.pid) as session:
        with session.aggregate("truth_key", "stat(value)", by="key", keys=2000) as adding:
            run_for_a_while(program)
            during = adding.read()
        after = adding.read()
    truth = truth_of(program, tmp_path)

    assert after == during
    assert after.missed == markerjit.Missed()
    assert {row.key[0]: tuple(row.answer) for row in after.rows} == truth
    assert text_of(program.pid) == before


def test_texts_are_keys_and_so_are_parts_of_them(target: Callable, tmp_path: Path) -> None:
    program = target("truth_keys", "2", "--keys", "40")
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate("truth_key", by="text[:5], value < 0") as adding,
    ):
        run_for_a_while(program)
    counts: dict[tuple[str, bool], int] = {}
    for row in adding.read().rows:
        counts[row.key] = row.events  # type: ignore[index]
    truth = truth_of(program, tmp_path)
    by_start: dict[str, int] = {}
    for key, seen in truth.items():
        start = f"key-{key}"[:5]
        by_start[start] = by_start.get(start, 0) + seen.count

    assert {key[0] for key in counts} == set(by_start)
    for start, count in by_start.items():
        assert count == counts.get((start, False), 0) + counts.get((start, True), 0)
    assert {key for key in counts if key[1]} == {("key-0", True)}  # only that has values below 0


@pytest.mark.parametrize(
    "what", ["sum(half)", "min(half)", "max(value)", "avg(value)", "stat(half)"]
)
def test_values_by_a_tuple_are_those_of_the_program(
    target: Callable, tmp_path: Path, what: str
) -> None:
    """Halves are summed exactly. The timer's handler adds, too, in the middle of an event."""
    program = target("truth_keys", "3", "--timer", "--keys", "60")
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate("truth_key", what, by="text[4:], key") as adding,
    ):
        run_for_a_while(program)
    scale = 2 if "half" in what else 1
    does = what.split("(")[0]

    assert adding.read().missed == markerjit.Missed()
    assert {row.key: row.answer for row in adding.read().rows} == {
        (f"{key}", key): markerjit.Statistics(
            seen.count,
            seen.sum / scale if does in ("sum", "avg", "stat") else None,
            seen.least / scale if does in ("min", "stat") else None,
            seen.most / scale if does in ("max", "stat") else None,
        )
        for key, seen in truth_of(program, tmp_path).items()
    }


def test_histogram_and_quantiles_are_those_of_a_lossless_trace(target: Callable) -> None:
    """Both programs have one thread, and so the same values one after the other."""
    program, traced = target("truth_keys", "1"), target("truth_keys", "1")
    # Few enough for a trace, and values of both signs.
    condition = "value % 50 == 7 or value % 50 == -7"
    answers = {}
    for what in ("hist(value)", "quantiles(value)", "hist(half)", "quantiles(half)"):
        with (
            markerjit.attach(program.pid) as session,
            session.aggregate("truth_key", what, where=condition) as adding,
        ):
            run_for_a_while(program, 0.02)
        assert adding.read().missed == markerjit.Missed()
        (answers[what],) = (row.answer for row in adding.read().rows)
    values = lossless_values(traced, condition, sum(answer.total for answer in answers.values()))

    begin = 0
    for what, answer in answers.items():
        part = values[begin : begin + answer.total] / (2 if "half" in what else 1)
        begin += answer.total
        assert part.min() < 0 < part.max()
        if what.startswith("hist"):
            compare_with_histogram(part, answer)
        else:
            compare_with_quantiles(part, answer)


def test_marker_that_is_traced_is_not_added_up(target: Callable) -> None:
    program = target("truth_keys", "1")
    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth_key"),
        pytest.raises(markerjit.Refused, match="recorded by a trace of this very process"),
        session.aggregate("truth_key"),
    ):
        raise AssertionError("it is held")


def test_end_of_a_process_is_not_told_of_one_that_lives_and_was_let_go(target: Callable) -> None:
    program = target("truth_keys", "1")
    with markerjit.attach(program.pid) as session:
        assert not session.is_gone
        with session.aggregate("truth_key") as added:
            pass
        with session.trace("truth_key") as stream:
            pass

    assert stream.is_over()
    assert (added.target_ended, stream.target_ended) == (False, False)
    with pytest.raises(markerjit.MarkerError, match="was released"):
        _ = session.is_gone


def lossless_values(program: Any, condition: str, number: int) -> np.ndarray:
    """The first values that meet the condition, at least so many."""
    parts: list[np.ndarray] = []
    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth_key", fields=["value"], where=condition, lossless=True) as stream,
    ):
        # The stream is read while the program runs: a thread that waits for room cannot pause.
        program.ask("resume")
        while sum(map(len, parts)) < number:
            if (batch := stream.poll_batch()) is not None:
                parts += [columns.fields["value"] for columns in batch.columns]
        assert not stream.lost()
    program.ask("pause")
    return np.concatenate(parts)


def test_what_does_not_meet_the_condition_is_not_added(target: Callable, tmp_path: Path) -> None:
    program = target("truth_keys", "2")
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate(
            "truth_key", "sum(value)", by="tid", where='text == "key-7" or key == 3'
        ) as adding,
    ):
        run_for_a_while(program)
    truth = truth_of(program, tmp_path)
    rows = adding.read().rows

    assert sum(row.events for row in rows) == truth[3].count + truth[7].count
    assert sum(row.answer.sum for row in rows) == truth[3].sum + truth[7].sum
    assert all(Path(f"/proc/{program.pid}/task/{row.key[0]}").exists() for row in rows)


def test_part_of_a_text_is_a_condition(target: Callable, tmp_path: Path) -> None:
    program = target("truth_keys", "2", "--timer")
    condition = 'text[4:] == "7" or text[3:5] == "-3" or text[2:].startswith("y-42")'
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate("truth_key", by="key", where=condition) as adding,
    ):
        run_for_a_while(program)
    truth = truth_of(program, tmp_path)

    assert {row.key[0]: row.answer for row in adding.read().rows} == {
        key: seen.count
        for key, seen in truth.items()
        if key == 7 or f"{key}".startswith(("3", "42"))
    }


def test_markers_with_like_keys_are_added_up_together(target: Callable, tmp_path: Path) -> None:
    program = target("truth_keys", "2")
    with markerjit.attach(program.pid) as session:
        with session.aggregate("truth_*", by="name") as adding:
            run_for_a_while(program)
        with session.aggregate("truth_*", by="number") as left:
            pass
    count = sum(seen.count for seen in truth_of(program, tmp_path).values())

    assert {row.key: row.answer for row in adding.read().rows} == {
        ("truth_key",): count,
        ("truth_plain",): count,
    }
    assert [marker.sentence for marker in left.unswitched] == ["truth_key has no field number"]


def test_more_keys_than_there_is_room_for_are_counted(target: Callable, tmp_path: Path) -> None:
    program = target("truth_keys", "4", "--keys", "10000", "--timer")
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate("truth_key", by="text", keys=1000) as adding,
    ):
        run_for_a_while(program, 0.3)
    answers = adding.read()
    truth = truth_of(program, tmp_path)

    assert len(truth) > 2000
    assert answers.room == 1000
    assert 990 <= len(answers.rows) <= 1000
    assert answers.events + answers.missed.full == sum(seen.count for seen in truth.values())
    for row in answers.rows:
        (text,) = row.key
        assert row.events <= truth[int(str(text).removeprefix("key-"))].count


@pytest.mark.parametrize(
    ("by", "fits", "rooms"),
    [("name", True, 4), ("name, tid", True, 4), ("tid", True, 2), ("name", False, 2)],
)
def test_there_is_room_for_each_name_where_names_are_keys(
    target: Callable, monkeypatch: pytest.MonkeyPatch, by: str, fits: bool, rooms: int
) -> None:
    monkeypatch.setattr(aggregate, "USUAL_KEYS", 2)
    if not fits:
        monkeypatch.setattr(Aggregates, "has_room", lambda *_: False)
    program = target("truth_keys", "1")
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate("func:libc.so*:{malloc,free,calloc,realloc}", by=by) as adding,
    ):
        assert adding.read().room == rooms


def test_texts_that_are_missing_or_too_long(target: Callable) -> None:
    program = target("truth_keys", "1")
    with markerjit.attach(program.pid) as session:
        with session.aggregate("truth_key", by="text, key") as adding:
            program.ask("null 30")
            program.ask("long 20")
        with session.aggregate("truth_key", by="text[:10], key") as cut:
            program.ask("long 20")

    assert [(row.key, row.events) for row in adding.read().rows] == [((None, -1), 30)]
    assert adding.read().missed == markerjit.Missed(long=20)
    assert [(row.key, row.events) for row in cut.read().rows] == [(("x" * 10, -1), 20)]


def test_text_is_too_long_by_a_byte_too(target: Callable, tmp_path: Path) -> None:
    """`key-7` has five bytes, and `key-10` six: both are in one word."""
    program = target("truth_keys", "1", "--keys", "20")
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate("truth_key", by="text", text=5) as adding,
    ):
        run_for_a_while(program, 0.01)
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate("truth_key", by="text[4:]", text=1) as cut,
    ):
        run_for_a_while(program, 0.01)
    truth = truth_of(program, tmp_path)

    assert sorted(row.key[0] for row in adding.read().rows) == [f"key-{key}" for key in range(10)]
    assert sorted(row.key[0] for row in cut.read().rows) == [f"{key}" for key in range(10)]
    assert adding.read().missed.long and cut.read().missed.long
    answers = (adding.read(), cut.read())
    assert sum(answer.events + answer.missed.long for answer in answers) == sum(
        seen.count for seen in truth.values()
    )


def test_child_of_a_fork_adds_nothing(target: Callable, tmp_path: Path) -> None:
    program = target("truth_keys", "1")
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate("truth_key", "stat(value)", by="key") as adding,
    ):
        run_for_a_while(program, 0.05)
        program.ask("fork 1000")
    truth = truth_of(program, tmp_path)

    assert {row.key[0]: tuple(row.answer) for row in adding.read().rows} == truth


def test_process_that_ends_in_between_has_answers(target: Callable) -> None:
    program = target("truth_keys", "4")
    with (
        markerjit.attach(program.pid) as session,
        session.aggregate("truth_key", by="key") as adding,
    ):
        program.ask("resume")
        time.sleep(0.1)
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
        program.process.returncode = 0  # it was ours to end

    assert adding.read().events > 0


def test_marker_that_counted_before_counts_again(target: Callable) -> None:
    program = target("truth_keys", "1")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_key", where="key < 5")
        with session.aggregate("truth_key", by="key"):
            (during,) = session.statistics("truth_key")
        (after,) = session.statistics("truth_key")

    assert (during.probe, during.held, during.where) == ("aggregate", "aggregate", None)
    assert during.aggregate == "count() by key"
    assert (after.probe, after.where, after.aggregate) == ("count", "key < 5", None)


def test_another_controller_is_refused_and_takes_by_force(target: Callable) -> None:
    program = target("truth_keys", "1")
    with markerjit.attach(program.pid) as session:
        with session.aggregate("truth_key", by="key") as adding:
            for arguments in (
                ("off", program.pid, "truth_key"), ("on", program.pid, "truth_key"),
                ("trace", program.pid, "truth_key", "-n", 1),
            ):  # fmt: skip
                one_line(cli(*arguments), "truth_key is added up by process")
            taken = cli("off", program.pid, "truth_key", "--force")
            assert taken.returncode == 0, taken.stderr
        assert adding.taken == ()
        (after,) = session.statistics("truth_key")

    assert after.mode is None


def test_beginning_that_is_interrupted_leaves_nothing_on(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_keys", "1")
    real = Switcher.switch

    def interrupted(self: Switcher, *args: Any, **kwargs: Any) -> Any:
        done = real(self, *args, **kwargs)
        if args[2].on:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(Switcher, "switch", interrupted)
    with markerjit.attach(program.pid) as session:
        with pytest.raises(KeyboardInterrupt), session.aggregate("truth_key", by="key"):
            pass
        (after,) = session.statistics("truth_key")
        arena = session._target.seen.arena
        assert arena and not arena.aggregates.all()

    assert after.mode is None


def kill_while_adding(pid: int) -> None:
    """A controller that adds up truth_key is killed."""
    code = (
        "import markerjit, os, sys\n"
        "with markerjit.attach(int(sys.argv[1])) as session:\n"
        "    with session.aggregate('truth_key', by='key'):\n"
        "        print('on', flush=True); sys.stdin.read()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with python_started(code, pid, **pipes) as controller:
        assert controller.stdout and controller.stdout.readline() == "on\n"
        controller.kill()


def test_repair_switches_off_what_a_killed_controller_adds_up(target: Callable) -> None:
    program = target("truth_keys", "1")
    kill_while_adding(program.pid)

    assert markerjit.repair(program.pid).switched_off == ("truth_key",)
    with markerjit.View(program.pid) as view:
        (after,) = view.statistics("truth_key")
    assert after.mode is None
    assert not markerjit.repair(program.pid).anything


def test_killed_controller_leaves_nothing_to_the_next(target: Callable) -> None:
    program = target("truth_keys", "1")
    kill_while_adding(program.pid)
    with markerjit.attach(program.pid) as session:
        (left,) = session.statistics("truth_key")
        before = session.arena()
        session.enable("truth_plain")
        (after,) = session.statistics("truth_key")
        arena = session._target.seen.arena
        assert arena and not arena.aggregates.all()
        now = session.arena()

    assert (left.probe, left.held) == ("aggregate", None)
    assert before and before.to_mend
    assert before.to_mend.endswith(" is gone and left its markers adding up")
    assert now and now.to_mend is None
    assert after.mode is None
