"""The former place of `kernels.dispatch.registry`: operation files of users import it."""

from kernels.dispatch.registry import (
    THREADS,
    Choice,
    Configuration,
    Implementation,
    Operation,
    Problem,
    Value,
    operation,
    operations,
    register,
    registered,
)

__all__ = [
    "THREADS",
    "Choice",
    "Configuration",
    "Implementation",
    "Operation",
    "Problem",
    "Value",
    "operation",
    "operations",
    "register",
    "registered",
]
