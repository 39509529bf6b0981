"""Calls of functions, from the events of their entries and exits: stacks, a tree, and its files.

    steps      what is known of each event: its thread, its function, in or out, and when
    areas      which stack an address is of
    repair     steps of a thread made complete: what was left without an exit, stacks that a thread
               leaves and comes back to, exits without entries
    stacks     the calls that steps are of, all threads at once
    tree       the calls by their callers, added up
    price      what an event costs, from the times between events
    graph      the result, a value
    samples    samples of stacks, added up by their callers
    flames     what a flame graph is made of: calls by their time, samples by their number
    files      the result as collapsed stacks, speedscope, a page; in slices.py as Perfetto's slices

What this does not do: read rings, or know which functions can be opened (session/calls.py).
"""
