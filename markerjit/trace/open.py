"""Trace files by name: the suffix gives the format.

The packages that a format needs are imported when it is used: numpy for all, pyarrow for tables,
Perfetto's package for reading its traces.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from markerjit.arguments import check_flag, check_is, check_path
from markerjit.errors import BadTrace, Refused
from markerjit.trace.batch import Batch
from markerjit.trace.files import exists
from markerjit.trace.missing import missing
from markerjit.trace.reading import Trace
from markerjit.trace.sink import JointSink, Sink, TraceInfo
from markerjit.tuples import NamedTuple

_OF_CTF = re.compile(r"\.?(metadata|ring_[0-9]+(_late[0-9]+)?|lost_cpu-?[0-9]+|stacks\.jsonl)")
"""Names of files of a CTF trace, with a leading dot while they are being written."""


class Format(NamedTuple):
    """A format: its name and suffixes, and functions that write and read it.

    `needs` are the packages, and `modules` our modules, that writing imports. `join` writes a file
    of several processes, and `parts` reads the traces in one; it has none of any other file. With
    `all_first` such a file needs to know all programs before the first event.
    """

    name: str
    suffixes: tuple[str, ...]
    write: Callable[[str, TraceInfo, bool], Sink]
    read: Callable[[str], Trace]
    is_directory: bool = False
    needs: tuple[str, ...] = ("numpy",)
    modules: tuple[str, ...] = ()
    join: Callable[[str, bool], JointSink] | None = None
    parts: Callable[[str], Sequence[Trace]] | None = None
    all_first: bool = False


def format_of(path: str) -> Format:
    """The format of a file by its name. Raises Refused for an unknown suffix.

    A name without a suffix or with "/" at its end, and an existing directory, mean a CTF directory.
    """
    if not path:
        raise Refused("a trace needs a file name; this one is empty")
    if path == "-":
        raise Refused(
            "a trace is a file, and not standard output; on the command line -o - sends one there"
        )
    name = os.path.basename(path.rstrip("/"))
    suffix = os.path.splitext(name)[1].lower()
    for format_ in FORMATS:
        if suffix in format_.suffixes:
            return format_
    if not suffix or path.endswith("/") or os.path.isdir(path):
        return CTF
    suffixes = ", ".join(suffix for format_ in FORMATS for suffix in format_.suffixes)
    raise Refused(
        f"{path}: no trace format has the suffix {suffix}; there are {suffixes}, and a name that "
        "ends in / for a CTF directory"
    )


def open_joint(path: str, *, force: bool = False) -> JointSink:
    """A writer of a file of several processes. Raises Refused for a format that has none, and as
    `open_sink` does."""
    check_path("path", path)
    check_flag("force", force)
    path = os.fspath(path)
    format_ = format_of(path)
    if format_.join is None:
        raise Refused(f"{format_.name} has no file of several processes")
    _check_kind(path)
    return format_.join(path, force)


def is_joint(path: str) -> bool:
    """Whether several processes are written into one file of this name."""
    check_path("path", path)
    return format_of(os.fspath(path)).join is not None


def needs_all_first(path: str) -> bool:
    """Whether a file of several processes of this name takes no program once it has an event."""
    check_path("path", path)
    return format_of(os.fspath(path)).all_first


def open_sink(path: str, info: TraceInfo, *, force: bool = False, of_columns: bool = False) -> Sink:
    """A writer of a new trace, in the format of its name. With `of_columns` it writes the columns
    of a batch whatever the format.

    Raises Refused where the file exists, unless `force`; Unsupported where a package is missing.
    """
    check_path("path", path)
    check_is("info", info, TraceInfo)
    check_flag("force", force)
    path = os.fspath(path)
    format_ = format_of(path)
    check_flag("of_columns", of_columns)
    _check_kind(path)
    sink = format_.write(path, info, force)
    return _OfColumns(sink) if of_columns and takes_packets(sink) else sink


def check_output(path: str, *, force: bool = False) -> None:
    """Raise what `open_sink` would raise, as far as that is known before there is a trace.

    An existing file stays unchanged, also with `force`. The modules that writing needs are
    imported, because importing them later would delay the first events.
    """
    check_path("path", path)
    check_flag("force", force)
    path = os.fspath(path)
    format_ = format_of(path)
    _check_kind(path)
    for module in format_.needs:
        if find_spec(module) is None:
            raise missing(f"{format_.name} ({path})", module)
    for module in ("ring.decode", *format_.modules):
        import_module(f"markerjit.{module}")
    if format_.is_directory:
        _check_directory(path, force)
    elif os.path.lexists(path) and not force:
        raise exists(path)
    elif os.path.isdir(path) or path.endswith("/"):
        raise Refused(f"{path} is a directory, and {format_.name} is a file")
    parent = os.path.dirname(path.rstrip("/")) or "."
    if not os.path.isdir(parent):
        raise Refused(f"cannot write {path}: there is no directory {parent}")
    if not os.access(path if os.path.exists(path) else parent, os.W_OK):
        raise Refused(f"cannot write {path}: permission denied")


class _OfColumns:
    """A sink of packets that makes them of columns."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, batch: Batch) -> None:
        from markerjit.trace.encode import with_packets

        self._sink.write(with_packets(batch))

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        self._sink.close(lost)


