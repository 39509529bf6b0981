"""The console blocks of every page are run, and print what the pages show.

A page is found by its console blocks, so a new one is run without being listed here. A block that
cannot be run says why in its page, and is counted below.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import CLI, ENVIRONMENT, server_name
from tests.support.markers import wait_on
from tests.support.replay import blocks, client, has_console, matches, replay, skipped
from tests.support.timing import Limited

ROOT = Path(__file__).resolve().parents[2]
ALL_PAGES = [
    ROOT / "README.md",
    ROOT / "bench" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = [str(page.relative_to(ROOT)) for page in ALL_PAGES if has_console(page)]
SKIPPED = {"docs/howto/look-at-a-trace.md": 1, "docs/tutorial.md": 1}
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
        (
            ["1 thread was stopped, for at most 68 µs"],
            [
                "12 threads were stopped, for at most 21,000 µs: 20,900 until the last one stood, "
                "60 for the change, 40 until the last one went on"
            ],
        ),
        (["14:44:09.925609133 cpu0 3436 visit"], ["23:00:01.000000001 cpu1 12 visit"]),
        (
            ["55d027be70d8  eb 05  jmp 0x55d027be70df"],
            ["55e1c1de70d8  eb 05  jmp 0x55e1c1de70df"],
        ),
        (["│ 2026-11-22 19:17:12.172179178+00 │"], ["│ 2026-11-22 00:39:48.0239894+00   │"]),
        (["│ 2026-11-22 19:17:12.172179178+00 │"], ["│ 2026-11-22 00:39:48+00           │"]),
        (["stopped for 251 µs"], ["stopped for 2,292 µs"]),
        (["[16, 32)   5  ███▉"], ["[16, 32)   5  ██"]),
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
        (["14:44:09.925609133 cpu0"], ["14:44:09.92560913 cpu0"]),
    ],
)
def test_anything_else_is_a_difference(shown: list[str], printed: list[str]) -> None:
    assert not matches(shown, printed)


def test_numbers_of_a_run_may_differ_where_the_page_says_so() -> None:
    assert matches(["kv_hit 54,237 0"], ["kv_hit 1 0"], numbers=True)
    assert not matches(["kv_hit 54,237 0"], ["kv_miss 1 0"], numbers=True)


def test_what_a_linker_gives_may_differ_where_the_page_says_so() -> None:
    shown = ["file  4a14  eb 05 e9 57 db ff ff  jmp 0x2572"]

    assert matches(shown, ["file  51c8  eb 05 e9 a7 d9 ff ff  jmp 0x2e33"], linked=True)
    assert not matches(shown, ["file  51c8  eb 05 e9 a7 d9 ff ff  jmp 0x2e33"])
    assert not matches(shown, ["file  4a14  eb 00 e9 57 db ff ff  jmp 0x2572"], linked=True)
    assert not matches(shown, ["file  4a14  eb 05 a9 57 db ff ff  jmp 0x2572"], linked=True)


def test_a_block_is_cut_into_its_commands() -> None:
    pieces = list(blocks("$ one\n1\n2\n$ two \\\n  more\n$ three\n", 10))

    assert [(block.line, block.command, block.output) for block in pieces] == [
        (10, "one", ("1", "2")),
        (13, "two \\\n  more", ()),
        (15, "three", ()),
    ]


# ---- the commands of a page ----------------------------------------------------------------------


def forked(*words: object) -> Limited:
    """A command as a shell of a page starts it."""
    return Limited(
        [client(), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**ENVIRONMENT, "COMMAND_SERVER": server_name()},
    )  # fmt: skip


@pytest.mark.parametrize("words", [("--version",), ("list", "/no/such/file"), ("nonsense",)])
def test_a_command_is_answered_as_by_a_new_interpreter(words: tuple[str, ...]) -> None:
    with forked(*words) as command:
        answer = command.communicate()
    plain = subprocess.run([*CLI, *words], env=ENVIRONMENT, capture_output=True, text=True)

    assert (command.returncode, *answer) == (plain.returncode, plain.stdout, plain.stderr)


def test_a_command_gets_the_signals_of_its_shell(target: Callable) -> None:
    program = target("truth_process")
    with forked("trace", program.pid, "*") as command:
        wait_on(program.pid, "truth_process", command)
        command.terminate()
        _, errors = command.communicate()

    assert command.returncode == 0
    assert "0 events" in errors


def test_a_command_is_killed_with_its_shell(target: Callable) -> None:
    program = target("truth_process")
    with forked("trace", program.pid, "*") as command:
        wait_on(program.pid, "truth_process", command)
        command.kill()
        command.communicate()  # until nobody writes to the pipes

    assert command.returncode == -signal.SIGKILL


# ---- the directives ------------------------------------------------------------------------------


def differences(directory: Path, text: str) -> list[str]:
    """What differs in a page with this text, by the output that was printed."""
    page = directory / "page.md"
    page.write_text(text)
    (directory / "run").mkdir()
    return ["\n".join(block.printed) for block in replay(page, directory / "run")]


def test_a_block_that_prints_something_else_is_found(tmp_path: Path) -> None:
    assert differences(tmp_path, "```console\n$ echo a\na\n$ echo b\nc\n```\n") == ["b"]


def test_a_block_can_be_the_input_of_a_command(tmp_path: Path) -> None:
    page = "<!-- replay: pipe wc -l -->\n```sql\na\nb\n```\n\ntext\n\n```\n{}\n```\n"

    assert differences(tmp_path, page.format(3)) == ["2"]


def test_a_name_stands_for_its_value_as_a_whole_word(tmp_path: Path) -> None:
    names = "<!-- replay: pid 3106 = 41 -->\n<!-- replay: pid vm = host -->\n"
    page = f"{names}```console\n$ echo 3106 31065 vm vms\nnothing\n```\n"

    assert differences(tmp_path, page) == ["41 31065 host vms"]


def test_load_of_the_demo_is_as_slow_as_a_page_says(tmp_path: Path) -> None:
    page = "{}```console\n$ echo demo/kvload --port 1\nnothing\n```\n"

    assert differences(tmp_path, page.format("<!-- replay: rate 50 -->\n")) == [
        "demo/kvload --rate 50 --port 1"
    ]


def test_a_file_of_another_page_is_written(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("`a.c`:\n\n```c\nint a;\n```\n")
    page = "<!-- replay: file a.c of other.md -->\n```console\n$ cat a.c\nint a;\n```\n"

    assert differences(tmp_path, page) == []


@pytest.mark.parametrize(
    "directive", ["skip it takes a week", "needs no-such-tool", "needs python:no_such_module"]
)
def test_a_block_that_cannot_be_run_is_left_out_and_the_next_one_is_not(
    tmp_path: Path, directive: str
) -> None:
    block = "```console\n$ echo {0}\nother\n```\n"
    page = f"<!-- replay: {directive} -->\n{block.format(1)}{block.format(2)}"

    assert differences(tmp_path, page) == ["2"]


def test_a_directive_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such directive: skp"):
        differences(tmp_path, "<!-- replay: skp this -->\n")
