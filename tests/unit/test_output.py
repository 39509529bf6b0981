"""Lines and tables on a terminal: folded, cut and drawn in place; and plain elsewhere."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

import pytest

from markerjit.cli import output
from tests.support.terminals import screen_of


class Terminal(io.StringIO):
    """A terminal of 40 columns and 6 lines."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], str]:
    """What a function prints on a terminal."""
    for name, value in {"NO_COLOR": "1", "COLUMNS": "40", "LINES": "6"}.items():
        monkeypatch.setenv(name, value)

    def shown(show: Callable[[], object]) -> str:
        with redirect_stdout(Terminal()) as terminal:
            show()
        return terminal.getvalue()

    return shown


def test_long_line_is_broken_at_blanks_and_indented(on_terminal: Callable) -> None:
    long = "  one line that has no room in forty columns of a terminal"

    shown = on_terminal(lambda: output.say(long))

    assert shown == "  one line that has no room in forty\n    columns of a terminal\n"


def test_word_without_room_is_whole(on_terminal: Callable) -> None:
    shown = on_terminal(lambda: output.say(f"see {'x' * 50} there"))

    assert shown == f"see\n  {'x' * 50}\n  there\n"


def test_table_without_room_is_lines_of_names_and_values(on_terminal: Callable) -> None:
    row = ["m", *["123,456,789"] * 5]

    shown = on_terminal(lambda: output.print_table(["NAME", *"ABCDE"], [row]))

    assert shown.splitlines() == ["NAME  m", *(f"{name}     123,456,789" for name in "ABCDE")]


def test_source_without_room_keeps_its_file_and_line(on_terminal: Callable) -> None:
    row = ["kv_hit", "some/folders/native/targets/kv_store.c:215"]

    shown = on_terminal(lambda: output.print_table(["MARKER", "SOURCE"], [row]))

    assert shown.splitlines()[1] == "kv_hit  …s/native/targets/kv_store.c:215"


def test_last_column_is_folded_beside_the_others(on_terminal: Callable) -> None:
    row = ["1", "a sentence that is longer than its room"]

    shown = on_terminal(lambda: output.print_table(["N", "WHY"], [row], fold_last=True))

    assert shown.splitlines() == ["N  WHY", "1  a sentence that is longer than its", "     room"]


def test_numbers_stand_to_the_right_also_beside_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["A", "B", "C"], [["x", "1,234", "1 (0.5%)"], ["y", "-", "12 (6.0%)"]])

    assert capsys.readouterr().out.splitlines() == [
        "A      B          C", "x  1,234   1 (0.5%)", "y      -  12 (6.0%)",
    ]  # fmt: skip


def test_picture_is_drawn_in_its_own_place(on_terminal: Callable) -> None:
    picture = output.Picture()

    def draw(number: int) -> None:
        with picture.drawn():
            output.say(f"line {number}")
            output.say("second")

    assert on_terminal(lambda: draw(0)) == "\x1b[Kline 0\n\x1b[Ksecond\n\x1b[J"
    assert on_terminal(lambda: draw(1)) == "\x1b[2F\x1b[Kline 1\n\x1b[Ksecond\n\x1b[J"


def test_picture_has_room_on_the_screen_unless_it_is_the_last(on_terminal: Callable) -> None:
    picture = output.Picture()

    def draw(*, whole: bool) -> None:
        with picture.drawn(whole=whole):
            for number in range(9):
                output.say(str(number))

    assert on_terminal(lambda: draw(whole=False)).count("\n") == 5
    last = on_terminal(lambda: draw(whole=True))
    assert last.startswith("\x1b[5F") and last.count("\n") == 9


def drawn_with_remarks(*pictures: list[str], remark: str) -> str:
    """What a terminal gets of pictures, with a remark behind each."""
    picture = output.Picture()
    with redirect_stdout(Terminal()) as terminal, redirect_stderr(terminal):
        for lines in pictures:
            with picture.drawn():
                output.print_checked(*lines)
            with picture.above():
                output.say(remark, error=True)
    return terminal.getvalue()


@pytest.mark.parametrize("sizes", [(1, 3), (3, 1), (2, 2)])
@pytest.mark.usefixtures("on_terminal")
def test_remark_stands_above_the_picture_however_long_it_is(sizes: tuple[int, int]) -> None:
    first, second = ([f"{size} lines, line {line}" for line in range(size)] for size in sizes)

    text = drawn_with_remarks(first, second, remark="a remark")

    shown = [line for line in screen_of(text, lines=6) if line]
    assert shown == ["a remark", "a remark", *second]


@pytest.mark.usefixtures("on_terminal")
def test_picture_of_wide_letters_is_drawn_in_its_own_place() -> None:
    picture = output.Picture()
    with redirect_stdout(Terminal()) as terminal:
        for _ in range(2):
            with picture.drawn():
                output.print_checked("漢" * 30)

    assert "\x1b[2F" in terminal.getvalue()


def test_event_is_cut_on_a_terminal_only(on_terminal: Callable) -> None:
    line = f'14:00:00.000000000 cpu0 7 name text="{"é" * 30}"\nshort\n'.encode()
    cut: list[bytes] = []

    on_terminal(lambda: cut.append(output.shown_events(line)))

    first, second = cut[0].decode().splitlines()
    assert len(first) == 40 and first.endswith("é…") and second == "short"
    with redirect_stdout(io.StringIO()):
        assert output.shown_events(line) == line


def test_frames_of_a_stack_stand_below_the_event_on_a_terminal_only(on_terminal: Callable) -> None:
    line = '14:00:00 cpu0 7 name stack="[no object] < f(\\"a\\") < operator new[] [deeper]" n=1\n'
    shown: list[bytes] = []

    on_terminal(lambda: shown.append(output.shown_events(line.encode(), {"stack"})))

    assert shown[0].decode().splitlines() == [
        "14:00:00 cpu0 7 name n=1",
        *("    [no object]", '    f(\\"a\\")', "    operator new[]", "    [deeper]"),
    ]
    with redirect_stdout(io.StringIO()):
        assert output.shown_events(line.encode(), {"stack"}) == line.encode()


def test_a_moment_of_another_day_has_its_date(monkeypatch: pytest.MonkeyPatch) -> None:
    noon = time.mktime((2026, 11, 29, 12, 0, 0, 0, 0, -1))
    now = time.localtime(noon)
    monkeypatch.setattr(
        output.time, "localtime", lambda at=None, of=time.localtime: now if at is None else of(at)
    )

    assert output.moment(noon + 3600.7) == "13:00:00"
    assert output.moment(noon + 86400) == "2026-11-30T12:00:00"
    assert output.moment(noon + 365 * 86400) == "2027-11-29T12:00:00"
