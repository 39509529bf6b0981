"""LTTng-UST while it records: a session daemon of our own, which ends with us.

The daemon, its sockets and its traces are in a folder of ours. Root's daemon has fixed places in
/run, which are not ours to use. So if we are root, the daemon and the traced program run as
`nobody`.

    with folder() as directory:
        account = account_of(directory)
        process = subprocess.Popen(..., **account.popen)
        with tracing(account, process.pid, {"name": Session(events)}) as tracer:
            ...
            tracer.recorded("name")

What this does not do: sessions that overwrite. LTTng does not count overwritten events, so nothing
could tell whether a figure covers all events.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from markerjit.errors import MarkerError, Unsupported
from markerjit.tuples import NamedTuple

_TOOLS = {
    "lttng": "lttng-tools",
    "lttng-sessiond": "lttng-tools",
    "babeltrace2": "babeltrace2",
}
_RING_SIZE = 1 << 23
"""Bytes for each CPU, enough for the events that arrive while the consumer waits for a CPU."""
_SUB_BUFFERS = 4
_START_S, _END_S = 20, 10
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Account(NamedTuple):
    """The user and the environment of LTTng and the traced program, and their folder."""

    folder: Path
    environment: Mapping[str, str]
    user: Mapping[str, Any]

    @property
    def popen(self) -> dict[str, Any]:
        """Arguments of subprocess.Popen."""
        return {"env": {**os.environ, **self.environment}, **self.user}


class Session(NamedTuple):
    """The events of a session, as `provider:name`, the contexts that are recorded with each, and
    the filter by which LTTng chooses them; "": all."""

    events: Sequence[str]
    contexts: Sequence[str] = ()
    filter: str = ""


class Tracer(NamedTuple):
    """Sessions that record."""

    account: Account

    def recorded(self, session: str) -> int:
        """End a session. Returns the number of events that babeltrace2 reads in its trace. Raises
        MarkerError where LTTng has discarded some."""
        self.call("stop", session)
        trace = self.account.folder / session
        counter = ["--component", "sink.utils.counter"]
        events = re.findall(r"(\d+) Event message", _output(["babeltrace2", trace, *counter])[0])
        warnings = _output(["babeltrace2", "--component", "sink.utils.dummy", trace])[1]
        if discarded := sum(map(int, re.findall(r"discarded (\d+) event", warnings))):
            raise MarkerError(
                f"LTTng discarded {discarded:,} events, which are cheaper than those it recorded"
            )
        return int(events[-1]) if events else 0

    def call(self, *words: str) -> None:
        """Run lttng(1). Raises MarkerError where it fails."""
        done = self._run(*words)
        if done.returncode:
            raise MarkerError(f"lttng {' '.join(words)}: {done.stderr.strip()}")

    def is_up(self) -> bool:
        """Whether the daemon answers."""
        return self._run("list").returncode == 0

    def sees(self, pid: int, events: Sequence[str]) -> bool:
        """Whether a program has told the daemon of its events."""
        text = self._run("list", "--userspace").stdout
        own = text.partition(f"PID: {pid} ")[2].partition("PID: ")[0]
        return all(f" {event} " in own for event in events)

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["lttng", "--no-sessiond", *words]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, **self.account.popen
        )


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for the daemon, the traced program and its objects, which the account may enter.
    Raises Unsupported where there is no LTTng, or no such folder."""
    if packages := missing():
        raise Unsupported(f"LTTng is not here; apt-get install {' '.join(packages)}")
    with tempfile.TemporaryDirectory(prefix="markerjit-bench-lttng-") as name:
        directory = Path(name)
        account = account_of(directory)
        os.chown(directory, account.user.get("user", -1), account.user.get("group", -1))
        if subprocess.run(["test", "-w", directory], check=False, **account.popen).returncode:
            raise Unsupported(
                f"nobody cannot enter {directory.parent}; set TMPDIR to where everybody can"
            )
        yield directory


