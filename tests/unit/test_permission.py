"""Which rule forbids stopping a process: every sentence, and the checks on real processes."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from markerjit.errors import NoSuchProcess, NotPermitted, Refused, Unsupported
from markerjit.proc import permission
from markerjit.proc.permission import (
    Credentials,
    ProcessStatus,
    check_before_borrowing,
    check_before_looking,
    check_before_stopping,
    filtered_threads,
    has_capability,
    proc_trouble,
    read_credentials,
    read_status,
    threads_blocking_sigtrap,
    why_not,
    yama_scope,
)
from tests.support.timing import HANG_S, Limited, joined

pytestmark = pytest.mark.user

PTRACE_SEIZE, PTRACE_DETACH, PTRACE_INTERRUPT = 0x4206, 17, 0x4207
WALL = 0x40000000

SECCOMP = """
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog program = {1, &allow};
    char byte;

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, argv[argc - 1][0] - '0', &program);
    write(1, "ready\\n", 6); /* strict: no other calls but read and exit */
    read(0, &byte, 1);
}
"""
WAITING = "import os, sys; os.write(1, b'ready\\n'); os.read(0, 1)"

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program (one that waits) and wait for its `ready`; killed and reaped at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str | Path) -> subprocess.Popen[bytes]:
        process = Limited(
            command or [sys.executable, "-S", "-c", WAITING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield run

    for process in started:
        process.kill()
        process.communicate()


def wait_state(pid: int, state: str) -> None:
    for _ in range(1_000_000):
        if read_status(pid).state == state:
            return
        os.sched_yield()
    raise AssertionError(f"never {state}")


# ---- what /proc says -----------------------------------------------------------------------------


def test_status_of_ourselves() -> None:
    status = read_status(os.getpid())

    assert status.pid == os.getpid()
    assert status.uid == os.getuid()
    assert status.threads == len(os.listdir("/proc/self/task"))
    assert (status.tracer, status.seccomp, status.has_memory) == (0, 0, True)
    assert status.state == "R"


def test_status_of_nobody_is_an_error() -> None:
    with pytest.raises(NoSuchProcess, match="no process 0"):
        read_status(0)


STATUS = "Name:\tab (c):\tX\nState:\tS (sleeping)\nUid:\t5\t6\t7\t8\nVmSize:\t1 kB\n"


def test_a_name_may_look_like_another_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel escapes a newline in a name; the rest is up to the program."""
    monkeypatch.setattr(permission, "_status_text", lambda *_: f"\n{STATUS}")

    status = read_status(7)

    assert (status.name, status.state, status.uid) == ("ab (c):\tX", "S", 5)


@pytest.mark.parametrize("line", STATUS.splitlines()[2:])
def test_what_a_kernel_does_not_tell_has_a_value_all_the_same(
    monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(permission, "_status_text", lambda *_: f"\n{STATUS}".replace(line, "X:"))

    status = read_status(7)

    assert (status.tracer, status.seccomp, status.threads) == (0, 0, 0)
    assert status.has_memory != line.startswith("VmSize")


def test_capabilities_are_those_of_ourselves() -> None:
    effective = Path("/proc/self/status").read_text().split("CapEff:\t")[1].split()[0]

    assert [has_capability(n) for n in range(41)] == [
        bool(int(effective, 16) >> n & 1) for n in range(41)
    ]


def test_no_yama_is_none_and_otherwise_its_scope() -> None:
    file = Path("/proc/sys/kernel/yama/ptrace_scope")

    assert yama_scope() == (int(file.read_text()) if file.exists() else None)


def test_threads_that_block_sigtrap_are_found() -> None:
    blocked, checked = threading.Event(), threading.Event()
    tids = []

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTRAP])
        tids.append(threading.get_native_id())
        blocked.set()
        assert checked.wait(HANG_S)

    before = threads_blocking_sigtrap(os.getpid())
    thread = threading.Thread(target=block)
    thread.start()
    assert blocked.wait(HANG_S)
    threads = threads_blocking_sigtrap(os.getpid())
    checked.set()
    joined(thread)

    # Before it there may be those of other packages: jemalloc's, in pyarrow, blocks all signals.
    assert sorted({*threads} - {*before}) == tids


