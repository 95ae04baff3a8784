"""Omits points from a picture of many, so that the picture looks the same and all important points remain."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST = 1000  # points of one kind in a scatter plot: each is an element of the picture


def thinned(
    x: ArrayLike,
    y: ArrayLike,
    keep: ArrayLike | None = None,
    most: int = MOST,
    *,
    log: tuple[bool, bool] = (False, False),
) -> NDArray[np.int64]:
    """The indices of about `most` points that look the same as all points, ascending.

    The plane is cut into cells, and each cell that holds points keeps one. So a point that is alone in its cell, such
    as an outlier, is always kept. The smallest and largest values of x and y are kept, and the points in the mask
    `keep`. log: whether the axes of x and y are logarithmic; cells are equally large in the picture.
    Raises ValueError if x and y have different lengths, or if a value on a logarithmic axis is not positive.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.shape != y.shape:
        raise ValueError(f"x and y must have as many values, but got {len(x)} and {len(y)}.")
    if len(x) <= most:
        return np.arange(len(x))
    cells = int(math.sqrt(most))
    across, down = (_drawn(values, is_log) for values, is_log in zip((x, y), log))
    place = _cells(across, cells) * cells + _cells(down, cells)
    chosen = np.zeros(len(x), dtype=bool)
    chosen[np.unique(place, return_index=True)[1]] = True
    for values in (x, y):
        chosen[[np.argmin(values), np.argmax(values)]] = True
    if keep is not None:
        chosen |= np.asarray(keep, dtype=bool)
    return np.flatnonzero(chosen)


def _drawn(values: NDArray[np.float64], is_log: bool) -> NDArray[np.float64]:
    """The values in proportion to their positions on an axis. Raises ValueError if a logarithm does not exist."""
    if not is_log:
        return values
    if values.min() <= 0:
        raise ValueError(f"A logarithmic axis has positive values only, but one is {values.min():g}.")
    return np.log10(values)


def _cells(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    low, high = values.min(), values.max()
    scaled = (values - low) / ((high - low) or 1.0)
    return np.minimum((scaled * count).astype(np.int64), count - 1)
