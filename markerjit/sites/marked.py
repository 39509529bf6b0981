"""Which objects have markers, where many processes map the same files."""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.elf import Read
from markerjit.memory import Mapping
from markerjit.sites.discover import File, discover_object, file_of_mapping, starts_of_objects


class MarkedObjects:
    """The objects that were looked at, each in the first process that has it."""

    def __init__(self) -> None:
        self._known: dict[File, bool] = {}

    def any_of(self, read: Read, maps: Sequence[Mapping]) -> bool:
        """Whether an object of a process has markers. Looks at no more than it takes to know that.
        Raises what `discover_process` raises."""
        return any(self._is_marked(read, maps, mapping) for mapping in starts_of_objects(maps))

    def _is_marked(self, read: Read, maps: Sequence[Mapping], mapping: Mapping) -> bool:
        file = file_of_mapping(mapping)
        known = self._known.get(file)
        if known is None:
            objects, problems = discover_object(read, maps, mapping)[1:]
            known = bool(objects)
            if not problems:
                self._known[file] = known
        return known
