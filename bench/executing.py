"""The least that an active marker takes here, part by part of its way.

    python -m bench.executing [--runs 400] [--executions 20000]

`markerjit bench active` says what an execution takes on a machine as it is. This asks of which
parts that consists, and what would be left without them. Each way is a loop in assembly, with the
instructions of the body of MARK, of the runtime's probe that counts (native/src/runtime/restart.S),
and of a recorder of two ints. They are written down here, so that one part after the other can be
left out. The words that a thread shares with the kernel are ordinary ones here: nothing is
restarted.

    through the body    as a marker is: a jump to the body, which calls the probe
    around the body     a jump to code that counts or records, and back: what a stub could be
    as a function       the stub of a function that is entered (markerjit/probes/fast.py), which
                        saves the flags, asks its slot for the probe, and has six registers in a
                        record. Then the same stub without what could be left out
    in line             the code around the body in the loop

Loops come in turn. Printed are nanoseconds above the empty loop: the least of many runs, by the
clock of the thread, and their median. The least is of moments in which nobody disturbs the
processor. A median far above it belongs to a machine that is shared: where other programs run on
the same core, indirect branches may not be predicted.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SAVE = "push %rax; push %rdi; push %r10"
BACK = "pop %r10; pop %rdi; pop %rax"
NAME = "movslq area_at(%rip), %r10; lea sequence(%rip), %rax; mov %rax, %fs:8(%r10)"
CPU = "mov %fs:4(%r10), %eax; cmp alive(%rip), %eax; jae 9f"
FIND = """mov 0x28(%rsp), %r10; mov 8(%r10), %r10; mov markers(%rip), %edi; imul %rdi, %rax
    dec %edi; and 0x14(%r10), %edi; add %rdi, %rax; shl $4, %rax; add counts(%rip), %rax
    lea counters(%rip), %rdi"""
COUNT = "incq (%rdi, %rax)"
COUNT_HERE = "shl $16, %rax; lea counters(%rip), %r10; incq 48(%r10, %rax)"
KEEP = "push %rax; lahf; seto %al; push %rax"
GIVE_BACK = "pop %rax; add $0x7f, %al; sahf; pop %rax"
ASK = "movabs own_slot, %rax; test %rax, %rax; je 9f; mov %r10, -8(%rsp)"
IS_COUNT = "movabs $nothing, %r10; cmp %r10, %rax; jne 7f"
NAME_OWN = "lea sequence(%rip), %r10; mov %r10, %fs:area@tpoff + 8"
CPU_OWN = "mov %fs:area@tpoff + 4, %r10d; movabs $alive, %rax; cmp (%rax), %r10d; jae 8f"
FIND_OWN = """shl $16, %r10; movabs own_slot + 8, %rax; mov 0x14(%rax), %eax; and $1023, %eax
    shl $4, %rax; add %rax, %r10; movabs $counters, %rax"""
FIND_IN_SLOT = "shl $16, %r10; movabs own_slot + 16, %rax"
COUNT_OWN = "incq (%r10, %rax)"
KEEPS_NOTHING = "movabs own_slot + 48, %rax; test %rax, %rax; jne 9f"
CLOCK = "rdtsc; shl $32, %rdx; or %rdx, %rax; mov %rax, 8(%rdi)"
SAVE_MORE = f"{SAVE}; push %rcx; push %rdx; push %r11"
BACK_MORE = f"pop %r11; pop %rdx; pop %rcx; {BACK}"


def record(clock: str) -> str:
    """A record of two ints, in a ring with room."""
    return f"""{NAME}; {CPU}
    shl $7, %rax; lea ring(%rip), %r10; add %rax, %r10
    mov (%r10), %rdi; lea 32(%rdi), %rcx; cmp 8(%r10), %rcx; ja 9f
    and 16(%r10), %rdi; lea data(%rip), %r11; add %r11, %rdi; prefetchw 512(%rdi)
    {clock}
    movl $77, (%rdi); mov %fs:tid@tpoff, %eax; mov %eax, 4(%rdi)
    mov %ebx, 16(%rdi); mov %ebp, 20(%rdi)
    mov %rcx, (%r10)
9:"""


def record_own(clock: str) -> str:
    """A record of six registers, by a stub."""
    moved = "; ".join(
        f"mov {register}, %rax; mov %rax, {at}(%rdi)"
        for at, register in zip(
            range(16, 64, 8),
            ("-16(%rsp)", "%rsi", "-24(%rsp)", "%rcx", "%r8", "%r9"),
            strict=True,
        )
    )
    return f"""movabs $record_tag, %r10; cmp %r10, -8(%rax); jne 8f
    mov %rdi, -16(%rsp); mov %rdx, -24(%rsp); mov -16(%rax), %edi; mov %rdi, -48(%rsp)
    {NAME_OWN}; {CPU_OWN}
    movabs $ring, %rax; shl $7, %r10; add %rax, %r10
    mov (%r10), %rdi; lea 64(%rdi), %rax; cmp 8(%r10), %rax; ja 8f
    and 16(%r10), %rdi; add 24(%r10), %rdi; prefetchw 512(%rdi)
    {clock}
    mov %fs:tid@tpoff, %eax; shl $32, %rax; or -48(%rsp), %rax; mov %rax, (%rdi)
    {moved}
    addq $64, (%r10)
