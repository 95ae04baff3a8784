"""What a measuring process frees, it has again without asking the system."""

import os
import subprocess
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
def test_what_was_freed_is_not_mapped_again(root):
    """In a new process: what other tests leave in the memory of this one may be in the way."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    said = subprocess.run([sys.executable, "-c", CODE], cwd=root, env=own, capture_output=True, text=True, check=True)
    first, *later, last = map(int, said.stdout.split())

    assert first > 1000 > max(later)
    assert last > 1000, "all was given back"
