"""What it costs to read events: out of the rings, as columns, as objects, into files.

A program fills its rings with events of known kinds, and a reader empties them while nobody writes.
Every event has to come, or there is no figure. What a reader keeps up with while the program goes
on recording is bench/draining.py's question.
"""
