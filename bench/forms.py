"""What the dormant forms cost, as machine code alone: the ground of docs/decisions/0001.

One loop of N blocks in a row, each some work and one dormant form, for a small N (everything stays
in the processor's first caches and predictors) and for large ones (12,000 taken jumps do not fit a
branch target buffer). All forms run in turn in each round, in a random order, in one process; a
figure is the median over the rounds of the difference to the same round's `nothing`, in
nanoseconds for each block, with the 5th and 95th percentile. A call is there as the control: if it
does not show, nothing else means anything.

    python bench/forms.py [--rounds N] [--json FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import random
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

FORMS = {
    "nothing": "",
    "jump (eb 05; e9)": ".byte 0xeb, 5, 0xe9, 0, 0, 0, 0",
    "nop (a9 imm32)": ".byte 0xa9, 0, 0, 0, 0",
    "2-byte nop (66 90)": ".byte 0x66, 0x90",
    "5-byte nop (0f 1f)": ".byte 0x0f, 0x1f, 0x44, 0, 0",
    "flag (cmpq; jne)": "cmpq $0, mj_flag(%rip); jne mj_never",
    "call": "call mj_empty",
}
SIZES = (16, 2000, 12000)
SLICE_S = 0.004

SOURCE = """
    .text
    .balign 64
    .globl run
    .type run, @function
run:                            # rdi: how often; rsi: some data
    push %rbx
    xor %ebx, %ebx
1:  .rept {blocks}
    mov 8(%rsi), %rdx           # work that does not wait for the block before
    lea 3(%rdx,%rdi), %rcx
    xor %rcx, %rdx
    add %rdx, %rbx
    {form}
    .endr
    dec %rdi
    jnz 1b
    mov %rbx, %rax
    pop %rbx
    ret
mj_never:
    ud2
    .balign 64
mj_empty:
    ret
    .data
    .balign 64
mj_flag: .quad 0
    .section .note.GNU-stack, "", @progbits
"""


def build(directory: Path, form: str, blocks: int) -> ctypes.CDLL:
    """A shared object with `run(times, data)`."""
    name = f"form{abs(hash((form, blocks)))}"
    source = directory / f"{name}.s"
    source.write_text(SOURCE.format(form=form.replace(";", "\n    "), blocks=blocks))
    target = directory / f"{name}.so"
    subprocess.run(["cc", "-shared", "-nostdlib", "-o", target, source], check=True)
    return ctypes.CDLL(str(target))


def time_one(library: ctypes.CDLL, times: int, blocks: int) -> float:
    """Nanoseconds for each block."""
    data = (ctypes.c_uint64 * 8)()
    start = time.perf_counter_ns()
    library.run(ctypes.c_uint64(times), data)
    return (time.perf_counter_ns() - start) / times / blocks


def measure(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Differences to `nothing` by size and form, one for each round."""
    results: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for blocks in SIZES:
            libraries = {name: build(Path(directory), form, blocks) for name, form in FORMS.items()}
            once = min(time_one(libraries["nothing"], 50, blocks) for _ in range(20))
            times = max(1, int(SLICE_S * 1e9 / once / blocks))
            found: dict[str, list[float]] = {name: [] for name in FORMS}
            for _ in range(rounds):
                order = random.sample(list(FORMS), len(FORMS))
                costs = {name: time_one(libraries[name], times, blocks) for name in order}
                for name, cost in costs.items():
                    found[name].append(cost - costs["nothing"])
            results[str(blocks)] = found
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", metavar="FILE", help="keep every sample")
    options = parser.parse_args()
    results = measure(options.rounds)
    if options.json:
        machine = {"processor": processor(), "kernel": platform.release()}
        Path(options.json).write_text(json.dumps({"machine": machine, "samples": results}))
    print(f"{processor()}, Linux {platform.release()}, {options.rounds} rounds; ns a block")
    print(f"{'form':<22}" + "".join(f"{size + ' blocks':>24}" for size in results))
    for name in FORMS:
        row = f"{name:<22}"
        for found in results.values():
            low, *_, high = statistics.quantiles(found[name], n=20)
            row += f"{statistics.median(found[name]):>+9.2f} ({low:+.2f} … {high:+.2f})".rjust(24)
        print(row)


def processor() -> str:
    """The processor's name and family numbers."""
    facts = {
        key.strip(): value.strip()
        for key, _, value in (
            line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()
        )
    }
    return (
        f"{facts.get('model name')} (family {facts.get('cpu family')}, model {facts.get('model')})"
    )


if __name__ == "__main__":
    main()
