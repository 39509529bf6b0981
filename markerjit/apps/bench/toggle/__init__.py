"""The cost of switching sites on and off, for the controller and for the program meanwhile.

Every figure is of one switch that really happened. After each switch the code of the program is
compared with the code that it should have (state.py), and probes were hit while it was on and not
while it was off. Anything else raises, and there is no figure.
"""
