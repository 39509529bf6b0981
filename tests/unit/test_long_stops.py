"""What `on` and `off` print of a stop: how long it was, and of a long one its parts."""

from __future__ import annotations

import pytest

from markerjit.cli.on import print_stop
from markerjit.patch.apply import NOTHING


@pytest.mark.parametrize(
    ("threads", "stop", "held", "resume", "line"),
    [
        (1, 100_000, 60_000, 7_000, "1 thread was stopped, for at most 167 µs"),
        (9, 14_000_000, 5_000_000, 1_000_000, "9 threads were stopped, for at most 20,000 µs"),
        (
            3001, 55_000_000, 60_000, 19_000_000,
            "3,001 threads were stopped, for at most 74,060 µs: 55,000 until the last one stood, "
            "60 for the change, 19,000 until the last one went on",
        ),
    ],
)  # fmt: skip
def test_a_long_stop_has_its_parts_printed(
    capsys: pytest.CaptureFixture[str],
    threads: int,
    stop: int,
    held: int,
    resume: int,
    line: str,
) -> None:
    print_stop(NOTHING._replace(written=1, threads=threads, stop=stop, held=held, resume=resume))

    assert capsys.readouterr().out == f"{line}\n"
