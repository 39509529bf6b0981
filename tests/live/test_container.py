"""The demo's server in what a container has around it: another user, namespaces of its own, no
/proc, a program in a folder that is read only, and the filter that Docker puts around every
process. Each command works as without."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import markerjit
from markerjit.proc.permission import read_credentials
from tests.support.commands import cli, facts, running
from tests.support.filters import container_filter
from tests.support.processes import text_of
from tests.support.server import Client
from tests.support.timing import Limited, wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root reads the filters of others"),
]

NOBODY = 65534
GETS = 200
CONFINE = """
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <unistd.h>

/* confine FILTER PROGRAM ARGS... */
int main(int argc, char **argv) {
    static struct sock_filter code[4096];
    const int file = open(argv[1], O_RDONLY | O_CLOEXEC);
    const ssize_t size = read(file, code, sizeof code);
    struct sock_fprog program = {(unsigned short)(size / sizeof *code), code};

    if (argc < 3 || size <= 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
        return 99;
    execv(argv[2], argv + 2);
    return 98;
}
"""
SCRIPT = """
mount --make-rprivate /
mount -t tmpfs none /proc
mount -o remount,bind,ro "$1"
cd "$1"
exec ./confine filter ./kvserver --port 0
"""


class Contained(NamedTuple):
    pid: int
    port: str


@pytest.fixture
def contained(repo: Path, needs_tool: Callable) -> Iterator[Contained]:
    unshare, setpriv = needs_tool("unshare", "util-linux"), needs_tool("setpriv", "util-linux")
    with tempfile.TemporaryDirectory(prefix="markerjit-container-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        try:
            (folder / "filter").write_bytes(container_filter())
        except OSError as error:
            pytest.skip(f"needs libseccomp: {error}")
        (folder / "confine.c").write_text(CONFINE)
        subprocess.run(["gcc", "-o", folder / "confine", folder / "confine.c"], check=True)
        shutil.copy(repo / "build/targets/kvserver", folder / "kvserver")
        mounts = ["sh", "-ec", f'mount --bind "$1" "$1"; {SCRIPT}', "sh", folder]
        user = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
        words = [*user, unshare, "-U", "-r", "-m", "-p", "-i", "-u", "-f", "--kill-child", *mounts]
        with Limited(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as outer:
            assert outer.stdout
            assert outer.stderr
            line = outer.stdout.readline()
            port = re.search(r"\d{4,5}", line)
            if not port:
                pytest.skip(f"no such namespaces here: {line} {outer.stderr.read().strip()}")
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            try:
                yield Contained(int(children[0]), port[0])
            finally:
                outer.kill()


def asked(port: str) -> None:
    with Client(port) as client:
        client.ask("SET", "a", "1")
        for _ in range(GETS):
            assert client.ask("GET", "a") == b"1"


def is_on(pid: int) -> bool:
    with markerjit.View(pid) as view:
        return any(marker.mode for marker in view.statistics("kv_hit"))


def test_server_in_a_container_is_listed_switched_traced_and_as_before(
    contained: Contained,
) -> None:
    pid, port = contained
    status = Path(f"/proc/{pid}/status").read_text()
    assert "\nSeccomp:\t2\n" in status
    assert re.search(rf"\nNSpid:\t{pid}\t1\n", status)
    assert set(read_credentials(pid).uids) == {NOBODY}
    assert not os.path.exists(f"/proc/{pid}/root/proc/1")
    before = text_of(pid)
    checks = json.loads(cli("doctor", pid, "--json").stdout)

    listed = facts("list", pid)
    switched = facts("on", pid, "kv_hit")
    asked(port)
    (on,) = [marker for marker in facts("status", pid)["markers"] if marker["name"] == "kv_hit"]
    off = facts("off", pid, "kv_hit")
    with running("trace", pid, "kv_hit", "-n", GETS, "--json") as command:
        wait_until(lambda: is_on(pid), "the trace")
        asked(port)
        printed, errors = command.communicate()

    assert "kv_hit" in {marker["name"] for marker in listed["markers"]}
    assert [marker["name"] for marker in switched["markers"]] == ["kv_hit"]
    assert on["hits"] == GETS
    assert [marker["mode"] for marker in off["markers"]] == [None]
    assert errors == ""
    events = [line for line in map(json.loads, printed.splitlines()) if "name" in line]
    assert [event["name"] for event in events] == ["kv_hit"] * GETS
    assert not is_on(pid)
    assert text_of(pid) == before
    assert "user, pid" in str(checks)
