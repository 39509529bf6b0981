"""The pictures of `markerjit watch` in docs/howto/pictures.

`python -m tests.support.draw_watch` starts the bundled server under load and draws the view of it:
at 80x24 with a marker on by breakpoint, and at 140x40 in the middle of a switch in stages.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from markerjit.watch.operator import Operator
from markerjit.watch.terminal import Watch
from tests.support.programs import ROOT, Target
from tests.support.timing import Limited

PICTURES = ROOT / "docs" / "howto" / "pictures"
MARKER = "kv_hit"
SECONDS = 12.0

BY_BREAKPOINT = ("m", "m", "o")
IN_STAGES = (*BY_BREAKPOINT, "m", "m", "n", "n")


async def draw(pid: int, size: tuple[int, int], keys: Sequence[str], seconds: float) -> str:
    """The screen, after these keys were pressed with the cursor on the marker. Before the last two
    it looks on for some seconds."""
    with ThreadPoolExecutor(1) as thread:
        operator = thread.submit(Operator, pid).result()
        view = Watch(operator, thread)
        try:
            async with view.run_test(size=size) as pilot:
                while not view.shown.detail:
                    await pilot.pause(0.1)
                names = [row.name for row in view.shown.rows]
                view.table.move_cursor(row=names.index(MARKER))
                await pilot.pause(1)
                for number, key in enumerate(keys):
                    if number == len(BY_BREAKPOINT):
                        await pilot.pause(seconds)
                    await pilot.press(key)
                    await pilot.pause(0.5)
                if len(keys) == len(BY_BREAKPOINT):
                    await pilot.pause(seconds)
                await pilot.pause(0.6)
                return view.export_screenshot(title=f"markerjit watch {pid}", simplify=True)
        finally:
            thread.submit(operator.end).result()


@contextmanager
def loaded_server() -> Iterator[Target]:
    """The bundled server, under load for two minutes at most."""
    server = Target(Path("build/targets/kvserver"))
    server.wait_ready()
    load = Limited(
        [
            "build/targets/kvload", "--port", server.ready["port"],
            "--seconds", "120", "--connections", "2", "--pipeline", "1",
        ],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield server
    finally:
        load.kill()
        load.wait()
        server.end()


def main() -> None:
    """Draw both."""
    os.chdir(ROOT)  # the view shows the command line
    with loaded_server() as server:
        for size, keys in (((80, 24), BY_BREAKPOINT), ((140, 40), IN_STAGES)):
            picture = asyncio.run(draw(server.pid, size, keys, SECONDS))
            path = PICTURES / f"watch-{size[0]}x{size[1]}.svg"
            path.write_text(picture)
            print(path.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main()
