import pytest
import torch

from searchspace.contract import Context, Given
from searchspace.cost import Shape
from searchspace.parts import Part
from searchspace.registry import configure
from searchspace.tree import Block

DIM = 8
BRANCHES = ((Block("feed_forward", {}),), (Block("convolution", {}), Block("feed_forward", {})))


def parallel(combine: str):
    torch.default_generator.manual_seed(0)
    configured = configure(Block("parallel", {"combine": combine, "of": BRANCHES}), Given(dim=DIM))
    return configured, configured.build()


@pytest.mark.parametrize("combine", ["add", "mean", "concatenate"])
def test_branches_read_the_same_input_and_are_combined(combine: str) -> None:
    _, module = parallel(combine)
    x, context = torch.randn(2, 5, DIM), Context()
    first = module.of[0][0](x, context)
    second = module.of[1][1](module.of[1][0](x, context), context)
    expected = {
        "add": lambda: first + second,
        "mean": lambda: (first + second) / 2,
        "concatenate": lambda: module.output(torch.cat([first, second], dim=-1)),
    }
    torch.testing.assert_close(module(x, context), expected[combine]())


def test_a_branch_of_several_blocks_is_one_part() -> None:
    configured, _ = parallel("add")
    part = Part(name="body", shape=Shape(length=3), block=configured)
    assert [path for path, _ in part.leaves()] == [
        "body.parallel.of.0.feed_forward",
        "body.parallel.of.1.sequence.of.0.convolution",
        "body.parallel.of.1.sequence.of.1.feed_forward",
    ]


def test_refuses_no_branches() -> None:
    with pytest.raises(ValueError, match="at least one block"):
        configure(Block("parallel", {"of": ()}), Given(dim=DIM))
