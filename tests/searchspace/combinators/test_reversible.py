"""Reversible pairs give the values and gradients of the plain computation, and keep two streams however deep."""

import gc
import random
import weakref
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from searchspace.backbones.initialisation import residual_calls
from searchspace.combinators.residual import behind_norm
from searchspace.combinators.reversible import Reversible
from searchspace.contract import Context, Given, Streams
from searchspace.cost import Shape
from searchspace.errors import SpaceError
from searchspace.model.build import build, cost
from searchspace.primitives.attention.attention import Attention
from searchspace.primitives.attention.heads import Source, with_source
from searchspace.primitives.position.none import NoPosition, NoPositionConfig
from searchspace.random_models import random_block
from searchspace.registry import Configured, configure
from searchspace.sharing import one_model
from searchspace.space.space import Space
from searchspace.testing import count_flops, peak_bytes
from searchspace.tree import Block

DIM, LENGTH = 8, 21
ATTENTION, FEED_FORWARD = Block("attention", {}), Block("feed_forward", {"expand": 2})
NORM = Block("layer_norm", {})
LSH = Block("lsh_attention", {"heads": 2, "chunk": 4})


def _branches(blocks: tuple[Block | tuple[Block, ...], ...]) -> tuple[tuple[Block, ...], ...]:
    return tuple(block if isinstance(block, tuple) else (block,) for block in blocks)


def reversible(*blocks, dim: int = DIM, causal: bool = False, memory: bool = False, **fields) -> Configured:
    fields = {"times": 3, "norm": NORM, **fields}
    tree = Block("reversible", {**fields, "of": _branches(blocks or (ATTENTION, FEED_FORWARD))})
    return configure(tree, Given(dim=dim, causal=causal, memory=memory, widens=True))


def built(*blocks: Block, **fields) -> Reversible:
    torch.default_generator.manual_seed(0)
    with one_model():
        return reversible(*blocks, **fields).build().double()


def inputs() -> Tensor:
    return torch.randn(2, LENGTH, DIM, dtype=torch.float64, requires_grad=True)


def plainly(module: Reversible, x: Tensor, context: Context) -> Tensor:
    """The definition."""
    first = second = x
    for f, g in zip(module.of[::2], module.of[1::2], strict=True):
        first = first + f.dropout(behind_norm(f.norm, f.of, second, context)[1])
        second = second + g.dropout(behind_norm(g.norm, g.of, first, context)[1])
    if module.merge == "concatenate":
        return torch.cat([first, second], dim=2)
    return (first + second) / 2 if module.merge == "mean" else first + second


def check(module: Reversible, x: Tensor, others: tuple[Tensor, ...] = (), **context) -> None:
    """Values, losses, statistics and all gradients are those of the definition."""
    results = []
    for compute in (module, lambda x, context: plainly(module, x, context)):
        torch.default_generator.manual_seed(5)
        here = Context(**context)
        y = compute(x, here)
        loss = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum() + 3 * here.loss()
        wanted = [x, *module.parameters(), *others]
        results.append((y, here, torch.autograd.grad(loss, wanted, retain_graph=True, materialize_grads=True)))
    (found, here, gradients), (expected, there, wanted) = results
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(here.losses, there.losses)
    torch.testing.assert_close(here.statistics, there.statistics)
    for gradient, want in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient, want, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("merge", ["mean", "sum", "concatenate"])
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm", "none"])
def test_equals_the_plain_computation(merge: str, norm: str) -> None:
    check(built(merge=merge, norm=Block(norm, {})), inputs())


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_blocks_that_choose_by_content_choose_alike_again(causal: bool, padded: bool) -> None:
    padding = torch.arange(LENGTH) < torch.tensor([[LENGTH], [13]]) if padded else None
    check(built(LSH, FEED_FORWARD, causal=causal), inputs(), padding=padding)


def test_dropout_falls_on_the_same_places_again() -> None:
    dropped = Block("attention", {"dropout": 0.3}), Block("feed_forward", {"dropout": 0.3})
    module = built(*dropped, dropout=0.3)
    check(module, inputs())
    check(module.eval(), inputs())
    x = inputs()
    assert not module.train()(x, Context()).equal(module(x, Context()))


