"""Walls built on purpose: what `doctor` says beforehand is what `on` then runs into, and the other
way round; and where `doctor` names a way round, that way leads past the wall.

Not built here, because the machine itself would have to be another: Yama, SELinux, AppArmor,
proc_mem.force_override. Their sentences are in tests/unit/test_doctor.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.answering import started
from tests.support.commands import CLI, ENVIRONMENT, cli, facts
from tests.support.processes import state_of
from tests.support.programs import ROOT
from tests.support.timing import HANG_S, Limited, wait_until

pytestmark = pytest.mark.user

PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <markerjit/marker.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ALLOW(nr) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static void filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), ALLOW(SYS_read), ALLOW(SYS_write),
        ALLOW(SYS_exit_group), ALLOW(SYS_clock_nanosleep),
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
/* Every mapping of the program's own file: sealed, or mapped again and shared. */
static int of_our_file(const char *path, int shared) {
    char line[512], permissions[8];
    unsigned long start, end, offset;
    int fd = open(path, O_RDONLY), failed = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s %lx", &start, &end, permissions, &offset) != 4 ||
            !strstr(line, path))
            continue;
        if (!shared)
            failed |= syscall(462, start, end - start, 0) != 0; /* mseal, Linux 6.10 */
        else if (permissions[2] == 'x')
            mmap((void *)start, end - start, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, fd,
                 (long)offset);
    }
    fclose(maps);
    close(fd);
    return failed;
}
static void limit(int what, unsigned long value) {
    struct rlimit limit;
    getrlimit(what, &limit);
    limit.rlim_cur = value;
    setrlimit(what, &limit);
}
int main(int argc, char **argv) {
    static pthread_t thread;
    static int up;
    const char *what = argc > 1 ? argv[1] : "";
    int failed = 0;

    if (!strcmp(what, "filter")) filter();
    if (!strcmp(what, "thread")) {
        pthread_create(&thread, 0, filtered_thread, &up);
        while (!__atomic_load_n(&up, __ATOMIC_ACQUIRE)) continue;
    }
    if (!strcmp(what, "sealed")) failed = of_our_file(argv[0], 0);
    if (!strcmp(what, "shared")) of_our_file(argv[0], 1);
    if (!strcmp(what, "mdwe")) failed = prctl(65, 1, 0, 0, 0); /* PR_SET_MDWE, Linux 6.3 */
    if (!strcmp(what, "undumpable")) prctl(PR_SET_DUMPABLE, 0);
    if (!strcmp(what, "addresses")) limit(RLIMIT_AS, 3 << 20);
    if (!strcmp(what, "data")) limit(RLIMIT_DATA, 4096);
    if (!strcmp(what, "files")) limit(RLIMIT_NOFILE, 3);
    if (!strcmp(what, "mappings"))
        for (long i = 0; mmap(0, 4096, i & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                              -1, 0) != MAP_FAILED && i < 1 << 17; i++) continue;
    if (!strcmp(what, "sigtrap")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGTRAP);
        sigprocmask(SIG_BLOCK, &set, 0);
    }
    if (write(1, failed ? "f" : "r", 1) < 0) return 1;
    for (char c; read(0, &c, 1) == 1;) {
        MARK(hostile, "c %c", c);
        if (write(1, &c, 1) < 0) return 1;
    }
    syscall(SYS_exit_group, 0);
}
"""

NOBODY = 65534
AS_NOBODY = f"""
import contextlib, io, json, os, sys, markerjit.cli.main as main
with contextlib.redirect_stderr(io.StringIO()):  # import all: nobody may be unable to read it
    main.run(["doctor", str(2**22 + 1)]), main.run(["on", str(2**22 + 1), "x"])
os.setgroups([]), os.setresgid(*[{NOBODY}] * 3), os.setresuid(*[{NOBODY}] * 3)
main.main(sys.argv[1:])"""
BY_A_USER = CLI if os.getuid() else [sys.executable, "-c", AS_NOBODY]

