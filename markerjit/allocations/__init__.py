"""Allocations of a process: blocks from what allocates and frees, and sums of them by call site.

steps.py    what allocators do
heap.py     what the runtime has added up of it, and the blocks that are live, by site
summary.py  all of it as a value
files.py    the files of a summary
"""
