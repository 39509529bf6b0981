"""The console blocks of the pages are run, and print what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.replay import blocks, matches, replay

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/howto/flight-recorder.md", "docs/tutorial.md"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_is_printed(page: str, build: Path, tmp_path: Path) -> None:
    differences = [str(difference) for difference in replay(ROOT / page, tmp_path)]

    assert not differences, "\n".join([page, *differences])


# ---- the comparison ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["visit  off  1"], ["visit   off  1"]),
        (["a", "…", "z"], ["a", "b", "c", "z"]),
        (["a", "…", "z"], ["a", "z"]),
        (["made 3 … of them"], ["made 3 or four of them"]),
        (
            ["1 thread was stopped, for at most 68 µs"],
            ["12 threads were stopped, for at most 1 ms"],
        ),
        (["14:44:09.925609133 cpu0 3436 visit"], ["23:00:01.000000001 cpu1 12 visit"]),
        (["55d027be70d8  eb 05  jmp 0x55d027be70df"], ["55e1c1de70d8  eb 05  jmp 0x55e1c1de70df"]),
        ([], []),
    ],
)
def test_what_no_two_runs_have_in_common_is_compared_by_its_form(
    shown: list[str], printed: list[str]
) -> None:
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["5 hits"], ["6 hits"]),
        (["visit  on (jump, count)"], ["visit  on (jump, record)"]),
        (["a", "z"], ["a", "b", "z"]),
        (["a"], []),
        ([], ["a traceback"]),
        (["…", "z"], ["a", "b"]),
        (["55d027be70d8  eb 05"], ["55d027be70d8  eb 00"]),
    ],
)
def test_anything_else_is_a_difference(shown: list[str], printed: list[str]) -> None:
    assert not matches(shown, printed)


def test_numbers_of_a_run_may_differ_where_the_page_says_so() -> None:
    assert matches(["kv_hit 54,237 0"], ["kv_hit 1 0"], numbers=True)
    assert not matches(["kv_hit 54,237 0"], ["kv_miss 1 0"], numbers=True)


def test_a_block_is_cut_into_its_commands() -> None:
    found = list(blocks("$ one\n1\n2\n$ two \\\n  more\n$ three\n", 10))

    assert [(block.line, block.command, block.output) for block in found] == [
        (10, "one", ("1", "2")),
        (13, "two \\\n  more", ()),
        (15, "three", ()),
    ]
