"""What the kernel says of a process: whether it may be stopped, and which controller it has."""
