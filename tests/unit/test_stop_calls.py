"""What the helper asks of the kernel for a switch: what is mapped, how many threads there are, and
how often memory is read and written."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from markerjit.remote import native
from tests.support.handling import Handling
from tests.support.preloaded import build_preloaded, run_preloaded, sleeping
from tests.support.timing import wait_until

SOURCE = Path(__file__).parent / "stop" / "calls.c"

# Compares two words and two bytes of a process, changes one of each, and prints the status, the
# number of threads and the calls.
SWITCH = """\
import ctypes, os, sys
from markerjit.arena.pack import as_native, pack
from markerjit.model import Edit
from markerjit.remote import native
pid, words, code = (int(argument) for argument in sys.argv[1:4])
mapped = os.fsencode(sys.argv[4])
memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
word, byte = os.pread(memory, 8, words), os.pread(memory, 1, code)
other = bytes([byte[0] ^ 0xFF])
guard, flag = os.pread(memory, 8, words + 8), os.pread(memory, 1, code + 1)
edits = [
    Edit(words, word, b"markerjt", "", False),
    Edit(words + 8, guard, guard, "", False),
    Edit(code, byte, other, "", True, 1),
    Edit(code + 1, flag, flag, "", True, 1),
]
target = native.NativeTarget(
    pid=pid, pidfd=-1, mem_fd=memory, mapped=mapped, mapped_size=len(mapped)
)
report = native.Report()
packed = pack(edits)
library = native.library()
calls = ctypes.CDLL(os.environ["LD_PRELOAD"])
calls.calls_clear()
status = library.mj_apply(target, native.STOP, as_native(packed), len(edits), report)
print(status, report.threads, flush=True)
calls.calls_print()
"""

# Changes words of a process, and prints the status, how many edits were written, the calls and what
# stands there then.
WORDS = """\
import ctypes, os, sys
from markerjit.arena.pack import as_native, pack
from markerjit.model import Edit
from markerjit.remote import native
pid, quiescence, *words = (int(argument) for argument in sys.argv[1:])
memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
edits = [Edit(word, os.pread(memory, 8, word), b"markerjt", "", False) for word in words]
target = native.NativeTarget(pid=pid, pidfd=-1, mem_fd=memory)
report = native.Report()
packed = pack(edits)
library = native.library()
calls = ctypes.CDLL(os.environ["LD_PRELOAD"])
calls.calls_clear()
status = library.mj_apply(target, quiescence, as_native(packed), len(edits), report)
print(status, report.written, flush=True)
calls.calls_print()
print(*{os.pread(memory, 8, word) == b"markerjt" for word in words})
"""

# Writes over a span, and prints the status.
SPAN = """\
import os, sys
from markerjit.arena.pack import as_native, pack
from markerjit.model import Edit
from markerjit.remote import native
pid, span = (int(argument) for argument in sys.argv[1:])
memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
packed = pack([Edit(span, os.pread(memory, 5, span), b"markr", "", True)])
target = native.NativeTarget(pid=pid, pidfd=-1, mem_fd=memory)
print(native.library().mj_apply(target, native.STOP, as_native(packed), 1, native.Report()))
"""

# Changes bytes of code, and prints the status and the calls.
CODE = """\
import ctypes, os, sys
from markerjit.arena.pack import as_native, pack
from markerjit.model import Edit
from markerjit.remote import native
pid, mapped = int(sys.argv[1]), os.fsencode(sys.argv[2])
memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
edits = []
for place in map(int, sys.argv[3:]):
    byte = os.pread(memory, 1, place)
    edits.append(Edit(place, byte, bytes([byte[0] ^ 0xFF]), "", True))
