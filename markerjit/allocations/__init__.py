"""Allocations of a process: the blocks that allocators give and take back, summed up by call site.

steps.py    the steps of an allocator
heap.py     the sums that the runtime has made of them, and the live blocks, by site
summary.py  the allocations of a process as a value
files.py    the files of a summary
"""
