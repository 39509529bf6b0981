"""Programs of the tests that are built once: the same one, until something that it is made of is
another."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import kept_builds
from tests.support.kept_builds import kept_or_made


class Builder:
    """Compiles a source with a header, and counts how often."""

    def __init__(self, folder: Path) -> None:
        self.made = 0
        self.source, self.header = folder / "one.c", folder / "a name.h"
        self.source.write_text('#include "a name.h"\nint main(void) { return CODE; }\n')
        self.header.write_text("#define CODE 3\n")
        self._output = folder / "one"

    def code(self, *options: str) -> int:
        """What the program returns."""
        command = ["gcc", *options, str(self.source)]

        def make(more: Sequence[str | Path]) -> None:
            self.made += 1
            subprocess.run([*command, *more, "-o", self._output], check=True, capture_output=True)

        self._output.unlink(missing_ok=True)
        kept_or_made(command, self._output, make)
        return subprocess.run([self._output], check=False).returncode


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    monkeypatch.setattr(kept_builds, "KEPT", tmp_path / "kept")
    return Builder(tmp_path)


def test_the_same_is_built_once(builder: Builder) -> None:
    assert [builder.code(), builder.code()] == [3, 3]
    assert builder.made == 1


def test_another_header_source_or_option_makes_another_program(builder: Builder) -> None:
    builder.code()
    builder.header.write_text("#define CODE 4\n")
    of_header = builder.code()
    builder.source.write_text('#include "a name.h"\nint main(void) { return 10 + CODE; }\n')
    of_source = builder.code()
    of_option = builder.code("-O1")

    assert (of_header, of_source, of_option) == (4, 14, 14)
    assert builder.made == 4


def test_what_was_damaged_or_lost_is_built_anew(builder: Builder) -> None:
    builder.code()
    (kept,) = (path for path in kept_builds.KEPT.iterdir() if not path.suffix)
    kept.write_bytes(b"x")
    after_damage = builder.code()
    kept.unlink()
    after_loss = builder.code()
    builder.header.rename(builder.header.with_name("another.h"))

    assert (after_damage, after_loss, builder.made) == (3, 3, 3)
    with pytest.raises(subprocess.CalledProcessError):
        builder.code()


def test_what_does_not_compile_is_not_kept(builder: Builder) -> None:
    builder.header.write_text("#error no\n")

    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError):
            builder.code()

    assert builder.made == 2
    assert not kept_builds.KEPT.exists()