def test_losses_of_inner_blocks_have_their_gradients_and_statistics_are_reported_once() -> None:
    halting = Block("halting", {"times": 3, "ponder_weight": 0.1, "of": (FEED_FORWARD,)})
    module, context = built(ATTENTION, halting), Context()
    check(module, inputs())
    module(inputs(), context).sum().backward()
    assert len(context.losses["ponder"]) == len(context.statistics["halting_steps"]) == 3


def test_a_random_projection_that_is_drawn_anew_is_replayed() -> None:
    module = built(Block("favor_attention", {"redraw_every": 2, "features": 8}), FEED_FORWARD)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    module(inputs(), Context())
    module.load_state_dict(state)  # the next step draws a new matrix
    x, runs = inputs(), []
    for compute in (module, lambda x, context: plainly(module, x, context)):
        module.load_state_dict(state)
        for _ in range(2):
            y = compute(x, Context())
        runs.append((y, *torch.autograd.grad(y.square().sum(), [x, *module.parameters()]), *module.buffers()))
    torch.testing.assert_close(*runs, atol=1e-9, rtol=1e-9)


def test_the_encoder_s_output_gets_its_gradient() -> None:
    module = built(Block("attention", {"over": "memory"}), FEED_FORWARD, memory=True)
    table = torch.randn(2, 5, DIM, dtype=torch.float64, requires_grad=True)
    check(module, inputs(), (table,), memory=table * 2)


class Learned(NoPosition):
    def __init__(self) -> None:
        super().__init__(NoPositionConfig(dim=DIM))
        self.table = nn.Parameter(torch.randn(4, dtype=torch.float64))

    def bias(self, heads: int, queries: Tensor, keys: Tensor) -> Tensor:
        return self.table[:, None, None] * (queries[:, None] - keys[None, :]).abs()


def test_positions_that_are_learned_get_their_gradient() -> None:
    position = Learned()
    check(built(), inputs(), (position.table,), position=position)


def test_the_first_attention_reads_the_longer_source_and_passes_its_gradient() -> None:
    module, table = built(), torch.randn(2, 30, DIM, dtype=torch.float64, requires_grad=True)
    found = []
    for compute in (module, lambda x, context: plainly(module, x, context)):
        x, context = torch.ones(2, LENGTH, DIM, dtype=torch.float64), Context()
        context = with_source(context, Source(table * 2, torch.arange(30)))
        y = compute(x, context)
        assert not context.lanes
        found.append((y, *torch.autograd.grad(y.square().sum(), [table, *module.parameters()])))
    torch.testing.assert_close(*found, atol=1e-9, rtol=1e-9)
    shape = Shape(batch=2, length=LENGTH, source=30)
    fresh = built().float()
    x, source = torch.randn(2, LENGTH, DIM, requires_grad=True), torch.randn(2, 30, DIM, requires_grad=True)
    expected = count_flops(lambda: fresh(x, with_source(Context(), Source(source, torch.arange(30)))))
    declared = reversible().cost(shape)
    assert (declared.flops, declared.training_flops) == expected


def test_a_branch_may_hold_several_blocks() -> None:
    module = built((ATTENTION, FEED_FORWARD), (Block("convolution", {}), FEED_FORWARD))
    check(module, inputs())
    configured = reversible((ATTENTION, FEED_FORWARD), FEED_FORWARD)
    shape, x = Shape(batch=2, length=LENGTH), torch.randn(2, LENGTH, DIM, requires_grad=True)
    fresh = configured.build()
    declared = configured.cost(shape)
    assert (declared.flops, declared.training_flops) == count_flops(lambda: fresh(x, Context()))


@pytest.mark.parametrize("name", ["lstm", "compressive_attention"])
def test_blocks_that_compute_otherwise_without_gradients_compute_as_in_training(name: str) -> None:
    short = {"compressive_attention": {"segment": 4, "memory": 4, "compressed": 2, "rate": 2}}
    other = Block(name, short.get(name, {}))
    module, context = built(other, FEED_FORWARD, causal=True), Context()
    check(module, inputs())
    module(inputs(), context)
    assert len(context.losses.get("reconstruction", [])) == (3 if name == "compressive_attention" else 0)


