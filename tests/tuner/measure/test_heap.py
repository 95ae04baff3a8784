"""What a measuring process frees, it has again without asking the system."""

import sys

import pytest

CODE = """
import ctypes
import resource
from tuner.measure import heap

SIZE = 31 * 2**20
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [library.malloc(SIZE) for _ in range(9)]
    for each in blocks:
        ctypes.memset(each, 1, SIZE)
    for each in reversed(blocks):
        library.free(each)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert heap.keep()
print(faults(), faults(), faults())
heap.give_back()
print(faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux")
def test_what_was_freed_is_not_mapped_again(forked):
    first, *later, last = map(int, forked(CODE).stdout.split())

    assert first > 1000 > max(later)
    assert last > 1000, "all was given back"
