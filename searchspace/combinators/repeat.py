"""Blocks repeated over depth, either as copies with their own weights, or with one set of shared weights.

Formula: f_n(.. f_2(f_1(x))), or f(.. f(f(x))) with share_weights

With `share_weights` it is the depth recurrence of Dehghani et al. 2019, "Universal Transformers",
https://arxiv.org/abs/1807.03819. `signal` then tells the blocks which step it is. The block `halting` is a depth
recurrence that stops by itself, for each position separately. With `window_growth` the windows of the blocks grow from
copy to copy; see `searchspace.language.window_growth`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor, nn

from searchspace.checks import at_least, not_empty
from searchspace.combinators.sequence import Stack
from searchspace.combinators.step_signal import Combine, Form, Signal, StepSignal, check_signal, signal_parts
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Shape
from searchspace.parts import Composite, Part, in_order
from searchspace.published import Published
from searchspace.registry import Blocks, Configured, primitive
from searchspace.window_growth import NO_WINDOW, factors, grown, may_have_window


@dataclass(frozen=True, kw_only=True)
class RepeatConfig:
    """`times`: number of copies or steps.
    `share_weights`: whether one set of weights is applied again and again, instead of copies.
    `signal`: what tells shared blocks which step it is.
    `signal_form`: waves as in the paper, waves as in the released code, or learned vectors as in the released code.
    `signal_combine`: whether the signal is added, or concatenated and mapped to the width as the released code can do.
    `window_growth`: factor by which windows grow from one copy to the next.

    Raises ValueError if a number is below 1, there are no blocks, copies with their own weights have a signal, the
    width does not suit the signal, or windows should grow where they cannot.
    """

    dim: int = given()
    times: int
    share_weights: bool = False
    signal: Signal = "none"
    signal_form: Form = "paper"
    signal_combine: Combine = "add"
    window_growth: int = 1
    of: Blocks

    def __post_init__(self) -> None:
        at_least(1, times=self.times)
        not_empty(of=self.of)
        check_signal(self)
        if self.signal != "none" and not self.share_weights:
            raise ValueError(
                f"signal must be 'none' where weights are not shared, but got {self.signal!r}: copies with their own "
                "weights need no signal. Set share_weights: true."
            )
        self._check_growth()

    def _check_growth(self) -> None:
        at_least(1, window_growth=self.window_growth)
        if self.window_growth == 1:
            return
        if self.share_weights and self.times > 1:
            raise ValueError(
                f"window_growth must be 1 where weights are shared, but got {self.window_growth}: one set of blocks "
                "has one window. Set share_weights: false."
            )
        if not may_have_window(self.of):
            raise ValueError(NO_WINDOW)
        factors(self.window_growth, self.times)

    @property
    def sets(self) -> list[tuple[Configured, ...]]:
        """The blocks of every set of weights."""
        if self.share_weights:
            return [self.of]
        return [grown(self.of, factor) for factor in factors(self.window_growth, self.times)]


@primitive(
    "repeat",
    RepeatConfig,
    published=Published(
        code=("tensorflow/tensor2tensor",),
        released={
            "waves are in two halves and steps count from 0": "signal_form: released",
            "by default a vector is learned for each step": "signal_form: learned",
            "signals are concatenated if add_or_concat_timing_signal is concat": "signal_combine: concatenate",
            "positions may start at a random place, or at one that grows with the step (position_start_index)": "",
        },
    ),
)
class Repeat(Composite, Primitive):
    """Blocks applied several times in sequence."""

    capabilities = Capabilities(ragged=True)

    def __init__(self, config: RepeatConfig) -> None:
        super().__init__()
        self.times = config.times
        self.of = nn.ModuleList(map(Stack, config.sets))
        self.signal = StepSignal(config)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        for step in range(self.times):
            x = self.of[step % len(self.of)](self.signal(x, step, context), context)
        return x

    @classmethod
    def parts(cls, config: RepeatConfig, shape: Shape) -> list[Part]:
        if config.window_growth > 1:  # the copies differ
            blocks = [block for copy in config.sets for block in copy]
            later = in_order("of", blocks, shape.later)[len(config.of) :]
            return in_order("of", config.of, shape) + later
        signal = signal_parts(config, shape)
        if config.signal != "none":  # it is added to the result of a norm before the blocks
            shape = replace(shape, normed=False)
        if shape == shape.later:
            return signal + in_order("of", config.of, shape, count=config.times, shared=config.share_weights)
        first, rest = in_order("of", config.of, shape), config.times - 1
        again = {"count": rest, "shared": config.share_weights, "again": config.share_weights}
        return signal + first + (in_order("of", config.of, shape.later, **again) if rest else [])