8:  mov -16(%rsp), %rdi; mov -24(%rsp), %rdx"""


class Way(NamedTuple):
    """A way: what stands in its loop, and what stands elsewhere."""

    name: str
    inside: str
    outside: str = ""


def through_the_body(number: int, name: str, probe: str) -> Way:
    """The head and the body of MARK with two words, and a probe."""
    return Way(
        f"through the body: {name}",
        f"jmp 1f; 1: jmp body_{number}; back_{number}:",
        f"""
    .p2align 5
body_{number}:
    lea slot_{number}(%rip), %rdx; mov (%rdx), %rax; test $1, %al; je 1f
    mov 0x20(%rdx), %rax
1:  test %rax, %rax; je back_{number}
    lea -128(%rsp), %rsp; push %rbp; push %rbx; lea slot_{number}(%rip), %rdx; push %rdx; push $2
    call *%rax
    lea 0xa0(%rsp), %rsp; jmp back_{number}
    .p2align 5
probe_{number}:
    endbr64; {probe}
    ret
    .data
    .p2align 6
slot_{number}: .quad probe_{number}, marker, 0, 0, 0, 0, 0, 0
    .text""",
    )


def around_the_body(number: int, name: str, code: str) -> Way:
    """A jump to a stub, and back."""
    return Way(
        f"around the body: {name}",
        f"jmp 1f; 1: jmp stub_{number}; behind_{number}:",
        f".p2align 5\nstub_{number}: {code}; jmp behind_{number}",
    )


def as_a_function(number: int, name: str, code: str) -> Way:
    """A jump to the stub of a function's entry, and back."""
    return Way(
        f"as a function: {name}",
        f"jmp stub_of_{number}; from_{number}:",
        f".p2align 4\nstub_of_{number}: {code}\n jmp from_{number}",
    )


def functions() -> Iterator[tuple[str, str]]:
    """The stub of a function, one part more each time, and without parts; and its code."""
    red_zone, back = "lea -128(%rsp), %rsp", "lea 128(%rsp), %rsp"
    yield "the two jumps", ""
    yield "registers and flags are saved", f"{red_zone}; {KEEP}; {GIVE_BACK}; {back}"
    steps = {
        "the slot is asked": ASK, "the probe is the one that counts": IS_COUNT,
        "the sequence is named": NAME_OWN, "the CPU is read": CPU_OWN,
        "the counter is found": FIND_OWN, "it is counted": COUNT_OWN,
    }  # fmt: skip
    give_back = "8: mov -8(%rsp), %r10; 7:"
    for count in range(1, len(steps) + 1):
        done = "; ".join([*steps.values()][:count])
        body = f"{red_zone}; {KEEP}; {done}\n{give_back}"
        yield [*steps][count - 1], f"{body}\n9: {GIVE_BACK}; {back}"
    asked = f"{ASK}; {IS_COUNT}; {NAME_OWN}; {CPU_OWN}"
    by_id = f"{FIND_OWN}; {COUNT_OWN}\n{give_back} {KEEPS_NOTHING}\n9:"
    in_slot = f"{FIND_IN_SLOT}; {COUNT_OWN}\n{give_back} {KEEPS_NOTHING}\n9:"
    yield "nothing is kept for exits", f"{red_zone}; {KEEP}; {asked}; {by_id} {GIVE_BACK}; {back}"
    yield "... and flags are not saved", f"{red_zone}; push %rax; {asked}; {by_id} pop %rax; {back}"
    yield "... or no red zone is left", f"{KEEP}; {asked}; {by_id} {GIVE_BACK}"
    yield (
        "... or the slot has the counter's place",
        f"{red_zone}; {KEEP}; {asked}; {in_slot} {GIVE_BACK}; {back}",
    )
    yield "... or all three", f"push %rax; {asked}; {in_slot} pop %rax"
    ask_other = ASK.replace("own_slot", "other_slot")
    for name, clock in ("recorded without a time", ""), ("recorded", CLOCK):
        body = f"{red_zone}; {KEEP}; {ask_other}; {IS_COUNT}; 7: {record_own(clock)}"
        yield name, f"{body}\n mov -8(%rsp), %r10\n9: {GIVE_BACK}; {back}"


