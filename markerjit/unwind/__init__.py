"""Stacks of threads: from a program's unwind rows to the names of its frames.

    rules    how a frame leads to its caller's, in 32 bits
    table    the rules of an object by address, made from its `.eh_frame`
    kept     tables in the user's cache, by build id
    objects  the tables of what a process has mapped
    walk     the frames of a stack, by its registers and its memory
    names    what the functions of frames are called

What this does not do: stop a thread, or read its registers (remote/stacks.py).
"""
