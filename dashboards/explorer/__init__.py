"""Costs and changes of architectures that a reader edits. A separate process computes them: that needs torch."""
