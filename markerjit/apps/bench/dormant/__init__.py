"""The cost of a dormant site, and the check whether the bench can be trusted.

A site is measured in a small loop, among thousands, and in a source of the user's own.
"""
