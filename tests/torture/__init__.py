"""Torture: a program whose code changes while its threads execute it, and its controllers.

`make torture` runs it for as long as one likes; tests/races/test_torture.py runs a short choice of
it; docs/explanation/torture.md says what it shows and what not.
"""
