"""What a site costs while somebody listens: by mechanism, by what is done, by threads.

Whoever listens has to have counted every execution; else there is no figure of it.
"""
