"""Whole jobs made of the public door: each could be somebody else's program."""
