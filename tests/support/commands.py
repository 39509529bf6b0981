"""The command line, run as a user runs it."""

from __future__ import annotations

import atexit
import ctypes
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.support.command_server import ANSWER_BYTES
from tests.support.programs import ROOT
from tests.support.timing import HANG_S, Hangs, Limited, Wait

CLI = [sys.executable, "-m", "markerjit.cli.main"]
PYTHONPATH = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
ENVIRONMENT = {**os.environ, "PYTHONPATH": PYTHONPATH}
PR_SET_CHILD_SUBREAPER = 36
_PRCTL = ctypes.CDLL(None).prctl
_OF_STREAMS = {"stdin", "stdout", "stderr", "text", "bufsize"}


def cli(*args: object, timeout_s: float = HANG_S) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in a process that is forked from a Python which has imported
    markerjit. `running` is for one that the test has to meet while it runs."""
    return _forked_to_its_end("", args, timeout_s)


def cli_reading(text: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, which has a short text to read on its standard input."""
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0), open(writer, "w") as file:
        file.write(text)
        file.flush()
        return _forked_to_its_end("", args, HANG_S, reader)


def python(
    program: str, *args: object, timeout_s: float = HANG_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the text of a Python program to its end, forked as the commands of `cli` are.
    `environment` is added to that of the tests."""
    return _forked_to_its_end(program, args, timeout_s, environment=environment)


def _forked_to_its_end(
    program: str,
    args: Sequence[object],
    timeout_s: float,
    standard_input: int = 0,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    words = list(map(str, args))
    with ExitStack() as stack:
        pipes = [os.pipe(), os.pipe()]
        outputs = [stack.enter_context(open(end, "rb", buffering=0)) for end, _ in pipes]
        ends = [end for _, end in pipes]
        streams, surroundings = [standard_input, *ends], {**ENVIRONMENT, **environment}
        with forked(words, streams, surroundings, timeout_s, program) as command:
            for end in ends:
                os.close(end)
            out, errors = _read_all(outputs, command.wait)
            code = command.exit_code()
    command_line = [sys.executable, "-c", program] if program else CLI
    return subprocess.CompletedProcess([*command_line, *words], code, out, errors)


def cli_with(
    numbers: Mapping[str, int], *args: object, timeout_s: float = HANG_S
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with other numbers in its modules: `{"package.module.NAME": 3}`.
    Each has to be there."""
    lines = ["import importlib"]
    for name, number in numbers.items():
        module, constant = name.rsplit(".", 1)
        lines += [
            f"module = importlib.import_module({module!r})",
            f"assert type(module.{constant}) is int",
            f"module.{constant} = {number}",
        ]
    lines += ["from markerjit.cli.main import main", "main()"]
    return python("\n".join(lines), *args, timeout_s=timeout_s)


class Forked(NamedTuple):
    """A command in a process that was forked for it."""

    server: socket.socket
    wait: Wait

    def exit_code(self) -> int:
        """Wait for its end. Raises Hangs."""
        self.wait.for_input(self.server)
        return int(self.server.recv(ANSWER_BYTES))


@contextmanager
def forked(
    words: Sequence[str],
    streams: Sequence[int],
    environment: Mapping[str, str],
    timeout_s: float = HANG_S,
    program: str = "",
) -> Iterator[Forked]:
    """Start a command with these descriptors as its standard input, output and error. It is killed
    where the test does not see its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        pid = _ask_for(server, words, streams, environment, program=program)
        try:
            yield Forked(server, Wait(f"markerjit {' '.join(words)}", timeout_s))
        except Hangs:
            os.kill(pid, signal.SIGKILL)
            raise


class Adopted(Limited):
    """A command that runs beside the test, in a process that was forked for it and is a child of
    ours: all that subprocess does with a process it can do with this one. `program` is the text
    of a Python program that gets the words instead, `environment` is added to that of the tests."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        program: str = "",
        environment: Mapping[str, str] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        self._program = program
        self._environment = {**ENVIRONMENT, **environment}
        super().__init__(words, **kwargs)

    def _execute_child(self, args: Any, *others: Any) -> None:
        """As in subprocess.Popen, whose pipes are made by now."""
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = others[9:15]
        own = (0, 1, 2)
        streams = [
            given if end == -1 else end
            for given, end in zip(own, (p2cread, c2pwrite, errwrite), strict=True)
        ]
        _PRCTL(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
                self.pid = _ask_for(
                    server, args, streams, self._environment, adopted=True, program=self._program
                )
        finally:
            _PRCTL(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


def _ask_for(
    server: socket.socket,
    words: Sequence[str],
    streams: Sequence[int],
    environment: Mapping[str, str],
    *,
    adopted: bool = False,
    program: str = "",
) -> int:
    """Have a command started. Returns its pid."""
    request = {
        "directory": os.getcwd(), "arguments": words, "environment": dict(environment),
        "adopted": adopted, "program": program,
    }  # fmt: skip
    server.connect(f"\0{server_name()}")
    socket.send_fds(server, [json.dumps(request).encode()], streams)
    return int(server.recv(ANSWER_BYTES))


def _read_all(outputs: Sequence[io.FileIO], wait: Wait) -> list[str]:
    texts = dict.fromkeys(outputs, b"")
    left = set(outputs)
    while left:
        for output in wait.for_input(*left):
            piece = os.read(output.fileno(), 1 << 16)
            texts[output] += piece
            if not piece:
                left.remove(output)
    return [io.TextIOWrapper(io.BytesIO(text)).read() for text in texts.values()]


@cache
def server_name() -> str:
    """Start the process that forks for commands. Returns the name of its socket."""
    name = f"markerjit tests {os.getpid()}"
    command = [sys.executable, "-m", "tests.support.command_server", name, str(os.getpid())]
    server = Limited(
        command, cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    atexit.register(server.wait)
    atexit.register(server.kill)
    assert server.stdout is not None
    with server.stdout as output:
        assert output.readline() == b"ready\n"
    return name


def started(*args: object, **kwargs: Any) -> Limited:
    """Start a command, forked as those of `cli` are. What only a new interpreter can have (another
    environment, another session) has one."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    kwargs = {"text": True, **pipes, **kwargs}
    words = list(map(str, args))
    if kwargs.keys() <= _OF_STREAMS:
        return Adopted(words, **kwargs)
    return Limited([*CLI, *words], **{"env": ENVIRONMENT, **kwargs})


def python_started(
    program: str,
    *args: object,
    environment: Mapping[str, str] = MappingProxyType({}),
    **streams: Any,
) -> Limited:
    """Start the text of a Python program, forked as the commands of `cli` are. `environment` is
    added to that of the tests."""
    words = list(map(str, args))
    return Adopted(words, program=program, environment=environment, text=True, **streams)


@contextmanager
def running(*args: object, **kwargs: Any) -> Iterator[subprocess.Popen[str]]:
    """A command that runs beside the test; killed in the end if it still does."""
    with started(*args, **kwargs) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def facts(*args: object) -> Any:
    """What a command says with --json."""
    done = cli(*args, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def one_line(done: subprocess.CompletedProcess[str], pattern: str) -> str:
    """A refusal as it has to be: exit code 1 and one line that says what it must."""
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("markerjit: ")
    assert re.search(pattern, done.stderr), done.stderr
    return done.stderr
