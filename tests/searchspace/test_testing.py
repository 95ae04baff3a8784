"""The tools that measure blocks measure correctly."""

import torch

from searchspace.testing import peak_bytes


def test_the_peak_is_the_most_that_was_there_at_one_moment():
    def call():
        first = torch.zeros(1000)  # 4,000 bytes
        second = first + 1  # 8,000
        del first
        third = second.double()  # 12,000
        view = third.view(10, 100)
        del second, third
        return view * 2  # 16,000

    assert peak_bytes(call) == 16_000


def test_what_was_there_before_and_what_is_changed_in_place_counts_for_nothing():
    before = torch.zeros(1000)
    assert peak_bytes(lambda: before.add_(1).view(10, 100)) == 0


def test_the_backward_pass_counts_too():
    x = torch.randn(1000, requires_grad=True)
    assert peak_bytes(lambda: x.exp().sum().backward()) > peak_bytes(lambda: x.exp().sum())
