"""Allocations of a process: blocks from what allocates and frees, and sums of them by call site.

steps.py      what allocators do, as columns of numbers
continued.py  allocations that another function finishes
given.py      how many bytes an allocator really gives
heap.py       steps become blocks: each allocation and the free that ends it
sites.py      blocks are added up by the site that asked for them
summary.py    all of it as a value
files.py      the files of a summary
"""
