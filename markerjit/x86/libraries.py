"""Libraries of packages for Python, found without importing these packages, which takes much longer
than loading their libraries.

What this does not do: find a library that is not in its package.
"""

from __future__ import annotations

import ctypes
import os
from importlib.util import find_spec


def library_in(package: str, file: str) -> ctypes.CDLL | None:
    """The library that is this file in the folder of a package; None where it is not there. Only
    the package itself can find it elsewhere."""
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = os.path.join(folder, file)
        if os.path.exists(path):
            return load(path)
    return None


def load(path: str) -> ctypes.CDLL:
    """A library, by its path or name, that uses its own functions where others have the names."""
    return ctypes.CDLL(path, mode=os.RTLD_DEEPBIND)
