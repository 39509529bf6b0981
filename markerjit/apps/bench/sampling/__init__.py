"""Measuring for all kinds of cost: builds, rounds, intervals, and results in a file.

What this does not do: know any kind of cost.
"""
