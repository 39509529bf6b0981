"""A live view of the markers of a process: what is shown, as values, and how a terminal shows it.

    model.py     what is shown, made of the documents of `--json` (markerjit/facts); pure
    text.py      that as lines of text, each piece with its role; pure
    operator.py  looks at the process and switches its markers, by the front door
    terminal.py  the terminal view, with Textual. Nothing else here imports that

What this does not do: change a process in a way of its own. Each key is a call of a `Session`.
"""