def takes_packets(sink: Sink) -> bool:
    """Whether a sink writes the packets of a batch, and not its columns."""
    from markerjit.trace.ctf import CtfSink

    return isinstance(sink, CtfSink)


def open_trace(path: str) -> Trace:
    """The trace in a file. Raises BadTrace where the file is not a trace."""
    check_path("path", path)
    path = os.fspath(path)
    format_ = format_of(path)
    if format_.is_directory:
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            raise BadTrace(f"cannot open {path}: {error.strerror}") from error
        if not stat.S_ISDIR(mode):
            raise BadTrace(
                f"{path} is not a directory, as a CTF trace is; a trace's suffix says its format"
            )
    if not format_.is_directory and os.path.isdir(path):
        raise BadTrace(f"{path} is a directory, and not a {format_.name} file")
    if format_.is_directory and (inner := _traces_in(path, "*.ctf")):
        raise BadTrace(f"{path} holds several traces: {', '.join(inner)}; name one of them")
    return format_.read(path)


read = open_trace
"""The same, by the name of the command."""


def open_traces(path: str) -> tuple[Trace, ...]:
    """The trace in a file, or the traces of several processes: by name in a directory, or by pid in
    a file.

    Raises BadTrace where there is none.
    """
    check_path("path", path)
    path = os.fspath(path)
    format_ = format_of(path)
    if format_.parts and os.path.isfile(path) and (parts := format_.parts(path)):
        return tuple(parts)
    inner = _traces_in(path, "pid-*.ctf") if format_of(path).is_directory else []
    return tuple(open_trace(os.path.join(path, name)) for name in inner) or (open_trace(path),)


def _traces_in(path: str, pattern: str) -> list[str]:
    """The names of the traces in a directory; none if the directory is a trace itself."""
    try:
        names = os.listdir(path)
    except OSError:  # opening it raises the error
        return []
    return [] if "metadata" in names else sorted(fnmatch.filter(names, pattern))


def _write_text(path: str, info: TraceInfo, force: bool) -> Sink:
    from markerjit.trace.text import TextSink

    return TextSink(path, info, force=force)


def _read_text(path: str) -> Trace:
    from markerjit.trace.text import TextTrace

    return TextTrace(path)


def _write_jsonl(path: str, info: TraceInfo, force: bool) -> Sink:
    from markerjit.trace.jsonl import JsonLinesSink

    return JsonLinesSink(path, info, force=force)


def _read_jsonl(path: str) -> Trace:
    from markerjit.trace.jsonl import JsonLinesTrace

    return JsonLinesTrace(path)


def _join_jsonl(path: str, force: bool) -> JointSink:
    from markerjit.trace.joint import JointLines

    return JointLines(path, force=force)


def _parts_of_jsonl(path: str) -> Sequence[Trace]:
    from markerjit.trace.jsonl import joint_lines

    return joint_lines(path)


def _write_chrome(path: str, info: TraceInfo, force: bool) -> Sink:
    from markerjit.trace.chrome import ChromeSink

    return ChromeSink(path, info, force=force)


def _read_chrome(path: str) -> Trace:
    from markerjit.trace.chrome_read import ChromeTrace

    return ChromeTrace(path)


def _write_perfetto(path: str, info: TraceInfo, force: bool) -> Sink:
    from markerjit.trace.perfetto import PerfettoSink

    return PerfettoSink(path, info, force=force)


def _read_perfetto(path: str) -> Trace:
    from markerjit.trace.perfetto_read import PerfettoTrace

    return PerfettoTrace(path)


def _join_perfetto(path: str, force: bool) -> JointSink:
    from markerjit.trace.joint_perfetto import JointPerfetto

    return JointPerfetto(path, force=force)


def _parts_of_perfetto(path: str) -> Sequence[Trace]:
    from markerjit.trace.perfetto_read import joint_perfetto

    return joint_perfetto(path)


def _write_parquet(path: str, info: TraceInfo, force: bool) -> Sink:
    from markerjit.trace.arrow import ParquetSink

    return ParquetSink(path, info, force=force)


