"""`markerjit export`: what is served is what the program counts, and afterwards nothing is on."""

from __future__ import annotations

import http.server
import json
import re
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import markerjit
from tests.support.commands import ENVIRONMENT, cli, one_line, running
from tests.support.programs import ROOT, Target
from tests.support.timing import Limited, wait_until

pytestmark = pytest.mark.live

PAIRS = r"""
#include <markerjit/marker.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    puts("ready");
    fflush(stdout);
    for (int turn = 0;; turn++) {
        int id = turn % 2 ? -turn : turn;
        MARK(job_start, "id %d", id);
        MARK(job_done, "id %d word %s", id, "a\"b\\c");
        usleep(2000);
    }
}
"""


class Exported:
    """An export that runs: its address, and its process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.document = json.loads(process.stdout.readline())
        self.url: str = self.document["url"]

    def scrape(self, path: str = "/metrics", **headers: str) -> str:
        request = urllib.request.Request(self.url.replace("/metrics", path), headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    def families(self) -> dict[str, Any]:
        parser = pytest.importorskip("prometheus_client.openmetrics.parser")
        parsed = parser.text_string_to_metric_families(self.scrape())
        return {family.name: family for family in parsed}

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def exported(*arguments: object) -> Iterator[Exported]:
    with running("export", *arguments, "--json") as process:
        yield Exported(process)


def modes(pid: int) -> dict[str, str | None]:
    with markerjit.View(pid) as view:
        return {status.name: status.mode and str(status.mode) for status in view.status()}


def samples(family: Any, suffix: str = "") -> dict[tuple[str, ...], float]:
    """The values by the labels behind pid and program."""
    return {
        tuple(value for name, value in sample.labels.items() if name not in ("pid", "program")): (
            sample.value
        )
        for sample in family.samples
        if sample.name == family.name + suffix
    }


def events_of(export: Exported) -> dict[tuple[str, ...], float]:
    return samples(export.families()["markerjit_events"], "_total")


def seen(what: str, condition: Callable[[], object]) -> None:
    """Wait for what a scraper sees, without asking all the time."""
    wait_until(condition, what, every_s=0.05)


@pytest.fixture
def program(target: Callable[..., Target]) -> Target:
    return target("truth_threads", "2", "--rate", "2000")


@contextmanager
def compiled(source: Path, text: str) -> Iterator[int]:
    """A program of this text, which says when it is ready; its pid."""
    source.write_text(text)
    program = source.with_suffix("")
    flags = cli("--cflags").stdout.split()
    subprocess.run(["gcc", "-O2", "-o", program, source, *flags], check=True)
    with Limited([program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        assert process.poll() is None
        process.kill()


@pytest.fixture
def pairs(tmp_path: Path, needs_tool: Callable[[str, str], str]) -> Iterator[int]:
    """A program with a pair of markers, and values that have to be escaped."""
    needs_tool("gcc", "gcc")
    with compiled(tmp_path / "pairs.c", PAIRS) as pid:
        yield pid


# ---- counts --------------------------------------------------------------------------------------


def test_counts_are_those_of_the_program_and_the_markers_only_count(program: Target) -> None:
    with exported(program.pid) as export:
        assert export.document["pids"] == [program.pid]
        seen("a rate", lambda: samples(export.families()["markerjit_hits_per_second"]))
        before = program.ask("counts")["truth_loop"]
        hits = samples(export.families()["markerjit_hits"], "_total")["truth_loop",]
        assert 0 < hits <= program.ask("counts")["truth_loop"]
        assert before <= program.ask("counts")["truth_loop"]
        with markerjit.View(program.pid) as view:
            assert {status.probe for status in view.status()} == {"count"}
        assert export.end() == 0
    assert {*modes(program.pid).values()} == {None}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("records", [[], ["--by", "i"]], ids=["counted", "recorded"])
def test_markers_are_off_after_a_signal(number: int, records: list[str], program: Target) -> None:
    with exported(program.pid, "truth_loop", *records) as export:
        assert modes(program.pid)["truth_loop"] == "jump"
        assert export.end(number) == 0
    assert modes(program.pid)["truth_loop"] is None


def test_it_ends_after_its_duration(program: Target) -> None:
    with running("export", program.pid, "truth_loop", "-d", "300ms") as process:
        out, errors = process.communicate(timeout=60)
    assert re.fullmatch(r"1 marker at http://127\.0\.0\.1:\d+/metrics, for 0\.3 s\n", out)
    assert (process.returncode, errors) == (0, "")
    assert modes(program.pid)["truth_loop"] is None


def test_markers_that_counted_before_count_afterwards(program: Target) -> None:
    with markerjit.attach(program.pid) as session:
        session.on("truth_loop")
    with exported(program.pid) as export:
        assert {*modes(program.pid).values()} == {"jump"}
        assert export.end() == 0
    assert modes(program.pid) == {"truth_birth": None, "truth_loop": "jump"}


def test_only_what_the_pattern_names_is_on(
    tmp_path: Path, needs_tool: Callable[[str, str], str]
) -> None:
    needs_tool("gcc", "gcc")
    twice = PAIRS.replace("usleep", 'MARK(job_start, "id %d", id);\n        usleep')
    first = 1 + twice.splitlines().index('        MARK(job_start, "id %d", id);')
    with compiled(tmp_path / "twice.c", twice) as pid:
        with exported(pid, f"twice.c:{first}") as export, markerjit.View(pid) as view:
            states = view.states(view.sites())
            on = {state.site.place.source.rpartition("/")[2] for state in states if state.mode}
            assert on == {f"twice.c:{first}"}
            assert export.end() == 0
        assert {*modes(pid).values()} == {None}


def test_what_is_on_already_is_served_and_stays_on(program: Target) -> None:
    with markerjit.attach(program.pid) as session:
        session.on("truth_loop")
    with exported(program.pid, "truth_loop") as export:
        assert samples(export.families()["markerjit_hits"], "_total")["truth_loop",] > 0
        assert export.end() == 0
    assert modes(program.pid)["truth_loop"] == "jump"


def test_the_end_of_the_process_ends_it(target: Callable[..., Target]) -> None:
    program = target("truth_threads", "1", may_die=True)
    with exported(program.pid, "truth_loop") as export:
        program.process.kill()
        program.process.wait()
        _, errors = export.process.communicate(timeout=60)
    assert export.process.returncode == 1
    assert f"process {program.pid}" in errors


# ---- events --------------------------------------------------------------------------------------


def test_events_are_counted_by_a_field_and_measured_by_another(program: Target) -> None:
    arguments = ("truth_loop", "--by", "i", "--histogram", "n", "--recent", "5")
    with exported(program.pid, *arguments) as export:
        seen("two values", lambda: len(events_of(export)) == 2)
        families = export.families()
        recent = [json.loads(line) for line in export.scrape("/events").splitlines()]
        assert export.end() == 0

    counts = samples(families["markerjit_events"], "_total")
    assert {key[1] for key in counts} == {"0", "1"}
    measured = samples(families["markerjit_field_n"], "_count")
    assert measured == counts
    assert sum(counts.values()) <= samples(families["markerjit_hits"], "_total")["truth_loop",]
    exemplars = [
        sample.exemplar for sample in families["markerjit_field_n"].samples if sample.exemplar
    ]
    assert exemplars
    assert {*exemplars[0].labels} == {"tid", "cpu"}
    assert len(recent) == 5
    assert {event["name"] for event in recent} == {"truth_loop"}


def test_values_without_a_series_are_counted_together(program: Target) -> None:
    with exported(program.pid, "truth_loop", "--by", "n", "--series", "3") as export:
        families: dict[str, Any] = {}

        def is_full() -> bool:
            families.update(export.families())
            return samples(families["markerjit_events_without_series"], "_total")[()] > 0

        seen("values without a series", is_full)
        assert export.end() == 0

    counts = samples(families["markerjit_events"], "_total")
    assert len(counts) == 4
    without = samples(families["markerjit_events_without_series"], "_total")[()]
    assert counts["truth_loop", "(other)"] == without


def test_texts_are_escaped_and_values_below_zero_have_buckets(pairs: int) -> None:
    arguments = ("job_done", "--by", "word", "--histogram", "id")
    with exported(pairs, *arguments) as export:
        families: dict[str, Any] = {}

        def has_both() -> bool:
            families.update(export.families())
            counts = samples(families["markerjit_field_id"], "_bucket")
            key = "job_done", 'a"b\\c'
            return counts.get((*key, "0.0"), 0) < counts.get((*key, "+Inf"), 0) and any(
                "-1.0" in label for label in counts
            )

        seen("values below zero and above", has_both)
        assert export.end() == 0

    assert {key[1] for key in samples(families["markerjit_events"], "_total")} == {'a"b\\c'}
    buckets = samples(families["markerjit_field_id"], "_bucket")
    assert 0 < buckets["job_done", 'a"b\\c', "0.0"] < buckets["job_done", 'a"b\\c', "+Inf"]
    assert not samples(families["markerjit_field_id"], "_sum")


def test_requests_for_another_host_or_path_are_refused(program: Target) -> None:
    with exported(program.pid, "truth_loop") as export:
        for path, headers, code in (
            ("/metrics", {"Host": "example.org"}, 403),
            ("/", {}, 404),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                export.scrape(path, **headers)
            assert refused.value.code == code
            refused.value.close()
        assert export.scrape(Host="localhost:1").endswith("# EOF\n")
        assert export.end() == 0


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (["--by", "nothing"], "no marker has a field nothing"),
        (["--series", "1M"], "--series is at most 10000"),
        (["--recent", "1M"], "--recent is at most 10000"),
        (["--otlp", "nowhere"], "--otlp is the address of an endpoint"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    wrong: list[str], sentence: str, program: Target
) -> None:
    done = cli("export", program.pid, "truth_loop", *wrong)

    one_line(done, sentence)
    assert modes(program.pid)["truth_loop"] is None


def test_a_histogram_of_texts_is_refused(pairs: int) -> None:
    done = cli("export", pairs, "job_done", "--histogram", "word")

    one_line(done, "word is not a number, so it has no histogram")
    assert {*modes(pairs).values()} == {None}


# ---- others that read it -------------------------------------------------------------------------


class Collector(http.server.BaseHTTPRequestHandler):
    """Keeps what is sent."""

    received: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_spans_of_pairs_and_counts_are_sent_as_otlp(pairs: int) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    received: list[tuple[str, bytes]] = []
    handler = type("Here", (Collector,), {"received": received})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with exported(pairs, "--otlp", f"http://127.0.0.1:{server.server_port}") as export:
            seen("spans", lambda: any(path == "/v1/traces" for path, _ in received))
            assert export.end() == 0
        server.shutdown()

    spans = [
        span
        for path, body in received
        if path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert {span.name for span in spans} == {"job"}
    for span in spans:
        values = {attribute.key: attribute.value for attribute in span.attributes}
        assert values["job_start.id"].int_value == values["job_done.id"].int_value
        assert values["job_done.word"].string_value == 'a"b\\c'
        assert values["pid"].int_value == pairs
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    names = {
        metric.name
        for path, body in received
        if path == "/v1/metrics"
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert names == {"markerjit.hits", "markerjit.lost"}


def test_an_endpoint_where_nobody_listens_is_told_in_a_sentence(pairs: int) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with socket.socket() as nobody:  # bound, and not listening
        nobody.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        done = cli("export", pairs, "job_*", "--otlp", endpoint, "--duration", "0.2")

    *spans, sentence = done.stderr.splitlines()
    assert sentence == f"markerjit: {endpoint} did not take all; does a collector listen there?"
    sent = re.compile(r"markerjit: [\d,]+ spans? could not be sent")
    assert all(map(sent.fullmatch, spans)), done.stderr
    assert done.returncode == 0


@pytest.mark.slow
def test_prometheus_scrapes_it(
    program: Target, tmp_path: Path, needs_tool: Callable[[str, str], str]
) -> None:
    unpacked = ROOT / "build" / "prometheus" / "prometheus"  # made by make test
    prometheus = str(unpacked) if unpacked.exists() else needs_tool("prometheus", "prometheus")
    with exported(program.pid, "truth_loop", "--by", "i", "--histogram", "n") as export:
        here = export.url.removeprefix("http://").removesuffix("/metrics")
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\nscrape_configs:\n"
            f"- {{job_name: markers, static_configs: [{{targets: ['{here}']}}]}}\n"
        )
        with http.server.HTTPServer(("127.0.0.1", 0), Collector) as taken:
            port = taken.server_port
        with Limited(
            [
                prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT,
        ) as process:  # fmt: skip
            try:
                answers: dict[str, Any] = {}

                def has_scraped() -> bool:
                    for query in ("markerjit_hits_total", "markerjit_field_n_bucket"):
                        url = f"http://127.0.0.1:{port}/api/v1/query?query={query}"
                        try:
                            with urllib.request.urlopen(url, timeout=30) as answer:
                                answers[query] = json.load(answer)["data"]["result"]
                        except OSError:
                            return False
                    return all(answers.values())

                seen("a scrape", has_scraped)
            finally:
                process.terminate()
        assert export.end() == 0

    (hits,) = answers["markerjit_hits_total"]
    assert hits["metric"]["marker"] == "truth_loop"
    assert hits["metric"]["program"] == "truth_threads"
    assert float(hits["value"][1]) > 0
    assert {series["metric"]["i"] for series in answers["markerjit_field_n_bucket"]} == {"0", "1"}
