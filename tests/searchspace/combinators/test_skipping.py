"""Positions that halting skips in evaluation never change a result, whatever values they hold."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from searchspace.combinators.halting import Halting
from searchspace.combinators.skipping import at_positions, behind_mixers, pointwise
from searchspace.contract import Context, Given, Streams
from searchspace.registry import block_types, configure
from searchspace.tree import Block

DIM = 6
NORM = Block("layer_norm", {})
FEED_FORWARD = Block("residual", {"norm": NORM, "of": (Block("feed_forward", {"expand": 1}),)})
ATTENTION = Block("residual", {"norm": NORM, "order": "post", "of": (Block("attention", {"heads": 2}),)})
OVER_MEMORY = Block("attention", {"heads": 2, "over": "memory"})
BODIES = {
    "attention, feed-forward": (ATTENTION, FEED_FORWARD),
    "feed-forward, attention": (FEED_FORWARD, ATTENTION),
    "feed-forwards": (FEED_FORWARD, FEED_FORWARD),
    "convolution between": (FEED_FORWARD, Block("convolution", {}), FEED_FORWARD, FEED_FORWARD),
    "over a memory": (OVER_MEMORY, FEED_FORWARD),
    "recurrent": (Block("lstm", {}), FEED_FORWARD),
    "in parallel": (ATTENTION, Block("parallel", {"of": ((FEED_FORWARD,), (Block("gated_linear_unit", {}),))})),
}


class Counted(nn.Module):
    """A block that remembers how many sequences and positions it was given."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block, self.seen = block, []

    def forward(self, x: Tensor, context: Context) -> Tensor:
        self.seen.append(tuple(x.shape[:2]))
        return self.block(x, context)


def halting(body: tuple[Block, ...], **fields) -> Halting:
    """In float64, with positions that halt at different steps."""
    torch.default_generator.manual_seed(1)
    block = Block("halting", {"times": 5, **fields, "of": body})
    module = configure(block, Given(dim=DIM, memory=True)).build().double().eval()
    nn.init.normal_(module.halt.weight, std=2.0)
    nn.init.constant_(module.halt.bias, -0.5)
    return module


def context(batch: int, length: int, padded: bool) -> Context:
    generator = torch.Generator().manual_seed(2)
    memory = torch.randn(batch, 4, DIM, generator=generator, dtype=torch.float64)
    padding = torch.rand(batch, length, generator=generator) < 0.7 if padded else None
    memory_padding = torch.rand(batch, 4, generator=generator) < 0.7 if padded else None
    if padding is not None:
        padding[0] = False
    return Context(padding=padding, positions=torch.arange(length), memory=memory, memory_padding=memory_padding)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("halted", ["copied", "live"])
@pytest.mark.parametrize("body", BODIES)
@torch.no_grad()
def test_leaving_out_changes_no_number(body: str, halted: str, padded: bool) -> None:
    module = halting(BODIES[body], halted=halted)
    x = torch.randn(6, 3, DIM, dtype=torch.float64)
    whole, part = context(6, 3, padded), context(6, 3, padded)
    expected = module.train()(x, whole)  # computes all of it
    torch.testing.assert_close(module.eval()(x, part), expected, atol=1e-9, rtol=1e-9)
    assert part.statistics == whole.statistics
    torch.testing.assert_close(part.loss(), whole.loss())


@torch.no_grad()
def test_halted_sequences_reach_no_block_and_halted_positions_none_behind_the_mixer() -> None:
    module = halting((ATTENTION, FEED_FORWARD), signal="none")
    mixer, behind = (Counted(block) for block in module.of)
    module.of[0], module.of[1] = mixer, behind
    nn.init.zeros_(module.halt.weight)
    module.halt.weight[0, 0] = 40.0  # a position halts at once where its first channel is positive
    x = torch.randn(4, 3, DIM, dtype=torch.float64)
    x[..., 0] = -1.0
    x[0, :, 0] = x[2, :, 0] = x[1, 0, 0] = 1.0
    module(x, Context())
    assert (mixer.seen[0], behind.seen[0]) == ((4, 3), (4, 3))
    assert mixer.seen[1][0] < 4
    assert behind.seen[1][0] == 1
    assert sum(a * b for a, b in behind.seen) < sum(a * b for a, b in mixer.seen)


