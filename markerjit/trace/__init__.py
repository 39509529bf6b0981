"""Where events go. Lines of text or JSON so far; a sink is a function of one event."""

from markerjit.trace.lines import as_json, as_text, line_formatter

__all__ = ["as_json", "as_text", "line_formatter"]
