import pytest
import torch

from searchspace.contract import Context, Given
from searchspace.cost import Shape
from searchspace.language import schema
from searchspace.registry import configure
from searchspace.testing import count_flops, kept_bytes
from searchspace.tree import Block

DIM = 8


def residual(**fields):
    block = Block("residual", {"norm": Block("layer_norm", {}), "of": (Block("feed_forward", {}),), **fields})
    torch.default_generator.manual_seed(0)
    return configure(block, Given(dim=DIM)).build()


def test_pre_adds_the_blocks_of_the_normalised_input() -> None:
    module, x = residual(order="pre"), torch.randn(2, 5, DIM)
    torch.testing.assert_close(module(x, Context()), x + module.of[0](module.norm(x, Context()), Context()))


def test_post_normalises_the_sum() -> None:
    module, x = residual(order="post"), torch.randn(2, 5, DIM)
    out = module(x, Context())
    torch.testing.assert_close(out, module.norm(x + module.of[0](x, Context()), Context()))
    torch.testing.assert_close(out.mean(-1), torch.zeros(2, 5), atol=1e-6, rtol=0)


def test_on_the_stream_the_blocks_add_to_the_normalised_input() -> None:
    module, x = residual(order="stream"), torch.randn(2, 5, DIM)
    normed = module.norm(x, Context())
    torch.testing.assert_close(module(x, Context()), normed + module.of[0](normed, Context()))
    assert not module.pre


def test_a_norm_on_the_stream_costs_what_one_before_the_blocks_does() -> None:
    fields = {"norm": Block("layer_norm", {}), "of": (Block("feed_forward", {}),)}
    pre, stream = (
        configure(Block("residual", {"order": order, **fields}), Given(dim=DIM)) for order in ("pre", "stream")
    )
    shape = Shape(batch=2, length=64)
    assert stream.cost(shape) == pre.cost(shape)
    kept = []
    for configured in (pre, stream):
        block, x = configured.build(), torch.randn(2, 64, DIM, requires_grad=True)
        kept.append(kept_bytes(lambda: block(x, Context()), block.parameters()))  # noqa: B023
    assert kept[0] == kept[1]


def test_dropout_falls_on_the_blocks_and_not_on_the_input() -> None:
    module, x = residual(dropout=0.9), torch.full((4, 50, DIM), 7.0)
    torch.nn.init.zeros_(module.of[0].output.weight)
    torch.nn.init.ones_(module.of[0].output.bias)
    assert set(module(x, Context()).round().unique().tolist()) == {7.0, 17.0}
    assert module.eval()(x, Context()).unique().tolist() == [8.0]


def test_several_blocks_make_one_branch() -> None:
    feed_forward = Block("feed_forward", {})
    module, x = residual(norm=Block("none", {}), of=(feed_forward, feed_forward)), torch.randn(1, 3, DIM)
    first, second = module.of
    torch.testing.assert_close(module(x, Context()), x + second(first(x, Context()), Context()))


MEMORY = Block("relative_attention", {"heads": 2, "segment": 4, "memory": 4})


@pytest.mark.parametrize(
    "tree",
    [
        Block("residual", {"of": (MEMORY, MEMORY)}),
        Block("residual", {"order": "stream", "of": (Block("compressive_attention", {"segment": 4, "memory": 4}),)}),
        Block("residual", {"order": "post", "of": (MEMORY,)}),
        Block("residual", {"norm": Block("none", {}), "of": (MEMORY,)}),
        Block("residual", {"of": (Block("parallel", {"of": ((MEMORY,), (MEMORY,))}),)}),
        Block("residual", {"of": (Block("repeat", {"times": 2, "share_weights": True, "of": (MEMORY,)}),)}),
        Block("reversible", {"of": ((MEMORY,), (MEMORY,)), "norm": Block("rms_norm", {})}),
    ],
    ids=lambda tree: str(tree.fields.get("order", tree.name)),
)
def test_a_memory_of_what_enters_the_norm_costs_what_is_declared(tree: Block) -> None:
    configured = configure(schema.complete(tree), Given(dim=DIM, causal=True))
    block, x = configured.build(), torch.randn(2, 11, DIM, requires_grad=True)

    def loss() -> torch.Tensor:
        context = Context()
        return block(x, context).sum() + context.loss()

    cost = configured.cost(Shape(batch=2, length=11))
    assert (cost.flops, cost.training_flops) == count_flops(loss)


def test_only_the_first_block_finds_what_was_normed() -> None:
    found = []

    class Looks(torch.nn.Module):
        def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
            found.append(context.before_norm(x))
            return x + 1

    module, x, context = residual(), torch.randn(1, 3, DIM), Context()
    module.of[0] = Looks()
    module.of.append(Looks())
    module(x, context)
    assert found[0].x is x and found[0].module is module.norm
    assert found[1].x is found[1].normed and found[1].module is None
    assert not context.lanes


@pytest.mark.parametrize(("fields", "message"), [({"dropout": 1.0}, "dropout"), ({"of": ()}, "at least one block")])
def test_refuses_values_that_make_no_sense(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        residual(**fields)
