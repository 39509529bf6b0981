"""Traces as directories of the Common Trace Format, 1.8 and 2, which babeltrace2, Trace Compass and
others open.

    layout.py    how a record looks to CTF, in words that both versions share
    tsdl.py      the metadata of CTF 1.8
    ctf2.py      the metadata of CTF 2
    info.py      all that we want back of a trace, as JSON within either
    records.py   from the runtime's bytes to CTF's and back
    stream.py    one file of packets, which can be opened at any moment
    sink.py      writing a trace
    reader.py    reading our own traces

It reads no traces of others: babeltrace2 does.
"""

from markerjit.trace.ctf.reader import read_ctf
from markerjit.trace.ctf.sink import CtfSink

__all__ = ["CtfSink", "read_ctf"]