target = native.NativeTarget(
    pid=pid, pidfd=-1, mem_fd=memory, mapped=mapped, mapped_size=len(mapped)
)
packed = pack(edits)
library = native.library()
calls = ctypes.CDLL(os.environ["LD_PRELOAD"])
calls.calls_clear()
status = library.mj_apply(target, native.STOP, as_native(packed), len(edits), native.Report())
print(status, flush=True)
calls.calls_print()
"""

SLEEPS = "230 "  # clock_nanosleep

Switch = Callable[..., tuple[int, int, dict[str, int]]]

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def preloaded(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_preloaded(SOURCE, tmp_path_factory.mktemp("calls"))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with sleeping() as process:
        yield process


@pytest.fixture
def lines(sleeper: subprocess.Popen[bytes]) -> list[str]:
    """Mappings of the program itself: one with data, and one with code."""
    call = Path(f"/proc/{sleeper.pid}/syscall")
    wait_until(lambda: call.read_text().startswith(SLEEPS), "the loader, which changes mappings")
    text = Path(f"/proc/{sleeper.pid}/maps").read_text()
    mine = [line for line in text.splitlines(True) if line.rstrip().endswith("/sleep")]
    return [next(line for line in mine if kind in line) for kind in (" r-xp ", " rw-p ")]


@pytest.fixture
def switch(preloaded: Path, sleeper: subprocess.Popen[bytes], lines: list[str]) -> Switch:
    code, words = (int(line.partition("-")[0], 16) for line in lines)

    def switch(mapped: str, **environment: str) -> tuple[int, int, dict[str, int]]:
        printed = run_preloaded(preloaded, SWITCH, sleeper.pid, words, code, mapped, **environment)
        outcome, counted = printed.splitlines()
        status, threads = map(int, outcome.split())
        calls = {name: int(value) for name, value in (pair.split("=") for pair in counted.split())}
        return status, threads, calls

    return switch


def test_a_switch_of_one_site_reads_by_step_and_writes_what_changes(
    switch: Switch, lines: list[str]
) -> None:
    status, threads, calls = switch("".join(lines))

    assert (status, threads) == (native.OK, 1)
    assert calls["process_vm_readv"] == 3  # to compare all, and to read back each of two steps
    assert calls["pread"] == 1  # the page of code becomes the process's own before the stop
    assert calls["pwrite"] == 1 + 2
    assert calls["lists"] == 1


def write_words(
    preloaded: Path, pid: int, quiescence: int, words: list[int]
) -> tuple[list[int], dict[str, int], str]:
    """The status and how many edits were written, the calls, and whether all stand there."""
    printed = run_preloaded(preloaded, WORDS, pid, quiescence, *words)
    outcome, counted, stand = printed.splitlines()
    calls = dict(pair.split("=") for pair in counted.split())
    return [*map(int, outcome.split())], {name: int(calls[name]) for name in calls}, stand


def test_words_that_lie_apart_are_written_by_one_call_while_no_thread_runs(
    preloaded: Path, sleeper: subprocess.Popen[bytes], lines: list[str]
) -> None:
    start = int(lines[1].partition("-")[0], 16)
    words = [start + 24 * number for number in range(70)]

    outcome, calls, stand = write_words(preloaded, sleeper.pid, native.STOP, words)

    assert (outcome, stand) == ([native.OK, 70], "True")
    assert (calls["process_vm_writev"], calls["pwrite"]) == (1, 0)


def test_words_are_written_one_by_one_while_threads_run(
    preloaded: Path, sleeper: subprocess.Popen[bytes], lines: list[str]
) -> None:
    """The process might execute another program, and only its memory file would notice."""
    start = int(lines[1].partition("-")[0], 16)
    words = [start + 24 * number for number in range(70)]

    outcome, calls, stand = write_words(preloaded, sleeper.pid, native.NONE, words)

    assert (outcome, stand) == ([native.OK, 70], "True")
    assert (calls["process_vm_writev"], calls["pwrite"]) == (0, 70)


def test_words_that_the_process_cannot_write_itself_are_written_too(
    preloaded: Path, sleeper: subprocess.Popen[bytes], lines: list[str]
) -> None:
    code, data = (int(line.partition("-")[0], 16) for line in lines)
    words = [data + 24 * number for number in range(40)]
    words.insert(20, code)

    outcome, calls, stand = write_words(preloaded, sleeper.pid, native.STOP, words)

    assert (outcome, stand) == ([native.OK, 41], "True")
    assert calls["pwrite"] == 1  # of code, which process_vm_writev does not write


def change_code(
    preloaded: Path, pid: int, line: str, places: Sequence[int], *, is_known: bool
) -> int:
    """How many writes it takes to change these bytes of code, where it is known what is mapped."""
    printed = run_preloaded(preloaded, CODE, pid, line if is_known else "", *places)
    status, counted = printed.splitlines()
    calls = dict(pair.split("=") for pair in counted.split())
    pages = {place >> 12 for place in places}  # each becomes the process's own before the stop
    assert int(status) == native.OK
    return int(calls["pwrite"]) - len(pages)


@pytest.fixture
def around_int3(sleeper: subprocess.Popen[bytes], lines: list[str]) -> list[int]:
    """Places on both sides of a byte of the program that is like an int3."""
    start, end = (int(number, 16) for number in lines[0].split()[0].split("-"))
    with open(f"/proc/{sleeper.pid}/mem", "rb") as memory:
        memory.seek(start)
        trap = start + memory.read(end - start).index(b"\xcc", 256)
    return [trap + distance for distance in (-48, -32, -16, 16, 32, 48)]


def test_code_is_written_at_once_over_an_int3_that_the_file_has(
    preloaded: Path,
    sleeper: subprocess.Popen[bytes],
    lines: list[str],
    around_int3: list[int],
) -> None:
    assert change_code(preloaded, sleeper.pid, lines[0], around_int3, is_known=True) == 1
    assert change_code(preloaded, sleeper.pid, lines[0], around_int3, is_known=False) == 2


def test_an_int3_that_the_file_does_not_have_is_left_out(
    preloaded: Path,
    sleeper: subprocess.Popen[bytes],
    lines: list[str],
    around_int3: list[int],
) -> None:
    with open(f"/proc/{sleeper.pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(around_int3[4] - 1)
        memory.write(b"\xcc")

    assert change_code(preloaded, sleeper.pid, lines[0], around_int3, is_known=True) == 2


@pytest.mark.parametrize("environment", [{}, {"OLD_KERNEL": "1"}])
@pytest.mark.parametrize(
    ("kind", "depth"),
    [("plain", 0), ("alternate", 0), ("nested", 0), ("thread", 0), ("pieces", 48 << 10)],
)
def test_a_frame_is_found_whether_the_kernel_tells_of_one_mapping_or_of_all(
    start_child: Callable[..., Handling],
    preloaded: Path,
    kind: str,
    depth: int,
    environment: dict[str, str],
) -> None:
    child = start_child(Handling, kind, depth)
    child.wait_asleep()

    status = int(run_preloaded(preloaded, SPAN, child.pid, child.span, **environment))

    assert status == native.IN_SPAN


@pytest.mark.parametrize("environment", [{}, {"OLD_KERNEL": "1"}])
def test_mappings_that_are_there_still_are_found(
    switch: Switch, lines: list[str], environment: dict[str, str]
) -> None:
    assert switch("".join(lines), **environment)[0] == native.OK


FIELDS = {
    "end": lambda words: [hex_more(words[0], 1), *words[1:]],
    "permissions": lambda words: [words[0], "rwxp", *words[2:]],
    "sharing": lambda words: [words[0], words[1][:3] + "s", *words[2:]],
    "offset": lambda words: [*words[:2], f"{int(words[2], 16) + 4096:08x}", *words[3:]],
    "device": lambda words: [*words[:3], "fe:7f", *words[4:]],
    "inode": lambda words: [*words[:4], str(int(words[4]) + 1), *words[5:]],
}


def hex_more(span: str, place: int) -> str:
    """A span that ends, or begins, a page later."""
    ends = [int(end, 16) for end in span.split("-")]
    ends[place] += 4096
    return f"{ends[0]:x}-{ends[1]:x}"


@pytest.mark.parametrize("environment", [{}, {"OLD_KERNEL": "1"}])
@pytest.mark.parametrize("field", FIELDS)
def test_another_mapping_in_its_place_is_noticed(
    switch: Switch, lines: list[str], field: str, environment: dict[str, str]
) -> None:
    words = lines[1].split()
    other = " ".join(FIELDS[field](words)) + "\n"

    status, _, calls = switch(lines[0] + other, **environment)

    assert status == native.MOVED
    assert calls["pwrite"] == 0


@pytest.mark.parametrize("environment", [{}, {"OLD_KERNEL": "1"}])
def test_a_mapping_that_has_gone_is_noticed(
    switch: Switch, lines: list[str], environment: dict[str, str]
) -> None:
    gone = "7ffffffd0000-7ffffffd1000 r-xp 00000000 00:00 0 \n"

    assert switch(lines[0] + gone, **environment)[0] == native.MOVED


def test_threads_are_listed_again_where_no_directory_says_how_many_there_are(
    switch: Switch, lines: list[str]
) -> None:
    status, threads, calls = switch("".join(lines), NO_LINKS="1")

    assert (status, threads, calls["lists"]) == (native.OK, 1, 2)
