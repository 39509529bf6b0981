"""Changing a target: plans, the arena, and the one place that writes."""
