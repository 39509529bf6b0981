"""Actions just before and just after a call into libmjstop.so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from markerjit.remote import native

WRITE = "mj_apply"
BORROW = "mj_borrow"


def just_before(monkeypatch: pytest.MonkeyPatch, call: str, action: Callable[[], object]) -> None:
    """Once, when all is planned and asked and the native call of that name is about to be made."""
    library = native.library()
    real = getattr(library, call)

    def first(*args: Any) -> Any:
        monkeypatch.setattr(library, call, real)
        action()
        return real(*args)

    monkeypatch.setattr(library, call, first)


def just_after(monkeypatch: pytest.MonkeyPatch, call: str, action: Callable[[], object]) -> None:
    """Once, when the first native call of that name has been made."""
    library = native.library()
    real = getattr(library, call)

    def first(*args: Any) -> Any:
        monkeypatch.setattr(library, call, real)
        result = real(*args)
        action()
        return result

    monkeypatch.setattr(library, call, first)
