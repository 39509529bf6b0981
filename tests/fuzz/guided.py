"""Fuzzing that is guided by coverage: a decoder under atheris, which is libFuzzer for Python.

    python -m tests.fuzz.guided notes --runs 100000
    python -m tests.fuzz.guided ring --seconds 300 --corpus build/fuzz/ring

Half of the mutations are libFuzzer's, and half are edits of numbers where the harness says that
some stand. What was found is one line of JSON at the end. What a decoder must not do ends the run
with its traceback and an exit code, and the input is in build/fuzz: name it to run it alone.

    python -m tests.fuzz.guided notes --again build/fuzz/notes-crash-da39a3ee

What atheris imports it instruments, which takes ten times as long as a short run. `--forks` is for
many of those. Each line of standard input is a run, a JSON object: its "arguments" as above, and
the files "output" and "errors". The run is a fork. The answer to a line is its exit code.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["markerjit"]):
    from tests.fuzz.every import HARNESSES

from tests.fuzz.edits import apply, random_edits
from tests.fuzz.harness import Harness

FINDINGS = Path("build/fuzz")
_HANGS_S = 20
_MEMORY_MIB = 1024


class Campaign:
    """Counts what became of the inputs, and ends after so many, or after so long."""

    def __init__(self, harness: Harness, runs: int, seconds: float) -> None:
        self._harness = harness
        self._places = [seed.places for seed in harness.seeds()]
        self._runs = runs
        self._deadline = time.monotonic() + seconds if seconds else float("inf")
        self._found: Counter[str] = Counter()
        self._tried = 0

    def one_input(self, data: bytes) -> None:
        """TestOneInput."""
        self._tried += 1
        self._found[self._harness.check(data)] += 1
        if self._tried == self._runs or (self._tried % 256 == 0 and self._late()):
            self._end()

    def mutate(self, data: bytes, most: int, seed: int) -> bytes:
        """A neighbour of this input."""
        rng = random.Random(seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return apply(bytes(data), rng.choice(self._places), random_edits(rng))[:most]

    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    def _end(self) -> None:
        """Here and not at the exit: libFuzzer leaves without running what Python has for that."""
        summary = {"name": self._harness.name, "tried": self._tried, "found": dict(self._found)}
        print(json.dumps(summary), flush=True)
        os._exit(0)


def fork_for_each() -> Sequence[str]:
    """Run what standard input asks for, to its end. Returns in the forks, with their arguments."""
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            for number, name in enumerate((os.devnull, request["output"], request["errors"])):
                end = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
                os.dup2(end, number)
                os.close(end)
            return list(request["arguments"])
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    sys.exit()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided")
    parser.add_argument("name", choices=HARNESSES)
    parser.add_argument("--runs", type=int, default=0, help="end after so many inputs")
    parser.add_argument("--seconds", type=float, default=0, help="end after so long")
    parser.add_argument("--corpus", type=Path, help="a folder to start from and to add to")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations")
    parser.add_argument("--again", type=Path, help="run one input, and nothing else")
    args = parser.parse_args(arguments)
    harness = HARNESSES[args.name]
    if args.again:
        print(harness.check(args.again.read_bytes()))
        return
    FINDINGS.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(harness, args.runs, args.seconds)
    # exec keeps the peak of the process that forked us, and libFuzzer reads that peak as ours
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    options = [
        f"-seed={args.seed}",
        f"-artifact_prefix={FINDINGS}/{harness.name}-",
        f"-timeout={_HANGS_S}",
        f"-rss_limit_mb={peak_mib + _MEMORY_MIB}",
        "-max_len=4096",
        "-len_control=0",
        f"-seed_inputs={','.join(_written_seeds(harness))}",
    ]
    if args.corpus:
        args.corpus.mkdir(parents=True, exist_ok=True)
        options.append(str(args.corpus))
    atheris.Setup([sys.argv[0], *options], campaign.one_input, custom_mutator=campaign.mutate)
    atheris.Fuzz()


def _written_seeds(harness: Harness) -> list[str]:
    """The seeds as files, which is how libFuzzer takes them."""
    folder = FINDINGS / "seeds" / harness.name
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for index, seed in enumerate(harness.seeds()):
        path = folder / str(index)
        path.write_bytes(seed.data)
        paths.append(str(path))
    return paths


if __name__ == "__main__":
    main(fork_for_each() if sys.argv[1:] == ["--forks"] else sys.argv[1:])
