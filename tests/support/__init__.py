"""What several tests need, by what it is about. Nothing here is a test, or imports one."""