def ways() -> Iterator[Way]:
    """All ways, the empty loop first."""
    yield Way("(the empty loop)", "")
    yield Way("a call", "call nothing")
    yield Way("a call by pointer", "call *%r12")
    yield Way("rdtsc", "rdtsc")
    parts = ("", NAME, CPU, FIND, COUNT)
    probes = {"a probe that only returns": "", "registers are saved": f"{SAVE}; {BACK}"}
    for name, behind in (
        ("the sequence is named", 2), ("the CPU is read", 3), ("the counter is found", 4),
        ("counted", 5),
    ):  # fmt: skip
        probes[name] = "; ".join([SAVE, *parts[1:behind], f"\n9: {BACK}"])
    for name, clock in ("recorded without a time", ""), ("recorded", CLOCK):
        probes[name] = f"{SAVE_MORE}; {record(clock)} {BACK_MORE}"
    for number, (name, probe) in enumerate(probes.items()):
        yield through_the_body(number, name, probe)
    red_zone, back = "lea -128(%rsp), %rsp", "lea 128(%rsp), %rsp"
    stubs = {"counted": f"{red_zone}; {SAVE}; {NAME}; {CPU}; {COUNT_HERE}\n9: {BACK}; {back}"}
    for name, clock in ("recorded without a time", ""), ("recorded", CLOCK):
        stubs[name] = f"{red_zone}; {SAVE_MORE}; {record(clock)} {BACK_MORE}; {back}"
    for number, (name, code) in enumerate(stubs.items()):
        yield around_the_body(number, name, code)
    for number, (name, code) in enumerate(functions()):
        yield as_a_function(number, name, code)
    yield Way("in line: counted", f"{NAME}; {CPU}; {COUNT_HERE}\n9:")
    yield Way("in line: recorded without a time", record(""))
    yield Way("in line: recorded", record(CLOCK))


def source(all_ways: list[Way]) -> str:
    """Assembly with a function for each way, which runs its loop so many times, and the data."""
    text = [".text", ".p2align 5", "nothing: ret"]
    for number, way in enumerate(all_ways):
        text.append(f"""
    .globl way_{number}
    .p2align 6
way_{number}:
    push %rbx; push %rbp; push %r12
    mov %rdi, %rbx; xor %ebp, %ebp; lea nothing(%rip), %r12
    .p2align 5
2:  add $3, %rbp
    {way.inside}
    dec %rbx; jnz 2b
    pop %r12; pop %rbp; pop %rbx; ret
    {way.outside}""")
    text.append("""
    .data
    .p2align 6
area_at: .long area@tpoff, -1
sequence: .quad 0, 0, 0, 0
alive: .quad 64
markers: .quad 1024
counts: .quad 0
marker: .quad 0, 0, 3 << 32
    .p2align 6
own_slot: .quad nothing, marker, counters + 48, 0, 0, 0, 0, 0
other_slot: .quad recorder, marker, counters + 48, 0, 0, 0, 0, 0
    .set record_tag, 0x1122334455667788
    .quad 3, record_tag
recorder:
    .p2align 7
ring: .quad 0, -1, 0xfffff, data
    .section .tbss, "awT", @nobits
    .p2align 5
area: .zero 32
tid: .zero 8
    .bss
    .p2align 12
counters: .zero 1 << 20
    .p2align 12
data: .zero 0x101000
    .section .note.GNU-stack, "", @progbits
""")
    return "\n".join(text)


def runner(count: int) -> str:
    """A program that runs all ways in turn, and prints the times of each as a line."""
    functions = ", ".join(f"way_{number}" for number in range(count))
    declared = "\n".join(f"void way_{number}(long);" for number in range(count))
    return f"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
{declared}
static void (*const ways[])(long) = {{{functions}}};
static double now(void) {{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}}
int main(int argc, char **argv) {{
    int runs = atoi(argv[1]);
    long executions = atol(argv[2]);
    double *took = malloc(sizeof *took * {count} * runs);
    for (int run = 0; run < runs; run++)
        for (int way = 0; way < {count}; way++) {{
            double start = now();
            ways[way](executions);
            took[way * runs + run] = (now() - start) / executions;
        }}
    for (int way = 0; way < {count}; way++, puts(""))
        for (int run = 0; run < runs; run++)
            printf("%.3f ", took[way * runs + run]);
}}
"""


def measure(all_ways: list[Way], runs: int, executions: int) -> list[list[float]]:
    """The times of each way, in ns for an execution, in order."""
    with tempfile.TemporaryDirectory(prefix="markerjit-executing-") as folder:
        assembly, main = Path(folder, "ways.S"), Path(folder, "main.c")
        program = Path(folder, "ways")
        assembly.write_text(source(all_ways))
        main.write_text(runner(len(all_ways)))
        subprocess.run(["cc", "-O2", "-no-pie", main, assembly, "-o", program], check=True)
        done = subprocess.run(
            [program, str(runs), str(executions)], check=True, text=True, stdout=subprocess.PIPE
        )
    return [sorted(map(float, line.split())) for line in done.stdout.splitlines()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=400, metavar="N", help="of each way")
    parser.add_argument("--executions", type=int, default=20_000, metavar="N", help="in a run")
    arguments = parser.parse_args()
    if arguments.runs < 1 or arguments.executions < 1:
        parser.error("there is nothing to run")
    all_ways = list(ways())
    empty, *others = measure(all_ways, arguments.runs, arguments.executions)
    print(f"{'':45}  least  median")
    for way, took in zip(all_ways[1:], others, strict=True):
        middle = took[len(took) // 2] - empty[len(empty) // 2]
        print(f"{way.name:45} {took[0] - empty[0]:6.2f}  {middle:6.2f}")


if __name__ == "__main__":
    main()
