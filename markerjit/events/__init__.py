"""Records on their way from the rings of a process to a reader."""
