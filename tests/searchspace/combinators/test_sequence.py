import torch

from searchspace.contract import Context, Given
from searchspace.cost import Cost, Shape
from searchspace.registry import configure
from searchspace.tree import Block


def test_blocks_follow_one_another() -> None:
    block = Block("sequence", {"of": (Block("convolution", {}), Block("feed_forward", {}))})
    module = configure(block, Given(dim=8)).build()
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(module(x, Context()), module.of[1](module.of[0](x, Context()), Context()))


def test_an_empty_sequence_is_the_identity_and_costs_nothing() -> None:
    configured = configure(Block("sequence", {"of": ()}), Given(dim=8))
    x = torch.randn(2, 3, 8)
    assert torch.equal(configured.build()(x, Context()), x)
    assert configured.cost(Shape()) == Cost()
