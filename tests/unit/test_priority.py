"""The priority of a controller: raised as far as is permitted, and the earlier one afterwards."""

from __future__ import annotations

import builtins
import io
import os
import resource
from typing import Any

import pytest

from markerjit.cli import main
from markerjit.cli.main import run
from markerjit.proc import priority

LIMITS = "/proc/self/limits"


class Kernel:
    """Nice values of a thread: with a capability all are permitted, with a limit some."""

    def __init__(self, nice: int = 0, *, capable: bool = False, limit: int = 0) -> None:
        self.nice = nice
        self.values: list[int] = []
        self._least = -20 if capable or limit == resource.RLIM_INFINITY else 20 - limit
        self.limit = limit

    def getpriority(self, which: int, who: int) -> int:
        assert (which, who) == (os.PRIO_PROCESS, 0)
        return self.nice

    def setpriority(self, which: int, who: int, value: int) -> None:
        assert (which, who) == (os.PRIO_PROCESS, 0)
        if value < min(self._least, self.nice):
            raise PermissionError(13, "Permission denied")
        self.nice = value
        self.values.append(value)

    def use(self, patch: pytest.MonkeyPatch) -> Kernel:
        patch.delenv(priority.VARIABLE, raising=False)
        patch.setattr(os, "getpriority", self.getpriority)
        patch.setattr(os, "setpriority", self.setpriority)
        opened = builtins.open

        def opening(path: Any, *args: Any, **options: Any) -> Any:
            return io.StringIO(self.limits()) if path == LIMITS else opened(path, *args, **options)

        patch.setattr(builtins, "open", opening)
        return self

    def limits(self) -> str:
        """The lines of /proc/self/limits, as fs/proc/base.c of Linux writes them."""
        limit = "unlimited" if self.limit == resource.RLIM_INFINITY else str(self.limit)
        return (
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max msgqueue size         819200               819200               bytes     \n"
            f"Max nice priority         {limit:<20} {40:<20}\n"
            "Max realtime priority     0                    0                    \n"
        )


@pytest.mark.parametrize(
    ("kernel", "values", "first"),
    [
        (Kernel(capable=True), [-20, 0], True),
        (Kernel(5, capable=True), [-20, 5], True),
        (Kernel(-20, capable=True), [], True),
        (Kernel(limit=30), [-10, 0], False),
        (Kernel(limit=40), [-20, 0], True),
        (Kernel(limit=resource.RLIM_INFINITY), [-20, 0], True),
        (Kernel(limit=0), [], False),
        (Kernel(10, limit=0), [], False),
        (Kernel(10, limit=15), [5, 10], False),
        (Kernel(-10, limit=25), [], False),
    ],
)
def test_it_is_raised_as_far_as_is_permitted_and_given_back(
    monkeypatch: pytest.MonkeyPatch, kernel: Kernel, values: list[int], first: bool
) -> None:
    kernel.use(monkeypatch)
    # Back to a value that the limit does not allow to be raised to is lower, and always permitted.
    with priority.raised_priority() as is_first:
        assert kernel.values == values[:1]

    assert (kernel.values, is_first) == (values, first)


def test_it_is_given_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(3, capable=True).use(monkeypatch)

    with pytest.raises(KeyboardInterrupt), priority.raised_priority():
        raise KeyboardInterrupt

    assert kernel.nice == 3


def test_it_is_kept_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(capable=True).use(monkeypatch)
    monkeypatch.setenv(priority.VARIABLE, priority.KEEP)

    with priority.raised_priority() as is_first:
        pass

    assert (kernel.values, is_first) == ([], False)


def schedstat(monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
    """What the kernel says of the time that we have waited; None: nothing."""
    opened = builtins.open

    def opening(path: Any, *args: Any, **options: Any) -> Any:
        if path != "/proc/self/schedstat":
            return opened(path, *args, **options)
        if content is None:
            raise FileNotFoundError
        return io.BytesIO(content)

    monkeypatch.setattr(builtins, "open", opening)


@pytest.mark.parametrize("content", [None, b"", b"180000000 9999999999 7\n", b"0 0 0\n"])
def test_there_is_no_reason_where_there_was_no_wait(
    monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    schedstat(monkeypatch, content)

    assert priority.reason_for_waiting() is None


@pytest.mark.parametrize(
    ("kernel", "keep", "words"),
    [
        (Kernel(limit=30), False, "; as root, with CAP_SYS_NICE or with a nice limit"),
        (Kernel(capable=True), True, "; MARKERJIT_PRIORITY=keep is set; without it, as root"),
        (Kernel(capable=True), False, ""),
    ],
)
def test_a_command_that_waited_long_says_why(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kernel: Kernel,
    keep: bool,
    words: str,
) -> None:
    kernel.use(monkeypatch)
    if keep:
        monkeypatch.setenv(priority.VARIABLE, priority.KEEP)
    schedstat(monkeypatch, b"180000000 30500000000 700\n")
    during: list[int] = []
    monkeypatch.setattr(main, "_run_command", lambda _: during.append(kernel.nice) or 0)

    assert run(["on", "1", "kv_*"]) == 0

    errors = capsys.readouterr().err
    waited = "markerjit: markerjit ran for 0.2 s and waited 30.5 s for its turn on a CPU"
    assert errors.startswith(waited + words) if words else not errors
    assert during == [0 if keep else -20 if not words else -10]
    assert kernel.nice == 0


@pytest.mark.parametrize("command", ["status", "trace", "list", "bench"])
def test_commands_that_stay_keep_their_priority(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    kernel = Kernel(capable=True).use(monkeypatch)
    monkeypatch.setattr(main, "_run_command", lambda _: 0)

    assert run([command]) == 0

    assert kernel.values == []
