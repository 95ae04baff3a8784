"""Sums of shifted products equal their formula, in blocks of any length."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.convolution.shifted import products, returned, weighted

SMALL = st.integers(1, 5)


@given(B=st.integers(1, 2), T=st.integers(1, 9), K=SMALL, H=st.integers(1, 3), D=st.integers(1, 3), positions=SMALL)
def test_blocks_of_any_length_are_the_whole_sum(B, T, K, H, D, positions):
    torch.default_generator.manual_seed(0)
    x, w = torch.randn(B, T + K - 1, H, D), torch.randn(K, B, T, H, 1)
    y, dy, dw = torch.empty(B, T, H, D), torch.randn(B, T, H, D), torch.empty(K, B, T, H, D)
    near = x.unfold(1, K, 1).movedim(4, 0)  # [K, B, T, H, D]
    weighted(x, w, y, positions)
    torch.testing.assert_close(y, (w * near).sum(0))
    for k, part, product in products(dy, x, K, positions):
        dw[k, :, part] = product
    torch.testing.assert_close(dw, dy * near)
    # The adjoint: both are the same number.
    torch.testing.assert_close((returned(dy, w, positions) * x).sum(), (dy * y).sum(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_rounded_once(dtype):
    x, w = torch.ones(1, 40, 1, dtype=dtype), torch.full((33, 1, 1, 1), 1 / 33, dtype=dtype).expand(33, 1, 8, 1)
    y = torch.empty(1, 8, 1, dtype=dtype)
    weighted(x, w, y, 4)
    exact = w.double().sum(0)
    torch.testing.assert_close(y.double(), exact, atol=0, rtol=torch.finfo(dtype).eps / 2)
    dx = returned(torch.ones(1, 8, 1, dtype=dtype), w, 4)
    torch.testing.assert_close(
        dx[0, 7:33].double(), (8 * w[0, 0, 0].double()).expand(26, 1), atol=0, rtol=torch.finfo(dtype).eps / 2
    )
