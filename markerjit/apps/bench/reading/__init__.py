"""The cost of reading events: out of the rings, as columns, as objects, into files.

A program fills its rings with events of known kinds. It then pauses, and a reader empties them.
Every event must arrive, or no figure is given. bench/draining.py answers whether a reader keeps up
with a program that goes on recording.
"""
