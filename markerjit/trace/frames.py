"""A table of pyarrow as a data frame of pandas or polars.

pandas has separate types for numbers that may be missing and numbers that may not. Here all fields
have the latter, so that the type of a column does not depend on the records.
"""

from __future__ import annotations

from typing import Any

from markerjit.trace.missing import missing

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def to_pandas(table: Any) -> Any:
    """A pandas.DataFrame."""
    try:
        import pandas as pd
    except ImportError:
        raise missing("a data frame", "pandas", "pandas") from None
    import pyarrow as pa

    kinds = {getattr(pa, name)(): getattr(pd, _named_in_pandas(name))() for name in _INTEGERS}
    kinds[pa.bool_()] = pd.BooleanDtype()
    kinds[pa.string()] = kinds[pa.large_string()] = pd.StringDtype()
    return table.to_pandas(types_mapper=kinds.get)


def to_polars(table: Any) -> Any:
    """A polars.DataFrame."""
    try:
        import polars
    except ImportError:
        raise missing("a data frame", "polars", "polars") from None
    return polars.from_arrow(table)


def _named_in_pandas(name: str) -> str:
    """The name of the class of a type: UInt16Dtype for uint16."""
    return f"{name.capitalize().replace('Uint', 'UInt')}Dtype"
