"""The drawing and layout of results, the same for all kinds of cost."""
