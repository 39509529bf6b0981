"""The console blocks of every page are run, and print what the pages show.

A page is found by its console blocks, so a new one is run without being listed here. A block that
cannot be run says why in its page, and is counted below.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.replay import blocks, has_console, matches, replay, skipped

ROOT = Path(__file__).resolve().parents[2]
ALL_PAGES = [
    ROOT / "README.md",
    ROOT / "bench" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = [str(page.relative_to(ROOT)) for page in ALL_PAGES if has_console(page)]
SKIPPED = {
    "docs/howto/look-at-a-trace.md": 1,
    "docs/tutorial.md": 1,
}
"""How many blocks of a page are not run."""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_is_printed(page: str, build: Path, tmp_path: Path) -> None:
    differences = [str(difference) for difference in replay(ROOT / page, tmp_path)]

    assert not differences, "\n".join([page, *differences])


def test_blocks_that_are_not_run_are_counted_and_say_why() -> None:
    reasons = {str(page.relative_to(ROOT)): skipped(page) for page in ALL_PAGES}

    assert {page: len(texts) for page, texts in reasons.items() if texts} == SKIPPED
    assert all(len(text.split()) > 2 for texts in reasons.values() for text in texts)


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_prompt_stands_only_in_a_console_block(page: Path) -> None:
    text = page.read_text()

    others = re.sub(r"^```console\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)

    assert re.findall(r"^ *\$ .*$", others, re.MULTILINE) == []


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
        (
            ["55d027be70d8  eb 05  jmp 0x55d027be70df"],
            ["55e1c1de70d8  eb 05  jmp 0x55e1c1de70df"],
        ),
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
