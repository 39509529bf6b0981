"""What markerjit refuses: each with one line on standard error, exit code 1, and a target that runs
on as if nothing had been asked."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import markerjit
from markerjit import Mode
from tests.support import answering
from tests.support.answering import Answering
from tests.support.commands import CLI, ENVIRONMENT, cli, facts, one_line
from tests.support.processes import state_of, text_of
from tests.support.programs import ROOT
from tests.support.server import Client
from tests.support.timing import HANG_S, Limited, wait_until

PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <markerjit/marker.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALLOW(nr) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static void filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), ALLOW(SYS_read), ALLOW(SYS_write),
        ALLOW(SYS_exit_group), ALLOW(SYS_clock_nanosleep), ALLOW(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
static void *filtered_thread(void *up) {
    filter();
    __atomic_store_n((int *)up, 1, __ATOMIC_RELEASE);
    for (;;) nanosleep(&(struct timespec){10, 0}, 0);
}
static void share_text(const char *path) {
    char line[512], permissions[8];
    unsigned long start, end, offset;
    int fd = open(path, O_RDONLY);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s %lx", &start, &end, permissions, &offset) == 4 &&
            permissions[2] == 'x' && strstr(line, path))
            mmap((void *)start, end - start, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, fd,
                 (long)offset);
    fclose(maps);
}
int main(int argc, char **argv) {
    static pthread_t thread;
    static int up;
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "filter")) filter();
    if (!strcmp(what, "strict")) prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    if (!strcmp(what, "shared")) share_text(argv[2]);
    if (!strcmp(what, "thread")) {
        pthread_create(&thread, 0, filtered_thread, &up);
        while (!__atomic_load_n(&up, __ATOMIC_ACQUIRE)) continue;
    }
    if (write(1, "r", 1) < 0) return 1;
    for (char c; read(0, &c, 1) == 1;) {
        MARK(hostile, "c %c", c);
        MARK(two, "a %d", 1);
        MARK(two, "b %s", "x");
        if (write(1, &c, 1) < 0) return 1;
    }
    syscall(SYS_exit, 0);
}
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("hostile") / "hostile.c"
    source.write_text(PROGRAM)
    path = source.with_suffix("")
    flags = ["-O2", "-w", "-pthread", f"-I{ROOT}/native/include", "-o", path, source]
    subprocess.run(["cc", *flags], check=True, timeout=HANG_S)
    return path


@contextmanager
def started(*command: object) -> Iterator[Answering]:
    with answering.started(*command) as program:
        assert program.ready == b"r"
        yield program


# ---- what is no process to work on -------------------------------------------------------------


@pytest.mark.parametrize("command", ["list", "on", "off", "status", "trace", "explain"])
def test_process_that_does_not_exist_is_named(command: str) -> None:
    with Limited(["true"]) as gone:
        gone.wait()

    for pid in (gone.pid, 2**22 + 1, 2**40):
        one_line(cli(command, pid, "kv_*"), f"no process {pid}")


@pytest.mark.parametrize("command", ["list", "on", "trace"])
def test_zombie_has_ended(command: str) -> None:
    with Limited(["true"]) as zombie:
        wait_until(lambda: state_of(zombie.pid) == "Z", "a zombie")

        one_line(cli(command, zombie.pid, "kv_*"), f"process {zombie.pid} has ended$")


def test_kernel_thread_and_thread_are_told_as_such(target: Callable) -> None:
    program = target("truth_threads", "2", "--paused")
    tid = max(int(name) for name in os.listdir(f"/proc/{program.pid}/task"))

    one_line(cli("on", tid, "truth_*"), f"{tid} is a thread")
    if Path("/proc/2/comm").read_text() != "kthreadd\n":
        pytest.skip("process 2 is no kernel thread here (a container?)")
    one_line(cli("on", 2, "*"), "kernel thread")


def test_process_of_32_bits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "small"
    code = bytes.fromhex("f390 ebfc")  # pause; jmp back
    base, size = 0x10000, 52 + 32
    ident = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    header = struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + size, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    segment = struct.pack("<8I", 1, 0, base, base, size + len(code), size + len(code), 5, 4096)
    path.write_bytes(ident + header + segment + code)
    path.chmod(0o755)
    try:
        process = Limited([path])
    except OSError as error:
        pytest.skip(f"this kernel runs no 32-bit programs: {error}")
    with process:
        try:
            for command in ("list", "on", "trace"):
                one_line(cli(command, process.pid, "*"), "32-bit")
            assert process.poll() is None
        finally:
            process.kill()


def test_process_of_another_user_is_refused_with_the_rule(target: Callable) -> None:
    # It becomes nobody once it has imported all: nobody may be unable to read this Python.
    become = """
import contextlib, io, os, sys, markerjit.cli.main as main, markerjit.cli.signals
with contextlib.redirect_stderr(io.StringIO()):
    main.run([sys.argv[1], str(2**22 + 1), "kv_*"])
