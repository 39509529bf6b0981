"""Probes written in C: compiled, checked, linked."""
