"""Where the markers of a process or a file are, and whether their code is what the notes say."""

from markerjit.sites.discover import Objects, discover_file, discover_process, matching

__all__ = ["Objects", "discover_file", "discover_process", "matching"]
