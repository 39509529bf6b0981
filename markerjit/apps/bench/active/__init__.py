"""The cost of a site with a listener, by mechanism, by what the listener does, and by threads.

A listener has to have counted every execution. Otherwise there is no figure of it.
"""
