"""The wrapper of the native helper, and system calls in the target's name."""
