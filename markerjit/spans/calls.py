"""How a call of a function can be opened, best way first.

    TARGET   the call, or jump, is made to lead to the stub instead of the function. Nothing is lost
    others   as any instruction (openings.py); of a jump on a condition as an exit (exits.py)

So the program's own call pushes the return address. Return prediction, shadow stacks and unwinders
work as usual.
"""

from __future__ import annotations

from markerjit.spans.code import Code
from markerjit.spans.exits import best_exit, crosses_page
from markerjit.spans.openings import Closed, Opening, Way, against, best_opening, tried
from markerjit.x86.forms import condition_of, is_call


def best_opening_of_call(code: Code, address: int) -> Opening | Closed:
    """The best way to open a call, or a jump, that begins at an address."""
    function = code.functions.index(address)
    if function is None or against(code, address):
        return best_opening(code, address)
    size = code.flow(function).starts[address]
    own = code.read(address, size)
    if condition_of(own) is not None:
        return best_exit(code, address)
    if is_call(own) and not crosses_page(address, address + size):
        opening = tried(code, Way.TARGET, address, own, size)
        if isinstance(opening, Opening):
            return opening
    return best_opening(code, address)
