"""PostgreSQL of Debian under pgbench: its USDT probes by markerjit, and by uprobes of the kernel.

    python -m bench.postgresql [--rounds 5] [--toggles 1000] [--switches 100] [--clients 10]

Needs postgresql (apt-get install postgresql), and perf for the peer. A cluster of its own is made
in a temporary folder and served on a socket there, by the user postgres where we are root. Each way
runs in its turn, round by round, against a select-only pgbench:

    untraced
    one       transaction__commit counted, by `on --follow` of the postmaster, and by perf stat
    all       all of its probes counted, by both
    SQL       query__start recorded with its text, by `trace --follow`; perf records an address

Printed are pgbench's transactions per second, and the CPU time of the backends for a transaction,
which other work on the machine disturbs less. Then all probes of all processes are switched on and
off while pgbench runs, so many times, and the counts are compared with the server's own. At last
those of the backends alone are, which wait for their clients: how long that takes in an open fleet.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import markerjit
from bench.fleet import Took, took

HOME = Path("/usr/lib/postgresql/15/bin")
SERVER = HOME / "postgres"
PORT = "54329"
CLI = [sys.executable, "-m", "markerjit.cli.main"]
TICKS = os.sysconf("SC_CLK_TCK")
SETTLES_S = 30
COMMIT, QUERY, ALL = (f"postgresql:{name}" for name in ("transaction__commit", "query__start", "*"))
SETTINGS = """
listen_addresses = ''
autovacuum = off
fsync = off
max_connections = 60
"""


class Run(NamedTuple):
    """A run of pgbench. `cpu_us` is the time of the backends for a transaction."""

    transactions: int
    failed: int
    tps: float
    cpu_us: float


class Cluster:
    """A PostgreSQL server of our own, until the context ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = ["-h", str(folder), "-p", PORT]
        self._own = 0  # processes without a client

    @property
    def postmaster(self) -> int:
        """Its first process."""
        return int((self.folder / "data/postmaster.pid").read_text().split()[0])

    def processes(self) -> list[int]:
        """All of its processes."""
        first = self.postmaster
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def settle(self) -> None:
        """Wait until all backends have ended, and their parent has taken notice."""
        until = time.monotonic() + SETTLES_S
        self._own = self._own or len(self.processes())
        while len(self.processes()) > self._own:
            if time.monotonic() > until:
                raise RuntimeError("a backend does not end")
            time.sleep(0.05)

    def run(self, *words: object) -> str:
        """The output of a program that is run by the server's user."""
        done = subprocess.run(
            [*as_user(), *map(str, words)],
            cwd=self.folder, env={**os.environ, "LC_ALL": "C"}, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: {done.stdout}")
        return done.stdout

    def ask(self, query: str) -> str:
        """The answer to a query, as text."""
        return self.run("psql", *self.socket, "-At", "-c", query, "bench").strip()

    def pgbench(self, *words: object, clients: int = 10) -> Run:
        """Run pgbench to its end."""
        self.settle()
        before = self._cpu_ticks()
        output = self.run(
            "pgbench", *self.socket, "-n", "-S", "-c", clients, "-j", 2, *words, "bench"
        )
        self.settle()
        transactions = int(re.findall(r"actually processed: (\d+)", output)[0])
        ticks = self._cpu_ticks() - before
        return Run(
            transactions,
            int(re.findall(r"failed transactions: (\d+)", output)[0]),
            float((re.findall(r"tps = ([\d.]+)", output) or ["nan"])[0]),
            ticks / TICKS / transactions * 1e6,
        )

    def _cpu_ticks(self) -> int:
        """CPU time of all backends that have ended: their parent has taken it over."""
        fields = Path(f"/proc/{self.postmaster}/stat").read_text().rpartition(")")[2].split()
        return int(fields[13]) + int(fields[14])


def as_user() -> list[str]:
    """Words in front of a command of the server, which does not run as root."""
    if os.getuid():
        return []
    user = pwd.getpwnam("postgres")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A server with pgbench's tables, which is stopped and removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="markerjit-postgresql-"))
    if not os.getuid():
        shutil.chown(folder, "postgres")
    made = Cluster(folder)
    try:
        made.run(HOME / "initdb", "-D", folder / "data", "-A", "trust", "-N")
        settings = f"{SETTINGS}port = {PORT}\nunix_socket_directories = '{folder}'\n"
        with open(folder / "data/postgresql.conf", "a") as file:
            file.write(settings)
        subprocess.run(  # not with `run`: the server would keep our pipe
            [
                *as_user(), HOME / "pg_ctl", "-D", folder / "data", "-l", folder / "log", "-w",
                "start",
            ],
            cwd=folder, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            made.run("createdb", *made.socket, "bench")
            made.run("pgbench", *made.socket, "-i", "-q", "-s", 2, "bench")
            time.sleep(1)  # its own processes are there, and backends have ended
            made.settle()
            yield made
        finally:
            made.run(HOME / "pg_ctl", "-D", folder / "data", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- ways ----------------------------------------------------------------------------------------


@contextmanager
def followed(server: Cluster, *words: str) -> Iterator[dict[str, Any]]:
    """Within, a command follows the postmaster. Its last document is in the dictionary then."""
    document: dict[str, Any] = {}
    with subprocess.Popen(
        [*CLI, words[0], "--follow", str(server.postmaster), *words[1:]],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as command:  # fmt: skip
        wait_until_on(server.postmaster, command)
        try:
            yield document
        finally:
            command.send_signal(signal.SIGTERM)
            printed, errors = command.communicate()
        if command.returncode:
            raise RuntimeError(errors)
        document.update(json.loads(printed.splitlines()[-1]))


def wait_until_on(pid: int, command: subprocess.Popen[str]) -> None:
    """Wait until a marker of a process is on."""
    while command.poll() is None:
        with markerjit.View(pid) as view:
            if any(marker.mode for marker in view.statistics(ALL)):
                return
        time.sleep(0.05)
    assert command.stderr
    raise RuntimeError(command.stderr.read())


@contextmanager
def by_uprobes(*words: str) -> Iterator[None]:
    """Within, perf is at work, on the whole machine."""
    with subprocess.Popen(
        ["perf", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as perf:
        time.sleep(1)  # it says nowhere that it has begun
        try:
            yield
        finally:
            perf.send_signal(signal.SIGINT)


@contextmanager
def uprobes() -> Iterator[bool]:
    """Within, the kernel has an event for each probe that perf can make; False without perf."""
    if not shutil.which("perf"):
        yield False
        return
    run = partial(subprocess.run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    run(["perf", "buildid-cache", "--add", SERVER])
    names = [probe.name for probe in markerjit.list_file_usdt(SERVER).probes]
    refused = [name for name in names if run(["perf", "probe", f"sdt_{name}"]).returncode]
    print(f"{len(names)} probes; perf cannot make {refused}", file=sys.stderr)
    try:
        yield len(refused) < len(names)
    finally:
        run(["perf", "probe", "-d", "sdt_postgresql:*"])


def ways(server: Cluster, scratch: Path, perf: bool) -> dict[str, Callable[[], Any]]:
    """The ways to serve, by name, each as a context."""
    pattern = {"one": COMMIT, "all": ALL}
    listed: dict[str, Callable[[], Any]] = {"untraced": ExitStack}
    for name, chosen in pattern.items():
        listed[f"{name}, counted by markerjit"] = lambda chosen=chosen: followed(
            server, "on", chosen, "--off-at-end", "--json"
        )
        if perf:
            listed[f"{name}, counted by uprobes"] = lambda chosen=chosen: by_uprobes(
                "stat", "-a", "-e", f"sdt_{chosen}"
            )
    listed["SQL, traced by markerjit"] = lambda: followed(server, "trace", QUERY, "--json")
    if perf:
        words = ("record", "-a", "-q", "-e", f"sdt_{QUERY}", "-o", str(scratch / "perf.data"))
        listed["SQL's address, recorded by uprobes"] = lambda: by_uprobes(*words)
    return listed


# ---- what is measured ----------------------------------------------------------------------------


def throughput(server: Cluster, transactions: int, rounds: int, clients: int) -> None:
    """Print a table of all ways."""
    runs: dict[str, list[Run]] = {}
    with uprobes() as perf:
        for number in range(rounds):
            for name, way in ways(server, server.folder, perf).items():
                with way():
                    run = server.pgbench("-t", transactions, clients=clients)
                runs.setdefault(name, []).append(run)
                print(f"  round {number + 1}: {name}: {run.tps:,.0f}/s", file=sys.stderr)
    base = statistics.median(run.cpu_us for run in runs["untraced"])
    print("| | transactions/s | CPU of a transaction, µs | of untraced | failed |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, of in runs.items():
        tps = sorted(run.tps for run in of)
        cpu = statistics.median(run.cpu_us for run in of)
        print(
            f"| {name} | {statistics.median(tps):,.0f} ({tps[0]:,.0f} … {tps[-1]:,.0f}) | "
            f"{cpu:.1f} | {cpu / base:.2f} | {sum(run.failed for run in of)} |"
        )


def commits(server: Cluster, clients: int) -> None:
    """Compare the hits of transaction__commit with the counts of pgbench and of the server. A
    backend commits once when it begins, and pgbench asks for its tables first."""
    hits = []
    for each in (1, 2000):
        before = committed(server)
        with followed(server, "on", COMMIT, "--off-at-end", "--json") as document:
            run = server.pgbench("-t", each, clients=clients)
        (marker,) = document["markers"]
        hits.append((run, marker["hits"], committed(server) - before))
    (few, few_hits, _), (many, many_hits, by_server) = hits
    print(f"\ncommits: pgbench {many.transactions:,}, hits {many_hits:,}")
    print(
        f"of these {few_hits - few.transactions} are those of backends that begin, as in a run of "
        f"{few.transactions} transactions: {many_hits - few_hits + few.transactions:,} are left"
    )
    print(f"the server's own count (pg_stat_database) rose by {by_server:,}, with our two queries")
    assert many_hits - few_hits == many.transactions - few.transactions


def committed(server: Cluster) -> int:
    """The server's own count of commits in our database, when all statistics have come."""
    return int(server.ask("select sum(xact_commit) from pg_stat_database where datname = 'bench'"))


def toggling(server: Cluster, times: int, clients: int, rate: int) -> None:
    """Switch all probes of all processes on and off while pgbench asks, at a rate (0: as fast as
    it can)."""
    server.settle()
    text = {pid: code_of(pid) for pid in server.processes()}
    with subprocess.Popen(
        [*as_user(), "pgbench", *server.socket, "-n", "-S", "-c", str(clients), "-j", "2",
         "-T", "100000", "-P", "5", *(["-R", str(rate)] if rate else []), "bench"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=server.folder,
    ) as load:  # fmt: skip
        while len(server.processes()) < len(text) + clients:
            time.sleep(0.05)
        pids = server.processes()
        backends = [pid for pid in pids if pid not in text]
        text.update({pid: code_of(pid) for pid in backends})
        before, raised = committed(server), semaphores(backends)
        began = time.monotonic()
        took, stood = switch_often(pids, times)
        since = time.monotonic() - began
        served = committed(server) - before
        same = all(code_of(pid) == text[pid] for pid in pids)
        assert semaphores(backends) == raised
        load.terminate()  # it does not count what is on its way
        output = load.communicate()[0]
    print(
        f"\ntoggling: {len(pids)} processes, {times:,} times on and off in {since:,.0f} s, while "
        f"{served:,} transactions were committed; code as before: {same}"
    )
    print(
        f"one process on: median {statistics.median(took) * 1e3:.1f} ms, of which it stood "
        f"{statistics.median(stood) / 1e6:.2f} ms (longest {max(stood) / 1e6:.1f} ms)"
    )
    assert same
    assert "ERROR" not in output
    assert "FATAL" not in output, output
    reports = output.count("progress: ")
    assert reports, output
    assert output.count(" 0 failed") == reports, output
    print(f"failed transactions in {reports} reports of pgbench: 0")


def switch_often(pids: list[int], times: int) -> tuple[list[float], list[int]]:
    """Seconds for each switch of a process, and the nanoseconds for which it stood."""
    took, stood = [], []

    def on(session: markerjit.Session) -> markerjit.Applied:
        began = time.monotonic()
        applied = session.enable(ALL)
        took.append(time.monotonic() - began)
        stood.append(applied.stop + applied.held + applied.resume)
        return applied

    with (
        markerjit.raised_priority(),  # as `on` does it
        markerjit.Fleet(pids, breakpoints=True) as fleet,
    ):
        for number in range(times):
            fleet.each(on)
            fleet.each(lambda session: session.disable(ALL))
            if number % 100 == 99:
                print(f"  {number + 1} times", file=sys.stderr)
        assert not fleet.failed, fleet.failed
    return took, stood


def switching(server: Cluster, times: int, clients: int) -> None:
    """Switch all probes of the backends on and off, which wait for their clients."""
    server.settle()
    own = server.processes()
    with ExitStack() as stack:
        for _ in range(clients):
            stack.enter_context(
                subprocess.Popen(
                    [*as_user(), "psql", *server.socket, "bench"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    cwd=server.folder,
                )
            )
        while len(server.processes()) < len(own) + clients:
            time.sleep(0.05)
        time.sleep(1)  # they have told their clients who they are
        on: list[Took] = []
        off: list[Took] = []
        stack.enter_context(markerjit.raised_priority())
        pids = [pid for pid in server.processes() if pid not in own]
        with markerjit.Fleet(pids, breakpoints=True) as fleet:
            for _ in range(times + 2):  # a plan is made ready for being repeated by the second
                on.append(took(lambda: fleet.each(lambda session: session.enable(ALL))))
                off.append(took(lambda: fleet.each(lambda session: session.disable(ALL))))
            assert not fleet.failed, fleet.failed
    print(f"\nswitching: all probes of {clients} backends in an open fleet, ms (of our own CPU)")
    for name, each in ("on", on[2:]), ("off", off[2:]):
        clock, cpu = ([times[index] * 1e3 for times in each] for index in (0, 1))
        print(
            f"{name}: least {min(clock):.1f} ({min(cpu):.1f}), median "
            f"{statistics.median(clock):.1f} ({statistics.median(cpu):.1f}), longest "
            f"{max(clock):.1f} ({max(cpu):.1f})"
        )


def semaphores(pids: list[int]) -> list[tuple[int | None, ...]]:
    """The counts in the semaphores of all probes, by process."""
    counts = []
    for pid in pids:
        with markerjit.View(pid) as view:
            probes = view.usdt(ALL).probes
        counts.append(tuple(state.raised for probe in probes for state in probe.states))
    return counts


def code_of(pid: int) -> bytes:
    """The code of the server's file in a process."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            if "r-xp" in line and line.rstrip().endswith("/postgres"):
                begin, _, end = line.split()[0].partition("-")
                memory.seek(int(begin, 16))
                return memory.read(int(end, 16) - int(begin, 16))
    raise RuntimeError(f"process {pid} does not execute {SERVER}")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transactions", type=int, default=5000, help="of a client in a run")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each way; 0: none")
    parser.add_argument("--toggles", type=int, default=1000, help="times on and off; 0: none")
    parser.add_argument("--switches", type=int, default=100, help="of the backends alone; 0: none")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rate", type=int, default=0, help="transactions/s while it is toggled")
    options = parser.parse_args()
    if not SERVER.exists():
        sys.exit(f"there is no {SERVER}; apt-get install postgresql")
    with cluster() as server:
        if options.rounds:
            throughput(server, options.transactions, options.rounds, options.clients)
        commits(server, options.clients)
        if options.toggles:
            toggling(server, options.toggles, options.clients, options.rate)
        if options.switches:
            switching(server, options.switches, options.clients)


if __name__ == "__main__":
    main()
