"""Each failure of a transaction is said in one sentence."""

from __future__ import annotations

import errno

import pytest

from markerjit.errors import (
    ChangeFailed,
    MarkerError,
    NotPermitted,
    NotRolledBack,
    NotVerified,
    Refused,
    TargetGone,
)
from markerjit.remote import native, outcome
from markerjit.remote.outcome import explain_failure


@pytest.mark.parametrize(
    ("status", "facts", "kind", "words"),
    [
        (native.GONE, {}, TargetGone, "process 7 has ended$"),
        (native.BUSY, {"tid": 9}, Refused, "thread 9 of process 7 did not stop in time"),
        (native.IN_SPAN, {"tid": 9}, Refused, "thread 9 is inside a site"),
        (native.STACK_UNKNOWN, {"tid": 9}, Refused, "stack of thread 9 cannot be searched"),
        (native.NO_THREAD, {}, Refused, "no thread of process 7 can be borrowed"),
        (native.NOT_64_BIT, {}, MarkerError, "32-bit"),
        (native.NOT_VERIFIED, {"index": 3}, NotVerified, "edit 3 .*was rolled back"),
        (
            native.NOT_UNDONE,
            {"index": 3},
            NotRolledBack,
            "edit 3 COULD NOT be rolled back .*repair 7",
        ),
        (native.MOVED, {}, Refused, "loaded or unloaded just now; try again$"),
        (native.SIGTRAP_BLOCKED, {"tid": 9}, MarkerError, "thread 9 .*SIGTRAP"),
        (native.DISTURBED, {"index": 3}, Refused, "between the sites .* rolled back; try again"),
        (native.FAULTED, {"tid": 9}, Refused, "thread 9 .* faulted in code"),
        (native.NOT_SYNCED, {"error": errno.EAGAIN, "tid": 9}, Refused, "thread 9 .*block"),
        (native.NOT_SYNCED, {"error": errno.ESRCH}, Refused, "did not return .*rolled back"),
        (native.NOT_SYNCED, {"error": errno.EINVAL}, Refused, "cannot fence.*--quiesce stop"),
        (native.ERRNO, {"error": errno.EIO, "written": 2}, ChangeFailed, "and was rolled back: In"),
        (native.ERRNO, {"error": errno.EPERM}, NotPermitted, "process 7"),
        (native.ERRNO, {"error": errno.EACCES}, NotPermitted, "process 7"),
        (native.ERRNO, {"error": errno.EIO}, ChangeFailed, "Input/output error"),
    ],
)
def test_each_failure_is_said_in_one_sentence(
    status: int,
    facts: dict[str, int],
    kind: type[MarkerError],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outcome, "is_ending", lambda _: False)

    error = explain_failure(7, status, native.Report(**facts))

    assert type(error) is kind or (kind is MarkerError and isinstance(error, kind))
    with pytest.raises(kind, match=words):
        raise error
    assert "\n" not in str(error)
    not_now = kind is Refused and facts.get("error") != errno.EINVAL
    assert getattr(error, "try_again", False) == not_now


@pytest.mark.parametrize("status", [native.BUSY, native.NO_THREAD, native.ERRNO, native.NOT_UNDONE])
def test_whatever_failed_in_a_process_that_ends_it_has_ended(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that is killed does not stop, or come back from a call, either."""
    monkeypatch.setattr(outcome, "is_ending", lambda _: True)

    error = explain_failure(7, status, native.Report(error=errno.EPERM, borrowed=1))

    assert str(TargetGone(7)) == str(error) == "process 7 has ended"
