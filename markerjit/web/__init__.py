"""The live view and the lab in a browser of this machine, without anything from elsewhere.

    guard.py    which requests are answered: Host, Origin, token; the headers of all answers. Pure
    page.py     a page of page/ as one document, and the policy that fits it. Pure
    board.py    the newest state, sent to any number of browsers
    server.py   a view on a port of 127.0.0.1, with Starlette and uvicorn
    watching.py the view of `watch`
    lab.py      the view of `lab`

What this does not do: listen on another address, keep a session for a browser, or change a process
in a way of its own. All browsers see one view, so that a telephone can step what a projector shows.
"""
