"""The live view in a terminal, with Textual.

A thread of its own looks at the process and switches its markers, so that keys are answered while a
stop or another controller's lock takes its time. An error of that thread is shown as a sentence in
the message line. The view ends with the process, by a key, or by a signal.

What this does not do: choose the contents (model.py), or their words (text.py).
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.events import Resize
from textual.widgets import DataTable, Static

from markerjit.errors import MarkerError, TargetGone
from markerjit.printable import printable
from markerjit.watch.model import EMPTY, Row, Shown, show
from markerjit.watch.operator import AS_COMPILED, LOOK_S, SHARE, STRATEGIES, Operator
from markerjit.watch.text import (
    Line,
    Role,
    detail_lines,
    heading,
    number,
    sparkline,
    state_of,
)

_TICK_S = 0.1

STYLES = {
    Role.PLAIN: "",
    Role.TITLE: "bold",
    Role.FAINT: "dim",
    Role.ON: "bold green",
    Role.BAD: "bold red",
    Role.LIT: "bold reverse",
    Role.NEXT: "bold",
}

KEYS = (
    ("n", "step"),
    ("o", "on"),
    ("f", "off"),
    ("u", "undo"),
    ("m", "mode"),
    ("s", "threads"),
    ("e", "events"),
    ("k", "keep"),
    ("space", "more"),
    ("q", "quit"),
)

_NAME, _STATE, _LINE, _BAR = 18, 18, 8, 1
"""Widths in columns: the most for a name and for a state, the least for the rates, and the scroll
bar."""

_RATES = "LATELY"


class Watch(App[int]):
    """The view. `costs` are as in model.show. `ended` is the reason why it ended, "" for a key or
    a signal. `signal` is the number of the signal that ended it, or 0."""

    CSS = """
    #heading { height: 1; text-style: bold; }
    #choices { height: 1; color: $text-muted; }
    #body { height: 1fr; }
    #markers { height: 2fr; min-height: 2; scrollbar-size: 0 1; scrollbar-gutter: stable; }
    #detail { height: 3fr; border-top: solid $primary; padding: 0 1; scrollbar-size: 0 1; }
    #message { height: auto; max-height: 2; text-style: bold; }
    #keys { height: 1; color: $text-muted; }
    .-wide #body { layout: horizontal; }
    .-wide #markers { width: 1fr; height: 1fr; }
    .-wide #detail { width: 1fr; height: 1fr; border-top: none; border-left: solid $primary; }
    .-short #detail { display: none; }
    .-tiny #choices, .-tiny #keys { display: none; }
    .-tiny #message { height: 1; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (8, "-short"), (16, "-tall")]  # noqa: RUF012
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, name) for key, name in KEYS if name != "quit"),
        Binding("q,ctrl+c,ctrl+q", "leave", priority=True),
    ]

    def __init__(
        self,
        operator: Operator,
        thread: ThreadPoolExecutor,
        costs: Mapping[str, float] | None = None,
        *,
        take_signals: bool = False,
    ) -> None:
        super().__init__()
        self.operator = operator
        self.shown = EMPTY
        self.chosen = ""
        self.mode = AS_COMPILED
        self.strategy = STRATEGIES[0]
        self.message = ""
        self.ended = ""
        self.signal = 0
        self._thread = thread
        self._costs = costs
        self._take_signals = take_signals
        self._looking = False
        self._next_look = 0.0
        self._widths: dict[str, int] = {}

    def compose(self) -> ComposeResult:
        """The parts of the screen, from top to bottom."""
        yield Static(id="heading", markup=False)
        yield Static(id="choices", markup=False)
        with Container(id="body"):
            yield DataTable(id="markers", cursor_type="row", zebra_stripes=False)
            with VerticalScroll(id="detail", can_focus=False):
                yield Static(id="text", markup=False)
        yield Static(id="message", markup=False)
        yield Static(id="keys", markup=False)

    def on_mount(self) -> None:
        """Begin to look."""
        if self._take_signals:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    loop.add_signal_handler(number, self._end_by, number)
        self._say("* switched on by this view, and off when it ends; k keeps")
        self.table.focus()
        self.set_interval(_TICK_S, self._tick)
        self._tick()

    @property
    def table(self) -> DataTable[Text]:
        """The markers."""
        return self.query_one("#markers", DataTable)

    # ---- looking -------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self._looking and time.monotonic() >= self._next_look:
            self._looking = True
            self.run_worker(self._look(), exit_on_error=True)

    async def _look(self) -> None:
        began = time.monotonic()
        try:
            look = await self._call(self.operator.look, self.chosen)
            if look is not None:
                self.shown = show(self.shown, look, self._costs)
                self._refresh_all()
        finally:
            took_s = time.monotonic() - began
            self._next_look = began + max(LOOK_S, SHARE * took_s)
            self._looking = False

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the operator in its thread. None where it raised, which is then shown, and where
        the view ended meanwhile: the parts of the screen are gone then."""
        loop = asyncio.get_running_loop()
        error = None
        result = None
        try:
            result = await loop.run_in_executor(self._thread, function, *arguments)
        except MarkerError as raised:
            error = raised
        if not self.is_running:
            return None
        if isinstance(error, TargetGone):
            self._end(str(error))
        elif error:
            self._say(str(error))
        return result

    async def _do(self, function: Callable[..., Any], *arguments: Any) -> None:
        sentence = await self._call(function, *arguments)
        if sentence is not None:
            self._say(sentence)
        self._next_look = 0.0

    def _run(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.run_worker(self._do(function, *arguments), exit_on_error=True)

    # ---- showing -------------------------------------------------------------------------------

    def _say(self, sentence: str) -> None:
        self.message = printable(sentence)
        self._put("message", self.message)

    def _put(self, name: str, content: str | Text) -> None:
        self.query_one(f"#{name}", Static).update(content)

    def _refresh_all(self) -> None:
        shown = self.shown
        self._put("heading", heading(shown, self.operator.command, self.size.width))
        self._put_choices()
        keys = [f"{key} {name}" for key, name in KEYS]
        roomy = "  ".join(keys)
        self._put("keys", roomy if len(roomy) <= self.size.width else " ".join(keys))
        self._refresh_table(shown)
        room = self.query_one("#detail").scrollable_content_region
        lines = detail_lines(shown.detail, room.width, room.height)
        self._put("text", Text("\n").join(map(_styled, lines)))
        if shown.trouble:
            self._say(f"{shown.trouble}: markerjit repair {shown.pid}")

    def _put_choices(self) -> None:
        self._put("choices", f"switching: mode {self.mode}, threads: {self.strategy}")

    def _refresh_table(self, shown: Shown) -> None:
        table = self.table
        self._lay_out(table, shown.rows)
        known = {str(key.value) for key in table.rows}
        names = [row.name for row in shown.rows]
        if not known <= set(names):
            table.clear()
            known = set()
        for row in shown.rows:
            cells = self._cells(row)
            if row.name not in known:
                table.add_row(*cells.values(), key=row.name)
                continue
            for column, cell in cells.items():
                if table.get_cell(row.name, column) != cell:
                    table.update_cell(row.name, column, cell)
        if not known and self.chosen in names:
            table.move_cursor(row=table.get_row_index(self.chosen), animate=False)

    def _lay_out(self, table: DataTable[Text], rows: Sequence[Row]) -> None:
        """Set the widths of the columns. The column of the rates takes the room that is left."""
        name = min(max((len(row.name) for row in rows), default=_NAME), _NAME)
        widths = {"MARKER": name, "STATE": _STATE, "HITS/S": 6, "LOST": 5}
        if self._costs:
            widths["NS"] = 5
        taken = sum(width + 2 for width in widths.values())
        line = max(table.size.width - _BAR - taken - 2, _LINE)
        widths = {"MARKER": name, "STATE": _STATE, "HITS/S": 6, _RATES: line, **widths}
        if widths != self._widths:
            self._widths = widths
            table.clear(columns=True)
            for title, width in widths.items():
                table.add_column(title, width=width, key=title)

    def _cells(self, row: Row) -> dict[str, Text]:
        state = state_of(row)
        return {
            "MARKER": Text(printable(row.name)),
            "STATE": Text(state.text, style=STYLES[state.role]),
            "HITS/S": Text(number(row.rate), justify="right"),
            _RATES: Text(sparkline(row.rates, self._widths[_RATES])),
            "LOST": Text(
                number(row.lost) if row.lost else "-", justify="right",
                style=STYLES[Role.BAD if row.lost else Role.PLAIN],
            ),
            **({"NS": Text(number(row.cost_ns), justify="right")} if self._costs else {}),
        }  # fmt: skip

    def on_resize(self, event: Resize) -> None:
        """Look at once, which lays the columns out again."""
        self._next_look = 0.0

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show another marker in detail. The cursor of a table that was just filled again is at the
        top for a moment. A message about that position is late, and is not a choice."""
        name = str(event.row_key.value)
        if name != self.chosen and event.cursor_row == self.table.cursor_row:
            self.chosen = name
            self.mode = AS_COMPILED
            self._next_look = 0.0

    # ---- keys ----------------------------------------------------------------------------------

    @property
    def _mode(self) -> str | None:
        return None if self.mode == AS_COMPILED else self.mode

    def action_on(self) -> None:
        """Switch the marker on in the chosen mode."""
        self._run(self.operator.switch_on, self.chosen, self._mode, self.strategy)

    def action_off(self) -> None:
        """Switch the marker off."""
        self._run(self.operator.switch_off, self.chosen, self.strategy)

    def action_step(self) -> None:
        """Make the next stage of a switch, or begin one."""
        self._run(self.operator.step, self.chosen, self._mode, self.strategy)

    def action_undo(self) -> None:
        """Take the stages back."""
        self._run(self.operator.take_back)

    def action_events(self) -> None:
        """Record the marker's events, or stop recording them."""
        self._run(self.operator.record, self.chosen, self._mode, self.strategy)

    def action_keep(self) -> None:
        """Choose whether the marker stays on when the view ends."""
        self._run(self.operator.keep, self.chosen)

    async def action_mode(self) -> None:
        """Choose the next mode that the marker has."""
        modes = await self._call(self.operator.modes, self.chosen)
        if modes is not None:
            self.mode = _next(self.mode, (AS_COMPILED, *modes))
            self._put_choices()

    def action_threads(self) -> None:
        """Choose the next strategy of quiescence."""
        self.strategy = _next(self.strategy, STRATEGIES)
        self._put_choices()

    def action_more(self) -> None:
        """Show the next page about the marker, and after the last one the first."""
        detail = self.query_one("#detail", VerticalScroll)
        if detail.scroll_offset.y >= detail.max_scroll_y:
            detail.scroll_home(animate=False)
        else:
            detail.scroll_page_down(animate=False)

    def action_leave(self) -> None:
        """End the view."""
        self.exit(0)

    def _end_by(self, number: int) -> None:
        self.signal = number
        self.exit(0)

    def _end(self, why: str) -> None:
        self.ended = why
        self.exit(0)


def _next(current: str, choices: Sequence[str]) -> str:
    at = choices.index(current) if current in choices else -1
    return choices[(at + 1) % len(choices)]


def _styled(line: Line) -> Text:
    return Text.assemble(*((span.text, STYLES[span.role]) for span in line))
