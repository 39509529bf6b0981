"""The brief run of the bench: the loops are what the bench compiles, the facts what it says."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from markerjit.apps.bench import brief
from markerjit.apps.bench.dormant.measure import hot_objects
from markerjit.apps.bench.sampling.build import Object
from markerjit.apps.bench.sampling.compare import Comparison, Limits, compare
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.runner import Runner
from markerjit.errors import MarkerError
from tests.support.programs import ROOT, make


def test_loops_that_are_not_built_are_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(brief, "BUILT", tmp_path)

    with pytest.raises(MarkerError, match=r"hot-no-marker-0\.so is not built; run make native"):
        brief.objects()


def test_facts_are_those_of_the_comparison() -> None:
    """Of which no form is left out, and the verdict is the bench's."""
    chance = np.random.default_rng(1)
    levels = {"no marker": 1.0, "no marker, again": 1.0, "jump": 1.2, "5-byte no-op": 1.0,
              "call": 2.5}  # fmt: skip
    samples = {name: level + chance.normal(0, 0.001, (8, 60)) for name, level in levels.items()}
    comparison = Comparison(samples, dict.fromkeys(samples, "no marker"), 777)

    facts = brief.facts(comparison)

    assert (facts["layouts"], facts["rounds"], facts["executions"]) == (8, 60, 777)
    assert facts["floor"] == comparison.floor("no marker, again")
    assert facts["noisy"] == ""
    assert facts["level"] == comparison.level("no marker")._asdict()
    by_name = {form["name"]: form for form in facts["forms"]}
    assert list(by_name) == list(levels)
    for name in ("jump", "call"):
        assert by_name[name] == {"name": name, **comparison.cost(name)._asdict(), "differs": True}
    assert not by_name["no marker, again"]["differs"]


def code_of(built: Object) -> tuple[int, bytes]:
    """The place in its page of the function that is run, and its code."""
    with built.path.open("rb") as file:
        elf = ELFFile(file)
        (symbol,) = elf.get_section_by_name(".dynsym").get_symbol_by_name("run")
        address, size = symbol["st_value"], symbol["st_size"]
        file.seek(next(elf.address_offsets(address)))
        return address % 4096, file.read(size)


@pytest.mark.slow
def test_the_loops_are_those_that_the_bench_compiles(tmp_path: Path) -> None:
    """With the compiler that made the product."""
    make("native")
    bench = ROOT / "native" / "bench"
    place = Place(bench, ROOT / "native" / "include", bench, tmp_path, "gcc", 0)

    ours = brief.objects()
    compiled = hot_objects(brief.BRIEF_FORMS, 2, False, brief.LAYOUTS, place, tmp_path)

    assert [each[:2] for each in ours] == [each[:2] for each in compiled]
    assert [each.path.name for each in ours] == [each.path.name for each in compiled]
    for own, other in zip(ours, compiled, strict=True):
        assert code_of(own) == code_of(other), own.path.name


@pytest.mark.slow
def test_the_loops_can_be_run() -> None:
    make("native")
    built = brief.objects()
    with closing(Runner(brief.NATIVE / "bench/dormant/runner", [each.path for each in built],
                        cpu=brief.machine.quiet_cpu())) as runner:  # fmt: skip
        comparison = compare(built, runner, Limits(0, 0))

    assert set(comparison.samples) == set(brief.NAMES)
    assert {samples.shape for samples in comparison.samples.values()} == {(brief.LAYOUTS, 12)}


def test_it_ends_where_its_parent_is_another() -> None:
    """The parent had died before it could ask to die with it."""
    done = subprocess.run(
        [sys.executable, "-m", "markerjit.apps.bench.brief", "1", "60"],
        cwd=ROOT, capture_output=True, timeout=60, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
