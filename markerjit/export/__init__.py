"""Markers as a server's telemetry: counts, rates, histograms and recent events, for a while.

    series.py        counts and histograms of records, a bounded number of them. Pure
    openmetrics.py   the same as text that Prometheus reads. Pure
    source.py        the markers of processes: on, read, and off again
    server.py        the text on a port of 127.0.0.1
    otlp.py          counts, and spans of pairs of markers, sent by OpenTelemetry's SDK

What this does not do: keep anything. Earlier counts of a process are not included, and nothing
remains after the end.
"""
