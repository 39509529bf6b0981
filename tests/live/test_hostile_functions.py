"""Functions without room for a jump, that change themselves, or of other languages than C: they are
counted rightly, or refused with a reason, and the program goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import markerjit
from tests.support.call_graphs import edges, function
from tests.support.code_bytes import code_of
from tests.support.commands import cli, one_line
from tests.support.processes import text_of
from tests.support.timing import Limited

pytestmark = pytest.mark.live

PROGRAM = "truth_hostile"
ENTRIES = ("bare", "two", "popping", "popping_of", "tabled", "threaded", "rewritten")
EXITS = ("two", "popping", "popping_of", "rewritten")
GO = """
package main

%s

import (
	"bufio"
	"fmt"
	"os"
)

//go:noinline
func descend(n int) int {
	var room [64]int
	room[n%%64] = n
	if n == 0 {
		return %s
	}
	return descend(n-1) + room[n%%64]
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for lines.Scan() {
		sums := make(chan int)
		for i := 0; i < 8; i++ {
			go func(n int) { sums <- descend(n * 100) }(i)
		}
		whole := 0
		for i := 0; i < 8; i++ {
			whole += <-sums
		}
		fmt.Println("sum", whole)
	}
}
"""
C_IN_GO = """
/*
__attribute__((noipa)) static int called(int n) {
	volatile int room[8];
	room[n & 7] = n;
	return room[n & 7] + 7;
}
*/
import "C"
"""
RUST = r"""
use std::io::{self, BufRead};
use std::panic;

#[inline(never)]
#[no_mangle]
pub fn half(n: u64) -> u64 {
    if n % 3 == 0 {
        panic!("three");
    }
    std::hint::black_box(n) / 2 + 7
}

