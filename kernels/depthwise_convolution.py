"""Depthwise convolution over time: every channel is filtered by its own taps.

Chollet 2017, "Xception", https://arxiv.org/abs/1610.02357; Wu et al. 2019, https://arxiv.org/abs/1901.10430, eq. 1:
out_{i,c} = sum_k weight_{c,k} x_{i+k,c}. B batch, T time, C channels, K taps.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# Taps up to which a picture of height 1 is faster, because it is read as it lies, with no copy that puts time last.
# Forward and backward at B 4, T 512, float32, one core of a shared CPU, best of 9, line and picture: C 512, K 9: 40.8
# and 10.8 ms; C 256, K 7: 6.3 and 2.3, K 11: 10.0 and 2.8, K 15: 8.3 and 21.2. In bfloat16 and float64 it is no gain.
SHORT = 11


def depthwise_convolution_reference(x: Tensor, weight: Tensor) -> Tensor:
    """The definition, tap by tap in float32 or wider; arguments as for `depthwise_convolution`."""
    wide = torch.promote_types(x.dtype, torch.float32)
    out = x.shape[1] - weight.shape[1] + 1
    taps = [x[:, k : k + out].to(wide) * weight[:, k].to(wide) for k in range(weight.shape[1])]
    return torch.stack(taps).sum(0).to(x.dtype)


def depthwise_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """x: [B, T + K - 1, C], the padding already in front and behind; weight: [C, K] -> [B, T, C]."""
    across = x.transpose(1, 2)
    if weight.shape[1] <= SHORT and x.dtype == torch.float32 and x.device.type == "cpu":
        image = across.unsqueeze(2)  # [B, C, 1, T + K - 1], the channels side by side in memory
        return F.conv2d(image, weight[:, None, None, :], groups=weight.shape[0]).squeeze(2).transpose(1, 2)
    return F.conv1d(across, weight[:, None, :], groups=weight.shape[0]).transpose(1, 2)
