"""Memory that a process frees stays its own, so that the time of a call does not depend on what ran before.

glibc gives freed memory back to the system when more than a threshold of it lies together, and the threshold grows with
the blocks that were freed. A call whose memory was given back must map it again, which takes up to twice the time of
the call; of two equal calls in turns, one may be hit in every round and the other in none. Blocks of `LARGE` bytes are
given back as soon as they are freed, in every process; that remains so, because it costs every call the same. What a
problem leaves is given back before the next one, which may be much smaller.
"""

from __future__ import annotations

import ctypes
import sys

TRIM, MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)
LARGE = 2**25  # the largest value of the second, which glibc reaches by itself
NEVER = 2**31 - 1


def keep() -> bool:
    """From now on, keep freed memory in blocks smaller than `LARGE`; False if this C library cannot."""
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    return hasattr(library, "mallopt") and bool(library.mallopt(MAP, LARGE) and library.mallopt(TRIM, NEVER))


def give_back() -> None:
    """Give back kept memory that is not in use; this C library may not be able to."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
