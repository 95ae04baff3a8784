"""Checks what a kernel writes: tensors are saved and restored, and outputs compared with those of the default."""