#[inline(never)]
#[no_mangle]
pub fn tried(n: u64) -> u64 {
    panic::catch_unwind(|| half(n)).unwrap_or(1)
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    println!("ready");
    for line in io::stdin().lock().lines() {
        line.unwrap();
        println!("sum {}", (0..300).map(tried).sum::<u64>());
    }
}
"""


def names(functions: tuple[str, ...], behind: str = "") -> str:
    return ",".join(f"func:{PROGRAM}:{each}{behind}" for each in functions)


@pytest.mark.parametrize(("functions", "behind"), [(ENTRIES, ""), (EXITS, ":return")])
def test_each_is_counted_and_returns_what_it_returns_untouched(
    target: Callable, functions: tuple[str, ...], behind: str
) -> None:
    expected = target(PROGRAM).ask("run 40")
    program = target(PROGRAM)
    before = code_of(program)

    with markerjit.attach(program.pid, breakpoints=True) as session:
        for each in functions:
            session.on(names((each,), behind))
        truth = program.ask("run 40")
        hits = [session.statistics(names((each,), behind))[0].hits for each in functions]
        session.off(names(functions, behind))

    assert truth == expected
    assert hits == [40] * len(functions)
    assert code_of(program) == before


def test_a_return_that_removes_arguments_has_its_value(target: Callable) -> None:
    program = target(PROGRAM)

    with (
        markerjit.attach(program.pid) as session,
        session.trace(names(("popping",), ":return")) as stream,
    ):
        program.ask("run 5")
        values = [event.fields["ret"] for event in stream.drain()]

    assert values == [8, 7, 6, 5, 4]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bare:return", "it is a single instruction, which its entry needs"),
        ("threaded:return", "an indirect jump may lead anywhere"),
    ],
)
def test_what_has_no_exit_that_is_known_is_refused(
    target: Callable, name: str, reason: str
) -> None:
    program = target(PROGRAM)
    before = code_of(program)

    refused = cli("on", program.pid, f"func:{PROGRAM}:{name}")

    one_line(refused, f"func:{name} .* cannot be opened: {reason}")
    assert code_of(program) == before
    assert program.ask("run 3")["calls"] == 3


def test_code_that_the_program_may_change_at_any_time_is_refused(target: Callable) -> None:
    program = target(PROGRAM)
    program.ask("unlock")
    before = code_of(program)

    for behind in ("", ":return"):
        refused = cli("on", program.pid, names(("rewritten",), behind))
        one_line(refused, "cannot be opened: its code is writable, so the program may change it")

    assert code_of(program) == before
    program.ask("rewrite 7")
    assert program.ask("run 2")["rewritten"] == 1 + 2 + 2 * 7


def test_the_plan_of_what_cannot_be_opened_is_no_plan_for_later(target: Callable) -> None:
    program = target(PROGRAM)
    program.ask("unlock")
    name = names(("rewritten",))

    with (
        markerjit.attach(program.pid) as session,
        pytest.raises(markerjit.Refused, match=r"jump of ours$") as refused,
    ):
        session.plan(name)
    explained = cli("explain", program.pid, name)

    assert refused.value.reason is markerjit.Reason.NO_OPENING
    assert "cannot be switched on: func:rewritten" in explained.stdout
    assert "no plan yet" not in explained.stdout


def test_code_that_the_program_has_changed_is_refused(target: Callable) -> None:
    program = target(PROGRAM)
    for line in ("unlock", "rewrite 7", "lock"):
        program.ask(line)
    before = code_of(program)

    refused = cli("on", program.pid, names(("rewritten",)))

    one_line(refused, "b8 07 00 00 00, expected b8 05 00 00 00")
    assert code_of(program) == before
    assert program.ask("run 2")["rewritten"] == 1 + 2 + 2 * 7


@contextmanager
def started(path: Path) -> Iterator[subprocess.Popen[str]]:
    with Limited([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout
        assert program.stdout.readline() == "ready\n"
        yield program
        program.stdin.close()
        assert program.wait() == 0


def ask(program: subprocess.Popen[str]) -> str:
    assert program.stdin and program.stdout
    print("go", file=program.stdin, flush=True)
    return program.stdout.readline()


@pytest.mark.parametrize(
    ("is_linked_with_c", "reason"),
    [
        (False, "work has functions of Go, which are not supported: no unwind table has them"),
        (True, "no unwind table has (functions of Go|it)"),
    ],
    ids=["go", "cgo"],
)
def test_functions_of_go_are_refused_since_no_unwind_table_has_them(
    needs_tool: Callable, tmp_path: Path, is_linked_with_c: bool, reason: str
) -> None:
    go = needs_tool("go", "golang-go")
    path, source = tmp_path / "work", tmp_path / "work.go"
    parts = (C_IN_GO, "int(C.called(C.int(len(room))))") if is_linked_with_c else ("", "0")
    source.write_text(GO % parts)
    caches = {"GOCACHE": str(tmp_path / "cache"), "GOPATH": str(tmp_path / "go")}
    options = ["-ldflags=-linkmode=external"] if is_linked_with_c else []
    subprocess.run(
        [go, "build", *options, "-o", path, source], check=True, env={**os.environ, **caches}
    )

    with started(path) as program:
        expected, before = ask(program), text_of(program.pid)
        for name in ("func:main.descend", "func:main.descend:return", "func:main.*"):
            refused = cli("on", program.pid, name)
            one_line(refused, reason)
        refused = cli("calls", program.pid, "main.*", "-d", "1s")
        one_line(refused, reason)
        assert text_of(program.pid) == before
        assert ask(program) == expected
        if is_linked_with_c:
            of_c = "func:work:called,func:work:called:return"
            with markerjit.attach(program.pid) as session:
                for _ in range(5):  # goroutines call them on a stack that does not move
                    session.on(of_c)
                    assert ask(program) == expected
                    assert [each.hits for each in session.statistics(of_c)] == [8, 8]
                    session.off(of_c)
            assert text_of(program.pid) == before
    subprocess.run(["strip", path], check=True)
    one_line(cli("list", path, "func:main.*"), "'func:main.\\*'; work has functions of Go")


def test_functions_of_rust_are_followed_and_panics_leave_them(
    needs_tool: Callable, tmp_path: Path
) -> None:
    rustc = needs_tool("rustc", "rustc")
    path, source = tmp_path / "work", tmp_path / "work.rs"
    source.write_text(RUST)
    subprocess.run([rustc, "-O", source, "-o", path], check=True)
    both = "func:half,func:tried,func:half:return,func:tried:return"

    with started(path) as program:
        expected, before = ask(program), text_of(program.pid)
        with markerjit.attach(program.pid) as session:
            session.on(both)
            counted = ask(program)
            hits = {each.name: each.hits for each in session.statistics(both)}
            session.off(both)
            with session.trace_calls("half,tried") as trace:
                followed = ask(program)
            graph = trace.graph()
        after = text_of(program.pid)

    assert expected == counted == followed
    assert after == before
    assert hits == {
        "func:half": 300, "func:half:return": 200, "func:tried": 300, "func:tried:return": 300,
    }  # fmt: skip
    assert edges(graph) == {("", "tried"): 300, ("tried", "half"): 300}
    assert [function(graph, name).cut for name in ("tried", "half")] == [0, 100]


def test_static_program_without_a_table_of_functions_says_how_it_gets_one(
    needs_tool: Callable, tmp_path: Path
) -> None:
    needs_tool("gcc", "gcc")
    text = 'int main(void) { for (int n = 0; n < 3; n++) write(1, &"abc"[n], 1); }'
    (tmp_path / "writes.c").write_text(f"#include <unistd.h>\n{text}\n")
    command = ["gcc", "-O2", "-static", "-o", tmp_path / "writes", tmp_path / "writes.c"]
    subprocess.run(command, check=True)

    refused = cli("count", "func:write", "--", tmp_path / "writes")
    one_line(refused, "with -static has one with -Wl,--eh-frame-hdr")
    subprocess.run(["strip", "-o", tmp_path / "stripped", tmp_path / "writes"], check=True)
    refused = cli("list", tmp_path / "stripped", "func:write")
    one_line(refused, "stripped has neither symbols nor .eh_frame_hdr, the table of functions")
    subprocess.run([*command, "-Wl,--eh-frame-hdr"], check=True)

    counted = cli("count", "func:write", "--", tmp_path / "writes")
    assert (counted.returncode, counted.stdout) == (0, "abc3 events\n")
