"""A reader of the Chrome JSON that chrome.py writes; files of other programs are not supported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from markerjit.errors import BadTrace
from markerjit.frames import StackText
from markerjit.model import Event, FieldType
from markerjit.trace.chrome import HEADER, LOSSES, cpu_keys
from markerjit.trace.files import first_lines, last_lines, read_lines
from markerjit.trace.header import checked, for_reading, from_json, losses_from_json, parse_json
from markerjit.trace.kinds import Kinds, fields_of
from markerjit.trace.reading import EventTrace

_TS = re.compile(r'"ts":(-?)(\d+)\.(\d{3})')


class ChromeTrace(EventTrace):
    """Chrome's JSON, as ChromeSink writes it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        first = first_lines(path, 2)
        header = _object(first[1]) if first[:1] == ["["] and len(first) > 1 else {}
        if header.get("name") != HEADER:
            raise BadTrace(f"{path} is not a trace of markerjit; other traces are not supported")
        self.info = for_reading(from_json(header.get("args"), path))
        self._cpu_keys = cpu_keys(self.info.types)
        self._kinds = Kinds(self.info.types)
        self._floats = fields_of(self.info.types, FieldType.FLOAT)
        self._stacks = fields_of(self.info.types, FieldType.STACK)
        self._pointers = fields_of(self.info.types, FieldType.POINTER)
        self._lost: Mapping[tuple[int, str], int] = {}
        end = last_lines(path, 2)
        losses = _object(end[0]) if end[-1] == "]" else {}
        if losses.get("name") == LOSSES:
            args = losses.get("args")
            self._lost = losses_from_json(args.get("losses") if isinstance(args, dict) else 0, path)
        else:
            self.complain("it has no end: more may have been lost than is known")

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        return self._lost

    def events(self) -> Iterator[Event]:
        for number, (line, whole) in enumerate(read_lines(self.path), 1):
            if line in ("[", "]"):
                continue
            document = _object(line)
            if not document and not whole:
                self.complain("it is cut off in the middle of a line")
                return
            if not document:
                raise BadTrace(f"{self.path}:{number} is not an event: {line[:60]!r}")
            if "marker" in document:
                yield self._with_origin(self._event(document, line, number))

    def _event(self, document: dict[str, Any], line: str, number: int) -> Event:
        try:
            name = str(document["marker"])
            fields = dict(document["args"])
            cpu = fields.pop(self._cpu_keys[name])
            # Not through a float. The first match is right: quotes inside names are escaped.
            stamp = _TS.search(line)
            if not stamp:
                raise ValueError("it has no ts")
            when = int(stamp[2]) * 1000 + int(stamp[3])
            kind = self._kinds.find(name, document.get("kind"))
            if kind is not None:
                for key in self._floats[kind.id]:
                    if isinstance(fields.get(key), str):
                        fields[key] = float(fields[key])
                for key in self._stacks[kind.id]:
                    if fields[key] is not None:
                        fields[key] = StackText.of_document(fields[key])
                for key in self._pointers[kind.id]:
                    fields[key] = int(fields[key], 16)
            event = Event(-when if stamp[1] else when, cpu, document["tid"], name, fields)
            checked(event, self.info.clock.time)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadTrace(f"{self.path}:{number} is not an event: {error!r}") from error
        return self._kinds.marked(event, kind)


def _object(line: str) -> dict[str, Any]:
    """The JSON object of a line; empty where the line is not an object."""
    try:
        document = parse_json(line.rstrip(","))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
