"""Looks after the files of a search: where checkpoints may be, which are kept, what is left over, and full disks."""