def test_threads_of_nobody_are_an_error_of_the_house() -> None:
    """It is asked in the middle of switching on, when the target may have ended."""
    with pytest.raises(NoSuchProcess):
        threads_blocking_sigtrap(1 << 30)


def test_credentials_of_ourselves() -> None:
    who = read_credentials(os.getpid())

    assert who.uids[:3] == os.getresuid()
    assert who.gids[:3] == os.getresgid()
    assert who.dumpable


def test_a_proc_that_is_ours_is_no_trouble() -> None:
    assert proc_trouble() == ""


@pytest.mark.parametrize("pid", [0, 1, 1 << 30], ids=["ours", "init", "nobody"])
def test_a_proc_of_another_pid_namespace_is_believed_for_nobody(
    monkeypatch: pytest.MonkeyPatch, pid: int
) -> None:
    """There, 7 may be another process than the one that ptrace and pidfd_open call 7."""
    monkeypatch.setattr(permission.os, "readlink", lambda _: "7")

    for check in (check_before_looking, check_before_stopping):
        with pytest.raises(NotPermitted, match=r"another pid namespace .*, 7 there"):
            check(pid or os.getpid())


def test_no_proc_is_not_taken_for_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(permission.os, "readlink", missing)

    with pytest.raises(NotPermitted, match="/proc is not mounted"):
        check_before_looking(os.getpid())


def test_a_process_that_hidepid_leaves_out_is_not_taken_for_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(permission.os, "kill", forbidden)

    with pytest.raises(NotPermitted, match="hidden from us"):
        read_status(1 << 30)


# ---- the checks, on real processes ---------------------------------------------------------------


def test_a_process_may_be_looked_at_and_stopped(start: Start) -> None:
    pid = start().pid

    assert check_before_looking(pid).pid == pid
    check_before_stopping(pid)


def test_a_process_stopped_by_job_control_passes(start: Start) -> None:
    process = start()
    process.send_signal(signal.SIGSTOP)
    wait_state(process.pid, "T")

    check_before_stopping(process.pid)
    with pytest.raises(Refused, match=f"stopped .*kill -CONT {process.pid}") as caught:
        check_before_borrowing(process.pid)
    assert caught.value.try_again

    process.send_signal(signal.SIGCONT)
    wait_state(process.pid, "S")
    check_before_borrowing(process.pid)


@pytest.mark.parametrize("version", [1, 2])
def test_a_frozen_process_passes_but_none_of_its_threads_may_be_borrowed(
    start: Start, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    pid = start().pid
    monkeypatch.setattr(permission, "frozen_by", lambda _: version)

    check_before_stopping(pid)
    with pytest.raises(Refused, match=f"frozen .*version {version}.*thaw it"):
        check_before_borrowing(pid)


def test_a_zombie_has_ended(start: Start) -> None:
    process = start()
    process.kill()
    wait_state(process.pid, "Z")

    for check in (check_before_looking, check_before_stopping):
        with pytest.raises(NoSuchProcess, match=f"process {process.pid} has ended$"):
            check(process.pid)


@pytest.mark.parametrize("mode", ["1", "2"])
def test_the_threads_under_seccomp_are_listed_with_their_mode(
    start: Start, tmp_path: Path, mode: str
) -> None:
    program = tmp_path / "seccomp"
    command = ["gcc", "-w", "-o", program, "-xc", "-"]
    subprocess.run(command, input=SECCOMP, text=True, check=True)
    pid = start(program, mode).pid

    assert check_before_looking(pid).seccomp == int(mode)
    check_before_stopping(pid)
    plain: set[int] = set()
    (thread,) = filtered_threads(pid, plain)
    assert (thread.tid, thread.mode, thread.filters) == (pid, int(mode), int(mode == "2"))
    assert not plain
    assert filtered_threads(os.getpid(), plain) == []
    assert plain


def test_a_process_that_is_being_traced_names_its_tracer(start: Start) -> None:
    pid = start().pid
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(PTRACE_SEIZE, pid, 0, 0) == 0
    try:
        with pytest.raises(NotPermitted, match=f"traced by process {os.getpid()} "):
            check_before_stopping(pid)
        assert "traces it already" in why_not(pid)
    finally:
        libc.ptrace(PTRACE_INTERRUPT, pid, 0, 0)
        os.waitpid(pid, WALL)
        libc.ptrace(PTRACE_DETACH, pid, 0, 0)
    check_before_stopping(pid)


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("x86_Thread_features:\tshstk wrss\n", True),
        ("x86_Thread_features:\t\n", False),
        ("Groups:\tshstk\n", False),
        ("", False),
    ],
)
def test_a_shadow_stack_is_known_by_the_features_of_the_thread(
    monkeypatch: pytest.MonkeyPatch, line: str, *, has: bool
) -> None:
    monkeypatch.setattr(permission, "_status_text", lambda *_: f"\n{STATUS}{line}Threads:\t1\n")

    assert read_status(7).shadow_stack is has


