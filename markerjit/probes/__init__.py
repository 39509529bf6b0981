"""The code that runs when a marker is hit, and the data that the runtime needs for it."""
