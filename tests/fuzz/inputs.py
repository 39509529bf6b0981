"""A harness's inputs as hypothesis draws them: a seed and some edits, or bytes of no meaning."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.fuzz.edits import Edit, apply
from tests.fuzz.harness import Harness

_NUMBERS = st.integers(0, (1 << 64) - 1)
_EDITS = st.lists(st.builds(Edit, _NUMBERS, _NUMBERS, _NUMBERS), max_size=6)


def inputs(harness: Harness) -> st.SearchStrategy[bytes]:
    """Mostly seeds with up to six edits."""
    seeds = st.sampled_from(harness.seeds())
    edited = st.builds(lambda seed, edits: apply(seed.data, seed.places, edits), seeds, _EDITS)
    return st.one_of(edited, edited, edited, st.binary(max_size=300))
