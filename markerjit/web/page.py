"""A page as one document, with its styles and scripts inside, so that nothing is fetched.

The policy lets the browser use exactly these styles and scripts, by their hashes.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from markerjit.tuples import NamedTuple

_PART = re.compile(r"<(?P<tag>style|script) data-file=\"(?P<file>[\w.]+)\"></(?P=tag)>")


class Page(NamedTuple):
    """A document, and its Content-Security-Policy."""

    html: str
    policy: str


def load(name: str) -> Page:
    """The page of page/NAME.html."""
    hashes: dict[str, list[str]] = {"style": [], "script": []}

    def put_in(place: re.Match[str]) -> str:
        tag, text = place["tag"], f"\n{_read(place['file'])}"
        hashes[tag].append(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'")
        return f"<{tag}>{text}</{tag}>"

    html = _PART.sub(put_in, _read(f"{name}.html"))
    return Page(html, policy_of(hashes["style"], hashes["script"]))


def policy_of(styles: list[str], scripts: list[str]) -> str:
    """The Content-Security-Policy of a document with these styles and scripts, given as hashes."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src {' '.join(styles)}",
            f"script-src {' '.join(scripts)}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _read(file: str) -> str:
    return (files("markerjit.web") / "page" / file).read_text()
