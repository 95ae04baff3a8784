"""What relative scorings share: waves of the distance between a query and a key, and the shift that lines them up.

Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860, section 3.3 and appendix B. Its waves are
R_t = [sin(t f) | cos(t f)], f_m = 10000^(-2m/C), in two halves; Funnel-Transformer's, whose formula writes -m/(C/2),
are the same. A score that depends on the distance alone is computed once for a query and a distance, in columns of
falling distance, and then shifted so that it stands below its key. C width, n queries, K keys, R columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

FREQUENCY_BASE = 10000.0


def falling(largest: int, columns: int, device: torch.device | None = None) -> Tensor:
    """The distances largest, largest - 1, ...: [columns] of int64; positive ones lie in the past."""
    return torch.arange(largest, largest - columns, -1, device=device)


def waves(distances: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """distances: [R] of any sign -> [R, width], the sines and then the cosines."""
    precise = torch.promote_types(dtype, torch.float32)
    pairs = torch.arange(width // 2, device=distances.device, dtype=precise)
    angles = distances.to(precise)[:, None] * FREQUENCY_BASE ** (-2 * pairs / width)  # [R, width / 2]
    return torch.cat([angles.sin(), angles.cos()], dim=1).to(dtype)


def columns(queries: int, keys: int, *, causal: bool, step: int = 1) -> int:
    """How many distances `relative_shift` needs, from that of the last query to the first key down.

    Causal leaves out the distances that no query may read but for the `step` that the shift itself needs.
    """
    return keys + step * (1 if causal else queries)


def relative_shift(scores: Tensor, keys: int, step: int = 1) -> Tensor:
    """scores: [..., n, R] by falling distance -> [..., n, K] by key; a view, nothing is copied.

    Column r of row i holds the score of the distance d0 - r, d0 that of the last query to the first key. A query lies
    `step` positions beyond the one before it, so key j of row i is column step * (n - 1 - i) + j. With the columns of
    `columns(..., causal=True)` what lies in a query's future is whatever the shift finds there, to be masked.
    """
    *batch, n, R = scores.shape
    if keys + step > R:
        raise ValueError(f"relative_shift needs keys + step columns or more, but got {R} for {keys} keys, step {step}.")
    # Rows shorter by `step`, counted from where the first one begins: each row starts `step` columns before the last.
    flat = scores.flatten(-2).narrow(-1, step * (n - 1), n * (R - step))
    return flat.view(*batch, n, R - step)[..., :keys]


def check_waves(dim: int) -> None:
    """Raise ValueError unless `dim` splits into sines and cosines."""
    if dim % 2:
        raise ValueError(f"Waves of distances are pairs of sine and cosine, so dim must be even, but got {dim}.")
