"""Long runs: every function of a real program open at its entry and its exits (`make whole`)."""
