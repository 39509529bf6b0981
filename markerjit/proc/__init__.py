"""What the kernel says of a process: may it be stopped, and who controls it."""
