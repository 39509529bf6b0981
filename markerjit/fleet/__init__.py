"""Several processes with one request: a fleet of sessions."""