def account_of(directory: Path) -> Account:
    """The account of the daemon and the program in a folder."""
    environment = {
        "HOME": str(directory),
        "LTTNG_HOME": str(directory),
        "LTTNG_UST_REGISTER_TIMEOUT": "0",  # the daemon comes after the program
    }
    if os.geteuid():
        return Account(directory, environment, {})
    nobody = pwd.getpwnam("nobody")
    user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    return Account(directory, environment, user)


def missing() -> list[str]:
    """The missing Debian packages without which nothing can be traced, apart from the headers."""
    return sorted({package for tool, package in _TOOLS.items() if not shutil.which(tool)})


@contextmanager
def tracing(account: Account, pid: int, sessions: Mapping[str, Session]) -> Iterator[Tracer]:
    """A daemon and its sessions, which record the events of a program. Raises MarkerError."""
    before = _pages_of(account)
    with (account.folder / "errors").open("wb") as errors:
        daemon = subprocess.Popen(
            ["lttng-sessiond", "--no-kernel"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            preexec_fn=_end_with_us,
            **account.popen,
        )
    tracer = Tracer(account)
    try:
        _wait(tracer, daemon, tracer.is_up, "does not answer")
        events = [event for session in sessions.values() for event in session.events]
        _wait(tracer, daemon, lambda: tracer.sees(pid, events), "does not see the program's events")
        for name, session in sessions.items():
            _start(tracer, name, session)
        yield tracer
    finally:
        _end(daemon)
        for page in _pages_of(account) - before:
            page.unlink(missing_ok=True)


def _start(tracer: Tracer, name: str, session: Session) -> None:
    of = ("--userspace", "--session", name)
    sizes = ("--subbuf-size", str(_RING_SIZE // _SUB_BUFFERS), "--num-subbuf", str(_SUB_BUFFERS))
    tracer.call("create", name, "--output", str(tracer.account.folder / name))
    tracer.call("enable-channel", *of, *sizes, "ring")
    chosen = ("--filter", session.filter) if session.filter else ()
    tracer.call("enable-event", *of, "--channel", "ring", ",".join(session.events), *chosen)
    for context in session.contexts:
        tracer.call("add-context", *of, "--channel", "ring", "--type", context)
    tracer.call("start", name)


def _wait(
    tracer: Tracer, daemon: subprocess.Popen[bytes], is_so: Callable[[], bool], what: str
) -> None:
    """Wait until a condition holds. Raises MarkerError, with the last output of the daemon, where
    it does not in time."""
    deadline = time.monotonic() + _START_S
    while not is_so():
        if daemon.poll() is not None or time.monotonic() > deadline:
            words = (tracer.account.folder / "errors").read_text(errors="replace").strip()
            raise MarkerError(
                f"lttng-sessiond {what}: {words}" if words else f"lttng-sessiond {what}"
            )
        time.sleep(0.02)


def _output(command: Sequence[object]) -> tuple[str, str]:
    """The output of a command, and its warnings. Raises MarkerError."""
    done = subprocess.run(
        [*map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MarkerError(f"{command[0]}: {done.stderr.strip()[-500:]}")
    return done.stdout, done.stderr


def _pages_of(account: Account) -> set[Path]:
    """The pages that LTTng leaves in shared memory for each user. If the account is the caller's
    own user, they may belong to another program."""
    pages = Path("/dev/shm").glob("lttng-ust-wait-*")
    return {page for page in pages if page.stat().st_uid == account.user.get("user")}


def _end_with_us() -> None:
    """Have the kernel kill this child when we end. (The daemon of LTTng 2.13 ignores a SIGTERM that
    arrives while it starts a consumer.) A consumer ends when its daemon's socket closes."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(daemon: subprocess.Popen[bytes]) -> None:
    """End the daemon, which ends its consumers, and kill the rest of its process group."""
    daemon.terminate()
    with suppress(subprocess.TimeoutExpired):
        daemon.wait(_END_S)
    with suppress(ProcessLookupError):
        os.killpg(daemon.pid, signal.SIGKILL)
    daemon.wait()
