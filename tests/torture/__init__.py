"""Torture: a program whose code is changed while its threads execute it, and those who change it.

`make torture` runs it for as long as one likes; tests/races/test_torture.py runs a short choice of
it; docs/explanation/torture.md says what it shows and what not.
"""
