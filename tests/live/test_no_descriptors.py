"""A controller without free descriptors cannot look; that is no answer to what it asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import markerjit
from markerjit.arena.store import FileStore
from markerjit.proc import owner
from markerjit.proc.owner import is_gone, ourselves
from markerjit.ring import counter
from tests.support.shortage import descriptors_left, open_descriptors
from tests.support.timing import Limited

BROKEN_LIST = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Breaks off a list of threads behind the first. */
struct dirent *readdir(DIR *directory) {
    struct dirent *(*real)(DIR *) = (struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir");
    char link[64], path[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd(directory));
    const ssize_t size = readlink(link, path, sizeof path - 1);
    path[size > 0 ? size : 0] = 0;
    struct dirent *entry = real(directory);
    if (getenv("BREAK") && strstr(path, "/task") && telldir(directory) > 3) {
        errno = ENOMEM;
        return NULL;
    }
    return entry;
}
"""


@pytest.fixture(autouse=True)
def _not_remembered() -> None:
    owner._process.cache_clear()


def test_a_live_owner_is_not_gone_because_we_cannot_look() -> None:
    us = ourselves()

    with descriptors_left(0):
        assert not is_gone(us)
    assert is_gone(us._replace(started=us.started - 1))


def test_a_pid_that_no_process_can_have_is_gone() -> None:
    """A word of the arena, which the target can write."""
    assert is_gone(ourselves()._replace(pid=(1 << 32) - 1))


def test_a_controller_that_cannot_tell_when_it_began_says_so_and_can_the_next_time() -> None:
    with descriptors_left(0), pytest.raises(markerjit.MarkerError, match="Too many open files"):
        ourselves()
    assert ourselves().started > 0


def test_a_counter_is_not_trusted_because_we_cannot_ask() -> None:
    assert Path(counter.SOURCES).exists()

    with descriptors_left(0), pytest.raises(markerjit.MarkerError, match="no file descriptors"):
        counter.time_to_use(None)


@pytest.mark.live
def test_a_live_reader_keeps_its_probes_when_others_have_no_descriptors(target: Callable) -> None:
    """Whatever another controller can open of what it needs."""
    program = target("truth_threads", "2", "--rate", "2000")
    use = [sys.executable, "-c", READING, str(program.pid)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with Limited(use, text=True, **pipes) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        with markerjit.attach(program.pid) as session:
            before = session.statistics("truth_loop")[0]
            with pytest.raises(markerjit.MarkerError):  # what it imports needs descriptors, too
                session.trace("truth_loop").__enter__()
            for count in range(6):
                with descriptors_left(count), pytest.raises(markerjit.MarkerError):
                    session.trace("truth_loop").__enter__()
            with descriptors_left(0):
                status = session.arena()
            assert status is not None
            assert status.to_mend is None

            now = session.statistics("truth_loop")[0]
        assert (now.mode, now.probe, now.by) == (before.mode, "record", reader.pid)
        reader.stdin.close()
        assert reader.stdout.readline() == "kept True\n"


READING = """
import sys, markerjit
with markerjit.attach(int(sys.argv[1])) as session, session.trace("truth_loop") as events:
    print("reading", flush=True)
    sys.stdin.read()
    print("kept", events.keep(), flush=True)
"""


@pytest.mark.live
def test_an_arena_has_a_descriptor_also_where_we_have_none(target: Callable) -> None:
    """Its own is told apart from one that the program has closed: either we have it, or it is said
    that we cannot, and nothing stays open."""
    program = target("truth_threads", "2", "--rate", "2000")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_loop")
    worked = []
    for count in range(12):
        before, session = open_descriptors(), None
        with descriptors_left(count), suppress(markerjit.MarkerError):
            session = markerjit.attach(program.pid)
        worked.append(session is not None)
        if session:
            assert isinstance(session._target.seen.arena.store, FileStore)
            session.close()
        assert open_descriptors() == before
    assert worked == sorted(worked)
    assert worked[-1]


@pytest.mark.live
def test_a_list_of_threads_that_breaks_off_is_not_taken_for_all_of_them(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_threads", "4")
    source, library = tmp_path / "broken.c", tmp_path / "broken.so"
    source.write_text(BROKEN_LIST)
    cc = shutil.which("cc") or "gcc"
    subprocess.run([cc, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    code = "import sys, markerjit; markerjit.attach(int(sys.argv[1])).enable('truth_loop')"
    environment = {**os.environ, "LD_PRELOAD": str(library), "BREAK": "1"}

    done = subprocess.run(
        [sys.executable, "-c", code, str(program.pid)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert "Cannot allocate memory" in done.stderr
    with markerjit.attach(program.pid) as session:
        assert not session.has_runtime
        assert session.statistics("truth_loop")[0].mode is None
