"""Quiescence: the proof that no thread can be harmed by an edit, by strategy."""