def test_a_kernel_thread_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\nName:\tkthreadd\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\n"
    monkeypatch.setattr(permission, "_status_text", lambda *_: text)

    with pytest.raises(Unsupported, match=r"2 is a kernel thread \(kthreadd\)"):
        check_before_looking(2)


def test_nobody_is_no_such_process() -> None:
    for check in (check_before_looking, check_before_stopping):
        with pytest.raises(NoSuchProcess):
            check(1 << 30)


def test_ourselves_are_never_stopped_so_nothing_forbids_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = read_status(os.getpid())._replace(tracer=1, seccomp=2)
    monkeypatch.setattr(permission, "read_status", lambda _: own)

    check_before_stopping(os.getpid())


# ---- why not -------------------------------------------------------------------------------------


class Facts:
    """The facts that why_not looks at: a plain process of ours, without any rule against it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.status = ProcessStatus(7, "kv", "S", 1000, 0, 0, 1, 64, False)
        self.who = Credentials((1000,) * 4, (100,) * 4, 0, dumpable=True)
        self.capable = False
        self.user_namespace = False
        self.scope: int | None = None
        monkeypatch.setattr(permission, "read_status", self._read)
        monkeypatch.setattr(permission, "has_capability", lambda n: n == 19 and self.capable)
        monkeypatch.setattr(permission, "yama_scope", lambda: self.scope)
        monkeypatch.setattr(permission, "in_user_namespace", lambda: self.user_namespace)
        monkeypatch.setattr(permission, "security_modules", lambda: ["lockdown", "selinux"])
        monkeypatch.setattr(permission, "read_credentials", self._credentials)
        monkeypatch.setattr(permission.os, "getuid", lambda: 1000)
        monkeypatch.setattr(permission.os, "getgid", lambda: 100)

    def _credentials(self, pid: int) -> Credentials:
        return self.who if pid == 7 else Credentials((1000,) * 4, (100,) * 4, 1 << 3, True)

    def _read(self, pid: int) -> ProcessStatus:
        if pid == 7:
            return self.status
        if pid == 9:
            return self.status._replace(name="gdb")
        if pid == 11:
            raise NotPermitted("process 11 is hidden from us")
        raise NoSuchProcess(pid)


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> Facts:
    return Facts(monkeypatch)


def test_why_not_of_a_process_that_has_ended(facts: Facts) -> None:
    assert why_not(8) == "process 8 has ended"


def test_why_not_of_a_process_with_a_tracer(facts: Facts) -> None:
    facts.status = facts.status._replace(tracer=9)
    facts.capable = True  # no capability helps against a tracer

    assert why_not(7) == (
        "process 7 may not be traced: process 9 (gdb) traces it already; end that first"
    )


def test_why_not_of_a_process_whose_tracer_has_gone(facts: Facts) -> None:
    facts.status = facts.status._replace(tracer=10)

    assert "process 10 (gone) traces it" in why_not(7)


def test_a_tracer_that_is_hidden_is_named_by_its_number(facts: Facts) -> None:
    facts.status = facts.status._replace(tracer=11, has_memory=True)

    assert "process 11 (hidden from us) traces it" in why_not(7)
    with pytest.raises(NotPermitted, match=r"process 7 is being traced by process 11 \(hidden"):
        check_before_stopping(7)


def test_why_not_although_we_may_trace_everything(facts: Facts) -> None:
    facts.capable = True

    assert "although we have CAP_SYS_PTRACE: a security module" in why_not(7)
    assert "(active: lockdown, selinux)" in why_not(7)


def test_why_not_of_a_process_outside_of_our_user_namespace(facts: Facts) -> None:
    facts.capable = facts.user_namespace = True

    assert "holds in our own user namespace, and the process is outside" in why_not(7)


def test_why_not_although_we_may_trace_everything_but_for_yama(facts: Facts) -> None:
    facts.capable = True
    facts.scope = 3

    assert why_not(7) == (
        "process 7 may not be traced: kernel.yama.ptrace_scope is 3; no process may be traced "
        "until the machine is rebooted without it"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"uids": (1000, 0, 0, 0)},
        {"uids": (1000, 1000, 0, 1000)},
        {"gids": (100, 8, 8, 8)},
        {"gids": (100, 100, 8, 100)},
    ],
)
def test_why_not_of_a_set_user_id_program(facts: Facts, changed: dict) -> None:
    facts.who = facts.who._replace(**changed)

    assert "runs with ids that are not ours" in why_not(7)


def test_why_not_of_a_process_with_capabilities_says_so_where_they_are_not_ours(
    facts: Facts,
) -> None:
    facts.scope = 1
    facts.who = facts.who._replace(permitted=1 << 3)
    assert "capabilities" not in why_not(7)

    facts.who = facts.who._replace(permitted=1 << 3 | 1 << 19)
    assert "it has capabilities that we do not have" in why_not(7)


def test_why_not_of_somebody_elses_process(facts: Facts) -> None:
    facts.status = facts.status._replace(uid=0)
    facts.scope = 1

    assert why_not(7) == (
        "process 7 may not be traced: it belongs to uid 0 and we are 1000; "
        "run markerjit as that user, or with sudo"
    )


@pytest.mark.parametrize(("scope", "helps"), [(1, True), (2, True), (3, False)])
def test_why_not_with_yama_says_how_to_switch_it_off_where_that_is_possible(
    facts: Facts, scope: int, helps: bool
) -> None:
    facts.scope = scope

    assert f"kernel.yama.ptrace_scope is {scope}" in why_not(7)
    assert ("sudo sysctl" in why_not(7)) == helps


@pytest.mark.parametrize("scope", [None, 0])
def test_why_not_of_a_process_that_does_not_want_to_be_traced(
    facts: Facts, scope: int | None
) -> None:
    facts.scope = scope
    assert "or a security module forbids it (active: lockdown, selinux)" in why_not(7)

    facts.who = facts.who._replace(dumpable=False)
    assert "made itself untraceable (PR_SET_DUMPABLE" in why_not(7)


def test_why_not_of_a_process_that_ends_while_we_ask(
    facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(pid: int) -> Credentials:
        raise NoSuchProcess(pid)

    monkeypatch.setattr(permission, "read_credentials", gone)

    assert why_not(7) == "process 7 has ended"


def test_why_not_names_the_thread(facts: Facts) -> None:
    assert why_not(7, 7).startswith("process 7 may not be traced:")
    assert why_not(7, 12).startswith("thread 12 of process 7 may not be traced:")


def test_why_not_is_one_sentence_in_every_case(facts: Facts) -> None:
    for tracer in (0, 9):
        for uid in (0, 1000):
            for facts.capable in (False, True):
                for facts.scope in (None, 1, 3):
                    facts.status = facts.status._replace(tracer=tracer, uid=uid)
                    assert "\n" not in why_not(7)
                    assert not why_not(7).endswith(".")
