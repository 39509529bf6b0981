"""Files that were looked at before and have not changed since, in the user's cache: their probes
are found without opening them.

A process has fifty objects, and mostly one of them has USDT probes. Of each file is written down

    version   device and inode, and size, mtime and ctime (unchanged.py)
    probes    the entry of its probes (usdt_kept.py), or that it certainly has none
    page      where it has, a digest of its first page. The process has that mapped, too

The mapping says which file it is, and one stat(2) that this has not changed. Where it has no
probes, its object in memory need not be looked at either.

What this does not do: decide what is in a file that is not known (usdt_kept.py).
"""

from __future__ import annotations

import json
import os
from typing import Any

from markerjit.elf import FileImage, MappedImage
from markerjit.memory import Mapping
from markerjit.sites.remembered import blake2b, recall, remember
from markerjit.sites.unchanged import Version, mapped_version, version_of
from markerjit.tuples import NamedTuple

_NAME = "files-with-usdt"
_MOST = 1 << 20
"""Bytes of the index."""
_FILES = 1024
"""The most files that it has. Those that were written down first go."""
_VERSION = len(Version._fields)
_KINDS = (int, int, int, int, int, str, str, str)
"""Of what is written down of a file: its version, and its probes."""


class Probes(NamedTuple):
    """The entry that has the probes of a file, the digest of what was read for it, and that of the
    file's first page; "" where the file has none."""

    entry: str = ""
    digest: str = ""
    page: str = ""

    def are_of(self, loaded: MappedImage) -> bool:
        """Whether the object has this page, and with it the same segments and build id."""
        page = loaded.telling_page
        return page is not None and _digest(page) == self.page


NO_PROBES = Probes()


class KnownFiles:
    """The files of a process that are known. `rules` are those by which they were looked at."""

    def __init__(self, pid: int, rules: str) -> None:
        self._pid = pid
        self._rules = rules
        self._files = _recalled(rules)
        self._is_changed = False

    def find(self, mapping: Mapping) -> Probes | None:
        """The probes of the file that is mapped; None where that is not known."""
        known = self._files.get(_key(mapping))
        if known is None or known[:_VERSION] != [*(mapped_version(self._pid, mapping) or ())]:
            return None
        return Probes(*known[_VERSION:])

    def note(
        self, image: FileImage, mapping: Mapping, loaded: MappedImage, probes: Probes | None
    ) -> None:
        """Write down what an open file has, which is mapped and is the object that is loaded. None
        where that was not kept."""
        page, is_same = loaded.telling_page, image.is_like and loaded.build_id()
        if probes is None or page is None or not is_same:
            return
        version = version_of(os.fstat(image.fileno()), mapping)
        if version is None:
            return
        if probes != NO_PROBES:
            probes = probes._replace(page=_digest(page))
        key = _key(mapping)
        self._files.pop(key, None)  # the last ones are those that were written down last
        self._files[key] = [*version, *probes]
        self._is_changed = True

    def keep(self) -> None:
        """Have what was written down in the cache."""
        if self._is_changed:
            files = dict([*self._files.items()][-_FILES:])
            text = json.dumps({"rules": self._rules, "files": files})
            remember(_NAME, f"{_digest(text.encode())}\n{text}")
            self._is_changed = False


def _recalled(rules: str) -> dict[str, list[Any]]:
    """The files that are in the cache; none where it is damaged, or of others."""
    checksum, _, text = (recall(_NAME, _MOST) or "").partition("\n")
    if not text or _digest(text.encode()) != checksum:
        return {}
    try:
        index = json.loads(text)
        files = index["files"] if index["rules"] == rules else {}
        well_formed = all(
            len(known) == len(_KINDS) and all(map(isinstance, known, _KINDS))
            for known in files.values()
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
    return files if well_formed else {}


def _key(mapping: Mapping) -> str:
    return f"{mapping.device}:{mapping.inode}"


def _digest(data: bytes) -> str:
    return str(blake2b(data).hexdigest())
