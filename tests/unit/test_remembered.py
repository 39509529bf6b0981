"""What was verified before: kept where only its owner can write, and believed from nowhere else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from markerjit.ring.clock import Calibration
from markerjit.ring.types import Time
from markerjit.sites.remembered import recall, remember
from markerjit.trace.ctf import CtfSink
from tests.support.made_records import make_info

NOBODY = 65534
NAME, DIGEST = "0123abcd-89ef", "0123456789abcdef" * 2
PARTS = ("markerjit", "markerjit/verified", f"markerjit/verified/{NAME}")
CLOCK = Calibration(Time.TSC, 1000, 2000, 3_000_000_000, 0)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Not there yet."""
    base = tmp_path / "home" / ".cache"
    base.parent.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    return base


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if not path.is_dir())


def test_what_is_remembered_is_recalled_and_only_ours_to_write(cache: Path) -> None:
    assert recall(NAME) is None
    remember(NAME, "before")
    remember(NAME, DIGEST)

    assert recall(NAME) == DIGEST
    assert recall("another") is None
    (file,) = files(cache)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_link_in_the_way_is_not_followed(cache: Path, tmp_path: Path) -> None:
    """It had a name that could be guessed: that of the file, and our pid."""
    remember("first", DIGEST)
    directory, victim = cache / "markerjit" / "verified", tmp_path / "victim"
    victim.write_text("precious")
    for name in (f"{NAME}.{os.getpid()}", NAME):
        (directory / name).symlink_to(victim)

    assert recall(NAME) is None
    remember(NAME, DIGEST)

    assert victim.read_text() == "precious"
    assert recall(NAME) == DIGEST
    assert not (directory / NAME).is_symlink()


@pytest.mark.parametrize("part", ["markerjit", "markerjit/verified"])
def test_a_directory_that_is_a_link_is_not_used(cache: Path, tmp_path: Path, part: str) -> None:
    remember(NAME, DIGEST)
    elsewhere = tmp_path / "elsewhere"
    (cache / part).rename(elsewhere)
    (cache / part).symlink_to(elsewhere)

    assert recall(NAME) is None
    remember("other", DIGEST)
    assert "other" not in {path.name for path in elsewhere.rglob("*")}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_can_write_is_not_believed(cache: Path, part: str, mode: int) -> None:
    remember(NAME, DIGEST)
    path = cache / part
    path.chmod(stat.S_IMODE(path.stat().st_mode) | mode)

    assert recall(NAME) is None


@as_root
@pytest.mark.parametrize("part", [".", *PARTS])
def test_what_another_user_owns_is_not_believed(cache: Path, part: str) -> None:
    remember(NAME, DIGEST)
    os.chown(cache / part, NOBODY, NOBODY)

    assert recall(NAME) is None


@as_root
def test_root_makes_nothing_in_a_home_of_somebody_else(cache: Path) -> None:
    os.chown(cache.parent, NOBODY, NOBODY)
    remember(NAME, DIGEST)
    assert not cache.exists()

    cache.mkdir()
    os.chown(cache, NOBODY, NOBODY)
    remember(NAME, DIGEST)

    assert not list(cache.iterdir())


def test_a_cache_that_cannot_be_used_is_no_error(cache: Path) -> None:
    cache.write_text("a file")

    remember(NAME, DIGEST)
    assert recall(NAME) is None


def test_a_write_that_fails_leaves_nothing_behind(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    remember(NAME, DIGEST)

    assert files(cache) == []


def test_metadata_of_a_trace_follow_no_link(tmp_path: Path) -> None:
    """Their first name is known, and a directory may be one that others can write."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    sink = CtfSink(tmp_path / "t", make_info(clock=CLOCK))
    (tmp_path / "t" / ".metadata").symlink_to(victim)
    sink.close({})

    assert victim.read_text() == "precious"
    assert (tmp_path / "t" / "metadata").is_file()