def test_with_gradients_everything_is_computed() -> None:
    module = halting((ATTENTION, FEED_FORWARD))
    counted = module.of[1] = Counted(module.of[1])
    module(torch.randn(4, 3, DIM, dtype=torch.float64), Context())
    assert set(counted.seen) == {(4, 3)}


@torch.no_grad()
def test_a_recurrent_block_of_an_encoder_hands_over_the_states_of_all_sequences() -> None:
    torch.default_generator.manual_seed(1)
    block = Block("halting", {"times": 4, "of": (Block("lstm", {}),)})
    module = configure(block, Given(dim=DIM)).build().double().eval()
    nn.init.normal_(module.halt.weight, std=9.0)
    part, whole, x = Context(), Context(), torch.randn(5, 1, DIM, dtype=torch.float64)
    module(x, part)
    module.train()(x, whole)
    for name in ("final.0.h", "final.0.c"):
        torch.testing.assert_close(part.read(name), whole.read(name))


@torch.no_grad()
def test_a_stream_leaves_out_halted_positions_behind_the_mixer() -> None:
    block = Block("halting", {"times": 4, "of": (ATTENTION, FEED_FORWARD)})
    torch.default_generator.manual_seed(1)
    module = configure(block, Given(dim=DIM, causal=True)).build().double().eval()
    nn.init.constant_(module.halt.bias, 9.0)  # one step each
    counted = module.of[1] = Counted(module.of[1])
    streams, x = Streams(), torch.randn(1, 3, DIM, dtype=torch.float64)
    outs = []
    for piece in x.split(1, dim=1):
        streams.rewind()
        outs.append(module(piece, Context(streams=streams)))
        streams.length += 1
    torch.testing.assert_close(torch.cat(outs, dim=1), module.train()(x, Context()))
    assert counted.seen[:3] == [(1, 1)] * 3


POINTWISE = [
    kind for role in ("block", "norm") for kind in block_types(role).values() if kind.module.capabilities.pointwise
]


@pytest.mark.parametrize("kind", POINTWISE, ids=lambda kind: f"{kind.role}-{kind.name}")
@torch.no_grad()
def test_what_says_that_it_reads_each_position_by_itself_does(kind) -> None:
    one = (Block("feed_forward", {}),)
    inside = {"residual": {"norm": NORM, "of": one}, "sequence": {"of": one}, "parallel": {"of": (one, one)}}
    inside["use"] = {"name": "shared", "of": one}
    fields = inside.get(kind.name, {})
    configured = configure(Block(kind.name, fields), Given(dim=DIM, causal=True), role=kind.role)
    assert pointwise(configured)
    block, x = configured.build().double().eval(), torch.randn(3, 5, DIM, dtype=torch.float64)
    wanted = torch.rand(3, 5) < 0.5
    whole = block(x, Context(padding=torch.rand(3, 5) < 0.5, positions=torch.arange(5)))
    found = at_positions([block], x, wanted, Context(streams=Streams(), padding=wanted))
    torch.testing.assert_close(found, torch.where(wanted[..., None], whole, x))
    assert at_positions([block], x, wanted & False, Context()) is x


@pytest.mark.parametrize(
    ("body", "expected"),
    [("attention, feed-forward", 1), ("feed-forward, attention", 0), ("feed-forwards", 2), ("convolution between", 2)],
)
def test_counts_the_blocks_behind_the_last_mixer(body: str, expected: int) -> None:
    given = Given(dim=DIM, memory=True)
    blocks = tuple(configure(block, given) for block in BODIES[body])
    assert behind_mixers(blocks) == expected
    mixing = Block("residual", {"norm": NORM, "of": (Block("attention", {"heads": 2}),)})
    assert not pointwise(configure(mixing, replace(given, causal=True)))
