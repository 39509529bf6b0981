"""The cost of reading events: out of the rings, as columns, as objects, into files.

A program fills its rings with events of known kinds. It then pauses, and a reader empties them.
Every event has to arrive, or there is no figure. Whether a reader keeps up with a program that goes
on recording is the question of bench/draining.py.
"""
