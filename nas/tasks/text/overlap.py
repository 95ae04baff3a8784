"""How much of the held-out text also occurs in the training text: its strings of 32 bytes.

A model may have memorised such strings, so a score on them says little. Strings are compared by a hash of 64 bits, of
which each bit depends on all bytes. The training text is read in blocks, so memory grows only with the held-out text.
Brown et al. 2020, https://arxiv.org/abs/2005.14165, appendix C, measure the overlap of words in a similar way.
"""

from __future__ import annotations

import numpy as np

WIDTH = 32  # bytes of a string
BLOCK = 1 << 20  # bytes of the training text that are hashed at once
TABLE = 24  # bits of a hash that a first, fast look-up uses
ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xFF51AFD7ED558CCD)


def repeated(held: np.ndarray, starts: np.ndarray, training: np.ndarray) -> np.ndarray:
    """For each place of `held`, [H] uint8: whether the string that begins there also occurs in `training`, [N] uint8.

    `starts` are the places where the documents of `held` begin. A string that reaches into the next document counts as
    not repeated.
    """
    found = np.zeros(len(held), bool)
    if len(held) < WIDTH or len(training) < WIDTH:
        return found
    whole = complete(len(held), starts)
    wanted = _hashes(held)
    known = _known(np.unique(wanted[whole[: len(wanted)]]), training)
    found[: len(wanted)] = np.isin(wanted, known)
    return found & whole


def complete(size: int, starts: np.ndarray) -> np.ndarray:
    """Whether the string that begins at each of `size` places lies in one document, [size]."""
    ends = np.append(starts[1:], size)
    ends = ends[np.searchsorted(starts, np.arange(size), side="right") - 1]
    return np.arange(size) + WIDTH <= ends


def covered(repeated: np.ndarray) -> np.ndarray:
    """repeated: [H], where repeated strings begin -> [H], whether each position is in a repeated string."""
    changes = np.zeros(len(repeated) + WIDTH, np.int32)
    changes[: len(repeated)] += repeated
    changes[WIDTH:] -= repeated
    return np.cumsum(changes)[: len(repeated)] > 0


def _known(wanted: np.ndarray, training: np.ndarray) -> np.ndarray:
    """The hashes in `wanted`, which is sorted, that belong to a string of `training`."""
    table = np.zeros(1 << TABLE, bool)
    table[wanted >> np.uint64(64 - TABLE)] = True
    hits = np.zeros(len(wanted), bool)
    for start in range(0, len(training) - WIDTH + 1, BLOCK):
        seen = _hashes(training[start : start + BLOCK + WIDTH - 1])
        seen = seen[table[seen >> np.uint64(64 - TABLE)]]
        places = np.searchsorted(wanted, seen)
        places[places == len(wanted)] = 0
        hits[places[wanted[places] == seen]] = True
    return wanted[hits]


def _hashes(data: np.ndarray) -> np.ndarray:
    """The hash of each string of `data`, [N] uint8 -> [N - 31] uint64: of 2 bytes, then of 4, 8, 16 and 32."""
    hashes = data.astype(np.uint64)
    for level, odd in enumerate(ODD):
        width = 1 << level
        hashes = hashes[:-width] * np.uint64(odd) + hashes[width:]
        hashes ^= hashes >> np.uint64(29)
    hashes *= np.uint64(ODD[0])
    return hashes ^ (hashes >> np.uint64(32))
