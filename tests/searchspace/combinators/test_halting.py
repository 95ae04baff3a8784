"""Halting against the published algorithm, written out one position at a time."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from searchspace.combinators.halting import Halting, HaltingConfig
from searchspace.contract import Context, Given
from searchspace.cost import Shape
from searchspace.registry import configure
from searchspace.tree import Block

DIM = 6
SWITCHES = list(
    itertools.product(("copied", "live"), ("published", "accumulated"), ("published", "graves"), (0.5, 0.99))
)
BODY = (
    Block("residual", {"norm": Block("layer_norm", {}), "of": (Block("attention", {"heads": 2}),)}),
    Block(
        "residual", {"norm": Block("layer_norm", {}), "order": "post", "of": (Block("feed_forward", {"expand": 1}),)}
    ),
)


def halting(*, causal: bool = True, **fields) -> Halting:
    """A halting block in float64 whose positions halt at different steps."""
    torch.default_generator.manual_seed(1)
    block = Block("halting", {"times": 4, **fields, "of": BODY})
    module = configure(block, Given(dim=DIM, causal=causal)).build().double().eval()
    torch.nn.init.normal_(module.halt.weight, std=2.0)
    torch.nn.init.constant_(module.halt.bias, -0.5)
    return module


def sinusoid(t: int) -> Tensor:
    pairs = [(math.sin(t * 10000 ** (-2 * m / DIM)), math.cos(t * 10000 ** (-2 * m / DIM))) for m in range(DIM // 2)]
    return torch.tensor([number for pair in pairs for number in pair], dtype=torch.float64)


def definition(module: Halting, x: Tensor, config: HaltingConfig) -> tuple[Tensor, Tensor, Tensor]:
    """(out, steps n, remainder r), section by section as Graves and the Universal Transformer's code compute it."""
    B, T, _ = x.shape
    h, r, n = ([[0.0] * T for _ in range(B)] for _ in range(3))
    running = [[True] * T for _ in range(B)]
    state, out = x.clone(), torch.zeros_like(x)
    for step in range(1, config.times + 1):
        entered = state + sinusoid(step)
        p = torch.sigmoid(entered @ module.halt.weight[0] + module.halt.bias)
        stepped = entered
        for block in module.of:
            stepped = block(stepped, Context())
        for b, t in itertools.product(range(B), range(T)):
            if not running[b][t]:
                if config.halted == "live":
                    state[b, t] = stepped[b, t]
                continue
            n[b][t] += 1
            cut = config.remainder == "graves" and step == config.times
            if cut or h[b][t] + p[b, t].item() > config.threshold:
                weight = r[b][t] = 1 - h[b][t]
                running[b][t] = False
            else:
                weight = p[b, t].item()
                h[b][t] += weight
            old = (1 - weight) * out[b, t] if config.update == "published" else out[b, t]
            out[b, t] = weight * stepped[b, t] + old
            state[b, t] = stepped[b, t]
    return out, torch.tensor(n), torch.tensor(r)


@pytest.mark.parametrize(("halted", "update", "remainder", "threshold"), SWITCHES)
@torch.no_grad()
def test_every_switch_equals_the_definition(halted: str, update: str, remainder: str, threshold: float) -> None:
    module = halting(halted=halted, update=update, remainder=remainder, threshold=threshold, ponder_weight=0.1)
    x, context = torch.randn(3, 5, DIM, dtype=torch.float64), Context()
    out, steps, left = definition(module, x, module.config)
    assert len(set(steps.flatten().tolist())) > 1, "positions should halt at different steps"
    torch.testing.assert_close(module(x, context), out)
    torch.testing.assert_close(context.loss(), (0.1 * (steps + left).mean()).double())
    torch.testing.assert_close(context.statistics["halting_steps"][0], steps.mean().double())


