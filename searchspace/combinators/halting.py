"""Depth recurrence that stops by itself: shared weights are applied to each position as many times as it needs.

Formula: out = sum_t w_t state_t, state_t = f(state_{t-1}), w_t = p_t = sigmoid(w . state_{t-1} + b), the last w_t = 1
- sum of p

Graves 2016, "Adaptive Computation Time for Recurrent Neural Networks", https://arxiv.org/abs/1603.08983; Dehghani et
al. 2019, "Universal Transformers", https://arxiv.org/abs/1807.03819, appendix D. It is `repeat` with `share_weights`
and a stop. Before each step, each position computes p = sigmoid(w . state + b). If the sum of its p exceeds
`threshold`, the position takes one last step, weighted by the remaining probability, and halts. The published variants
differ, so they are options:

halted: "copied" keeps the state of a halted position, as in the paper; "live" continues to change it, as in its code.
update: "published" out = w state + (1 - w) out; "accumulated" out = out + w state, Graves' weighted mean; "released"
out = w state + out - w, the numbers of the code, which multiplies out by 1 before it subtracts w. remainder: the weight
of a position stopped by `times`. "published": none, so its weights do not sum to one; "graves": 1 - sum of p. scope:
"position" halts each position on its own; "sequence" halts all together, at the mean of their p, as the code can
(`act_type: global`). The mean reads the future, so this is for encoders only.

In evaluation, results that are never read are not computed: sequences of a batch in which every position has halted
and, if halted states are copied, halted positions in the blocks after the last block that mixes positions. The results
are the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from searchspace.checks import at_least, not_empty, probability
from searchspace.combinators.sequence import Stack
from searchspace.combinators.skipping import at_positions, behind_mixers, hands_over, separable
from searchspace.combinators.step_signal import Combine, Form, Signal, StepSignal, check_signal, signal_parts
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, matmul
from searchspace.lanes import of_rows
from searchspace.parts import Composite, Part, in_order
from searchspace.published import Published
from searchspace.registry import Blocks, primitive

INITIAL_BIAS = 1.0  # as published: p starts near 0.73


@dataclass(frozen=True, kw_only=True)
class HaltingConfig:
    """`times`: the maximum number of steps.
    `threshold`: the sum of halting probabilities beyond which a position halts.
    `ponder_weight`: weight of the mean number of steps in the loss.
    `signal`: what tells the blocks which step it is.
    `signal_form`: waves as in the paper, waves as in the released code, or learned vectors as in the released code.
    `signal_combine`: whether the signal is added, or concatenated and mapped to the width as the released code can do.
    `halted`: whether the state of a halted position is kept (copied) or still changes (live).
    `update`: how steps are combined: w state + (1 - w) out (published), out + w state (accumulated), or w state + out -
    w (released).
    `remainder`: the last weight of a position that `times` stops: none (published), or 1 - sum of p (graves).

    `scope`: whether each position halts on its own, or all positions of a sequence halt together.

    Raises ValueError if times is below 2, the threshold is not a probability, there are no blocks, the width does not
    suit the signal, the weight is negative, or the positions of a causal model should halt together.
    """

    dim: int = given()
    causal: bool = given(False)
    times: int
    threshold: float = 0.99
    ponder_weight: float = 0.01
    signal: Signal = "step"
    signal_form: Form = "paper"
    signal_combine: Combine = "add"
    halted: Literal["copied", "live"] = "copied"
    update: Literal["published", "accumulated", "released"] = "published"
    remainder: Literal["published", "graves"] = "published"
    scope: Literal["position", "sequence"] = "position"
    of: Blocks

    def __post_init__(self) -> None:
        at_least(2, times=self.times)
        probability(threshold=self.threshold)
        not_empty(of=self.of)
        check_signal(self)
        if self.ponder_weight < 0:
            raise ValueError(f"ponder_weight must not be negative, but got {self.ponder_weight}.")
        if self.scope == "sequence" and self.causal:
            raise ValueError(
                "scope='sequence' halts at a mean over all positions, which looks ahead, so it cannot be part of a "
                "decoder; use scope='position'."
            )

    @property
    def chances(self) -> int:
        """The number of steps that can halt a position. With Graves' remainder, the last step always ends and needs no
        decision.
        """
        return self.times - 1 if self.remainder == "graves" else self.times

    @property
    def untrained_steps(self) -> int:
        """The number of steps taken while every p is still sigmoid(b)."""
        return min(self.times, math.floor(self.threshold * (1 + math.exp(-INITIAL_BIAS))) + 1)


@primitive(
    "halting",
    HaltingConfig,
    published=Published(
        code=("tensorflow/tensor2tensor",),
        released={
            "a halted position continues to change, and others read it": "halted: live",
            "out = w state + out - w, which is not a weighted mean": "update: released",
            "waves are in two halves and steps count from 0": "signal_form: released",
            "by default a vector is learned for each step": "signal_form: learned",
            "signals are concatenated if add_or_concat_timing_signal is concat": "signal_combine: concatenate",
            "positions may start at a random place, or at one that grows with the step (position_start_index)": "",
            "if act_type is global, a sequence halts as a whole, and padding counts in the mean": "scope: sequence",
        },
    ),
)
class Halting(Composite, Primitive):
    """Adds ponder_weight * mean(steps + remainder) to the losses and reports the mean number of steps as
    `halting_steps`.
    """

    capabilities = Capabilities(ragged=True)

    def __init__(self, config: HaltingConfig) -> None:
        super().__init__()
        self.config = config
        self.signal = StepSignal(config)
        self.halt = nn.Linear(config.dim, 1)
        nn.init.constant_(self.halt.bias, INITIAL_BIAS)
        self.of = Stack(config.of)
        self.hands_over = hands_over(config.of)
        self.mixers = len(config.of) - (0 if self.hands_over else behind_mixers(config.of))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        config = self.config
        real = (
            torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if context.padding is None else context.padding
        )
        precision = torch.promote_types(x.dtype, torch.float32)
        running = real
        halting = torch.zeros(x.shape[:2], dtype=precision, device=x.device)  # h: the sum of a position's p
        remainder = torch.zeros_like(halting)  # r
        steps = torch.zeros_like(halting)  # n
        state, out = x, torch.zeros_like(x)
        around = context.swap(unnormed=None, normed=None)  # only the first step would read the result of a norm
        for step in range(config.times):
            if self._nothing_runs(running, context):
                break
            entered = self.signal(state, step, context)
            if step < config.chances:
                p = self._chance(entered, real, precision)
                stopping = running & (halting + p > config.threshold)
            else:
                p, stopping = torch.zeros_like(halting), running
            going = running & ~stopping
            left = (1 - halting) * stopping
            weight = (p * going + left).to(x.dtype).unsqueeze(-1)
            halting = halting + p * going
            remainder = remainder + left
            steps = steps + running
            stepped = self._step(entered, running, context)
            ran = running.unsqueeze(-1)
            state = stepped if config.halted == "live" else torch.where(ran, stepped, state)
            out = torch.where(ran, weight * stepped + self._old(out, weight), out)
            running = going
        context.swap(**around)
        self._account(steps, remainder, real, context)
        return out

    @property
    def is_ragged(self) -> bool:
        return self.config.scope == "position"

    def _chance(self, entered: Tensor, real: Tensor, precision: torch.dtype) -> Tensor:
        """p: [B, T]; in the scope of a sequence, its mean over the real positions at each of them."""
        p = torch.sigmoid(self.halt(entered).squeeze(-1).to(precision))
        if self.config.scope == "position":
            return p
        return ((p * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)).expand_as(p)

    def _old(self, out: Tensor, weight: Tensor) -> Tensor:
        """What is left of the output [B, T, C] if the new state has `weight`, [B, T, 1]."""
        match self.config.update:
            case "published":
                return out * (1 - weight)
            case "released":
                return out - weight
        return out

    def _nothing_runs(self, running: Tensor, context: Context) -> bool:
        # In streaming, slots must come in the same order for every piece. A compiled graph cannot branch on data.
        if context.streams is not None or torch.compiler.is_compiling():
            return False
        return not running.any()

    def _step(self, entered: Tensor, running: Tensor, context: Context) -> Tensor:
        """Apply the blocks to the state. In evaluation, only the entries that will be read are computed; others are
        arbitrary.
        """
        if torch.is_grad_enabled() or self.training or torch.compiler.is_compiling():
            return self.of(entered, context)
        rows = running.any(dim=1)
        if rows.all() or self.hands_over or not separable(context):
            return self._needed(entered, running, context)
        some = rows.nonzero().squeeze(1)
        stepped = self._needed(entered[some], running[some], context.mapped(of_rows(some)))
        return entered.to(stepped.dtype).index_copy(0, some, stepped)

    def _needed(self, x: Tensor, running: Tensor, context: Context) -> Tensor:
        """The positions whose new state is needed. Other positions read a live state even after it has halted. They
        read a copied state only in the blocks up to the last one that mixes positions.
        """
        blocks = list(self.of)
        before = len(blocks) if self.config.halted == "live" or running.all() else self.mixers
        for block in blocks[:before]:
            x = block(x, context)
        return at_positions(blocks[before:], x, running, context) if before < len(blocks) else x

    def _account(self, steps: Tensor, remainder: Tensor, real: Tensor, context: Context) -> None:
        count = real.sum().clamp(min=1)
        context.report("halting_steps", (steps * real).sum() / count)
        if self.config.ponder_weight and context.streams is None:
            ponder = ((steps + remainder) * real).sum() / count
            context.add_loss("ponder", self.config.ponder_weight * ponder)

    @classmethod
    def parts(cls, config: HaltingConfig, shape: Shape) -> list[Part]:
        """FLOPs count every step. Expected FLOPs count the mean depth that `shape` gives, or that of an untrained
        block.
        """
        steps = config.untrained_steps if shape.halting_steps is None else min(shape.halting_steps, config.times)
        unit = Cost(parameters=config.dim + 1)  # the blocks keep its input
        chance = unit + matmul(shape.rows, config.dim, 1) + kept(shape, 3 * shape.rows)
        mixing = kept(shape, 2 * shape.rows * config.dim)  # the state and the output before each step
        chances, times = config.chances, config.times
        inner = in_order("of", config.of, replace(shape, normed=False), count=times, shared=True, expected=steps)
        needed = len(inner) if config.halted == "live" else len(inner) - behind_mixers(config.of)
        return [
            *signal_parts(config, shape, steps),
            Part(name="halt", shape=shape, own=chance, count=chances, shared=True, expected=min(steps, chances)),
            Part(name="mixing", shape=shape, own=mixing, count=times),
            *(replace(part, skipped=place >= needed) for place, part in enumerate(inner)),
        ]
