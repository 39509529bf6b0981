"""The view of the lab: the experiments, and the outcomes of those that were run.

Experiments run one after the other, in a thread. All browsers see the outcomes. A prediction stays
in the browser in which it was made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from markerjit.errors import MarkerError
from markerjit.facts.lab import experiment_facts, outcome_facts
from markerjit.lab import EXPERIMENTS, Experiment, conduct, kill_all, source_of
from markerjit.printable import printable
from markerjit.web.board import Board
from markerjit.web.command import Json, NotACommand, text
from markerjit.web.server import TICK_S


class _Ended(Exception):
    """The view has ended, so the running experiment ends too."""


class Lab:
    """The view. Experiments run in `thread`."""

    page = "lab"

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._outcomes: dict[str, Json] = {}
        self._failures: dict[str, str] = {}
        self._running = ""
        self._progress: Json | None = None
        self._last: Json = {"number": 0, "letter": ""}
        self._is_over = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, board: Board, is_over: Callable[[], object]) -> None:
        """Publish states until the view ends. A running experiment ends with it."""
        while not is_over():
            board.publish(self.document())
            await asyncio.sleep(TICK_S)
        self._is_over = True
        board.publish({**self.document(), "ended": "markerjit lab has ended"})
        tasks = running = set(self._tasks)
        while running:
            kill_all()  # repeatedly: the experiment may be starting a process at this moment
            _, running = await asyncio.wait(running, timeout=TICK_S)
        await asyncio.gather(*tasks)

    async def obey(self, command: Json) -> Json:
        """Start an experiment, unless one is running, or answer with its source. Raises NotACommand
        for an unknown action or experiment."""
        action, letter = text(command, "do"), text(command, "letter")
        experiment = EXPERIMENTS.get(letter)
        if experiment is None or action not in ("run", "source"):
            raise NotACommand(f"{action} {letter}")
        if action == "source":
            return {"source": source_of(experiment)}
        if self._running or self._is_over:
            return {"started": False}
        self._running, self._progress = letter, None
        task = asyncio.create_task(self._conduct(experiment))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return {"started": True}

    def document(self) -> Json:
        """Everything that the page shows, except the sources."""
        return {
            "experiments": [
                self._outcomes.get(letter) or experiment_facts(experiment)
                for letter, experiment in EXPERIMENTS.items()
            ],
            "failures": self._failures,
            "running": self._running,
            "progress": self._progress,
            "last": self._last,
            "ended": "",
        }

    async def _conduct(self, experiment: Experiment) -> None:
        letter = experiment.letter
        self._failures.pop(letter, None)
        loop = asyncio.get_running_loop()
        try:
            outcome = await loop.run_in_executor(self._thread, conduct, experiment, self._tell)
            self._outcomes[letter] = outcome_facts(outcome)
        except MarkerError as error:
            self._failures[letter] = printable(str(error))
        except _Ended:
            pass
        except Exception:
            if not self._is_over:  # at the end a killed child may raise any error
                raise
        finally:
            self._running, self._progress = "", None
            self._last = {"number": self._last["number"] + 1, "letter": letter}

    def _tell(self, name: str, tries: int, most: int) -> None:
        """Note the progress, called in the thread. At the end of the view it raises _Ended, which
        ends the experiment and its child."""
        if self._is_over:
            raise _Ended
        self._progress = {"name": name, "percent": 100 * tries // most}
