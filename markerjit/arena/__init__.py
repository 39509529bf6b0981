"""Memory of ours in the target: made, found, opened, journalled, leased."""
