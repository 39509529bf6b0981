"""The cost of a dormant site, and whether the bench can be believed.

A site is measured in a small loop, among thousands, and in a source of the user's own.
"""
