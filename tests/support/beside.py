"""Tests in several processes beside each other: `--processes 2`.

pytest collects all tests once, as ever, and then forks: each process has them all, takes one file
after the other, and sends back what became of each test. What the tests of a file share is made
once, and the process that has collected shows everything. A process that dies is a failure of the
test at which it was; another one goes on behind that. The same becomes of a process whose test does
not end: it is killed with all that it has started, and the failure says what they did.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import psutil
import pytest

from tests.support.timing import HANG_S, progress

Group = tuple[int, ...]
"""Tests that one process runs, as indexes of the session's items."""


TEST_S = 3 * HANG_S
"""How long a test takes at most. A test may wait for more than one thing."""

_LAST_WORDS_S = 10.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """What each of these is for says the module."""
    parser.addoption(
        "--processes", type=int, default=0, metavar="N", help="run files of tests in N processes"
    )
    parser.addoption(
        "--test-time", type=float, default=TEST_S, metavar="S", help="kill a test that takes longer"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In the place of pytest's own where several processes are asked for. Raises what that does."""
    config = session.config
    count = config.getoption("--processes")
    if not count or config.option.collectonly or session.testsfailed:
        return None
    _Pool(session, count).run()
    return True


class _Process:
    """One of them, what it is to do still, as far as it has said, and the file in which it writes
    where it was when it dies."""

    def __init__(self, pid: int, last_words: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.test: int | None = None
        self.left: list[int] = []
        self.heard_at = time.monotonic()
        self._hung = ""
        self._last_words = last_words

    def begin(self, test: int) -> None:
        self.test = test
        self.left.remove(test)

    def has_ended(self) -> bool:
        return bool(wait([self.pidfd], 0))

    def kill(self, limit_s: float) -> None:
        """Kill it and what it has started, and remember what they did."""
        hung = psutil.Process(self.pid)
        started = hung.children(recursive=True)
        self._hung = f", as it took longer than {limit_s:g} s\n{progress(hung)}"
        for number in (signal.SIGABRT, signal.SIGCONT):  # it writes where it is
            os.kill(self.pid, number)
        wait([self.pidfd], _LAST_WORDS_S)
        for process in (hung, *started):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def end(self) -> tuple[int, str]:
        """Wait for its end. Return its code, and how it ended."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.pidfd)
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        with open(self._last_words, "rb") as file:
            file.seek(0)
            where = file.read().decode(errors="replace")
        return code, f"{how}{self._hung}\n{where}".rstrip()


class _Pool:
    """The processes, and the tests that none of them has yet."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        items = session.items
        groups = groupby(range(len(items)), lambda index: items[index].path)
        self._groups: deque[Group] = deque(tuple(group) for _, group in groups)
        self._session = session
        self._count = min(count, len(self._groups))
        self._limit_s: float = session.config.getoption("--test-time")
        self._processes: dict[Connection, _Process] = {}

    def run(self) -> None:
        try:
            for _ in range(self._count):
                self._start()
            while self._processes:
                self._wait()
                for channel, process in list(self._processes.items()):
                    if channel.poll():
                        self._hear(channel, process)
                    elif process.has_ended():
                        self._bury(channel, process)
        finally:
            for channel in self._processes:
                channel.close()  # the process ends when it speaks
            for process in self._processes.values():
                if not wait([process.pidfd], self._limit_s):
                    process.kill(self._limit_s)
                process.end()

    def _wait(self) -> None:
        """Wait until one has something to say, or is at its end. (A child of one that has died may
        hold its end of the channel still.) Those that hang are killed."""
        processes = self._processes.values()
        first = min(process.heard_at for process in processes) + self._limit_s
        anything = [*self._processes, *(process.pidfd for process in processes)]
        ready = wait(anything, max(0.0, first - time.monotonic()))
        for channel, process in self._processes.items():
            silent_s = time.monotonic() - process.heard_at
            if silent_s >= self._limit_s and channel not in ready and process.pidfd not in ready:
                process.kill(self._limit_s)

    def _start(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        ours, its = Pipe()
        last_words = os.memfd_create("last words")
        pid = os.fork()
        if not pid:
            for channel in (ours, *self._processes):
                channel.close()
            _be_process(self._session, its, last_words)
        its.close()
        self._processes[ours] = _Process(pid, last_words)

    def _hear(self, channel: Connection, process: _Process) -> None:
        process.heard_at = time.monotonic()
        try:
            message = channel.recv()
        except (EOFError, ConnectionResetError):
            self._bury(channel, process)
            return
        if isinstance(message, int):
            process.begin(message)
        elif message is None:
            group = self._groups.popleft() if self._groups else ()
            process.left += group
            with suppress(BrokenPipeError):  # that it is gone is heard, too
                channel.send(group)
        else:
            hook, config = self._session.config.hook, self._session.config
            for report in message:
                if isinstance(report, dict):
                    report = hook.pytest_report_from_serializable(config=config, data=report)
                self._show(report)
            process.test = None

    def _show(self, report: Any) -> None:
        session = self._session
        session.config.hook.pytest_runtest_logreport(report=report)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    def _bury(self, channel: Connection, process: _Process) -> None:
        del self._processes[channel]
        channel.close()
        code, how = process.end()
        if code == 0:
            return
        if process.test is None:
            raise self._session.Failed(f"a process of tests {how} at none of them")
        item = self._session.items[process.test]
        if process.left:
            self._groups.appendleft(tuple(process.left))
        if self._groups:
            self._start()
        text = f"the process of this test {how}"
        self._show(pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call"))


# ---- in a process --------------------------------------------------------------------------------


def _be_process(session: pytest.Session, channel: Connection, last_words: int) -> NoReturn:
    """Run tests until there are none, and end without what pytest shows at its end."""
    code = 1
    try:
        faulthandler.enable(last_words)
        reports = _Reports(session.config)
        _be_silent(session.config)
        session.config.pluginmanager.register(reports)
        tests = _tests(channel)
        index = next(tests, None)
        while index is not None:
            channel.send(index)
            next_index = next(tests, None)
            session.config.hook.pytest_runtest_protocol(
                item=session.items[index],
                nextitem=None if next_index is None else session.items[next_index],
            )
            channel.send(reports.take())
            index = next_index
        code = 0
    except (BrokenPipeError, ConnectionResetError, EOFError, KeyboardInterrupt):
        pass  # nobody listens
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            session._setupstate.teardown_exact(None)
            atexit._run_exitfuncs()
        finally:
            os._exit(code)


def _tests(channel: Connection) -> Iterator[int]:
    """The tests that it is given. It asks for more before the last one of a group is run, as what
    comes next decides what is torn down."""
    while True:
        channel.send(None)
        group: Group = channel.recv()
        if not group:
            return
        yield from group


def _be_silent(config: pytest.Config) -> None:
    """Show nothing, and capture what tests write in files of its own."""
    plugins = config.pluginmanager
    reporter: Any = plugins.unregister(name="terminalreporter")
    plugins.register(_Terminal(reporter._tw), "terminalreporter")
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()


class _Terminal:
    """What plugins want of the reporter that is gone."""

    def __init__(self, writer: Any) -> None:
        self._tw = writer


class _Reports:
    """Keeps the reports of a test: as they are where nothing went wrong, else as pytest writes them
    down, since what was raised cannot be sent."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reports: list[pytest.TestReport | dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if type(report) is not pytest.TestReport or report.longrepr is not None:
            hook = self._config.hook
            report = hook.pytest_report_to_serializable(config=self._config, report=report)
        self._reports.append(report)

    def take(self) -> list[pytest.TestReport | dict[str, Any]]:
        taken, self._reports = self._reports, []
        return taken
