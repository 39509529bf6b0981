"""Programs under seccomp filters: those whose filters allow what we do are switched as any other.
The others are refused with the call that is not allowed, and live."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import markerjit
from markerjit import Unsupported
from markerjit.arena.needed import KEEPING, NEEDED, UNLOCKED, WAITING
from markerjit.proc.bpf import ALLOW
from markerjit.proc.permission import filtered_threads
from markerjit.remote.filters import NeededCall, read_filters
from tests.support import answering
from tests.support.answering import Answering
from tests.support.commands import CLI, ENVIRONMENT, cli, facts, one_line
from tests.support.filters import ERRNO, KILL, answers, container_filter, only
from tests.support.processes import resident_kb, text_of
from tests.support.programs import ROOT, Target
from tests.support.server import Client
from tests.support.timing import HANG_S, Limited, wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="filters are read with CAP_SYS_ADMIN")

PROGRAM = r"""
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <markerjit/marker.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct sock_filter code[4096];
static const char *sleeps;
static volatile int up;

static void filter(const char *path) {
    FILE *file = fopen(path, "r");
    unsigned short count = fread(code, sizeof *code, 4096, file);
    struct sock_fprog program = {count, code};
    fclose(file);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(9);
}
static void *second(void *path) {
    struct timespec long_time = {.tv_sec = 100};
    if (path) filter(path);
    up = 1;
    for (;;)
        if (!strcmp(sleeps, "poll")) poll(0, 0, 100000);
        else if (!strcmp(sleeps, "nanosleep")) syscall(SYS_nanosleep, &long_time, 0);
        else if (!strcmp(sleeps, "futex")) syscall(SYS_futex, &up, 0, 1, &long_time);
        else nanosleep(&long_time, 0);
}
__attribute__((noinline)) char passed(char c) {
    __asm__ volatile("" : "+r"(c));
    return c;
}
/* FILE all|thread SLEEP FILE [locked] */
int main(int argc, char **argv) {
    pthread_t thread;
    int only_thread = !strcmp(argv[2], "thread");
    sleeps = argv[3];
    if (argc > 5 && mlockall(MCL_CURRENT | MCL_FUTURE)) return 8;
    if (!only_thread) filter(argv[1]);
    pthread_create(&thread, 0, second, only_thread ? argv[1] : 0);
    while (!up) continue;
    if (write(1, "r", 1) < 0) return 1;
    for (char c; read(0, &c, 1) == 1;) {
        MARK(filtered, "c %c text %s", c, "abc");
        if (c == 'f') filter(argv[4]);
        c = passed(c);
        if (write(1, &c, 1) < 0) return 1;
    }
    syscall(SYS_exit_group, 0);
}
"""

OWN = (
    0, 1, 231, 35, 230, 7, 202, 56, 435, 9, 10, 11, 13, 14, 157, 158, 218, 273, 334, 28, 257, 3, 5,
    262, 12, 318,
)  # fmt: skip
"""What the program calls itself once its filter is there: to make a thread, to sleep, to answer."""


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("filtered") / "filtered.c"
    source.write_text(PROGRAM)
    path = source.with_suffix("")
    flags = ["-O2", "-w", "-pthread", f"-I{ROOT}/native/include", "-o", path, source]
    subprocess.run(["cc", *flags], check=True, timeout=HANG_S)
    return path


Start = Callable[..., "contextmanager[Answering]"]


@pytest.fixture
def start(filtered: Path, tmp_path: Path) -> Start:
    @contextmanager
    def run(
        code: bytes, where: str = "all", sleeps: str = "clock", later: bytes = b"", *more: str
    ) -> Iterator[Answering]:
        path, other = tmp_path / "filter", tmp_path / "later"
        path.write_bytes(code)
        other.write_bytes(later)
        with answering.started(filtered, path, where, sleeps, other, *more) as program:
            assert program.ready == b"r"
            yield program

    return run


def numbers_of(calls: Sequence[NeededCall]) -> set[int]:
    return {call.number for call in calls}


def needed_numbers() -> set[int]:
    return numbers_of(NEEDED)


def seccomp_finding(pid: int, *arguments: str) -> dict[str, str]:
    done = cli("doctor", pid, *arguments, "--json")
    (finding,) = [
        finding for finding in json.loads(done.stdout)["findings"] if finding["what"] == "seccomp"
    ]
    return finding


def hits(pid: int) -> int:
    return int(facts("status", pid, "filtered")["markers"][0]["hits"])


# ---- filters that allow what we do ---------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("mode", ["", "int3"])
@pytest.mark.parametrize("quiesce", ["stop", "membarrier"])
def test_program_whose_filter_allows_exactly_what_is_needed_is_switched(
    start: Start, mode: str, quiesce: str
) -> None:
    """A call that NEEDED does not name would kill it."""
    with start(only({*OWN, *needed_numbers()})) as program:
        text = text_of(program.pid)
        asked = ["--mode", mode] if mode else []

        on = cli("on", program.pid, "filtered", *asked, "--quiesce", quiesce)
        assert on.returncode == 0, on.stderr
        assert program.answers()
        assert program.answers()
        assert hits(program.pid) == 2
        assert cli("off", program.pid, "filtered", "--quiesce", quiesce).returncode == 0

        assert text_of(program.pid) == text
        assert program.answers()


@needs_root
@pytest.mark.parametrize("strings", ["fast", "careful"])
def test_program_under_the_filter_of_a_container_is_traced(
    start: Start, strings: str, tmp_path: Path
) -> None:
    with (
        start(container_filter()) as program,
        markerjit.attach(program.pid) as session,
        session.trace("filtered", strings=strings) as events,
    ):
        assert program.answers()
        (event,) = list(events.poll())

        assert event.fields == {"c": "?", "text": "abc"}


@needs_root
def test_server_under_the_filter_of_a_container_loses_no_event(
    tmp_path: Path, _program: Callable[[str], Path]
) -> None:
    path = tmp_path / "container"
    path.write_bytes(container_filter())
    module = "tests.support.under_filters"
    server = Target(Path(sys.executable), "-m", module, str(path), "--", str(_program("kvserver")))
    try:
        server.wait_ready()
        with (
            Client(server.ready["port"]) as client,
            markerjit.attach(server.pid) as session,
            session.trace("kv_command") as events,
        ):
            for number in range(100):
                client.ask("SET", f"k{number}", "x")

            assert len(list(events.poll())) == 100
        assert seccomp_finding(server.pid)["level"] == "good"
    finally:
        server.end()


@needs_root
def test_program_in_namespaces_of_its_own_needs_nothing_inside(
    tmp_path: Path, filtered: Path, needs_tool: Callable
) -> None:
    """Another user, pid, mount and network namespace, no /proc, and the filter of a container."""
    path = tmp_path / "container"
    path.write_bytes(container_filter())
    unshare = [needs_tool("unshare", "util-linux"), "--map-root-user", "--mount", "--net", "--pid"]
    hidden = tmp_path / "hidden"  # the program is in a file system that only it sees
    hidden.mkdir()
    inside = (
        f"mount -t tmpfs none {hidden} && cp {filtered} {hidden} && mount -o remount,ro {hidden} "
        '&& mount -t tmpfs -o ro none /proc && exec "$@"'
    )
    none = tmp_path / "none"
    none.write_bytes(answers({}))
    module = [sys.executable, "-m", "tests.support.under_filters", path, "--"]
    program = [*module, hidden / filtered.name, none, "all", "poll", none]
    command = [*unshare, "--fork", "--kill-child", "sh", "-c", inside, "sh", *program]
    with answering.started(*command) as outer:
        assert outer.ready == b"r"
        pid = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text())

        on = cli("on", pid, "filtered")
        assert on.returncode == 0, on.stderr
        assert outer.answers()
        assert hits(pid) == 1
        doctor = cli("doctor", pid).stdout
        (site,) = facts("explain", pid, "filtered")["sites"]
        assert cli("off", pid, "filtered").returncode == 0

        assert site["function"].startswith("main+")
        assert re.search("good +seccomp +2 threads under filters", doctor), doctor
        assert re.search("user, pid, mnt, net of its own: it is process 1 in there", doctor), doctor
        assert outer.answers()


# ---- filters that do not -------------------------------------------------------------------------


@pytest.mark.product
@needs_root
@pytest.mark.parametrize("where", ["all", "thread"])
@pytest.mark.parametrize("sleeps", ["clock", "nanosleep", "poll", "futex"])
def test_program_that_its_filter_would_kill_lives_and_the_call_is_named(
    start: Start, where: str, sleeps: str
) -> None:
    """The look stops threads that sleep, and restart_syscall would kill them."""
    with start(only(OWN), where, sleeps) as program:
        text = text_of(program.pid)

        for command in ("on", "off", "trace"):
            one_line(
                cli(command, program.pid, "filtered"),
                "seccomp.*does not allow restart_syscall: it kills the process",
            )

        finding = seccomp_finding(program.pid)
        assert finding["level"] == "wall"
        assert "restart_syscall" in finding["found"]
        assert text_of(program.pid) == text
        assert program.answers(), "it died of the look"


@needs_root
@pytest.mark.parametrize("missing", sorted(numbers_of(NEEDED)))
def test_each_call_that_is_needed_is_named_where_it_is_not_allowed(
    start: Start, missing: int
) -> None:
    names = {call.name for call in NEEDED if call.number == missing}
    with (
        start(answers({missing: KILL}), "thread") as program,
        markerjit.attach(program.pid) as session,
    ):
        with pytest.raises(Unsupported, match="does not allow") as caught:
            session.enable("filtered")

        assert any(name in str(caught.value) for name in names)
        assert program.answers()


@needs_root
@pytest.mark.parametrize("missing", WAITING, ids=str)
def test_trace_that_waits_asks_for_the_calls_of_a_thread_that_waits(
    start: Start, missing: NeededCall
) -> None:
    with (
        start(answers({missing.number: KILL}), "thread", "poll") as program,
        markerjit.attach(program.pid) as session,
    ):
        with (
            pytest.raises(Unsupported, match=f"does not allow {missing}"),
            session.trace("filtered", lossless=True),
        ):
            pass
        with session.trace("filtered") as events:
            assert program.answers()
            assert len(list(events.poll())) == 1


RETURNS = "func:filtered:passed:return"


@needs_root
@pytest.mark.parametrize("number", sorted(numbers_of(KEEPING) - set(OWN)))
def test_entries_keep_their_arguments_only_where_the_calls_for_their_memory_are_allowed(
    start: Start, number: int
) -> None:
    with (
        start(answers({number: KILL}), "thread") as program,
        markerjit.attach(program.pid, breakpoints=True) as session,
    ):
        with pytest.raises(Unsupported, match="munlock"), session.trace(RETURNS):
            pass
        with session.trace(RETURNS, select="ret") as events:
            assert program.answers()
            assert len(list(events.poll())) == 1


@needs_root
@pytest.mark.parametrize("forbidden", [*sorted(numbers_of(UNLOCKED) - numbers_of(NEEDED)), None])
def test_an_arena_is_unlocked_where_the_calls_for_that_are_allowed_and_else_locked(
    start: Start, forbidden: int | None
) -> None:
    """A call that it does not allow would kill the program."""
    allowed = {*OWN, *needed_numbers(), *numbers_of(UNLOCKED)} - {forbidden}
    with (
        start(only(allowed), "thread", "poll", b"", "locked") as program,
        markerjit.attach(program.pid) as session,
    ):
        before = resident_kb(program.pid)
        session.on("filtered")
        grown_kb = resident_kb(program.pid) - before

        assert program.answers()
        assert (grown_kb < 64 << 10) == (forbidden is None)


@needs_root
def test_entries_keep_their_arguments_with_the_calls_of_the_list_and_no_others(
    start: Start,
) -> None:
    listed = {*needed_numbers(), *numbers_of(KEEPING)}
    with (
        start(only({*OWN, *listed})) as program,
        markerjit.attach(program.pid, breakpoints=True) as session,
        session.trace(RETURNS) as events,
    ):
        assert program.answers()
        (event,) = events.poll()

        assert event.fields["arg0"] == event.fields["ret"]


@needs_root
def test_filter_that_comes_while_a_session_is_open_is_seen(start: Start) -> None:
    allowed = only({*OWN, *needed_numbers(), 317, 157})
    with (
        start(allowed, later=answers({319: KILL})) as program,
        markerjit.attach(program.pid) as session,
    ):
        session.enable("filtered")
        session.disable("filtered")
        program.process.stdin.write(b"f")
        assert program.process.stdout.read(1) == b"f"

        with pytest.raises(Unsupported, match="memfd_create"):
            session.enable("filtered")


# ---- without the right to read filters -----------------------------------------------------------


def without_right(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command that may trace, but not read filters."""
    drop = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    command = [*(drop if os.geteuid() == 0 else []), *CLI, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=HANG_S, env=ENVIRONMENT, check=False
    )


