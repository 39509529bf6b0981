"""The cost of a site with a listener, by mechanism, by what the listener does, and by threads.

A listener must have counted every execution. Otherwise no figure is given for it.
"""
