"""What markers cost in whole programs: Lua and SQLite, built in every form, running real work.

    PYTHONPATH=bench python -m real [--seconds S] [--layouts N] [--json FILE] [--html FILE]

The sources are those of Debian's source packages. They are fetched with apt-get into build/real/,
get our markers at places that are natural there (programs.py), and are no part of this project.
How it is measured: docs/explanation/measuring.md.
"""
