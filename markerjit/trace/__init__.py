"""Output of events: lines for people and programs, and files of many formats, written and read.

    open.py         a file by its suffix: open_sink, open_trace
    sink.py         the interface of all writers
    reading.py      the interface of all readers
    header.py       the header of a trace, as JSON
    lines.py        an event as a line; parse.py: a line as an event again
    rows.py         the lines of many records, by column; cells.py: columns as bytes
    text.py, jsonl.py, chrome.py, perfetto.py, arrow.py, ctf/    the formats
    statistics.py   the summary of a trace; sketch.py: in bounded memory
    convert.py      a trace in another format

Only names that do not need numpy are imported here.
"""

from markerjit.trace.lines import as_json, as_text, line_formatter

__all__ = ["as_json", "as_text", "line_formatter"]
