"""The picture of `markerjit hist` in docs/howto/pictures.

`python -m tests.support.draw_hist` starts the bundled server under load, and draws what the command
prints on a terminal of 80 columns.
"""

from __future__ import annotations

import os
import subprocess
import sys

from rich.console import Console
from rich.text import Text

from tests.support.draw_watch import PICTURES, loaded_server
from tests.support.programs import ROOT

WIDTH = 80


def main() -> None:
    """Draw it."""
    os.chdir(ROOT)
    with loaded_server() as server:
        words = ["hist", str(server.pid), "kv_store", "size", "--by", "key[:6]", "--top", "3"]
        printed = subprocess.run(
            [sys.executable, "-m", "markerjit", *words, "--duration", "3s", "--color", "always"],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    console = Console(record=True, width=WIDTH, file=sys.stderr)
    shown = " ".join(f"'{word}'" if "[" in word else word for word in words)
    console.print(Text(f"$ markerjit {shown} --duration 3s"))
    console.print(Text.from_ansi(printed))
    path = PICTURES / f"hist-{WIDTH}.svg"
    path.write_text(console.export_svg(title="markerjit hist"))
    print(path.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main()
