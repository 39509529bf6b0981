"""A live view of the markers of a process: its contents as values, and a terminal that shows them.

    model.py     the contents, made from the documents of `--json` (markerjit/facts); pure
    text.py      the contents as lines of text, each piece with its role; pure
    operator.py  looks at the process and switches its markers, through the public API
    terminal.py  the terminal view, with Textual, which nothing else here imports

What this does not do: change a process by means of its own. Each key is a call of a `Session`.
"""
