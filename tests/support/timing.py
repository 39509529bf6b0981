"""Conditions that are waited for, and actions that may hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


def wait_until(
    condition: Callable[[], Any], what: str, timeout_s: float = 30, every_s: float = 0.002
) -> None:
    """Wait for a condition; a failure names it."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(every_s)


def within(seconds: float, action: Callable[[], object]) -> None:
    """Do something that may hang in native code: then the test fails, and pytest goes on. (The
    thread is freed when the target is killed.)"""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"it hangs, {seconds} s after it began"
    if raised:
        raise raised[0]
