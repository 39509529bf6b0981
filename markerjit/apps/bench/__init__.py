"""What a marker costs on this machine: the measuring instrument behind `markerjit bench`.

Every comparison is of objects built from one source, run by one process on one CPU, in random
order within each round, in several layouts; what is said is a difference to the baseline with its
interval, and nothing where the interval does not say it.

    sampling    how anything is measured, compared and kept; it knows no kind of cost
    report      how results are drawn; nor does it
    dormant, active, toggle, reading    a kind of cost each, which does not know the others
    measure, html, table        all kinds: measured, as a page, in a terminal
    api         what benches outside the package may use
"""
