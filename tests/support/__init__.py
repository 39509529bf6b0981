"""What several tests need: programs, arenas, traces, pages. Nothing here is a test."""
