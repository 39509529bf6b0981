"""A program that single-steps itself over a site that once had a breakpoint of ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import markerjit
from tests.support import answering
from tests.support.programs import ROOT
from tests.support.timing import HANG_S

# The alarm ends a thread that steps over one instruction for ever.
PROGRAM = r"""
#define MJ_MODE symbol
#define _GNU_SOURCE
#include <markerjit/marker.h>
#include <signal.h>
#include <unistd.h>

static volatile int steps;

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    steps += info->si_code == TRAP_TRACE;
}

__attribute__((noinline)) static void pass(int number) { MARK(stepped, "number %d", number); }

int main(void) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_RESTART};

    sigaction(SIGTRAP, &action, 0);
    if (write(1, "r", 1) < 0)
        return 1;
    for (char c; read(0, &c, 1) == 1;) {
        steps = 0;
        alarm(10);
        __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
        pass(1);
        __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
        alarm(0);
        c = steps > 2 ? '?' : '0';
        if (write(1, &c, 1) < 0)
            return 1;
    }
    return 0;
}
"""


def test_a_program_steps_over_a_site_that_once_had_a_breakpoint(tmp_path: Path) -> None:
    source = tmp_path / "stepping.c"
    source.write_text(PROGRAM)
    path = source.with_suffix("")
    flags = ["-O2", "-Wall", "-Werror", "-mno-red-zone", f"-I{ROOT}/native/include"]
    subprocess.run(["cc", *flags, "-o", path, source], check=True, timeout=HANG_S)

    with answering.started(path) as program, markerjit.attach(program.pid) as session:
        assert program.answers()
        session.enable("stepped")
        assert program.answers()
        session.disable("stepped")

        assert program.answers()
        assert session.statistics("stepped")[0].hits == 1
