"""How a process has ended, in words."""

from __future__ import annotations

import pytest

from markerjit.session.watch import Ending


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (Ending(0, 3), "ended with exit code 3"),
        (Ending(11, 0), "was ended by SIGSEGV"),
        (Ending(40, 0), "was ended by signal 40"),
        (Ending(None, None), "ended"),
    ],
)
def test_an_ending_is_said(ending: Ending, text: str) -> None:
    assert str(ending) == text
