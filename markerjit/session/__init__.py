"""A process looked at, switched, traced and repaired."""
