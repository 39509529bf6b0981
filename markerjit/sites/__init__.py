"""Where the markers of a process or a file are, and whether their code is what the notes say."""

from markerjit.sites.discover import Objects, discover_file, discover_process, matching
from markerjit.sites.lots import Lot, Lots
from markerjit.sites.names import EVERYTHING, NameKind, ProbeName, parse_name

__all__ = [
    "EVERYTHING",
    "Lot",
    "Lots",
    "NameKind",
    "Objects",
    "ProbeName",
    "discover_file",
    "discover_process",
    "matching",
    "parse_name",
]
