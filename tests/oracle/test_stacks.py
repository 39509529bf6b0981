"""Stacks beside those that gdb finds, in random stops of programs as they are shipped."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from markerjit.errors import MemoryFault
from markerjit.memory.maps import parse_maps, read_maps_text
from markerjit.memory.process import ProcessMemory
from markerjit.model import RemoteAddress
from markerjit.unwind.objects import ProcessCode
from markerjit.unwind.rules import Kind
from markerjit.unwind.walk import Registers, StackEnd, walk
from tests.support.choice import examples
from tests.support.gdb_stops import Stop, stops_in_gdb
from tests.support.postgresql import postgresql
from tests.support.timing import Limited

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

STOPS = int(os.environ.get("MJ_STACK_STOPS", examples(200)))
MOST = 60

PYTHON = """
import json, random, re
words = {str(n): [n, {"deep": [n] * 5}] for n in range(50)}
while True:
    text = json.dumps(words, sort_keys=True)
    assert json.loads(text) == words
    re.sub(r"(\\d+)", lambda match: match[1][::-1], text)
    sorted(text, key=lambda letter: (letter, random.random()))
"""
SQL = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers)
SELECT count(*), sum(length(hex(n))), max(upper(printf('%d %s', n, n % 7))) FROM numbers
WHERE n % 3 = 1 OR n LIKE '%7%' ORDER BY 1;
"""
CPP = """
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
#include <alloca.h>
#include <stdio.h>
#include <string.h>
struct Shape { virtual ~Shape() {} virtual long area(long n) = 0; };
struct Square : Shape {
    __attribute__((noinline)) long area(long n) override {
        if (n % 11 == 3) throw std::runtime_error("odd");
        return n ? n * n + area(n - 1) : 0;
    }
};
__attribute__((noinline)) static long aligned(long n) {
    alignas(64) char room[256];
    char *more = static_cast<char *>(alloca(n % 500 + 16));
    snprintf(room, sizeof room, "%ld", n);
    memset(more, 1, n % 500);
    return strlen(room) + more[n % 7];
}
int main() {
    std::map<std::string, long> sums;
    for (long n = 0;; n++) {
        Square square;
        Shape *shape = &square;
        try {
            sums[std::to_string(n % 100)] += shape->area(n % 40);
        } catch (const std::runtime_error &error) {
            sums[error.what()] += aligned(n);
        }
        std::vector<long> order;
        for (const auto &pair : sums) order.push_back(pair.second ^ n);
        std::sort(order.begin(), order.end(), [](long a, long b) { return a % 97 < b % 97; });
    }
}
"""


class Judge:
    """Compares stacks with those of gdb.

    beyond     stops in code for which no rule is kept, where a stack says so and ends
    different  what is different in the others, where anything is
    """

    def __init__(self, pid: int) -> None:
        self.beyond = 0
        self.different: list[str] = []
        self._pid = pid
        self._memory = ProcessMemory(pid)
        self._text = ""
        self._code: ProcessCode | None = None

    def look(self, stop: Stop) -> None:
        """Compare the stack of a process that stands."""
        text = read_maps_text(self._pid)
        if self._code is None or text != self._text:
            self._text, self._code = text, ProcessCode(self._memory.read, parse_maps(text))
        code = self._code
        stack = walk(code, self._word, Registers(*stop.registers), MOST)
        expected, end = stop.addresses, StackEnd.OUTERMOST
        wrong = next((at for at in range(1, len(expected)) if not code.is_code(expected[at])), 0)
        if wrong:  # gdb goes on by what is no code, where an exception's unwinder leaves its stack
            expected, end = expected[:wrong], StackEnd.DAMAGED
        elif len(expected) > MOST:
            expected, end = expected[:MOST], StackEnd.DEEPER
        if stack.addresses == expected and stack.end is end:
            return
        rule = code.rule(stack.addresses[-1] - (not stack.exact[-1]))
        is_prefix = expected[: len(stack.addresses)] == stack.addresses
        if rule.kind is Kind.OTHER and is_prefix and stack.end is StackEnd.NO_TABLE:
            self.beyond += 1
            return
        self.different.append(
            f"{rule}, {stack.end!r}\n  ours {list(map(hex, stack.addresses))}\n"
            f"  gdb's {list(map(hex, stop.addresses))}"
        )

    def _word(self, address: int) -> int:
        if address >= 1 << 63:
            raise MemoryFault(RemoteAddress(address), 8, "read", "no address")
        return int.from_bytes(self._memory.read(RemoteAddress(address), 8), "little")

    def close(self) -> None:
        self._memory.close()


def judged(gdb: str, pid: int, folder: Path, count: int) -> Judge:
    """So many stops of a process, compared."""
    judge = Judge(pid)
    try:
        with stops_in_gdb(gdb, pid, folder, count, most=MOST + 1) as stops:
            for stop in stops:
                judge.look(stop)
    finally:
        judge.close()
    return judge


@pytest.fixture
def cpp_program(tmp_path: Path) -> str:
    source = tmp_path / "shapes.cc"
    source.write_text(CPP)
    subprocess.run(["g++", "-O2", source, "-o", tmp_path / "shapes"], check=True)
    return str(tmp_path / "shapes")


@pytest.mark.parametrize("program", ["python3", "sqlite3", "shapes"])
def test_stacks_are_those_that_gdb_finds(
    program: str, cpp_program: str, tmp_path: Path, needs_tool: Callable[[str, str], str]
) -> None:
    gdb = needs_tool("gdb", "gdb")
    command = {
        "python3": ["/usr/bin/python3", "-c", PYTHON],
        "sqlite3": ["/usr/bin/sqlite3", ":memory:", SQL],
        "shapes": [cpp_program],
    }[program]
    if not Path(command[0]).exists():
        pytest.skip(f"needs {command[0]}")

    with Limited(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            judge = judged(gdb, process.pid, tmp_path, STOPS)
        finally:
            process.kill()

    different = judge.different
    assert not different, f"{len(different)} of {STOPS}:\n" + "\n\n".join(different[:3])
    assert judge.beyond <= STOPS // 50


def test_stacks_of_a_database_are_those_that_gdb_finds(
    tmp_path: Path, needs_tool: Callable[[str, str], str]
) -> None:
    gdb = needs_tool("gdb", "gdb")
    with postgresql() as server:
        client = server.connect()
        assert client.process.stdin
        client.process.stdin.write(
            "SELECT count(*), max(md5(a::text || b)) FROM generate_series(1, 100000000) AS a, "
            "LATERAL (SELECT sum(length(c::text)) AS b FROM generate_series(1, a % 50) AS c) AS d "
            "GROUP BY a % 7 ORDER BY 1;\n"
        )
        judge = judged(gdb, client.pid, tmp_path, STOPS)
        os.kill(client.pid, signal.SIGTERM)  # it would calculate on without its client

    different = judge.different
    assert not different, f"{len(different)} of {STOPS}:\n" + "\n\n".join(different[:3])
    assert judge.beyond <= STOPS // 50