@pytest.mark.parametrize("seed", range(6))
def test_any_blocks_may_stand_in_pairs(seed: int) -> None:
    rng, blocks = random.Random(seed), []
    surroundings = Given(dim=DIM, causal=bool(seed % 2), memory=True)
    while len(blocks) < 2:
        drawn = random_block(rng, surroundings)
        if drawn.after(Shape(length=64)).length == 64:
            blocks.append((drawn,))
    torch.default_generator.manual_seed(seed)
    with one_model():
        module = Reversible(replace(reversible(times=2).config, of=tuple(blocks))).double()
    memory = torch.randn(2, 5, DIM, dtype=torch.float64, requires_grad=True)
    check(module.eval(), inputs(), (memory,), memory=memory * 2, positions=torch.arange(LENGTH))


def test_one_parameter_in_all_layers_sums_its_gradients() -> None:
    module = built()
    for branch in module.of[2:]:
        if isinstance(branch.of[0], Attention):
            branch.of[0].query.weight = module.of[0].of[0].query.weight
    check(module, inputs())


def test_frozen_parameters_and_inputs_without_a_gradient() -> None:
    module, x = built(), inputs().detach()
    for parameter in module.of[0].parameters():
        parameter.requires_grad_(False)
    module(x, Context()).square().sum().backward()
    found = [parameter.grad for parameter in module.parameters()]
    module.zero_grad()
    plainly(module, x, Context()).square().sum().backward()
    for gradient, parameter in zip(found, module.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


def test_the_peak_of_training_does_not_grow_with_depth() -> None:
    def peak(times: int) -> int:
        module, x = reversible(times=times, dim=16).build(), torch.randn(2, 200, 16)
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        gradients = 2 * sum(parameter.nbytes for parameter in module.parameters())
        return peak_bytes(lambda: module(x, Context()).sum().backward()) - gradients

    assert peak(12) <= 1.1 * peak(2)


@pytest.mark.parametrize("blocks", [(), (LSH, FEED_FORWARD)], ids=["attention", "lsh_attention"])
def test_declared_costs_count_what_is_computed_again(blocks: tuple[Block, ...]) -> None:
    configured, shape = reversible(*blocks), Shape(batch=2, length=LENGTH)
    module, x = configured.build(), torch.randn(2, LENGTH, DIM, requires_grad=True)
    declared = configured.cost(shape)
    assert (declared.flops, declared.training_flops) == count_flops(lambda: module(x, Context()))
    assert declared.parameters == sum(parameter.numel() for parameter in module.parameters())


def test_nothing_is_held_after_the_backward_pass() -> None:
    module, context, x = built(Block("halting", {"times": 2, "of": (FEED_FORWARD,)}), FEED_FORWARD), Context(), inputs()
    gc.disable()
    try:
        y = module(x, context)
        (y.sum() + context.loss()).backward()
        kept = weakref.ref(y)
        del y, context
        assert kept() is None
    finally:
        gc.enable()


def test_reading_in_pieces_equals_reading_at_once() -> None:
    module = built(causal=True)
    x, streams, outs = inputs(), Streams(), []
    for piece in x.split([4, 1, 9, 7], dim=1):
        streams.rewind()
        outs.append(module(piece, Context(streams=streams)))
        streams.length += piece.shape[1]
    torch.testing.assert_close(torch.cat(outs, dim=1), module(x, Context()), atol=1e-9, rtol=1e-9)
    with torch.no_grad():
        torch.testing.assert_close(module(x, Context()), torch.cat(outs, dim=1), atol=1e-9, rtol=1e-9)


def test_half_precision_inverts_in_single() -> None:
    torch.default_generator.manual_seed(0)
    module = reversible(times=6).build().bfloat16()
    x = torch.randn(2, LENGTH, DIM, dtype=torch.bfloat16, requires_grad=True)
    found = torch.autograd.grad(module(x, Context()).float().square().sum(), x)[0]
    with torch.no_grad():
        assert module(x, Context()).dtype == torch.bfloat16
    wide = reversible(times=6).build().double()
    wide.load_state_dict(module.state_dict())
    far = x.detach().double().requires_grad_()
    expected = torch.autograd.grad(wide(far, Context()).square().sum(), far)[0]
    assert (found.double() - expected).abs().max() <= 12 * 2**-8 * expected.abs().max()


def test_mixed_precision_is_replayed() -> None:
    module, x = built(LSH, FEED_FORWARD, dropout=0.2).float(), inputs().detach().float().requires_grad_()
    runs = []
    for compute in (module, lambda x, context: plainly(module, x, context)):
        torch.default_generator.manual_seed(2)
        with torch.autocast("cpu", torch.bfloat16):
            y = compute(x, Context())
            tail = nn.functional.linear(y, module.of[1].of[0].inner.weight).float()  # a weight that was used within
        runs.append((y, *torch.autograd.grad(tail.square().sum(), [x, *module.parameters()])))
    for found, expected in zip(*runs, strict=True):
        assert (found - expected).abs().max() <= 4 * 2**-8 * expected.abs().max()  # sums of gradients round


def test_a_compiled_copy_agrees() -> None:
    torch.compiler.reset()
    module, x = built(times=1), inputs()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(x, Context()).square().sum(), x)[0]
    torch.testing.assert_close(found, torch.autograd.grad(module(x, Context()).square().sum(), x)[0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"of": ((ATTENTION,),)}, "must hold pairs of branches"),
        ({"of": ()}, "at least one block"),
        ({"times": 0}, "times must be at least 1"),
        ({"dropout": 1.0}, "dropout must lie"),
    ],
)
def test_refuses_values_that_make_no_sense(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(reversible().config, **fields)


BODY = "{reversible: {merge: concatenate, of: [{attention: {heads: 2}}, feed_forward]}}"
DECODER = "kind: decoder\nwidth: 8\nvocabulary: 11\n"


def test_a_decoder_may_end_twice_as_wide() -> None:
    text = f"{DECODER}tie_embeddings: false\nbody: [feed_forward, {BODY}]\n"
    model, tokens = build(text), torch.randint(0, 11, (2, 9))
    assert model(tokens).shape == (2, 9, 11)
    assert next(model.final_norm.parameters()).shape == (16,)
    assert model.embedding.output.weight.shape == (11, 16)
    declared = cost(text, batch=2, length=9)
    assert declared.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert (declared.flops, declared.training_flops) == count_flops(lambda: model(tokens))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{DECODER}body: {BODY}\n", "set tie_embeddings: false"),
        (f"{DECODER}tie_embeddings: false\nbody: [{BODY}, feed_forward]\n", "only the last block"),
        (f"{DECODER}tie_embeddings: false\nbody: {{residual: {{of: {BODY}}}}}\n", "only the last block"),
        (f"{DECODER}tie_embeddings: false\nbody: [{BODY}, {BODY}]\n", "only the last block"),
        (f"kind: encoder\nwidth: 8\nvocabulary: 11\nbody: {BODY}\n", "use merge='mean'"),
    ],
)
def test_a_wider_output_is_refused_where_it_cannot_stand(text: str, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build(text)


def test_a_space_may_search_how_the_streams_merge() -> None:
    body = "{reversible: {merge: !choice [mean, sum, concatenate], of: [{attention: {heads: 2}}, feed_forward]}}"
    space = Space.parse(f"{DECODER}tie_embeddings: false\nbody: {body}\n")
    found = set()
    for seed in range(20):
        model = space.sample(random.Random(seed)).architecture.configured.build()
        found.add(next(model.final_norm.parameters()).shape[0])
        assert model(torch.randint(0, 11, (1, 5))).shape == (1, 5, 11)
    assert found == {8, 16}


def test_outputs_start_smaller_the_deeper_it_is() -> None:
    def spread(times: int) -> float:
        torch.default_generator.manual_seed(0)
        model = build(f"kind: decoder\nwidth: 64\nvocabulary: 9\nbody: {{reversible: {{times: {times}, {OF}}}}}\n")
        assert residual_calls(model.body) == 2 * times
        return model.body[0].of[0].of[0].output.weight.std().item()

    OF = "of: [{attention: {heads: 2}}, feed_forward]"
    assert spread(16) == pytest.approx(spread(1) / 4)
