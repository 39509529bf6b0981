"""The measuring instrument behind `markerjit bench`: the cost of a marker on this machine.

Every comparison is of objects built from one source, run by one process on one CPU, in random
order within each round, in several layouts. The result is a difference to the baseline with its
interval. Where the interval does not show a difference, none is reported.

    sampling    measuring, comparing and keeping; independent of the kinds of cost
    report      drawing of results; independent of the kinds of cost
    dormant, active, toggle, reading    a kind of cost each, independent of the others
    measure, html, table        all kinds: measured, as a page, in a terminal
    api         the names that benches outside the package may use
"""
