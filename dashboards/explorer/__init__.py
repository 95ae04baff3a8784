"""Costs and changes of architectures that a reader edits: computed by a process of its own, because it needs torch."""
