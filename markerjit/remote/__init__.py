"""The wrapper of the native helper, and system calls made inside the target."""