@pytest.mark.user
def test_filters_that_cannot_be_read_are_refused_with_the_way_round(start: Start) -> None:
    with start(container_filter()) as program:
        refused = without_right("on", program.pid, "filtered")
        doctor = without_right("doctor", program.pid)
        trusting = "--seccomp", "trust-errno"
        followed = without_right("trace", "--follow", program.pid, "filtered", *trusting)

        one_line(followed, "cannot be read .* needed to follow it, also with --seccomp trust-errno")
        assert "way round: run markerjit as root outside of containers, give" in doctor.stdout
        one_line(refused, "cannot be read without CAP_SYS_ADMIN.*--seccomp trust-errno")
        assert re.search("wall +seccomp .*cannot be read", doctor.stdout)
        assert program.answers()


@pytest.mark.user
@pytest.mark.parametrize("sleeps", ["clock", "nanosleep", "poll", "futex"])
def test_filters_that_answer_with_an_error_can_be_trusted(start: Start, sleeps: str) -> None:
    """restart_syscall would end the sleep of the second thread with an error."""
    allowed = only({*OWN, *needed_numbers()} - {219}, ERRNO | 1)
    with start(allowed, sleeps=sleeps) as program:
        (asleep,) = [thread.tid for thread in filtered_threads(program.pid, set())][1:]
        calls = switches(program.pid, asleep)

        trusting = "--seccomp", "trust-errno"
        on = without_right("on", program.pid, "filtered", *trusting)
        assert on.returncode == 0, on.stderr
        assert program.answers()
        assert "trusted" in without_right("doctor", program.pid, *trusting).stdout
        off = without_right("off", program.pid, "filtered", *trusting)

        assert off.returncode == 0, off.stderr
        assert switches(program.pid, asleep) - calls < 100, "its sleep ends at once, each time"
        assert program.answers()