LANDLOCKED = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
make_block = ctypes.create_string_buffer(struct.pack("<Q", 1 << 11), 8)
ruleset = libc.syscall(444, make_block, 8, 0)
if ruleset < 0 or libc.prctl(38, 1, 0, 0, 0) or libc.syscall(446, ruleset, 0):
    sys.exit("no landlock")
os.execvp(sys.argv[1], sys.argv[1:])"""

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to build the wall")


@pytest.fixture(scope="module")
def hostile() -> Iterator[Path]:
    """The program, where nobody too can run it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "hostile"
        flags = ["-O2", "-w", "-pthread", f"-I{ROOT}/native/include", "-xc", "-", "-o", path]
        subprocess.run(["cc", *flags], input=PROGRAM, text=True, check=True, timeout=HANG_S)
        yield path


def through(command: Sequence[str], *args: object) -> subprocess.CompletedProcess[str]:
    """The command line, begun by another program or by other means than CLI, which is forked."""
    if command is CLI:
        return cli(*args)
    return subprocess.run(
        [*command, *map(str, args)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip


def agreed(pid: int, *, by: Sequence[str] = CLI, pattern: str = "*") -> tuple[Any, str]:
    """What doctor says, and what `on` says on standard error, when they agree on whether it works.

    Both as they have to be: nothing on standard error from doctor, one line from `on` or none.
    """
    shown = through(by, "doctor", pid, "--json")
    on = through(by, "on", pid, pattern)

    assert shown.stderr == "", shown
    document = json.loads(shown.stdout)
    assert set(document) == {"pid", "works", "findings"}
    for finding in document["findings"]:
        assert list(finding) == ["level", "what", "found", "way_round"]
        assert finding["level"] in ("good", "warning", "wall")
        assert finding["level"] == "good" or finding["way_round"], finding
    assert document["works"] == all(finding["level"] != "wall" for finding in document["findings"])
    assert (shown.returncode, on.returncode) == ((0, 0) if document["works"] else (1, 1)), (
        shown,
        on,
    )
    assert len(on.stderr.splitlines()) == on.returncode, on
    return document, on.stderr


def walls(document: Any) -> list[tuple[str, str]]:
    return [
        (finding["what"], finding["found"])
        for finding in document["findings"]
        if finding["level"] == "wall"
    ]


def assert_works(pid: int, **kwargs: Any) -> Any:
    document, _ = agreed(pid, **kwargs)
    assert document["works"], walls(document)
    return document


def assert_wall(pid: int, what: str, words: str, refusal: str, **kwargs: Any) -> Any:
    """Exactly this wall, and a refusal of `on` that matches; returns its way round."""
    document, error = agreed(pid, **kwargs)
    ((wall, text),) = walls(document)
    assert wall == what
    assert re.search(words, text), text
    assert re.search(refusal, error), error
    return next(
        finding["way_round"] for finding in document["findings"] if finding["level"] == "wall"
    )


def finding(document: Any, what: str, level: str) -> str:
    (words,) = [
        finding["found"]
        for finding in document["findings"]
        if (finding["what"], finding["level"]) == (what, level)
    ]
    return str(words)


# ---- no wall -------------------------------------------------------------------------------------


def test_plain_process_works(hostile: Path) -> None:
    with started(hostile) as program:
        document = assert_works(program.pid)

        assert "runtime" in {finding["what"] for finding in document["findings"]}
        assert program.answers()
        assert_works(program.pid)  # and again, with the runtime in it


def test_last_line_is_the_verdict(hostile: Path) -> None:
    with started(hostile) as good, started(hostile, "files") as bad:
        shown = [through(CLI, "doctor", program.pid) for program in (good, bad)]

    last = [answer.stdout.splitlines()[-1] for answer in shown]
    assert last[0] == f"process {good.pid}: this will work"
    assert last[1].startswith(f"process {bad.pid}: this cannot work: RLIMIT_NOFILE allows 3 ")


def test_doctor_stops_nobody_and_writes_nothing(hostile: Path) -> None:
    with started(hostile) as program:
        folder = Path(f"/proc/{program.pid}")
        # It is in state S a moment before it is off its CPU, and has no wchan until then.
        wait_until(lambda: (folder / "wchan").read_text() != "0", "the program to wait for a byte")
        seen = ("maps", "wchan", "syscall")
        before = [(folder / name).read_text() for name in seen]
        switches = re.findall(r"ctxt_switches:\t(\d+)", (folder / "status").read_text())

        assert through(CLI, "doctor", program.pid).returncode == 0

        assert [(folder / name).read_text() for name in seen] == before
        # It waits in read() all the time; a stop would have to wake it.
        assert re.findall(r"ctxt_switches:\t(\d+)", (folder / "status").read_text()) == switches


def test_sealed_text_is_no_wall(hostile: Path) -> None:
    """mseal(2) forbids changes of the mapping, and /proc/PID/mem is none: seen on Linux 6.18."""
    with started(hostile, "sealed") as program:
        if program.ready != b"r":
            pytest.skip("this kernel has no mseal")

        assert_works(program.pid)

        assert program.answers()
        assert facts("status", program.pid)["markers"][0]["hits"] == 1


def test_process_that_forbids_itself_new_code_works(hostile: Path) -> None:
    """PR_SET_MDWE: the runtime's code is mapped as code at once, and never writable there."""
    with started(hostile, "mdwe") as program:
        if program.ready != b"r":
            pytest.skip("this kernel has no PR_SET_MDWE")

        assert_works(program.pid)

        assert program.answers()


@needs_root
def test_undumpable_process_works_for_root(hostile: Path) -> None:
    with started(hostile, "undumpable") as program:
        assert_works(program.pid)


def test_blocked_sigtrap_is_a_warning_and_forbids_breakpoints(hostile: Path) -> None:
    with started(hostile, "sigtrap") as program:
        document = assert_works(program.pid)

        assert "blocks SIGTRAP" in finding(document, "mode int3", "warning")
        refused = through(CLI, "on", program.pid, "*", "--mode", "int3")
        assert (refused.returncode, "SIGTRAP" in refused.stderr) == (1, True)


# ---- room ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words"),
    [("addresses", "RLIMIT_AS"), ("data", "RLIMIT_DATA"), ("files", "RLIMIT_NOFILE")],
)
def test_limit_is_a_wall_and_the_way_round_leads_past_it(
    hostile: Path, needs_tool: Callable, kind: str, words: str
) -> None:
    needs_tool("prlimit", "util-linux")
    with started(hostile, kind) as program:
        way_round = assert_wall(program.pid, "room", words, "failed in the target|too |limit|room")
        assert program.answers()

        subprocess.run(shlex.split(way_round), check=True, timeout=HANG_S)

        assert_works(program.pid)
        assert program.answers()


def test_too_many_mappings_are_a_wall(hostile: Path) -> None:
    if int(Path("/proc/sys/vm/max_map_count").read_text()) > 1 << 17:
        pytest.skip("this machine allows more mappings than the program makes")
    with started(hostile, "mappings") as program:
        assert_wall(program.pid, "room", "max_map_count", "failed in the target|too |room")
        assert program.answers()


# ---- seccomp, tracers, stops ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["filter", "thread"])
def test_seccomp_is_a_wall(hostile: Path, kind: str) -> None:
    with started(hostile, kind) as program:
        assert_wall(program.pid, "seccomp", "seccomp", "seccomp")
        assert program.answers()


def tracer_of(pid: int) -> int:
    return int(re.findall(r"TracerPid:\t(\d+)", Path(f"/proc/{pid}/status").read_text())[0])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("gdb", ["-q", "-nx", "-p"]), ("strace", ["-o", "/dev/null", "-p"])],
)
def test_tracer_is_a_wall_and_named_until_it_lets_go(
    hostile: Path, needs_tool: Callable, tool: str, arguments: list[str]
) -> None:
    path = needs_tool(tool, tool)
    with ExitStack() as stack:
        program = stack.enter_context(started(hostile))
        tracer = stack.enter_context(
            Limited(
                [path, *arguments, str(program.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        stack.callback(tracer.kill)
        wait_until(lambda: tracer_of(program.pid) == tracer.pid, f"{tool} to attach")

        name = rf"traced by process {tracer.pid} \({tool}\)"
        assert_wall(program.pid, "tracer", name, name)
        assert len(facts("list", program.pid)["markers"]) == 1

        if tool == "strace":
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
        else:
            tracer.communicate(b"detach\nquit\n")
        wait_until(lambda: not tracer_of(program.pid), f"{tool} to let go")
        assert_works(program.pid)
        assert program.answers()


def test_program_under_valgrind_is_a_wall(hostile: Path, needs_tool: Callable) -> None:
    valgrind = needs_tool("valgrind", "valgrind")
    with started(valgrind, "--tool=none", "-q", hostile) as program:
        assert_wall(program.pid, "program", "executed by valgrind", "run the program without")
        assert program.answers()


def test_stopped_process_is_a_wall_only_until_the_runtime_is_in_it(hostile: Path) -> None:
    with started(hostile) as fresh, started(hostile) as known:
        assert_works(known.pid)
        for pid in (fresh.pid, known.pid):
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: state_of(pid) == "T", "a stop")  # noqa: B023

        way_round = assert_wall(fresh.pid, "state", "stopped .*SIGSTOP", "stopped .*SIGSTOP")
        document = assert_works(known.pid)

        assert "stopped" in finding(document, "state", "warning")
        assert through(CLI, "off", known.pid, "*").returncode == 0
        # A tracer that lets go of a thread in a group stop wakes it, and the thread goes back into
        # the stop by itself, before any instruction (__ptrace_unlink, kernel/ptrace.c).
        wait_until(lambda: state_of(known.pid) == "T", "it to be stopped again")
        assert state_of(fresh.pid) == "T"
        assert f"kill -CONT {fresh.pid}" in way_round
        for program in (fresh, known):
            os.kill(program.pid, signal.SIGCONT)
            assert program.answers()
        assert_works(fresh.pid)


FREEZERS = {1: ("freezer", "freezer.state", "FROZEN", "THAWED"), 2: ("", "cgroup.freeze", "1", "0")}


@contextmanager
def frozen(pid: int, version: int) -> Iterator[None]:
    """The process in a frozen control group of its own; thawed and put back in the end."""
    controller, control, stop, go = FREEZERS[version]
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    kind = "cgroup" if controller else "cgroup2"
    roots = [
        Path(mount[1])
        for mount in mounts
        if mount[2] == kind and (not controller or controller in mount[3].split(","))
    ]
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    (home,) = [
        parts[2]
        for parts in (line.split(":", 2) for line in lines)
        if controller in parts[1].split(",")
    ] or ["/"]
    group = Path(f"{roots[0]}{home}", f"markerjit-test-{pid}") if roots else None
    try:
        if group is None:
            raise FileNotFoundError(kind)
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of version {version} can be made here: {error}")
    try:
        try:
            (group / "cgroup.procs").write_text(str(pid))
            (group / control).write_text(stop)
        except OSError as error:
            pytest.skip(f"control groups of version {version} cannot be used here: {error}")
        if version == 1:
            wait_until(lambda: (group / control).read_text() == f"{stop}\n", "a freeze")
        else:
            events = group / "cgroup.events"
            wait_until(lambda: "frozen 1" in events.read_text(), "a freeze")
        yield
    finally:
        with suppress(OSError):
            (group / control).write_text(go)
            (group.parent / "cgroup.procs").write_text(str(pid))
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
        group.rmdir()


@needs_root
@pytest.mark.parametrize("version", [1, 2])
def test_frozen_process_is_a_wall_until_it_is_thawed(hostile: Path, version: int) -> None:
    with started(hostile) as program:
        with frozen(program.pid, version):
            shown = through(CLI, "doctor", program.pid, "--json")
            # Not before doctor has answered: without the check this would wait for the thaw.
            assert walls(json.loads(shown.stdout)), shown
            assert_wall(program.pid, "state", "frozen", "frozen")

        assert program.answers()
        assert_works(program.pid)


@needs_root
@pytest.mark.parametrize("version", [1, 2])
def test_frozen_process_that_has_the_runtime_is_a_wall_in_version_1_only(
    hostile: Path, version: int
) -> None:
    with started(hostile) as program:
        assert_works(program.pid)
        assert through(CLI, "off", program.pid, "*").returncode == 0
        with frozen(program.pid, version):
            if version == 1:
                assert_wall(program.pid, "state", "frozen", "frozen|did not stop in time")
            else:
                assert "frozen" in finding(assert_works(program.pid), "state", "warning")

        assert program.answers()
        assert_works(program.pid)


# ---- what there is to work on --------------------------------------------------------------------


def test_thread_is_a_wall(target: Callable) -> None:
    program = target("truth_threads", "2", "--paused")
    tid = max(int(name) for name in os.listdir(f"/proc/{program.pid}/task"))

    assert_wall(tid, "access", "is a thread", "is a thread")


def test_kernel_thread_is_a_wall() -> None:
    if Path("/proc/2/comm").read_text() != "kthreadd\n":
        pytest.skip("process 2 is no kernel thread here (a container?)")

    assert_wall(2, "process", "kernel thread", "kernel thread")


def test_process_without_markers_has_functions(target: Callable) -> None:
    document = assert_works(target("kvserver-none").pid, pattern="func:kv_parse")

    assert "has no markers" in finding(document, "markers", "warning")


def test_markers_that_always_call_are_a_wall(target: Callable) -> None:
    pid = target("truth_modes-direct").pid

    assert_wall(pid, "markers", "compiled as direct", "compiled as direct")


def test_shared_text_is_a_wall_and_its_file_stays_as_it_was(hostile: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(hostile, tmp_path / "shared"))
    before = path.read_bytes()
    with started(path, "shared") as program:
        assert_wall(program.pid, "object", "mapped shared", "shared mapping")
        assert program.answers()
    assert path.read_bytes() == before


def test_site_that_another_tool_has_patched_is_a_wall_until_it_is_mended(hostile: Path) -> None:
    with started(hostile) as program:
        (marker,) = facts("list", program.pid)["markers"]
        address = marker["sites"][0]["address"]
        with open(f"/proc/{program.pid}/mem", "r+b", buffering=0) as memory:
            right = os.pread(memory.fileno(), 1, address)
            os.pwrite(memory.fileno(), bytes([right[0] ^ 0x10]), address)
            assert_wall(program.pid, "markers", "other bytes than expected", "another tool")
            os.pwrite(memory.fileno(), right, address)
        assert_works(program.pid)


# ---- users, namespaces, /proc --------------------------------------------------------------------


def test_process_of_another_user_is_a_wall(hostile: Path) -> None:
    with started(hostile) as program:
        document, error = agreed(1 if os.getuid() else program.pid, by=BY_A_USER)

    assert re.search("belongs to uid 0 and we are [1-9]", finding(document, "access", "wall"))
    assert re.search("belongs to uid 0 and we are [1-9]", error)


def test_undumpable_process_of_our_own_user_is_a_wall(hostile: Path) -> None:
    who = {} if os.getuid() else {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    with started(hostile, "undumpable", **who) as program:
        document, error = agreed(program.pid, by=BY_A_USER)

    assert "untraceable (PR_SET_DUMPABLE" in finding(document, "access", "wall")
    assert "untraceable (PR_SET_DUMPABLE" in error


def unshared(needs_tool: Callable, *options: str, script: str = 'exec "$@"') -> list[str]:
    """CLI in namespaces of its own, after a shell script; skips where that is not allowed."""
    unshare = [needs_tool("unshare", "util-linux"), *options]
    shell = [*unshare, "sh", "-ec", script, "sh"]
    tried = subprocess.run([*shell, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no such namespaces here: {tried.stderr.strip()}")
    return [*shell, *CLI]


def test_process_outside_of_our_user_namespace_is_a_wall(
    hostile: Path, needs_tool: Callable
) -> None:
    by = unshared(needs_tool, "-U", "-r")
    with started(hostile) as program:
        words = "in our own user namespace, and the process is outside"
        assert_wall(program.pid, "access", words, words, by=by)
        assert program.answers()


def test_process_in_namespaces_below_ours_works(hostile: Path, needs_tool: Callable) -> None:
    unshare = needs_tool("unshare", "util-linux")
    with started(unshare, "-U", "-r", "-m", "-p", "-f", "--kill-child", hostile) as outer:
        if outer.ready != b"r":
            pytest.skip("no such namespaces here")
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()

        document = assert_works(int(children[0]))

        assert "user, pid, mnt of its own" in finding(document, "namespaces", "warning")
        assert outer.answers()


@needs_root
@pytest.mark.parametrize(
    ("options", "script", "what", "words"),
    [
        (["-p", "-f"], 'exec "$@"', "/proc", "/proc belongs to another pid namespace"),
        (["-m"], 'mount -t tmpfs none /proc; exec "$@"', "/proc", "/proc is not mounted"),
    ],
)
def test_proc_that_is_not_ours_is_said_instead_of_working_on_a_stranger(
    hostile: Path, needs_tool: Callable, options: list[str], script: str, what: str, words: str
) -> None:
    by = unshared(needs_tool, *options, script=script)
    with started(hostile) as program:
        for pid in (program.pid, 1):
            for command in (["doctor"], ["list"], ["on"]):
                rest = ["*"] if command == ["on"] else []
                done = through(by, *command, pid, *rest)
                assert done.returncode == 1
                assert words in done.stdout + done.stderr, done
                assert "Traceback" not in done.stderr
        machine = through(by, "doctor", "--json")

    assert machine.returncode == 1
    assert words in dict(walls(json.loads(machine.stdout)))[what]


@needs_root
def test_proc_that_is_mounted_read_only_is_a_wall(hostile: Path, needs_tool: Callable) -> None:
    # `bind` is essential: without it the file system itself, everybody's /proc, gets read-only.
    script = 'mount --bind /proc /proc; mount -o remount,bind,ro /proc; exec "$@"'
    by = unshared(needs_tool, "-m", script=script)
    with started(hostile) as program:
        document, error = agreed(program.pid, by=by)

        assert "read-only" in finding(document, "/proc", "wall")
        assert "not written" in finding(document, "access", "wall")
        assert "may be looked at but not changed" in error
        assert program.answers()


@needs_root
def test_machine_without_sys_is_a_wall(hostile: Path, needs_tool: Callable) -> None:
    by = unshared(needs_tool, "-m", script='mount -t tmpfs none /sys; exec "$@"')
    with started(hostile) as program:
        assert_wall(program.pid, "/sys", "cpu/possible", "how many CPUs", by=by)
        assert program.answers()


@needs_root
@pytest.mark.parametrize("hiding", ["1", "2"])
def test_process_hidden_by_hidepid_is_said_to_be_hidden_and_not_gone(
    needs_tool: Callable, hiding: str
) -> None:
    """In a pid namespace of its own: before Linux 5.8 all mounts of one had the same options."""
    script = f'mount -t proc -o hidepid={hiding} proc /proc; sleep 600 <&- >&- 2>&- & exec "$@" $!'
    shell = unshared(needs_tool, "-m", "-p", "-f", "--kill-child", script='exec "$@"')
    front = [*shell[: -len(CLI)], "sh", "-ec"]
    for command in ("doctor", "list"):
        # The script appends the pid.
        done = through(front, script, "sh", sys.executable, "-c", AS_NOBODY, command)

        output = done.stdout + done.stderr
        assert done.returncode == 1
        assert re.search(r"process \d+ is hidden from us .*hidepid", output), done


def test_security_module_that_confines_us_is_a_wall(hostile: Path) -> None:
    """Landlock, since anybody may build that: who confined himself may not trace the others."""
    front = [sys.executable, "-c", LANDLOCKED]
    if through(front, "true").returncode:
        pytest.skip("this kernel has no Landlock")
    with started(hostile) as program:
        document, error = agreed(program.pid, by=[*front, *CLI])

        assert "security module" in finding(document, "access", "wall")
        assert "security module" in error
        assert program.answers()
