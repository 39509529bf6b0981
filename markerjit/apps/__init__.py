"""Whole jobs made of the public door. Each could be a program outside the package."""
