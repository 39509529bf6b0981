"""What it costs to switch sites on and off: for who switches, and for the program meanwhile.

Every figure is of one switch that really happened: after each of them the code of the program is
compared with what it should be (state.py), and probes were hit while it was on and not while it was
off. Anything else raises, and there is no figure.
"""
