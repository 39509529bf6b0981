"""Columns of addresses as sets are what numpy's own are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from markerjit.elf.addresses import are_among, distinct

ADDRESSES = st.lists(st.integers(-8, 8) | st.integers(-(1 << 63), (1 << 63) - 1))


@given(ADDRESSES)
def test_each_address_is_there_once_and_sorted(values: list[int]) -> None:
    addresses = np.array(values, np.int64)

    assert distinct(addresses).tolist() == np.unique(addresses).tolist()


@given(ADDRESSES, ADDRESSES)
def test_addresses_are_found_among_others(values: list[int], others: list[int]) -> None:
    addresses, known = np.array(values, np.int64), np.array(others, np.int64)

    among = are_among(addresses, distinct(known))

    assert among.tolist() == np.isin(addresses, known).tolist()
