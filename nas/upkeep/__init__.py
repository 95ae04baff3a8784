"""Looks after the files of a search: which checkpoints are kept, what is left over, and whether the disk is full."""
