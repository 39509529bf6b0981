"""Functions that a compiler has prepared for other tools: no-ops and calls where they are entered
and left. All are opened by jumps, where they are entered and left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import markerjit
from tests.support.compilers import Compiler
from tests.support.processes import text_of
from tests.support.timing import Limited

pytestmark = pytest.mark.live

SOURCE = r"""
#include <stdio.h>
#ifdef OWN_HOOK
__asm__(".globl __fentry__\n.type __fentry__, @function\n__fentry__:\n.cfi_startproc\n"
        "incq calls_of_hook(%rip)\nret\n.cfi_endproc\n.size __fentry__, . - __fentry__");
#endif
long calls_of_hook;
__attribute__((noinline)) int framed(int n) {
    volatile int room[8];
    room[n & 7] = n;
    return room[n & 7] * 3;
}
__attribute__((noinline)) int branching(int n) { return n & 1 ? framed(n) + 2 : framed(n); }
int main(void) {
    char line[8];
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        long sum = 0;
        for (int n = 0; n < 100; n++) sum += branching(n);
        printf("%ld %ld\n", sum, calls_of_hook);
        fflush(stdout);
    }
}
"""
NAMES = tuple(f"func:hooked:{name}" for name in ("framed", "branching"))


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [
        ("gcc", ["-fpatchable-function-entry=5"]),
        ("gcc", ["-fpatchable-function-entry=10,5"]),
        ("gcc", ["-pg", "-mfentry"]),
        ("gcc", ["-pg", "-mfentry", "-DOWN_HOOK"]),  # the linker makes it a direct call
        ("gcc", ["-pg", "-mfentry", "-mnop-mcount", "-fno-pie", "-no-pie"]),
        ("gcc", ["-pg"]),
        ("clang", ["-fxray-instrument", "-fxray-instruction-threshold=1"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_what_a_compiler_has_prepared_is_counted_and_as_before(
    compiler: str, flags: list[str], needs_tool: object, tmp_path: Path
) -> None:
    source, path = tmp_path / "hooked.c", tmp_path / "hooked"
    source.write_text(SOURCE)
    made = Compiler(compiler).run("-O2", *flags, source, "-o", path)
    if made.returncode and compiler == "clang":
        pytest.skip(f"needs the runtime of XRay (libclang-rt-dev): {made.stderr[-200:]}")
    assert made.returncode == 0, made.stderr
    pipe = subprocess.PIPE
    with Limited([path], stdin=pipe, stdout=pipe, text=True, cwd=tmp_path) as program:
        assert program.stdin and program.stdout

        def turn() -> list[int]:
            print("go", file=program.stdin, flush=True)
            return [int(word) for word in program.stdout.readline().split()]

        assert program.stdout.readline() == "ready\n"
        (sum_before, calls_before), before = turn(), text_of(program.pid)
        hits: dict[str, int] = {}
        with markerjit.attach(program.pid) as session:
            for behind in ("", ":return"):
                for name in (f"{each}{behind}" for each in NAMES):
                    session.on(name)
                    (state,) = {each.name: each for each in session.status(name)}.values()
                    assert state.mode is markerjit.Mode.JUMP
                    assert turn()[0] == sum_before
                    hits[name] = sum(each.hits for each in session.status(name))
                    session.off(name)
            session.on(NAMES[0])
            sum_after, calls_after = turn()
            session.off(NAMES[0])
        after = text_of(program.pid)
        program.stdin.close()
        assert program.wait() == 0

    assert hits == {f"{each}{behind}": 100 for behind in ("", ":return") for each in NAMES}
    of_a_turn = calls_before - calls_before % 2  # and one of main
    assert (sum_after, calls_after) == (sum_before, calls_before + 5 * of_a_turn)
    assert after == before
