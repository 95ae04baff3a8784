"""Declared costs equal the parameters of the built module and the FLOPs that PyTorch counts, for random models."""

import json
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from searchspace import zoo
from searchspace.combinators.halting import Halting, HaltingConfig
from searchspace.contract import Context, Streams
from searchspace.cost import Cost, Shape, linear, matmul, total
from searchspace.model.build import build, cost
from searchspace.primitives.feedforward.feed_forward import FeedForwardConfig
from searchspace.random_models import random_model
from searchspace.registry import Configured, block_type
from searchspace.testing import count_flops, kept_bytes

VOCABULARY = 11
FIELDS = {
    "decoder": [{"vocabulary": VOCABULARY}, {"vocabulary": VOCABULARY, "tie_embeddings": False}],
    "encoder": [
        {"vocabulary": VOCABULARY},
        {"vocabulary": VOCABULARY, "tokens": True},
        {"features": 3},
        {"features": 3, "classes": 5},
        {"vocabulary": VOCABULARY, "tokens": True, "class_token": True, "segments": 2, "head": "hidden"},
        {"features": 3, "classes": 5, "class_token": True, "pool": "first", "head": "hidden", "dropout": 0.1},
    ],
    "encoder_decoder": [{"vocabulary": VOCABULARY}, {"vocabulary": VOCABULARY, "tie_embeddings": False}],
}
models = st.sampled_from(sorted(FIELDS))
seeds = st.integers(0, 10**9)
lengths = st.integers(1, 9)


def drawn(name: str, seed: int) -> Configured:
    rng = random.Random(seed)
    return random_model(rng, name, **rng.choice(FIELDS[name]))


def built(configured: Configured) -> torch.nn.Module:
    torch.default_generator.manual_seed(0)
    return without_halting(configured.build())


def without_halting(model: torch.nn.Module) -> torch.nn.Module:
    """The worst case: no position halts."""
    for module in model.modules():
        if isinstance(module, Halting):
            torch.nn.init.constant_(module.halt.bias, -30.0)
            torch.nn.init.zeros_(module.halt.weight)
    return model


def inputs(configured: Configured, shape: Shape) -> tuple[torch.Tensor, ...]:
    features = getattr(configured.config, "features", None)
    if features is not None:
        return (torch.randn(shape.batch, shape.length, features),)
    lengths = [shape.length] if configured.type.name != "encoder_decoder" else [shape.memory, shape.length]
    return tuple(torch.randint(0, VOCABULARY, (shape.batch, length)) for length in lengths)


@given(models, seeds)
@settings(max_examples=40)
def test_parameters_equal_those_of_the_built_model(name: str, seed: int) -> None:
    configured = drawn(name, seed)
    cost = configured.cost(Shape(length=4, memory=3))
    assert cost.parameters == sum(p.numel() for p in configured.build().parameters())


@given(models, seeds, st.integers(1, 3), lengths, lengths)
@settings(max_examples=40)
def test_flops_equal_what_pytorch_counts(name: str, seed: int, batch: int, length: int, memory: int) -> None:
    configured = drawn(name, seed)
    shape = Shape(batch=batch, length=length, memory=memory)
    model, arguments = built(configured), inputs(configured, shape)
    cost = configured.cost(shape)
    assert (cost.flops, cost.training_flops) == count_flops(lambda: model(*arguments))


@given(st.sampled_from(["decoder", "encoder_decoder"]), seeds, lengths)
@settings(max_examples=25)
def test_state_bytes_equal_what_streaming_keeps(name: str, seed: int, length: int) -> None:
    configured = drawn(name, seed)
    shape = Shape(batch=2, length=length, memory=3)
    model, arguments = built(configured).eval(), inputs(configured, shape)
    if model.cannot_stream:
        return
    context = Context(streams=Streams())
    with torch.no_grad():
        for token in arguments[-1].split(1, dim=1):
            model(*arguments[:-1], token, context)
    assert context.streams.length == length
    assert configured.cost(shape).state_bytes == context.streams.nbytes()


def test_parts_scale_with_the_number_of_calls() -> None:
    once = Cost(parameters=5, flops=7, training_flops=21, expected_flops=7, activation_bytes=3, state_bytes=2)
    assert once.times(3).parameters == 15
    shared = once.times(3, shared=True)
    assert (shared.parameters, shared.flops, shared.state_bytes) == (5, 21, 6)
    assert total([once, once]) == once.times(2)


def test_expected_training_flops_are_those_of_the_mean_depth() -> None:
    plain, halting = zoo.load("transformer_decoder", "tiny"), zoo.load("universal_transformer", "small")  # 6 steps
    assert cost(plain, length=32).expected_training_flops == cost(plain, length=32).training_flops
    every = cost(halting, Shape(length=32, halting_steps=6.0))
    assert every.expected_training_flops == every.training_flops
    some = cost(halting, Shape(length=32, halting_steps=3.0))
    logits = 3 * matmul(32, 256, halting.root.fields["vocabulary"]).flops
    assert some.expected_training_flops - logits == pytest.approx((every.training_flops - logits) / 2, rel=1e-4)
    assert Cost().expected_training_flops == 0


def test_a_sum_of_numbers_of_numpy_and_torch_is_of_python():
    found = total(
        [Cost(parameters=np.int64(3), flops=torch.tensor(4)), Cost(parameters=1, state_bytes=np.float64(0.5))]
    )
    assert json.dumps(found.numbers())
    assert (found.parameters, found.flops, found.state_bytes) == (4, 4, 0.5)


def test_a_product_that_needs_one_gradient_costs_two_passes() -> None:
    assert matmul(2, 3, 5, backward=1).training_flops == 2 * matmul(2, 3, 5).flops
    assert linear(Shape(batch=2, length=4), 3, 5, bias=False).parameters == 15


@pytest.mark.parametrize(("steps", "expected"), [(None, 2), (1.0, 1), (2.5, 2.5), (99.0, 4)])
def test_a_halting_block_expects_the_steps_that_were_measured(steps: float | None, expected: float) -> None:
    inner = Configured(block_type("feed_forward"), FeedForwardConfig(dim=8))
    shape = Shape(length=6, halting_steps=steps)
    cost = Halting.cost(HaltingConfig(dim=8, times=4, of=(inner,)), shape)
    one = inner.cost(shape).flops + 2 * 6 * 8
    assert cost.flops == 4 * one
    assert cost.expected_flops == expected * one


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("transformer_decoder", "small"),
        ("transformer_encoder", "tiny"),
        ("vit", "tiny"),
        ("funnel_decoder", "tiny"),
        ("universal_transformer", "small"),
    ],
)
def test_activation_bytes_are_near_what_autograd_keeps(name: str, size: str) -> None:
    architecture = zoo.load(name, size, width=32)
    model = without_halting(build(architecture))
    shape = Shape(batch=2, length=17)

    def loss() -> torch.Tensor:
        logits = model(*inputs(architecture.configured, shape)).flatten(0, -2)
        return torch.nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64))

    assert cost(architecture, shape).activation_bytes == pytest.approx(kept_bytes(loss, model.parameters()), rel=0.03)
