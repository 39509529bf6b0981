"""LTTng-UST for bench/recording.py: a session daemon of our own, and three ways of recording.

    with tracing(directory, ring_size) as tracer:
        program = subprocess.Popen([tracer.program], **tracer.account, ...)
        ...
        tracer.recorded("discard")

The daemon, its sockets and its traces live in a directory of ours. Where we are root it runs as
`nobody`, and so does the program: root's daemon has fixed places in /run, and is not ours to take.
It ends with us, whatever happens.

What this does not do: time anything. recording/lttng.c does.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

SOURCES = Path(__file__).resolve().parent / "recording"
COMPILE = ["cc", "-O2", "-g", "-pthread"]
SUB_BUFFERS = 4
STARTED_WITHIN_S = 20

TOOLS = {
    "lttng": "lttng-tools",
    "lttng-sessiond": "lttng-tools",
    "babeltrace2": "babeltrace2",
}
SESSIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "discard": ((), ()),
    "discard_tid": ((), ("vtid",)),
    "overwrite": (("--snapshot",), ()),
}
"""By name, which is the event's name too: options of `lttng create`, and contexts."""


class Tracer(NamedTuple):
    """Sessions that record. `account` is what Popen needs so that a program is seen by them."""

    program: Path
    account: dict[str, Any]
    directory: Path
    daemon: int

    def recorded(self, session: str) -> int:
        """End a session and count what its trace holds, as babeltrace2 reads it."""
        self.call("stop", session)
        if "--snapshot" in SESSIONS[session][0]:
            self.call("snapshot", "record", "--session", session)
        output = subprocess.run(
            [
                "babeltrace2",
                self.directory / session,
                "--component",
                "sink.utils.counter",
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        return int(re.findall(r"(\d+) Event message", output)[-1])

    def discarded(self, session: str) -> int:
        """How many events an ended session says that it threw away, because its consumer got no CPU
        while its ring was full: what babeltrace2 warns of when it prints them."""
        warned = subprocess.run(
            ["babeltrace2", self.directory / session],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ).stderr
        return sum(map(int, re.findall(r"Tracer discarded (\d+) event", warned)))

    def call(self, *words: str) -> None:
        """Run lttng(1)."""
        done = self._run(*words)
        if done.returncode:
            raise RuntimeError(f"lttng {' '.join(words)}: {done.stderr.strip()}")

    def is_up(self) -> bool:
        """Whether the daemon answers."""
        return self._run("list").returncode == 0

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["lttng", "--no-sessiond", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, **self.account)


def missing() -> list[str]:
    """The Debian packages without which none of this works."""
    found = {package for tool, package in TOOLS.items() if not shutil.which(tool)}
    source = "#include <lttng/tracepoint.h>\n"
    command = [*COMPILE, "-fsyntax-only", "-x", "c", "-"]
    if subprocess.run(command, input=source.encode(), capture_output=True, check=False).returncode:
        found.add("liblttng-ust-dev")
    return sorted(found)


def version() -> str:
    """What lttng(1) says it is."""
    done = subprocess.run(["lttng", "--version"], check=True, capture_output=True, text=True)
    return done.stdout.split(" - ")[0].strip()


@contextmanager
def tracing(directory: Path, ring_size: int) -> Iterator[Tracer]:
    """Start a daemon and its sessions, each with `ring_size` bytes for each CPU."""
    home = directory / "lttng"
    home.mkdir()
    account = _account(home)
    program = _build(home)
    if subprocess.run(["test", "-x", program], check=False, **account).returncode:
        raise RuntimeError(f"nobody cannot enter {directory}; set TMPDIR to where everybody can")
    before = _notes(account)
    daemon = subprocess.Popen(
        ["lttng-sessiond", "--no-kernel"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(home / "errors").open("wb"),
        start_new_session=True,
        preexec_fn=_end_with_parent,
        **account,
    )
    tracer = Tracer(program, account, home, daemon.pid)
    try:
        deadline = time.monotonic() + STARTED_WITHIN_S
        while not tracer.is_up():
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"lttng-sessiond: {(home / 'errors').read_text().strip()}")
            time.sleep(0.02)
        for name, (options, contexts) in SESSIONS.items():
            _create(tracer, name, options, contexts, ring_size)
        yield tracer
    finally:
        _end(daemon)
        for note in _notes(account) - before:
            note.unlink(missing_ok=True)


def _create(
    tracer: Tracer,
    name: str,
    options: tuple[str, ...],
    contexts: tuple[str, ...],
    ring_size: int,
) -> None:
    of = ("--userspace", "--session", name)
    parts = (
        "--subbuf-size",
        str(ring_size // SUB_BUFFERS),
        "--num-subbuf",
        str(SUB_BUFFERS),
    )
    tracer.call("create", name, *options, "--output", str(tracer.directory / name))
    tracer.call("enable-channel", *of, *parts, "ring")
    tracer.call("enable-event", *of, "--channel", "ring", f"mj_bench:{name}")
    for context in contexts:
        tracer.call("add-context", *of, "--channel", "ring", "--type", context)
    tracer.call("start", name)


def _account(home: Path) -> dict[str, Any]:
    """Who runs LTTng: its environment, and another user where we are root."""
    environment = {
        **os.environ,
        "HOME": str(home),
        "LTTNG_HOME": str(home),
        "LTTNG_UST_REGISTER_TIMEOUT": "-1",  # main() waits until the daemon has said what is on
    }
    if os.geteuid():
        return {"env": environment}
    nobody = pwd.getpwnam("nobody")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    home.parent.chmod(0o755)
    own: dict[str, Any] = {
        "user": nobody.pw_uid,
        "group": nobody.pw_gid,
        "extra_groups": [],
    }
    return {"env": environment, **own}


def _notes(account: dict[str, Any]) -> set[Path]:
    """A page that LTTng leaves for each user. Whose own user we are may want it."""
    found = Path("/dev/shm").glob("lttng-ust-wait-*")
    return {one for one in found if one.stat().st_uid == account.get("user")}


def _build(home: Path) -> Path:
    program = home / "program"
    source, libraries = str(SOURCES / "lttng.c"), ("-llttng-ust", "-ldl")
    subprocess.run([*COMPILE, f"-I{SOURCES}", "-o", str(program), source, *libraries], check=True)
    return program


def _end_with_parent() -> None:
    """Even if we are killed: PR_SET_PDEATHSIG. Not by SIGTERM: LTTng 2.13's daemon waits for ever
    where that comes while it starts a consumer. A consumer ends when its daemon's socket closes."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    """The daemon takes its consumers with it; what is left of its process group is killed."""
    daemon.terminate()
    with suppress(subprocess.TimeoutExpired):
        daemon.wait(10)
    with suppress(ProcessLookupError):
        os.killpg(daemon.pid, signal.SIGKILL)
    daemon.wait()
