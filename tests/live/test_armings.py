"""Functions of a program that nobody prepared, switched on and off again and again while it works.

All functions of a whole server, a hundred times, are `make armings`.
"""

from __future__ import annotations

import pytest

from tests.whole.armings import arm
from tests.whole.programs import Bash

pytestmark = pytest.mark.live


@pytest.mark.parametrize("times", [2, pytest.param(8, marks=pytest.mark.long)])
def test_functions_are_armed_again_and_again_in_a_program_at_work(times: int) -> None:
    armings = arm(Bash(), times, "[a-e]*")

    assert armings.wrong == []
    assert armings.functions > 200
    assert armings.entered > times * armings.functions
