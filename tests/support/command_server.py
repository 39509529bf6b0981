"""A Python that has imported markerjit, and forks for each command.

A command is a process of its own, as a user's is. It only does not import fifty modules first,
and does not free all their objects at the end, where that is all that the interpreter would do
there. Both take several times as long as most commands.

    python -m tests.support.command_server NAME PARENT

A request is a connection to the abstract socket NAME. It carries the working directory, the
arguments and the environment as JSON, and the command's standard input, output and error as
descriptors. The answers are its pid, and when it has ended, its exit code as subprocess has it. A
command that is asked for as "adopted" is a child of PARENT instead, which is told its pid only. The
server ends when the process PARENT ends. A request may have the text of a Python program, which
gets the arguments in the place of markerjit.

A request that is "?" is of command_client.c: all but the descriptors is what the process has that
sends it, and the command is killed where that is gone.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tests.support.large_pages import collapse_memory

ANSWER_BYTES = 16
_REQUEST_BYTES = 1 << 17
_STREAMS = 3
_NEVER = {
    f"markerjit.trace.{name}" for name in ("arrow", "arrow_read", "arrow_table", "joint_arrow")
}
"""Modules with pyarrow, which has threads. A fork would not have them, and copies twice as much."""


def serve(name: str, parent: int) -> tuple[str, list[str]]:
    """Serve until the parent ends. Returns in the forked processes, with the program ("" where it
    is markerjit) and its arguments."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        selectors.DefaultSelector() as selector,
    ):
        listener.bind(f"\0{name}")
        listener.listen()
        print("ready", flush=True)
        selector.register(listener, selectors.EVENT_READ)
        end = os.pidfd_open(parent)
        selector.register(end, selectors.EVENT_READ)
        commands: dict[int, tuple[int, socket.socket]] = {}
        killed_by: dict[socket.socket, int] = {}
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    client, _ = listener.accept()
                    message, descriptors, _, _ = socket.recv_fds(client, _REQUEST_BYTES, _STREAMS)
                    request = _of_peer(client) if message == b"?" else json.loads(message)
                    pid = _fork_for_adoption() if request["adopted"] else os.fork()
                    if not pid:
                        for handle, (_, other) in commands.items():
                            os.close(handle)
                            other.close()
                        client.close()
                        os.close(end)
                        return _become(request, descriptors)
                    for descriptor in descriptors:
                        os.close(descriptor)
                    if request["adopted"]:
                        with client:
                            client.send(str(pid).encode())
                        continue
                    handle = os.pidfd_open(pid)
                    selector.register(handle, selectors.EVENT_READ)
                    commands[handle] = pid, client
                    client.send(str(pid).encode())
                    if message == b"?":
                        killed_by[client] = pid
                        selector.register(client, selectors.EVENT_READ)
                elif key.fileobj in killed_by:  # it says nothing, so it is gone
                    selector.unregister(key.fileobj)
                    os.kill(killed_by.pop(key.fileobj), signal.SIGKILL)  # a zombie at least
                elif key.fd == end:
                    sys.exit()
                elif key.fd in commands:
                    pid, client = commands.pop(key.fd)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    if killed_by.pop(client, None):
                        selector.unregister(client)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with client, suppress(BrokenPipeError):
                        client.send(str(code).encode())


def _of_peer(client: socket.socket) -> dict[str, object]:
    """What is asked for by the process at the other end."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process = f"/proc/{struct.unpack('3i', credentials)[0]}"
    words, variables = (
        [os.fsdecode(text) for text in Path(process, name).read_bytes().split(b"\0")[:-1]]
        for name in ("cmdline", "environ")
    )
    return {
        "directory": os.readlink(f"{process}/cwd"), "arguments": words[1:],
        "environment": dict(text.split("=", 1) for text in variables), "adopted": False,
        "program": "",
    }  # fmt: skip


def _fork_for_adoption() -> int:
    """Fork a child of a child that ends at once: the kernel gives it to the parent of this process,
    which has asked for that (PR_SET_CHILD_SUBREAPER). It goes on when it has been given."""
    answer, answers = os.pipe()
    child = os.fork()
    if not child:
        adopted, adopts = os.pipe()
        pid = os.fork()
        if pid:
            os.write(answers, str(pid).encode())
            os._exit(0)
        for end in (answer, answers, adopts):
            os.close(end)
        os.read(adopted, 1)
        os.close(adopted)
        return 0
    os.close(answers)
    os.waitpid(child, 0)
    pid = int(os.read(answer, ANSWER_BYTES))
    os.close(answer)
    return pid


def _become(request: dict[str, object], descriptors: list[int]) -> tuple[str, list[str]]:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # As an interpreter does at its start.
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())
    sys.stderr.reconfigure(line_buffering=True)
    environment = request["environment"]
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(request["directory"]))
    arguments = request["arguments"]
    assert isinstance(arguments, list)
    return str(request["program"]), arguments


def import_everything() -> None:
    """Import all modules of markerjit, each of which some command imports."""
    import markerjit

    for module in pkgutil.walk_packages(markerjit.__path__, "markerjit."):
        if module.name not in _NEVER:
            importlib.import_module(module.name)
    assert "pyarrow" not in sys.modules, "a module with pyarrow is not in _NEVER"


def end_at_once(code: int) -> None:
    """End the process, without freeing the objects in it: in a fork the kernel copies each page of
    them first. Returns where more is left to do, or to be said, at the interpreter's end."""
    if threading.active_count() > 1:
        return
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, which ends us
    import_everything()
    gc.collect()
    gc.freeze()  # so that a fork does not copy what the collector only looks at
    collapse_memory()
    program, arguments = serve(sys.argv[1], int(sys.argv[2]))

    from markerjit.cli.main import main

    code: object = 0
    try:
        if program:
            sys.argv = ["-c", *arguments]
            exec(program, {"__name__": "__main__"})
        else:
            main(arguments)
    except SystemExit as ending:
        code = ending.code
    if isinstance(code, int):
        end_at_once(code)
    sys.exit(code)
