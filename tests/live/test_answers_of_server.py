"""Answers about the bundled server while Debian's redis-benchmark runs, against the server's own
counters (INFO) and against the sizes that the benchmark was told; and answers about a load, against
a lossless trace."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import markerjit
from tests.support.buckets import compare_with_histogram, compare_with_quantiles
from tests.support.server import Client
from tests.support.timing import HANG_S

pytestmark = pytest.mark.live

REQUESTS = 30_000  # for GET and for SET
SIZE = 24


@pytest.mark.parametrize("pipeline", [pytest.param("1", marks=pytest.mark.long), "16"])
def test_counts_and_sizes_are_those_of_the_server(
    target: Callable, needs_tool: Callable, pipeline: str
) -> None:
    benchmark = needs_tool("redis-benchmark", "redis-tools")
    program = target("kvserver")
    port = program.ready["port"]
    command = [benchmark, "-p", port, "-n", str(REQUESTS), "-P", pipeline, "-d", str(SIZE)]

    with Client(port) as client, markerjit.attach(program.pid) as session, ExitStack() as on:
        commands = on.enter_context(session.aggregate("kv_command", by="name"))
        sizes = on.enter_context(session.aggregate("kv_store", "stat(size)"))
        pairs = on.enter_context(session.aggregate("kv_hit,kv_miss", by="name, key[:4]"))
        before = client.counters()
        for what in ("get", "set,get"):  # of an empty server, and of one that has most keys
            subprocess.run(
                [*command, "-t", what, "-r", "20000"],
                check=True, timeout=HANG_S, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        after = client.counters()

        counts = {row.key[0]: row.events for row in commands.read().rows}
        outcomes = {row.key: row.events for row in pairs.read().rows}
        (stored,) = sizes.read().rows
        missed = [adding.read().missed for adding in (commands, sizes, pairs)]

    change = {name: after[name] - before[name] for name in after}
    assert missed == [markerjit.Missed()] * 3
    assert (counts["SET"], counts["GET"]) == (REQUESTS, 2 * REQUESTS)
    # The first INFO is in its own counters already.
    assert sum(counts.values()) == change["commands"] + 1
    assert stored.events == change["stores"] == REQUESTS
    assert tuple(stored.answer)[1:] == (REQUESTS * SIZE, SIZE, SIZE)
    assert change["hits"] and change["misses"] > REQUESTS
    assert outcomes == {
        ("kv_hit", "key:"): change["hits"],
        ("kv_miss", "key:"): change["misses"],
    }


@pytest.mark.parametrize("what", ["hist", "quantiles"])
def test_sizes_are_those_of_a_lossless_trace_of_the_same_run(
    target: Callable, build: Path, what: str
) -> None:
    """The marker is passed once in each call of the function that is added up."""
    program = target("kvserver")
    load = [build / "kvload", "--port", program.ready["port"], "--requests", "20000"]
    batches: list[markerjit.Batch | None] = []

    with markerjit.attach(program.pid) as session, ExitStack() as on:
        adding = on.enter_context(session.aggregate("func:kv_store_set", f"{what}(bytes_size)"))
        stream = on.enter_context(session.trace("kv_store", fields=["size"], lossless=True))
        loading = on.enter_context(subprocess.Popen(load, stdout=subprocess.DEVNULL))
        while loading.poll() is None:
            batches.append(stream.poll_batch())
        batches.append(stream.rest())
        (row,) = adding.read().rows
        assert adding.read().missed == markerjit.Missed()
        assert not stream.lost()

    columns = (columns for batch in batches if batch for columns in batch.columns)
    values = np.concatenate([each.fields["size"] for each in columns])
    assert loading.returncode == 0
    assert row.events == len(values) > 1000
    compare = compare_with_histogram if what == "hist" else compare_with_quantiles
    compare(values, row.answer)
