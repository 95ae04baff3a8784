"""The signal that depth recurrence adds to its state at every step, so that shared weights can depend on the step.

Dehghani et al. 2019, "Universal Transformers", https://arxiv.org/abs/1807.03819, eq. 6: at step t, counted from 1, the
state of position p enters as state + sinusoid(p) + sinusoid(t).

The released code (tensor2tensor) has waves in two halves, [sin | cos] with other frequencies (see `sinusoidal`), and
counts steps from 0: `form: released`. By default it learns a vector for each step in place of sinusoid(t), times
sqrt(C), drawn from N(0, 1 / C): `form: learned`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from searchspace.contract import Context
from searchspace.cost import Cost, Shape
from searchspace.parts import Part
from searchspace.primitives.position.sinusoidal import Sinusoidal, SinusoidalConfig

Signal = Literal["none", "step", "position_and_step"]
Form = Literal["paper", "released", "learned"]


class StepSignal(nn.Module):
    """none: adds nothing. step: the signal of the step. position_and_step: and that of the position, as published.

    times: the number of steps.
    """

    def __init__(self, kind: Signal, dim: int, form: Form = "paper", times: int = 1) -> None:
        super().__init__()
        self.kind, self.form = kind, form
        layout: Literal["interleaved", "halves"] = "interleaved" if form == "paper" else "halves"
        self.waves = None if kind == "none" else Sinusoidal(SinusoidalConfig(dim=dim, layout=layout))
        self.steps = None
        if kind != "none" and form == "learned":
            self.steps = nn.Parameter(torch.randn(times, dim) * dim**-0.5)

    def forward(self, x: Tensor, step: int, context: Context) -> Tensor:
        """x: [B, T, C], the state that enters step `step`, counted from 0 -> the same shape."""
        if self.waves is None:
            return x
        if self.steps is not None:
            x = x + (self.steps[step] * x.shape[2] ** 0.5).to(x.dtype)
        else:
            number = step + 1 if self.form == "paper" else step
            x = self.waves.embed(x, torch.full((1,), number, device=x.device))
        return self.waves(x, context) if self.kind == "position_and_step" else x


def check_signal(kind: Signal, dim: int, form: Form = "paper") -> None:
    """Raises ValueError if the signal needs sinusoids and `dim` is odd, or if there is no signal to have a form."""
    if kind != "none":
        SinusoidalConfig(dim=dim)
    elif form != "paper":
        raise ValueError(f"signal_form is the form of a signal, but signal is 'none' and signal_form {form!r}.")


def signal_parts(kind: Signal, dim: int, form: Form, times: int, shape: Shape) -> list[Part]:
    """The learned vectors of the steps; waves have no cost."""
    if kind == "none" or form != "learned":
        return []
    return [Part(name="signal", shape=shape, own=Cost(parameters=times * dim))]
