"""The arena's layout, and reading records out of its rings."""
