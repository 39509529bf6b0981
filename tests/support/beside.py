"""Tests in several processes beside each other: `--processes 2`.

pytest collects all tests once, as ever, and then forks: each process has them all, takes one file
after the other, and sends back what became of each test. What the tests of a file share is made
once, and the process that has collected shows everything. A process that dies is a failure of the
test at which it was; another one goes on behind that.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn

import pytest

Group = tuple[int, ...]
"""Tests that one process runs, as indexes of the session's items."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--processes", type=int, default=1, metavar="N", help="run files of tests in N processes"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In the place of pytest's own where several processes are asked for. Raises what that does."""
    config = session.config
    count = config.getoption("--processes")
    if count == 1 or config.option.collectonly or session.testsfailed:
        return None
    _Pool(session, count).run()
    return True


class _Process:
    """One of them, and what it is to do still, as far as it has said."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.test: int | None = None
        self.left: list[int] = []

    def begin(self, test: int) -> None:
        self.test = test
        self.left.remove(test)


class _Pool:
    """The processes, and the tests that none of them has yet."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        items = session.items
        groups = groupby(range(len(items)), lambda index: items[index].path)
        self._groups: deque[Group] = deque(tuple(group) for _, group in groups)
        self._session = session
        self._count = min(count, len(self._groups))
        self._processes: dict[Connection, _Process] = {}

    def run(self) -> None:
        try:
            for _ in range(self._count):
                self._start()
            while self._processes:
                for channel in wait(list(self._processes)):
                    assert isinstance(channel, Connection)
                    self._hear(channel, self._processes[channel])
        finally:
            for channel, process in self._processes.items():
                channel.close()  # the process ends when it speaks
                os.waitpid(process.pid, 0)

    def _start(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        ours, its = Pipe()
        pid = os.fork()
        if not pid:
            for channel in (ours, *self._processes):
                channel.close()
            _be_process(self._session, its)
        its.close()
        self._processes[ours] = _Process(pid)

    def _hear(self, channel: Connection, process: _Process) -> None:
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
        code = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if code == 0:
            return
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
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


def _be_process(session: pytest.Session, channel: Connection) -> NoReturn:
    """Run tests until there are none, and end without what pytest shows at its end."""
    code = 1
    try:
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
