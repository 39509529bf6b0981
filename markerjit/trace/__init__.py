"""Where events go: lines for people and programs, and files of many formats, written and read.

    open.py         a file by its suffix: open_sink, open_trace
    sink.py         what every file is told at the start, and how it is fed
    reading.py      what every trace that is read again offers
    header.py       what a trace says of itself, as JSON
    lines.py        an event as a line; rows.py: many at once; parse.py: a line as an event again
    text.py, jsonl.py, chrome.py, perfetto.py, arrow.py, ctf/    the formats
    statistics.py   a trace summed up; sketch.py: in bounded memory
    convert.py      a trace in another format

Of these only what needs no numpy is imported here.
"""

from markerjit.trace.lines import as_json, as_text, line_formatter

__all__ = ["as_json", "as_text", "line_formatter"]
