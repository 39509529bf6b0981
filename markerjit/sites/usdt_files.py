"""Files that were looked at before and have not changed since, in the user's cache: their probes
are found without opening them.

A process has fifty objects, and mostly one of them has USDT probes. Of each is written down

    stat(2)   device and inode, and size, mtime and ctime
    page      a digest of its first page, which the process has mapped. That says which object it is
    probes    the entry of its probes (usdt_kept.py), or that it certainly has no section of them

Every write to a file changes its ctime, and nobody can set that. But a file that was just written
may be written again within the same tick of the kernel's clock, or through a mapping of which the
kernel has told once that it was written. So a file is written down only when it has rested for so
long that neither can be (`_RESTED_S`), and is on a block device: in a tmpfs nothing tells of writes
through a mapping.

What this does not do: decide what is in a file that is not known (usdt_kept.py).
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from markerjit.elf import FileImage, MappedImage
from markerjit.memory import Mapping
from markerjit.sites.mapped_files import ways_to
from markerjit.sites.remembered import blake2b, recall, remember
from markerjit.tuples import NamedTuple

_NAME = "files-with-usdt"
_MOST = 1 << 20
"""Bytes of the index."""
_FILES = 1024
"""The most files that it has. Those that were written down first go."""
_RESTED_S = 3600


class Probes(NamedTuple):
    """The entry that has the probes of a file, and the digest of what was read for it; "" where the
    file has none."""

    entry: str = ""
    digest: str = ""


NO_PROBES = Probes()


class KnownFiles:
    """The files that are known. `rules` are those by which they were looked at."""

    def __init__(self, rules: str) -> None:
        self._rules = rules
        self._files = _recalled(rules)
        self._is_changed = False

    def find(self, pid: int, mapping: Mapping, loaded: MappedImage) -> Probes | None:
        """The probes of the file that is mapped, by its object; None where that is not known."""
        page = loaded.telling_page
        if page is None or not self._files:
            return None
        for path in ways_to(pid, mapping):
            try:
                about = os.stat(path)
            except OSError:
                continue
            known = self._files.get(f"{about.st_dev}:{about.st_ino}")
            if known and known[:4] == [*_age(about), _digest(page)]:
                return Probes(*known[4:])
        return None

    def note(self, image: FileImage, loaded: MappedImage, probes: Probes | None) -> None:
        """Write down what an open file has, which is the object that is loaded. None where that was
        not kept."""
        page, is_same = loaded.telling_page, image.is_like and loaded.build_id()
        if probes is None or page is None or not is_same:
            return
        about = os.fstat(image.fileno())
        if not _has_rested(about):
            return
        key = f"{about.st_dev}:{about.st_ino}"
        self._files.pop(key, None)
        self._files[key] = [*_age(about), _digest(page), *probes]
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
            len(known) == 6 and all(map(isinstance, known, (int, int, int, str, str, str)))
            for known in files.values()
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
    return files if well_formed else {}


def _has_rested(about: os.stat_result) -> bool:
    """Whether nothing can be written to a file from now on without a change of its ctime."""
    return bool(os.major(about.st_dev)) and time.time() - about.st_ctime >= _RESTED_S


def _age(about: os.stat_result) -> tuple[int, int, int]:
    return about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _digest(data: bytes) -> str:
    return str(blake2b(data).hexdigest())
