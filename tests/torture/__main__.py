"""`make torture`: all combinations again and again, a line for each, and a table at the end.

    TORTURE_SECONDS   seconds, by default 600; every combination gets its turn in any case
    TORTURE_FLIPS     the least number of flips

Writes build/torture.json. The exit code is 1 when an allowed combination went wrong, or when a
variant that leaves out a necessary step went well.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict

from tests.torture.combinations import (
    ALLOWED,
    CROWDS,
    LINE,
    MUST_FAIL,
    SEEN_ENOUGH,
    SEEN_ONLY,
    Combination,
    LeftOut,
    inside,
)
from tests.torture.driver import Seen, allowed_wrongs, arguments, failed, run, run_left_out
from tests.torture.foreign import Foreign, switch_foreign
from tests.torture.marks import Marked, switch_marks
from tests.torture.victims import ROOT, victim

LONGEST_TURN_S = 3.0
MARK_ROUNDS = 50
FOREIGN_PART = 0.1
"""Of the time, for foreign sites."""
WIDTH = 15
COLUMNS = (
    "flips",
    "transitions",
    "executions",
    "torn",
    "trapped",
    "signals",
    "births",
    "libraries",
)


def numbers(seen: Seen) -> str:
    """The columns of a line."""
    return "".join(f"{getattr(seen, column):>{WIDTH},}" for column in COLUMNS)


def for_seconds(turn_s: float) -> Callable[[Seen], bool]:
    """A condition that holds after `turn_s` seconds, once some flip was seen."""
    end = time.monotonic() + turn_s
    return lambda seen: time.monotonic() > end and seen.transitions > 0


def torture(seconds: float, flips: int) -> dict[Combination, Seen]:
    """Run all allowed combinations in turns, until the time is over and `flips` flips were made."""
    turn_s = min(LONGEST_TURN_S, seconds / len(ALLOWED))
    end = time.monotonic() + seconds
    all_seen: dict[Combination, Seen] = {}
    while not all_seen or time.monotonic() < end or total(all_seen.values()).flips < flips:
        for number, combination in enumerate(ALLOWED, 1):
            seen = run(combination, for_seconds(turn_s))
            all_seen.setdefault(combination, Seen()).add(seen)
            print(f"{number:>4}/{len(ALLOWED)}{numbers(seen)}  {combination}", flush=True)
            for wrong in allowed_wrongs(combination, seen):
                print(f"     WRONG: {wrong}", flush=True)
    return all_seen


def leave_out(left_out: LeftOut) -> Seen:
    """Run a variant that leaves a step out, and print the result."""
    seen = run_left_out(left_out)
    outcome = f"{seen.torn} torn" if seen.torn else seen.ended or "did not fail"
    counts = f"{seen.flips:>13,} flips, {seen.transitions:>9,} seen: {outcome:<14.14}"
    print(f"{counts}  {left_out.combination} without {left_out.lacks}", flush=True)
    return seen


def marks() -> Marked:
    """Switch a real marker while all other changes go on."""
    with victim(arguments(inside("jmp5", LINE, "int3/mem", "membarrier", CROWDS[-1]))) as target:
        return switch_marks(target, MARK_ROUNDS, "flip 10 int3 mem membarrier")


def foreign(seconds: float) -> Foreign:
    """Switch USDT probes and functions across cache lines and pages."""
    end = time.monotonic() + seconds
    return switch_foreign(lambda seen: time.monotonic() > end and seen.compared > 0)


def total(all_seen: Iterable[Seen]) -> Seen:
    """The sums over all runs."""
    together = Seen()
    for seen in all_seen:
        together.add(seen)
    return together


def print_table(all_seen: dict[Combination, Seen]) -> None:
    """Each combination's sums, and those of all."""
    print("".join(f"{column:>{WIDTH}}" for column in COLUMNS))
    for combination, seen in all_seen.items():
        print(f"{numbers(seen)}  {combination}")
    print(f"{numbers(total(all_seen.values()))}  together")


def save(
    all_seen: dict[Combination, Seen],
    variants: dict[LeftOut, Seen],
    marked: Marked,
    switched: Foreign,
) -> None:
    """Save all results, for comparisons."""
    record = {
        "machine": {"cpu": cpu(), "cpus": os.cpu_count(), "kernel": platform.release()},
        "allowed": [
            {"combination": str(c), "wrong": allowed_wrongs(c, seen), **seen.as_dict()}
            for c, seen in all_seen.items()
        ],
        "left_out": [
            {"lacks": left.lacks, "combination": str(left.combination), **seen.as_dict()}
            for left, seen in variants.items()
        ],
        "marks": asdict(marked),
        "foreign": asdict(switched),
    }
    (ROOT / "build" / "torture.json").write_text(json.dumps(record, indent=1) + "\n")


def cpu() -> str:
    """Vendor, family and model, from /proc/cpuinfo."""
    with open("/proc/cpuinfo") as lines:
        pairs = [line.split(":", 1) for line in lines if ":" in line]
    named = {name.strip(): value.strip() for name, value in pairs}
    return f"{named['vendor_id']} family {named['cpu family']} model {named['model']}"


def main() -> int:
    """Returns 0 if all allowed combinations went well, and all variants that must fail failed."""
    seconds = float(os.environ.get("TORTURE_SECONDS", "600"))
    flips = int(os.environ.get("TORTURE_FLIPS", "0"))
    all_seen = torture(seconds, flips)
    print("\nleft out, and what it took to fail")
    variants = {left_out: leave_out(left_out) for left_out in (*MUST_FAIL, *SEEN_ONLY)}
    print()
    print_table(all_seen)
    marked = marks()
    print(f"\nmarks: {marked}")
    switched = foreign(seconds * FOREIGN_PART)
    print(f"\nforeign sites: {switched}")
    save(all_seen, variants, marked, switched)
    wrong = [c for c, seen in all_seen.items() if allowed_wrongs(c, seen)]
    well = [left for left in MUST_FAIL if not failed(variants[left])]
    harmless = [left for left in well if variants[left].transitions >= SEEN_ENOUGH]
    print(f"\n{len(all_seen)} combinations, {len(wrong)} went wrong; ", end="")
    print(f"{len(MUST_FAIL)} must fail, {len(harmless)} did not", end="")
    print(f" and {len(well) - len(harmless)} could not, for want of observed flips")
    return 1 if wrong or harmless or not (marked.adds_up and switched.is_right) else 0


if __name__ == "__main__":
    sys.exit(main())
