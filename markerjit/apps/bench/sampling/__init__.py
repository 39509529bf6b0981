"""Measuring, as all kinds of cost do it: builds, rounds, intervals, and results in a file.

It knows no kind of cost.
"""
