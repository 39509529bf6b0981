"""`markerjit stack`: the threads of a process that knows where they are."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import markerjit
from markerjit.facts.stacks import frame_words
from markerjit.remote import native
from tests.support.commands import cli, facts, one_line
from tests.support.timing import Limited, joined

pytestmark = pytest.mark.live

SYS_PAUSE = 34

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLAIN __attribute__((noinline, noclone, optimize("no-optimize-sibling-calls")))

static volatile int arrived;

static void arrive(void) { __atomic_fetch_add(&arrived, 1, __ATOMIC_RELAXED); }

PLAIN void last_of_all(void) {
    arrive();
    for (;;)
        pause();
}
PLAIN long going_down(long depth) {
    if (depth)
        return going_down(depth - 1) + 1;
    last_of_all();
    return 0;
}
PLAIN static void *deep(void *nothing) { return (void *)going_down(9); }

PLAIN void in_handler(int number) { last_of_all(); }
PLAIN void interrupted(void) {
    for (arrive();;)
        ;
}
static void *signalled(void *nothing) {
    static char other[1 << 16];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};

    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = in_handler, .sa_flags = SA_ONSTACK}, NULL);
    interrupted();
    return NULL;
}

/* push rbp; mov rsp, rbp; call rdi; and the same without a frame pointer. */
static const char framed[] = "\x55\x48\x89\xe5\xff\xd7", bare[] = "\x31\xed\x50\xff\xd7";
static void *made(void *code) {
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);

    memcpy(page, code, 6);
    ((void (*)(void (*)(void)))page)(last_of_all);
    return NULL;
}

int main(void) {
    pthread_t threads[4];

    pthread_create(&threads[0], NULL, deep, NULL);
    pthread_create(&threads[1], NULL, signalled, NULL);
    while (arrived < 2)
        usleep(1000);
    pthread_kill(threads[1], SIGUSR1);
    pthread_create(&threads[2], NULL, made, (void *)framed);
    pthread_create(&threads[3], NULL, made, (void *)bare);
    const char *names[] = {"deep", "signalled", "framed", "bare"};
    for (int i = 0; i < 4; i++)
        pthread_setname_np(threads[i], names[i]);
    while (arrived < 5)
        usleep(1000);
    puts("ready");
    fflush(stdout);
    return getchar() != 'x';
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stack")
    source = folder / "threads.c"
    source.write_text(SOURCE)
    words = ["gcc", "-O2", "-fomit-frame-pointer", "-pthread", source, "-o", folder / "threads"]
    subprocess.run(words, check=True)
    return folder / "threads"


@pytest.fixture
def process(program: Path) -> Iterator[subprocess.Popen[bytes]]:
    """It ends well when it is let go: so nothing has harmed it."""
    pipe = subprocess.PIPE
    with Limited([program], stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            yield process
            process.communicate(b"x")
            assert process.returncode == 0
        finally:
            process.kill()


def functions_of(thread: markerjit.ThreadStack) -> list[str]:
    """The functions of the program's own file."""
    return [frame.function for frame in thread.frames if frame.object.endswith("/threads")]


def by_name(pid: int, **options: int) -> dict[str, markerjit.ThreadStack]:
    return {thread.name: thread for thread in markerjit.stacks_of_process(pid, **options).threads}


def test_each_thread_has_the_functions_that_led_to_where_it_is(
    process: subprocess.Popen[bytes],
) -> None:
    threads = by_name(process.pid)

    assert functions_of(threads["deep"]) == ["last_of_all", *["going_down"] * 10, "deep"]
    assert functions_of(threads["threads"])[0] == "main"
    assert threads["deep"].end is threads["threads"].end is markerjit.StackEnd.OUTERMOST


def test_a_signal_on_a_stack_of_its_own_leads_back_to_what_it_interrupted(
    process: subprocess.Popen[bytes],
) -> None:
    thread = by_name(process.pid)["signalled"]

    assert functions_of(thread) == ["last_of_all", "in_handler", "interrupted", "signalled"]
    assert thread.end is markerjit.StackEnd.OUTERMOST


def test_code_that_was_made_is_passed_by_its_frame_pointer(
    process: subprocess.Popen[bytes],
) -> None:
    thread = by_name(process.pid)["framed"]

    assert functions_of(thread) == ["last_of_all", "made"]
    (place,) = (frame for frame in thread.frames if not frame.object)
    assert frame_words(place) == f"{place.address:#x}"


def test_code_without_a_table_ends_a_stack_that_says_so(process: subprocess.Popen[bytes]) -> None:
    thread = by_name(process.pid)["bare"]

    assert functions_of(thread) == ["last_of_all"]
    assert thread.end is markerjit.StackEnd.NO_TABLE
    assert "    [no table]\n" in cli("stack", process.pid).stdout


def test_depth_and_thread_are_those_that_were_asked_for(process: subprocess.Popen[bytes]) -> None:
    deep = by_name(process.pid)["deep"].tid

    (thread,) = markerjit.stacks_of_process(process.pid, tid=deep, depth=4).threads

    assert (thread.name, len(thread.frames)) == ("deep", 4)
    assert thread.end is markerjit.StackEnd.DEEPER
    out = cli("stack", process.pid, "--tid", deep, "--depth", 4).stdout
    assert out.count("going_down+") == 2  # below pause and last_of_all
    assert "    [deeper]\n" in out


def test_document_has_the_same_threads(process: subprocess.Popen[bytes]) -> None:
    document = facts("stack", process.pid)

    threads = {thread["name"]: thread for thread in document["threads"]}
    deep = threads["deep"]
    assert document["pid"] == process.pid
    assert document["stood_ns"] > 0
    assert [frame["function"] for frame in deep["frames"]].count("going_down") == 10
    assert deep["call"] == SYS_PAUSE
    assert {thread["end"] for thread in threads.values()} == {"outermost", "no_table"}
    assert all(frame["place"] < frame["address"] for frame in deep["frames"])