def _read_parquet(path: str) -> Trace:
    from markerjit.trace.arrow_read import ParquetTrace, only_one

    return only_one(ParquetTrace(path))


def _join_parquet(path: str, force: bool) -> JointSink:
    from markerjit.trace.arrow import ParquetFile
    from markerjit.trace.joint_arrow import JointTable

    return JointTable(path, ParquetFile, force=force)


def _parts_of_parquet(path: str) -> Sequence[Trace]:
    from markerjit.trace.arrow_read import ParquetTrace, joint_tables

    return joint_tables(path, ParquetTrace)


def _write_arrow(path: str, info: TraceInfo, force: bool) -> Sink:
    from markerjit.trace.arrow import ArrowSink

    return ArrowSink(path, info, force=force)


def _read_arrow(path: str) -> Trace:
    from markerjit.trace.arrow_read import ArrowTrace, only_one

    return only_one(ArrowTrace(path))


def _join_arrow(path: str, force: bool) -> JointSink:
    from markerjit.trace.arrow import ArrowFile
    from markerjit.trace.joint_arrow import JointTable

    return JointTable(path, ArrowFile, force=force)


def _parts_of_arrow(path: str) -> Sequence[Trace]:
    from markerjit.trace.arrow_read import ArrowTrace, joint_tables

    return joint_tables(path, ArrowTrace)


def _write_ctf(version: Any) -> Callable[[str, TraceInfo, bool], Sink]:
    def write(path: str, info: TraceInfo, force: bool) -> Sink:
        from markerjit.trace.ctf import CtfSink

        # "metadata" makes it a trace and goes last: an interrupted deletion can be repeated.
        for name in sorted(_check_directory(path, force), key="metadata".__eq__):
            try:
                os.unlink(os.path.join(path, name))
            except OSError as error:
                raise Refused(f"cannot delete {path}/{name}: {error.strerror}") from error
        return CtfSink(path, info, version=version)

    return write


def _read_ctf(path: str) -> Trace:
    from markerjit.trace.ctf_trace import CtfTrace

    return CtfTrace(path)


def _check_directory(path: str, force: bool) -> list[str]:
    """The files to delete before a trace is written there. Raises Refused for any others."""
    if not os.path.isdir(path):
        if os.path.lexists(path):
            raise Refused(f"{path} exists and is not a directory, as a CTF trace is")
        return []
    try:
        names = os.listdir(path)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error
    if names and not force:
        raise exists(path)
    others = [name for name in names if not _is_of_ctf(path, name)]
    if others or (names and "metadata" not in names):
        raise Refused(f"{path} is a directory with other files than a trace's; it is left alone")
    return names


def _check_kind(path: str) -> None:
    """Raise Refused for a pipe or a device.

    A trace is read again, truncated and overwritten while it is written. Opening a pipe would also
    wait for a reader, with the markers on.
    """
    with contextlib.suppress(OSError):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise Refused(
                f"{path} is a pipe or a device, and a trace is a file: trace and read print events "
                "on standard output without -o, as text or with --json as JSON lines"
            )


def _is_of_ctf(path: str, name: str) -> bool:
    """Whether a file is a regular one with a name that a CTF trace of ours has."""
    try:
        mode = os.lstat(os.path.join(path, name)).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and _OF_CTF.fullmatch(name) is not None


JSON_LINES = Format(
    "JSON lines",
    (".jsonl", ".ndjson"),
    _write_jsonl,
    _read_jsonl,
    join=_join_jsonl,
    parts=_parts_of_jsonl,
)
CTF = Format("CTF 1.8", (".ctf",), _write_ctf("1.8"), _read_ctf, is_directory=True)

FORMATS = (
    Format("text", (".txt", ".log"), _write_text, _read_text),
    JSON_LINES,
    Format("Chrome JSON", (".json",), _write_chrome, _read_chrome),
    Format(
        "Perfetto",
        (".pftrace", ".perfetto-trace", ".perfetto"),
        _write_perfetto,
        _read_perfetto,
        join=_join_perfetto,
        parts=_parts_of_perfetto,
    ),
    Format(
        "Parquet",
        (".parquet",),
        _write_parquet,
        _read_parquet,
        needs=("pyarrow",),
        modules=("trace.arrow",),
        join=_join_parquet,
        parts=_parts_of_parquet,
        all_first=True,
    ),
    Format(
        "Arrow",
        (".arrow", ".feather"),
        _write_arrow,
        _read_arrow,
        needs=("pyarrow",),
        modules=("trace.arrow",),
        join=_join_arrow,
        parts=_parts_of_arrow,
        all_first=True,
    ),
    CTF,
    Format("CTF 2", (".ctf2",), _write_ctf("2"), _read_ctf, is_directory=True),
)
