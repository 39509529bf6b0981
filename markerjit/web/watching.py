"""The view of `watch`: looks at the process, and executes the commands of all browsers.

The chosen marker, the mode and the strategy belong to the view, so all browsers show the same. The
operator is called in its own thread, one call after the other. An error of it is shown as a
sentence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from markerjit.errors import MarkerError, TargetGone
from markerjit.facts.threads import threads_facts
from markerjit.printable import printable
from markerjit.watch.model import EMPTY, Row, Shown, show
from markerjit.watch.operator import AS_COMPILED, LOOK_S, SHARE, STRATEGIES, Operator
from markerjit.watch.text import state_of, who
from markerjit.web.board import Board
from markerjit.web.command import Json, NotACommand, number, text
from markerjit.web.histogram import histogram
from markerjit.web.server import TICK_S


class Watching:
    """The view. `costs` are as in model.show, and `samples` are the samples that they were made
    from, in nanoseconds. `ended` is the reason why the process ended the view, "" otherwise."""

    page = "watch"

    def __init__(
        self,
        operator: Operator,
        thread: ThreadPoolExecutor,
        costs: Mapping[str, float],
        samples: Mapping[str, Sequence[float]],
    ) -> None:
        self.ended = ""
        self._operator = operator
        self._thread = thread
        self._costs = costs
        self._samples = samples
        self._shown: Shown = EMPTY
        self._probes: list[Json] = []
        self._threads: list[Json] = []
        self._chosen = ""
        self._modes: tuple[str, ...] = (AS_COMPILED,)
        self._mode = AS_COMPILED
        self._strategy = STRATEGIES[0]
        self._message: Json = {"number": 0, "sentence": "", "refused": False}
        self._next_look = 0.0
        self._actions: dict[str, Callable[[str, str | None, str], str]] = {
            "on": operator.switch_on,
            "off": lambda name, _, strategy: operator.switch_off(name, strategy),
            "step": operator.step,
            "undo": lambda *_: operator.take_back(),
            "events": operator.record,
            "keep": lambda name, *_: operator.keep(name),
        }

    async def run(self, board: Board, is_over: Callable[[], object]) -> None:
        """Look at most twice a second, and publish each new state, until the process or the view
        ends."""
        while not self.ended and not is_over():
            if time.monotonic() >= self._next_look:
                await self._look()
            if self._shown.pid:
                board.publish(self.document())
            await asyncio.sleep(TICK_S)
        board.publish({**self.document(), "ended": self.ended or "markerjit watch has ended"})

    async def obey(self, command: Json) -> Json:
        """Execute the command of a browser, and answer with the newest message. Raises
        NotACommand."""
        action = text(command, "do")
        if action == "choose":
            await self._choose(self._row_name(text(command, "name")))
        elif action in ("mode", "strategy"):
            self._set(action, text(command, "value"))
        elif action == "stage":
            await self._do(self._operator.go_to, self._stage(number(command, "number")))
        elif action in self._actions:
            name = self._row_name(text(command, "name"))
            mode = None if self._mode == AS_COMPILED else self._mode
            await self._do(self._actions[action], name, mode, self._strategy)
        else:
            raise NotACommand(action)
        self._next_look = 0.0
        return self._message

    def document(self) -> Json:
        """Everything that the page shows."""
        shown, detail = self._shown, self._shown.detail
        return {
            "pid": shown.pid,
            "command": printable(self._operator.command),
            "rows": [_row(row) for row in shown.rows],
            "detail": detail and {**plain(detail), "row": _row(detail.row), "who": who(detail)},
            "threads": self._threads,
            "mode": self._mode,
            "modes": self._modes,
            "strategy": self._strategy,
            "strategies": STRATEGIES,
            "cost": self._cost(),
            "probes": plain(self._probes),
            "runtime": shown.runtime,
            "trouble": shown.trouble and f"{shown.trouble}: markerjit repair {shown.pid}",
            "message": self._message,
            "ended": "",
        }

    # ---- looking -------------------------------------------------------------------------------

    async def _look(self) -> None:
        began = time.monotonic()
        look = await self._call(self._operator.look, self._chosen)
        if look is not None and look.name == self._chosen:
            self._shown = show(self._shown, look, self._costs)
            self._probes = look.status["probes"]
            self._threads = await self._call(threads_facts, self._operator.pid) or []
            if not self._chosen and self._shown.rows:
                await self._choose(self._shown.rows[0].name)
        self._next_look = began + max(LOOK_S, SHARE * (time.monotonic() - began))

    async def _choose(self, name: str) -> None:
        modes = await self._call(self._operator.modes, name)
        if modes is not None:
            self._chosen = name
            self._modes = (AS_COMPILED, *modes)
            self._mode = AS_COMPILED
            self._next_look = 0.0

    def _cost(self) -> Json | None:
        detail = self._shown.detail
        if detail is None or not detail.row.is_on:
            return None
        form = detail.row.state.removesuffix(", partly")
        samples = self._samples.get(form)
        return {"form": form, **histogram(samples)} if samples else None

    # ---- commands ------------------------------------------------------------------------------

    async def _do(self, function: Callable[..., str], *arguments: Any) -> None:
        sentence = await self._call(function, *arguments)
        if sentence is not None:
            self._say(sentence)

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the operator in its thread. Returns None after an error, which is shown."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, function, *arguments)
        except TargetGone as gone:
            self.ended = printable(str(gone))
        except MarkerError as error:
            self._say(str(error), refused=True)
        return None

    def _say(self, sentence: str, *, refused: bool = False) -> None:
        """Set the message. Its `number` lets the page show a sentence that is repeated."""
        self._message = {
            "number": self._message["number"] + 1,
            "sentence": printable(sentence),
            "refused": refused,
        }

    def _set(self, choice: str, value: str) -> None:
        if choice == "mode" and value in self._modes:
            self._mode = value
        elif choice == "strategy" and value in STRATEGIES:
            self._strategy = value
        else:
            raise NotACommand(value)

    def _row_name(self, label: str) -> str:
        """The name of the marker that the page shows by this label. Raises NotACommand."""
        for row in self._shown.rows:
            if printable(row.name) == label:
                return row.name
        raise NotACommand(label)

    def _stage(self, stage: int) -> int:
        detail = self._shown.detail
        if detail is None or not 0 <= stage < len(detail.stages):
            raise NotACommand(str(stage))
        return stage


def _row(row: Row) -> Json:
    return {**plain(row), "shown": plain(state_of(row))}


def plain(value: Any) -> Any:
    """A value of the model as JSON values: a named tuple becomes a dict of its fields, and text is
    made printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(key): plain(item) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return {key: plain(item) for key, item in value._asdict().items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value
