"""Objects of the bench that are kept: by what they are made of, and only where they are ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from markerjit.apps.bench.sampling import kept


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Asks for an object; whether it had to be made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "include").mkdir()
    (tmp_path / "a.c").write_text("int x;")
    (tmp_path / "include" / "a.h").write_text("int y;")

    def ask(*words: str) -> bool:
        kept._of_folder.cache_clear()  # of one run
        target = tmp_path / "target.so"
        target.unlink(missing_ok=True)
        calls: list[int] = []

        def make() -> None:
            calls.append(1)
            target.write_bytes(b"object")

        kept.made_or_kept(target, ["sh", *words], [tmp_path / "a.c", tmp_path / "include"], make)
        assert target.read_bytes() == b"object"
        return bool(calls)

    return ask


def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "markerjit" / "bench"


def test_what_was_made_is_found_again_until_anything_of_it_changes(
    made: Callable[..., bool], tmp_path: Path
) -> None:
    assert made("-O2")
    assert not made("-O2")
    assert made("-O1")
    (tmp_path / "include" / "a.h").write_text("int z;")
    assert made("-O2")
    (tmp_path / "a.c").write_text("int w;")
    assert made("-O2")
    assert not made("-O2")


def test_what_others_can_write_is_not_believed(made: Callable[..., bool], tmp_path: Path) -> None:
    assert made()
    (path,) = folder(tmp_path).iterdir()
    path.chmod(0o666)
    assert made()
    folder(tmp_path).chmod(0o777)
    assert made() and made()


def test_cache_that_cannot_be_used_is_no_error(made: Callable[..., bool], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")

    assert made() and made()


def test_what_was_not_used_for_longest_goes_first(
    made: Callable[..., bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_MOST", 12)
    for number in range(3):
        assert made(str(number))
        for path in folder(tmp_path).iterdir():
            about = path.stat()
            os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns - 10**9))
    assert not made("0")  # used again

    kept.tidy()

    assert len([*folder(tmp_path).iterdir()]) == 2
    assert not made("0") and not made("2") and made("1")
