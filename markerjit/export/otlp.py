"""Counts, and spans of pairs of markers, sent by OpenTelemetry's SDK as OTLP over HTTP.

`query_start` and `query_done` of one thread make the span `query`, as in files of traces. Spans
wait in a queue of bounded length for a thread that sends them; what finds it full is dropped and
counted. The SDK logs each request that fails, in lines of its own making: they are counted, and not
printed.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from markerjit.export.openmetrics import Marker
from markerjit.trace.missing import missing

_ROOM = 10_000
_AT_ONCE = 500
_EVERY_MS = 5000
_TIMEOUT_S = 3


class Otlp:
    """Sends to an endpoint such as http://127.0.0.1:4318. `markers` is called for the counts, in
    the thread of the caller's `tick`.

    Raises Unsupported where the SDK is not installed.
    """

    def __init__(self, endpoint: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        except ImportError:
            # It needs the SDK, which alone is not enough.
            raise missing("--otlp", "opentelemetry-exporter-otlp-proto-http", "otlp") from None
        base = endpoint.rstrip("/")
        self._failures = _Failures()
        # To the end of the process: threads of the SDK may still say that they do not try again.
        log = logging.getLogger("opentelemetry")
        log.addHandler(self._failures)
        log.propagate = False
        resource = Resource.create({"service.name": "markerjit"})
        self.dropped = 0
        self._latest: Sequence[Marker] = ()
        self._queue: queue.Queue[Any] = queue.Queue(_ROOM)
        self._exporter: Any = OTLPSpanExporter(f"{base}/v1/traces", timeout=_TIMEOUT_S)
        tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracing.add_span_processor(SimpleSpanProcessor(_Into(self._put)))  # type: ignore[arg-type]
        self._tracer = tracing.get_tracer("markerjit")
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(f"{base}/v1/metrics", timeout=_TIMEOUT_S),
            export_interval_millis=_EVERY_MS,
        )
        self._metrics = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._metrics.get_meter("markerjit")
        meter.create_observable_counter("markerjit.hits", [self._observe("hits")])
        meter.create_observable_counter("markerjit.lost", [self._observe("lost")])
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def update(self, markers: Sequence[Marker]) -> None:
        """The counts now."""
        self._latest = markers

    def add_span(self, name: str, begin_ns: int, end_ns: int, attributes: dict[str, Any]) -> None:
        """A span that has ended."""
        span = self._tracer.start_span(name, start_time=begin_ns, attributes=attributes)
        span.end(end_time=end_ns)

    def close(self) -> None:
        """Send what waits, for some seconds at most."""
        with suppress(queue.Full):  # its thread has ended, or is stuck
            self._queue.put(None, timeout=_TIMEOUT_S)
        self._thread.join(2 * _TIMEOUT_S)
        self._metrics.shutdown(timeout_millis=_TIMEOUT_S * 1000)
        self._exporter.shutdown()

    @property
    def failed(self) -> bool:
        """Whether a request was not answered as it should be. Spans may have been sent again."""
        return self._failures.count > 0

    def _observe(self, number: str) -> Callable[[Any], Iterable[Any]]:
        from opentelemetry.metrics import Observation

        def observe(_: Any) -> Iterable[Any]:
            for marker in self._latest:
                keys = ("pid", "program", "marker")
                labels: dict[str, Any] = dict(zip(keys, marker[:3], strict=True))
                yield Observation(getattr(marker, number), labels)

        return observe

    def _put(self, spans: Sequence[Any]) -> None:
        for span in spans:
            try:
                self._queue.put_nowait(span)
            except queue.Full:
                self.dropped += 1

    def _send(self) -> None:
        over = False
        while not over:
            spans = [self._queue.get()]
            while len(spans) < _AT_ONCE and not self._queue.empty():
                spans.append(self._queue.get())
            over = None in spans
            whole = [span for span in spans if span is not None]
            if whole and self._exporter.export(whole).value != 0:
                self.dropped += len(whole)


class _Failures(logging.Handler):
    """Counts what the SDK logs of requests that failed."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count."""
        self.count += record.levelno >= logging.ERROR


class _Into:
    """An exporter of the SDK that hands spans on."""

    def __init__(self, put: Callable[[Sequence[Any]], None]) -> None:
        self._put = put

    def export(self, spans: Sequence[Any]) -> Any:
        """Hand on."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._put(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Nothing waits here."""
        return True
