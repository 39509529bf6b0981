"""Results of earlier verifications and scans, by name: small files in the user's cache directory.

A file that another user could have written is not believed, and nothing is written where another
user could put a link in our way. So there is no cache for root in another user's HOME (the sudo of
some systems keeps it). Files are created under unguessable names, and then renamed. A cache that
cannot be used is not an error.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from markerjit.ours import cache_directory, read_own_file, write_own_file

_PLACE = "verified"
_MOST = 64
"""Bytes of a digest."""


def recall(name: str, most: int = _MOST) -> str | None:
    """The text stored under this name, of which at most so many bytes are read, or None."""
    with suppress(OSError, ValueError), cache_directory(_PLACE) as directory:
        return read_own_file(directory, name, most).decode("ascii")
    return None


def remember(name: str, content: str) -> None:
    """Store a text under this name, if that is possible."""
    with suppress(OSError, ValueError), cache_directory(_PLACE, make=True) as directory:
        write_own_file(directory, name, content.encode("ascii"))


def blake2b(data: bytes = b"", size: int = 32) -> Any:
    """A digest of so many bytes, for names and checksums."""
    try:
        from _blake2 import blake2b  # hashlib's own, which would load OpenSSL besides
    except ImportError:  # a Python that was built without
        from hashlib import blake2b
    return blake2b(data, digest_size=size)
