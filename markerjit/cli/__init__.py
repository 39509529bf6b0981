"""The command line: one file for each command, in by the front door."""