os.setgroups([]), os.setresgid(*[65534] * 3), os.setresuid(*[65534] * 3)
main.main(sys.argv[1:])"""
    root = os.getuid() == 0
    command = [sys.executable, "-c", become] if root else CLI
    pid = target("kvserver").pid if root else 1

    for action in ("list", "on", "trace"):
        done = subprocess.run(
            [*command, action, str(pid), "kv_*"],
            env=ENVIRONMENT, capture_output=True, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip
        one_line(done, f"process {pid} may not be traced: it belongs to uid 0 and we are [1-9]")


def test_process_that_has_a_tracer_is_refused_and_the_tracer_named(target: Callable) -> None:
    program = target("kvserver")
    seize = "import ctypes, sys; ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0); input()"
    with Limited([sys.executable, "-c", seize, str(program.pid)], stdin=subprocess.PIPE) as tracer:
        status = Path(f"/proc/{program.pid}/status")
        wait_until(lambda: f"TracerPid:\t{tracer.pid}" in status.read_text(), "a tracer")
        text = text_of(program.pid)

        for command in ("on", "off", "trace"):
            one_line(cli(command, program.pid, "kv_*"), f"process {tracer.pid}")
        assert len(facts("list", program.pid)["markers"]) == 7
        assert text_of(program.pid) == text

    with Client(program.ready["port"]) as client:
        assert client.ask("PING") == b"PONG"
    assert cli("on", program.pid, "kv_*").returncode == 0


# ---- what is asked of it -----------------------------------------------------------------------


@pytest.mark.parametrize("command", ["list", "on", "off", "status", "trace", "explain"])
def test_process_without_markers_says_so(target: Callable, command: str) -> None:
    program = target("kvserver-none")

    one_line(cli(command, program.pid, "kv_*"), f"process {program.pid} has no markers")


def test_process_without_markers_is_looked_at_all_the_same(target: Callable) -> None:
    program = target("kvserver-none")

    assert facts("list", program.pid) == {"pid": program.pid, "markers": [], "problems": []}
    assert facts("status", program.pid)["markers"] == []
    for command in ("list", "status", "repair"):
        done = cli(command, program.pid)
        assert (done.returncode, done.stderr) == (0, ""), command
    assert cli("list", program.pid).stdout.startswith(f"process {program.pid} has no markers; ")
    for command in ("on", "off", "explain"):
        one_line(cli(command, program.pid, "*"), f"process {program.pid} has no markers; ")

    with markerjit.attach(program.pid) as session:
        assert session.sites() == ()
        assert session.statistics() == []
        for ask in (session.enable, session.disable, session.plan, session.record):
            with pytest.raises(markerjit.NoMarkers, match="has no markers"):
                ask("*")
        assert not session.has_runtime


@pytest.mark.parametrize("command", ["list", "on", "off", "status", "trace", "explain"])
def test_unknown_marker_is_answered_with_the_nearest(target: Callable, command: str) -> None:
    program = target("kvserver")

    one_line(cli(command, program.pid, "kv_hti"), "no marker matches 'kv_hti'.*kv_hit")
    one_line(cli(command, program.pid, "zzz"), f"'zzz'; markerjit list {program.pid} shows")


def test_mode_that_a_site_was_not_compiled_for_is_refused(target: Callable) -> None:
    direct, symbol = target("truth_modes-direct"), target("truth_modes-symbol")
    pointer = target("truth_modes-pointer")

    one_line(cli("on", direct.pid, "*"), "direct.*always calls its probe")
    one_line(cli("off", direct.pid, "*"), "direct.*always calls its probe")
    one_line(cli("on", symbol.pid, "*", "--mode", "jump"), "symbol.*int3, not with jump")
    one_line(cli("on", pointer.pid, "*", "--mode", "int3"), "pointer.*not with int3")
    with markerjit.attach(symbol.pid) as session:
        with session.trace("truth_mode", mode=Mode.INT3) as stream:
            symbol.command("run 3")
        # without a body there are no arguments to record, so counting is all that may be offered
        assert len(stream.drain()) + session.statistics("truth_mode")[0].lost == 3


def test_one_name_with_two_formats_is_refused(hostile: Path) -> None:
    with started(hostile) as program:
        text = text_of(program.pid)

        one_line(cli("on", program.pid, "two"), "two has sites with different formats")
        one_line(cli("trace", program.pid, "two"), "two has sites with different formats")

        assert text_of(program.pid) == text
        assert program.answers()
        assert cli("on", program.pid, "hostile").returncode == 0


# ---- what is not as it should be ---------------------------------------------------------------


@pytest.mark.product
@pytest.mark.parametrize("server", ["kvserver", "kvserver-nop"])
@pytest.mark.parametrize("index", [0, 1, 3])
def test_altered_site_is_left_alone_and_so_are_all_others(
    target: Callable, server: str, index: int
) -> None:
    program = target(server)
    (site,) = (entry for entry in facts("list", program.pid, "kv_hit")["markers"][0]["sites"])
    with open(f"/proc/{program.pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(site["address"] + index)
        (right,) = memory.read(1)
        memory.seek(site["address"] + index)
        memory.write(bytes([right ^ 0x10]))
        text = text_of(program.pid)

        refusals = [cli("on", program.pid, "kv_*"), cli("trace", program.pid, "kv_h*")]
        refusals.append(cli("on", program.pid, "kv_hit", "--mode", "int3"))
        with markerjit.attach(program.pid) as session:
            with pytest.raises(markerjit.UnexpectedBytes) as caught:
                session.enable("kv_*")
            assert text_of(program.pid) == text
            session.enable("kv_miss")
            session.disable("kv_miss")
        memory.seek(site["address"] + index)
        memory.write(bytes([right]))

    for done in refusals:
        one_line(done, rf"{site['address']:#x}.* holds .*, expected .*another tool")
    assert caught.value.address == site["address"]
    assert cli("on", program.pid, "kv_*").returncode == 0


def test_text_in_a_shared_mapping_is_refused_and_its_file_unchanged(
    hostile: Path, tmp_path: Path
) -> None:
    path = shutil.copy(hostile, tmp_path / "shared-text")
    before = hashlib.sha256(path.read_bytes()).digest()
    with started(path, "shared", path) as program:
        text = text_of(program.pid)

        for command in (["on"], ["trace"], ["on", "--mode", "int3"]):
            done = cli(command[0], program.pid, "hostile", *command[1:])
            one_line(done, "shared mapping")

        assert text_of(program.pid) == text
        assert program.answers()
    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_program_whose_file_was_deleted_is_served_from_memory(
    hostile: Path, tmp_path: Path
) -> None:
    path = shutil.copy(hostile, tmp_path / "deleted")
    with started(path) as program:
        path.write_bytes(b"another") if not path.unlink() else None

        (marker,) = facts("list", program.pid, "hostile")["markers"]
        on = cli("on", program.pid, "hostile")
        assert program.answers()

        assert marker["sites"][0]["deleted"] is True
        assert on.returncode == 0
        assert facts("status", program.pid, "hostile")["markers"][0]["hits"] == 1


# ---- states in which it must not be touched ----------------------------------------------------


@pytest.mark.parametrize("kind", ["filter", "strict", "thread"])
def test_process_under_seccomp_is_refused_and_lives(hostile: Path, kind: str) -> None:
    with started(hostile, kind) as program:
        text = text_of(program.pid)

        for command in ("on", "off", "trace"):
            one_line(cli(command, program.pid, "hostile"), "seccomp")

        assert len(facts("list", program.pid)["markers"]) >= 2
        assert text_of(program.pid) == text
        assert program.answers(), "it died of the stop"


def test_stopped_process_stays_stopped_and_goes_on_afterwards(target: Callable) -> None:
    program = target("kvserver")
    fresh = target("truth_threads", "2", "--rate", "1000")
    text = text_of(program.pid)
    assert cli("on", program.pid, "kv_hit").returncode == 0  # now the runtime is there
    for pid in (program.pid, fresh.pid):
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state_of(pid) == "T", "a stop")  # noqa: B023

    one_line(cli("on", fresh.pid, "truth_loop"), "stopped.*SIGSTOP.*kill -CONT")
    done = cli("off", program.pid, "kv_hit"), cli("on", program.pid, "kv_*")

    assert state_of(program.pid) == state_of(fresh.pid) == "T"
    assert [command.returncode for command in done] == [0, 0], done
    for pid in (program.pid, fresh.pid):
        os.kill(pid, signal.SIGCONT)
    with Client(program.ready["port"]) as client:
        assert client.ask("PING") == b"PONG"
        assert client.ask("GET", "a") is None
    assert fresh.ask("counts")
    status = {marker["name"]: marker for marker in facts("off", program.pid, "*")["markers"]}
    assert (status["kv_command"]["hits"], status["kv_miss"]["hits"]) == (2, 1)
    assert text_of(program.pid) == text


def test_session_that_another_thread_uses_says_so(target: Callable) -> None:
    program = target("truth_modes-jump")

    with markerjit.attach(program.pid) as session, ThreadPoolExecutor(1) as other:
        held = session._target.memory.locked()
        assert other.submit(held.__enter__).result(HANG_S)
        try:
            with pytest.raises(markerjit.Refused, match="another thread uses this session") as no:
                session.enable("truth_mode")
            assert no.value.try_again
        finally:
            other.submit(held.__exit__, None, None, None).result(HANG_S)
        session.enable("truth_mode")
        session.disable("truth_mode")
