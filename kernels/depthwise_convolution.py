"""Depthwise convolution over time: every channel is filtered by its own taps.

Chollet 2017, "Xception", https://arxiv.org/abs/1610.02357; Wu et al. 2019, https://arxiv.org/abs/1901.10430, eq. 1:
out_{i,c} = sum_k weight_{c,k} x_{i+k,c}. B batch, T time, C channels, K taps.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def depthwise_convolution_reference(x: Tensor, weight: Tensor) -> Tensor:
    """The definition, tap by tap in float32 or wider; arguments as for `depthwise_convolution`."""
    wide = torch.promote_types(x.dtype, torch.float32)
    out = x.shape[1] - weight.shape[1] + 1
    taps = [x[:, k : k + out].to(wide) * weight[:, k].to(wide) for k in range(weight.shape[1])]
    return torch.stack(taps).sum(0).to(x.dtype)


def depthwise_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """x: [B, T + K - 1, C], the padding already in front and behind; weight: [C, K] -> [B, T, C]."""
    return F.conv1d(x.transpose(1, 2), weight[:, None, :], groups=weight.shape[0]).transpose(1, 2)