@pytest.mark.user
def test_trusted_filter_that_refuses_a_call_with_an_error_leaves_the_program_as_it_was(
    start: Start,
) -> None:
    with start(answers({319: ERRNO | 13})) as program:
        text = text_of(program.pid)

        refused = without_right("on", program.pid, "filtered", "--seccomp", "trust-errno")

        one_line(refused, "memfd_create failed in the target: Permission denied")
        assert text_of(program.pid) == text
        assert program.answers()


@needs_root
def test_trust_does_not_reach_to_a_filter_that_is_seen_to_kill(start: Start) -> None:
    with (
        start(only(OWN)) as program,
        markerjit.attach(program.pid, seccomp="trust-errno") as session,
    ):
        with pytest.raises(Unsupported, match="kills the process"):
            session.enable("filtered")

        assert program.answers()


def test_another_way_with_seccomp_is_a_wrong_value() -> None:
    with pytest.raises(markerjit.BadArgument, match="it must be read or trust-errno"):
        markerjit.attach(os.getpid(), seccomp="hope")


# ---- what a look does to a sleep -----------------------------------------------------------------


SLEEPER = """
import ctypes, sys, time
from tests.support.filters import answers, install
install(answers({219: int(sys.argv[1])}))
print("ready", flush=True)
begin = time.monotonic()
result = ctypes.CDLL(None).poll(None, 0, 2000)
print(result, time.monotonic() - begin)
"""


@needs_root
@pytest.mark.parametrize("action", [ALLOW, KILL])
def test_sleep_goes_on_in_time_where_its_filter_allows_that(action: int) -> None:
    """Where restart_syscall is allowed the rest is slept, and else all of it once more."""
    command = [sys.executable, "-c", SLEEPER, str(action)]
    with Limited(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as sleeper:
        assert sleeper.stdout.readline() == "ready\n"
        wait_until(lambda: call_of(sleeper.pid) == POLL, "poll")
        time.sleep(0.5)

        read_filters(sleeper.pid, sleeper.pid)

        wait_until(lambda: call_of(sleeper.pid) == (POLL if action == KILL else RESTART), "sleep")
        result, slept = sleeper.stdout.readline().split()
    assert result == "0"
    assert float(slept) >= (0.5 + 2 if action == KILL else 2)


POLL, RESTART = "7", "219"


def call_of(pid: int) -> str:
    """The call that a process waits in."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0]


def switches(pid: int, tid: int) -> int:
    """How often a thread has waited."""
    status = Path(f"/proc/{pid}/task/{tid}/status").read_text()
    return int(re.findall(r"\nvoluntary_ctxt_switches:\t(\d+)", status)[0])
