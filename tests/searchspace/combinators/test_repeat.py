import pytest
import torch

from searchspace.contract import Context, Given
from searchspace.cost import Shape
from searchspace.registry import configure
from searchspace.tree import Block

DIM = 8
BODY = (Block("residual", {"norm": Block("layer_norm", {}), "of": (Block("feed_forward", {}),)}),)


def repeat(**fields):
    torch.default_generator.manual_seed(0)
    configured = configure(Block("repeat", {"times": 3, "of": BODY, **fields}), Given(dim=DIM))
    return configured, configured.build()


def test_copies_have_their_own_weights() -> None:
    configured, module = repeat()
    assert len(module.of) == 3
    assert not torch.equal(module.of[0][0].of[0].inner.weight, module.of[1][0].of[0].inner.weight)
    x = torch.randn(1, 4, DIM)
    expected = x
    for stack in module.of:
        expected = stack(expected, Context())
    torch.testing.assert_close(module(x, Context()), expected)
    assert configured.cost(Shape()).parameters == sum(p.numel() for p in module.parameters())


def test_shared_weights_are_one_set_applied_again_and_again() -> None:
    configured, module = repeat(share_weights=True)
    one = sum(p.numel() for p in module.of[0].parameters())
    assert sum(p.numel() for p in module.parameters()) == one == configured.cost(Shape()).parameters
    x, context = torch.randn(1, 4, DIM), Context()
    stack = module.of[0]
    torch.testing.assert_close(module(x, context), stack(stack(stack(x, context), context), context))


def test_shared_weights_sum_the_gradients_of_all_steps() -> None:
    _, module = repeat(share_weights=True)
    module.double()
    x = torch.randn(1, 2, DIM, dtype=torch.float64)
    bias = module.of[0][0].of[0].output.bias
    module(x, Context()).sum().backward()
    step = 1e-6
    with torch.no_grad():
        bias[0] += step
        above = module(x, Context()).sum()
        bias[0] -= 2 * step
        below = module(x, Context()).sum()
    torch.testing.assert_close(bias.grad[0], (above - below) / (2 * step))


def test_the_signal_tells_a_shared_block_its_step_and_position() -> None:
    _, module = repeat(share_weights=True, signal="position_and_step", times=2)
    x = torch.zeros(1, 5, DIM)
    m = torch.arange(DIM // 2)
    frequencies = 10000.0 ** (-2 * m / DIM)

    def sinusoid(place: torch.Tensor) -> torch.Tensor:
        angles = place[:, None] * frequencies
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)

    positions = torch.tensor([3.0, 4.0, 5.0, 6.0, 7.0])
    context = Context(positions=positions.long())
    state = x
    for step in (1.0, 2.0):
        state = module.of[0](state + sinusoid(positions) + sinusoid(torch.tensor([step])), context)
    torch.testing.assert_close(module(x, context), state)


@pytest.mark.parametrize("form", ["released", "learned"])
def test_the_signal_has_the_released_forms_too(form) -> None:
    """tensor2tensor: sines, then cosines, with steps from 0, or learned vectors times the root of the width."""
    configured, module = repeat(share_weights=True, signal="position_and_step", signal_form=form, times=2)
    waves = torch.arange(9)[:, None] * 10000.0 ** (-torch.arange(DIM // 2) / (DIM // 2 - 1))
    waves = torch.cat([waves.sin(), waves.cos()], dim=1)
    state, context = torch.zeros(1, 5, DIM), Context(positions=torch.arange(3, 8))
    for step in range(2):
        own = module.signal.steps[step] * DIM**0.5 if form == "learned" else waves[step]
        state = module.of[0](state + waves[3:8] + own, context)
    torch.testing.assert_close(module(torch.zeros(1, 5, DIM), context), state)
    assert configured.cost(Shape()).parameters == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("signal", ["step", "position_and_step"])
@pytest.mark.parametrize("form", ["paper", "released", "learned"])
def test_a_signal_may_be_concatenated_as_in_the_released_code(form, signal) -> None:
    """tensor2tensor: [x | waves of the position], then [that | a signal of the step of the same width], then a map."""
    fields = {"signal": signal, "signal_form": form, "signal_combine": "concatenate", "times": 3}
    configured, module = repeat(share_weights=True, **fields)

    def wave(place: torch.Tensor, width: int) -> torch.Tensor:
        if form == "paper":
            angles = place[:, None] * 10000.0 ** (-2 * torch.arange(width // 2) / width)
            return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        angles = place[:, None] * 10000.0 ** (-torch.arange(width // 2) / (width // 2 - 1))
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    state, context = torch.randn(2, 5, DIM), Context(positions=torch.arange(3, 8))
    start = state
    for step in range(3):
        entered = state
        if signal == "position_and_step":
            entered = torch.cat([state, wave(torch.arange(3, 8), DIM).expand_as(state)], dim=2)
        width = entered.shape[2]
        own = wave(torch.tensor([step + (form == "paper")]), width)[0]
        if form == "learned":
            own = module.signal.steps[step] * width**0.5
        entered = torch.cat([entered, own.expand_as(entered)], dim=2) @ module.signal.map.weight.T
        state = module.of[0](entered, context)
    torch.testing.assert_close(module(start, context), state)
    assert configured.cost(Shape()).parameters == sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"signal_combine": "concatenate", "share_weights": True}, "signal is 'none' and signal_combine 'concatenate'"),
        ({"signal_form": "learned", "share_weights": True}, "signal is 'none' and signal_form 'learned'"),
        ({"times": 0}, "times must be at least 1"),
        ({"of": ()}, "at least one block"),
        ({"signal": "step"}, "Set share_weights: true"),
    ],
)
def test_refuses_values_that_make_no_sense(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        repeat(**fields)


def test_refuses_a_signal_where_the_width_is_odd() -> None:
    block = Block("repeat", {"times": 2, "share_weights": True, "signal": "step", "of": (Block("feed_forward", {}),)})
    with pytest.raises(ValueError, match="even"):
        configure(block, Given(dim=7))