def timing(length: int, width: int = DIM) -> Tensor:
    """tensor2tensor's waves of the places from 0: [length, width], sines, then cosines, down to exactly 1 / 10,000."""
    frequencies = 10000.0 ** (-torch.arange(width // 2, dtype=torch.float64) / (width // 2 - 1))
    waves = torch.arange(length)[:, None] * frequencies
    return torch.cat([waves.sin(), waves.cos()], dim=1)


def released(module: Halting, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(out, updates n, remainders r) as `universal_transformer_util` of tensor2tensor computes them, with masks.

    `act_type: basic` is scope position with update released, `accumulated` is the update of that name, and `global` is
    scope sequence with update released. All states stay live.
    """
    config, threshold = module.config, module.config.threshold
    together = config.scope == "sequence"
    h, r, n = (torch.zeros(len(x), 1 if together else x.shape[1], dtype=x.dtype) for _ in range(3))
    state, out, step = x, torch.zeros_like(x), 0
    while ((h < threshold) & (n < config.times)).any():
        if config.signal_combine == "concatenate":
            state = torch.cat([state, timing(x.shape[1]).expand_as(state)], dim=2)
            own = timing(config.times, 2 * DIM)[step]
            own = module.signal.steps[step] * (2 * DIM) ** 0.5 if config.signal_form == "learned" else own
            state = torch.cat([state, own.expand_as(state)], dim=2) @ module.signal.map.weight.T
        else:
            own = timing(config.times)[step]
            own = module.signal.steps[step] * DIM**0.5 if config.signal_form == "learned" else own
            state = state + timing(x.shape[1]) + own
        p = torch.sigmoid(state @ module.halt.weight[0] + module.halt.bias)
        p = p.mean(1, keepdim=True) if together else p
        still = (h < 1.0).double()
        halted = (h + p * still > threshold).double() * still
        still = (h + p * still <= threshold).double() * still
        h = h + p * still
        r = r + halted * (1 - h)
        h = h + halted * r
        n = n + still + halted
        weight = (p * still + halted * r)[..., None]
        state = module.of(state, Context())
        out = state * weight + (out if config.update == "accumulated" else out * 1 - weight)
        step += 1
    return out, n.expand(x.shape[:2]), r.expand(x.shape[:2])


@pytest.mark.parametrize(
    ("signal_form", "combine"), [("released", "add"), ("learned", "add"), ("learned", "concatenate")]
)
@pytest.mark.parametrize(
    ("scope", "update"), [("position", "released"), ("position", "accumulated"), ("sequence", "released")]
)
def test_equals_the_released_code(scope: str, update: str, signal_form: str, combine: str) -> None:
    options = {"scope": scope, "update": update, "signal_form": signal_form, "signal": "position_and_step"}
    options |= {"signal_combine": combine}
    module = halting(causal=False, halted="live", threshold=0.7, ponder_weight=0.1, **options)
    x, context = torch.randn(3, 5, DIM, dtype=torch.float64), Context(positions=torch.arange(5))
    towards = module.halt.weight[0].detach()
    x[1] += (
        3 * towards if combine == "add" else 9 * towards @ module.signal.map.weight.detach()[:, :DIM]
    )  # halts at once
    found, (out, steps, left) = module(x, context), released(module, x)
    assert len(set(steps[:, 0].tolist())) > 1, "sequences should halt at different steps"
    torch.testing.assert_close(found, out, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(context.loss(), 0.1 * (steps + left).mean(), atol=1e-9, rtol=1e-9)
    inputs = [*module.parameters()]
    gradients, wanted = (torch.autograd.grad(y.square().sum(), inputs) for y in (found, out))
    for gradient, want in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient, want, atol=1e-9, rtol=1e-9)
    with torch.no_grad():  # sequences that have halted are left out of the later steps
        torch.testing.assert_close(module(x, Context(positions=torch.arange(5))), out, atol=1e-9, rtol=1e-9)


@torch.no_grad()
def test_the_real_positions_of_a_sequence_halt_together() -> None:
    module, context = halting(causal=False, scope="sequence"), Context(padding=torch.tensor([[True] * 3 + [False] * 2]))
    x = torch.randn(1, 5, DIM, dtype=torch.float64)
    torch.testing.assert_close(module(x, context)[:, :3], module(x[:, :3], Context()))


def test_a_learned_signal_counts_among_the_parameters() -> None:
    block = Block("halting", {"times": 4, "signal_form": "learned", "of": BODY})
    configured = configure(block, Given(dim=DIM, causal=True))
    module = configured.build()
    assert configured.cost(Shape()).parameters == sum(parameter.numel() for parameter in module.parameters())
    assert module.signal.steps.shape == (4, DIM)


@torch.no_grad()
def test_a_threshold_of_zero_takes_one_step() -> None:
    module, context = halting(threshold=0.0, signal="none"), Context()
    x = torch.randn(2, 3, DIM, dtype=torch.float64)
    torch.testing.assert_close(module(x, context), module.of(x, Context()))
    assert context.statistics["halting_steps"] == [torch.tensor(1.0)]


@torch.no_grad()
def test_a_position_that_never_halts_takes_every_step() -> None:
    module, context = halting(remainder="graves"), Context()
    torch.nn.init.zeros_(module.halt.weight)
    torch.nn.init.constant_(module.halt.bias, -50.0)
    module(torch.randn(1, 3, DIM, dtype=torch.float64), context)
    assert context.statistics["halting_steps"] == [torch.tensor(4.0)]
    torch.testing.assert_close(context.loss(), torch.tensor(0.05, dtype=torch.float64))  # (4 + remainder 1) * 0.01


@torch.no_grad()
def test_padded_positions_count_neither_in_the_output_nor_in_the_ponder_cost() -> None:
    module = halting(causal=False)
    x = torch.randn(1, 5, DIM, dtype=torch.float64)
    padding = torch.tensor([[True, True, True, False, False]])
    padded, alone = Context(padding=padding), Context()
    torch.testing.assert_close(module(x, padded)[:, :3], module(x[:, :3], alone))
    torch.testing.assert_close(padded.loss(), alone.loss())
    assert padded.statistics["halting_steps"] == alone.statistics["halting_steps"]


def test_gradients_reach_the_halting_unit_through_output_and_ponder_cost() -> None:
    module, context = halting(), Context()
    module(torch.randn(2, 4, DIM, dtype=torch.float64), context).sum().backward(retain_graph=True)
    through_output = module.halt.weight.grad.clone()
    module.halt.weight.grad = None
    context.loss().backward()
    assert through_output.abs().sum() > 0
    assert module.halt.weight.grad.abs().sum() > 0


@torch.no_grad()
def test_an_untrained_block_takes_the_expected_number_of_steps() -> None:
    block = Block("halting", {"times": 5, "of": BODY})
    configured = configure(block, Given(dim=DIM))
    module, context = configured.build(), Context()
    torch.nn.init.zeros_(module.halt.weight)
    module(torch.randn(2, 3, DIM), context)
    assert context.statistics["halting_steps"] == [torch.tensor(float(configured.config.untrained_steps))]
    cost = configured.cost(Shape(length=3))
    assert cost.expected_flops * 5 == cost.flops * 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"times": 1}, "times must be at least 2"),
        ({"threshold": 1.5}, "threshold must lie in"),
        ({"ponder_weight": -1.0}, "ponder_weight must not be negative"),
        ({"scope": "sequence"}, "looks ahead, so it cannot be part of a decoder; use scope='position'"),
        ({"of": ()}, "of must hold at least one block"),
    ],
)
def test_refuses_values_that_make_no_sense(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configure(Block("halting", {"times": 3, "of": BODY, **fields}), Given(dim=DIM, causal=True))
