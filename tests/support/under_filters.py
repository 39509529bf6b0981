"""Runs a program under filters: python -m tests.support.under_filters FILE... -- PROGRAM ARGS."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.filters import install

if __name__ == "__main__":
    end = sys.argv.index("--")
    install(*(Path(name).read_bytes() for name in sys.argv[1:end]))
    os.execv(sys.argv[end + 1], sys.argv[end + 1 :])
