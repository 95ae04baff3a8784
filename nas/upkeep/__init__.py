"""Looks after the files of a search: where checkpoints are, which are kept, what is left over, and full disks."""