def test_a_process_is_not_disturbed_by_many_looks(process: subprocess.Popen[bytes]) -> None:
    before = [len(thread.frames) for thread in markerjit.stacks_of_process(process.pid).threads]

    for _ in range(30):
        stacks = markerjit.stacks_of_process(process.pid)
        assert [len(thread.frames) for thread in stacks.threads] == before


def test_a_thread_or_process_that_is_not_there_is_said(process: subprocess.Popen[bytes]) -> None:
    with pytest.raises(markerjit.Refused, match=f"no thread {os.getpid()}"):
        markerjit.stacks_of_process(process.pid, tid=os.getpid())

    one_line(cli("stack", process.pid, "--tid", os.getpid()), "has no thread")
    one_line(cli("stack", 4194303), "no process 4194303")


def test_our_own_process_is_refused() -> None:
    with pytest.raises(markerjit.Unsupported, match="our own process"):
        markerjit.stacks_of_process(os.getpid())


def test_a_process_that_is_killed_meanwhile_is_gone(program: Path) -> None:
    with Limited([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        killer = threading.Timer(0.05, process.send_signal, [signal.SIGKILL])
        killer.start()
        with pytest.raises((markerjit.TargetGone, markerjit.NoSuchProcess)):
            while True:
                markerjit.stacks_of_process(process.pid)
        joined(killer)


# ---- samples -------------------------------------------------------------------------------------


def ways(samples: markerjit.StackSamples) -> dict[str, int]:
    """In how many stacks a chain of the program's own functions was all, by its thread."""
    chains = [""]
    for node in samples.nodes[1:]:
        inner = "" if "+0x" in node.name else f";{node.name}"
        chains.append(f"{chains[node.parent]}{inner}")
    return {chain: node.own for chain, node in zip(chains, samples.nodes, strict=True) if node.own}


def test_samples_are_added_up_by_thread_and_callers(process: subprocess.Popen[bytes]) -> None:
    samples = markerjit.sample_stacks(process.pid, count=4, every=0.0)

    assert (samples.looks, samples.missed, samples.stacks) == (4, 0, 20)
    assert 0 < samples.longest_ns <= samples.stood_ns
    deep = next(way for way in ways(samples) if way.startswith(";deep;"))
    assert ";deep;going_down;going_down;" in deep
    assert next(count for way, count in ways(samples).items() if ";[no table];" in way) == 4
    functions = {function.name: function for function in samples.functions}
    assert functions["going_down"].samples == 4  # though it is there ten times
    assert functions["last_of_all"].samples == 16
    assert functions["last_of_all"].own == 0  # it has called pause()


def test_samples_of_running_threads_have_none_in_a_system_call(
    process: subprocess.Popen[bytes],
) -> None:
    samples = markerjit.sample_stacks(process.pid, count=3, every=0.0, running=True)

    assert (samples.looks, samples.stacks) == (3, 0)
    assert all(thread.call is not None for thread in by_name(process.pid).values())
    assert f", in system call {SYS_PAUSE}\n" in cli("stack", process.pid).stdout


def test_samples_of_running_threads_have_those_that_run() -> None:
    with Limited(["sh", "-c", "while :; do :; done"]) as process:
        try:
            samples = markerjit.sample_stacks(process.pid, count=10, running=True)
        finally:
            process.kill()

    assert 0 < samples.stacks <= 10


def test_samples_of_one_thread_have_no_other(process: subprocess.Popen[bytes]) -> None:
    deep = by_name(process.pid)["deep"].tid

    samples = markerjit.sample_stacks(process.pid, count=3, every=0.0, tid=deep)

    assert {node.name for node in samples.nodes if node.parent == 0} == {"deep"}


@pytest.mark.parametrize("suffix", [".folded", ".speedscope.json", ".html"])
def test_samples_are_written_as_a_flame_graph(
    process: subprocess.Popen[bytes], tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"stacks{suffix}"

    done = cli("stack", process.pid, "-n", 3, "--every", "1ms", "--top", 2, "-o", path)

    assert done.returncode == 0, done.stderr
    assert "15 stacks in 3 looks" in done.stdout
    assert "more functions; --top N shows more" in done.stdout
    assert "going_down" in path.read_text()
    one_line(cli("stack", process.pid, "-o", path), "exists already")


def test_samples_have_a_document(process: subprocess.Popen[bytes]) -> None:
    document = facts("stack", process.pid, "-n", 2)

    assert (document["looks"], document["stacks"], document["ended"]) == (2, 10, False)
    first, *rest = document["nodes"]
    assert (first["parent"], first["samples"]) == (-1, 10)
    assert sum(node["own"] for node in rest) == 10


def test_samples_one_by_one_are_refused_before_any_look(tmp_path: Path) -> None:
    one_line(cli("stack", os.getpid(), "-o", tmp_path / "stacks.pftrace"), "with one of the suffix")


def test_samples_of_a_process_that_ends_are_those_before(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, looks = native.library().mj_copy_stacks, itertools.count(1)
    with Limited([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def third_time_killed(*arguments: object) -> int:
            if next(looks) == 3:
                process.kill()
            return int(real(*arguments))

        assert process.stdout
        process.stdout.readline()
        monkeypatch.setattr(native.library(), "mj_copy_stacks", third_time_killed)
        samples = markerjit.sample_stacks(process.pid, count=1_000_000, every=0.0)

    assert samples.ended
    assert (samples.looks, samples.stacks) == (2, 10)
