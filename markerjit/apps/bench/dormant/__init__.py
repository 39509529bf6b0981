"""What a site costs to which nobody listens, and whether the bench may be believed.

In a small loop, where there are thousands, and in a source of the user's own.
"""
