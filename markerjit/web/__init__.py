"""The live view and the lab in a browser on this machine. Nothing is fetched from elsewhere.

    guard.py    which requests are answered: Host, Origin, token; the headers of all answers. Pure
    page.py     a page of page/ as one document, with its Content-Security-Policy
    board.py    the newest state, sent to any number of browsers
    server.py   a view on a port of 127.0.0.1, with Starlette and uvicorn
    watching.py the view of `watch`
    lab.py      the view of `lab`

What this does not do: listen on another address, keep a session for a browser, or change a process
by means of its own. All browsers see one view, so one can step what another shows on a projector.
"""
