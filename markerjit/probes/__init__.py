"""What runs when a marker is hit, and what the runtime must know for it."""
