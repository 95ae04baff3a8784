"""The signal that depth recurrence adds to its state at every step, so that shared weights can depend on the step.

Dehghani et al. 2019, "Universal Transformers", https://arxiv.org/abs/1807.03819, eq. 6: at step t, counted from 1, the
state of position p enters as state + sinusoid(p) + sinusoid(t).

The released code (tensor2tensor) has waves in two halves, [sin | cos] with other frequencies (see `sinusoidal`), and
counts steps from 0: `form: released`. By default it learns a vector for each step in place of sinusoid(t), times
sqrt(C), drawn from N(0, 1 / C): `form: learned`. It can also concatenate instead of add (add_or_concat_timing_signal:
concat): `combine: concatenate`. Then the state enters as W [state; sinusoid(p); signal of t] without bias. There, the
signal of the step is as wide as everything before it: 2 C if there are positions, else C.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from searchspace.contract import Context
from searchspace.cost import Cost, Shape, linear
from searchspace.parts import Part
from searchspace.primitives.position.sinusoidal import Sinusoidal, SinusoidalConfig

Signal = Literal["none", "step", "position_and_step"]
Form = Literal["paper", "released", "learned"]
Combine = Literal["add", "concatenate"]


class HasSignal(Protocol):
    """A configuration with the options of a signal: `dim` is C, `times` the number of steps."""

    @property
    def dim(self) -> int: ...
    @property
    def times(self) -> int: ...
    @property
    def signal(self) -> Signal: ...
    @property
    def signal_form(self) -> Form: ...
    @property
    def signal_combine(self) -> Combine: ...


class StepSignal(nn.Module):
    """none: adds nothing. step: the signal of the step. position_and_step: and that of the position, as published."""

    def __init__(self, config: HasSignal) -> None:
        super().__init__()
        self.kind, self.form = config.signal, config.signal_form
        layout: Literal["interleaved", "halves"] = "interleaved" if self.form == "paper" else "halves"
        self.waves = None if self.kind == "none" else Sinusoidal(SinusoidalConfig(dim=config.dim, layout=layout))
        self.steps = None
        self.width = _step_width(config)
        if self.kind != "none" and self.form == "learned":
            self.steps = nn.Parameter(torch.randn(config.times, self.width) * self.width**-0.5)
        self.map = None
        if config.signal_combine == "concatenate":
            self.map = nn.Linear(_map_width(config), config.dim, bias=False)

    def forward(self, x: Tensor, step: int, context: Context) -> Tensor:
        """x: [B, T, C], the state that enters step `step`, counted from 0 -> the same shape."""
        if self.waves is None:
            return x
        if self.map is not None:
            positions = [self.waves(torch.zeros_like(x), context)] if self.kind == "position_and_step" else []
            own = self._step(x.new_zeros(*x.shape[:2], self.width), step)
            return self.map(torch.cat([x, *positions, own], dim=2))
        x = self._step(x, step)
        return self.waves(x, context) if self.kind == "position_and_step" else x

    def _step(self, x: Tensor, step: int) -> Tensor:
        """x: [B, T, W] -> the same shape, with the signal of the step added."""
        if self.steps is not None:
            return x + (self.steps[step] * x.shape[2] ** 0.5).to(x.dtype)
        assert self.waves is not None
        number = step + 1 if self.form == "paper" else step
        return self.waves.embed(x, torch.full((1,), number, device=x.device))


def check_signal(config: HasSignal) -> None:
    """Raises ValueError if the signal needs sinusoids and the width is odd, or if there is no signal to have a form."""
    if config.signal != "none":
        SinusoidalConfig(dim=config.dim)
    elif config.signal_form != "paper":
        raise ValueError(
            f"signal_form is the form of a signal, but signal is 'none' and signal_form {config.signal_form!r}."
        )
    elif config.signal_combine != "add":
        raise ValueError(
            "signal_combine says how a signal enters, but signal is 'none' and signal_combine "
            f"{config.signal_combine!r}."
        )


def signal_parts(config: HasSignal, shape: Shape, expected: float | None = None) -> list[Part]:
    """The learned vectors of the steps, and the map behind a concatenation; waves have no cost.

    expected: the mean number of steps, if it can be less than `times`.
    """
    parts = []
    if config.signal != "none" and config.signal_form == "learned":
        parts.append(Part(name="signal", shape=shape, own=Cost(parameters=config.times * _step_width(config))))
    if config.signal_combine == "concatenate":
        own = linear(shape, _map_width(config), config.dim, bias=False)
        parts.append(Part(name="signal.map", shape=shape, own=own, count=config.times, shared=True, expected=expected))
    return parts


def _step_width(config: HasSignal) -> int:
    """The width of a step's signal."""
    doubled = config.signal_combine == "concatenate" and config.signal == "position_and_step"
    return 2 * config.dim if doubled else config.dim


def _map_width(config: HasSignal) -> int:
    """The width of the concatenation: everything before the step's signal is as wide as the signal."""
    return 2 * _step_width(config)
