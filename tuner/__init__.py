"""Measures devices and finds the best configuration of an operation on one."""
