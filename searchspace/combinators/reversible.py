"""Reversible residual layers: two streams whose inputs can be computed from their outputs, so no activations are kept.

Formula: y1 = x1 + f(norm(x2)), y2 = x2 + g(norm(y1)), pair after pair, from x1 = x2 = x

Gomez et al. 2017, "The Reversible Residual Network", https://arxiv.org/abs/1707.04585; Kitaev, Kaiser, Levskaya 2020,
"Reformer", https://arxiv.org/abs/2001.04451, section 3. The backward pass goes from the last pair to the first: x2 = y2
- g(norm(y1)), x1 = y1 - f(norm(x2)). It differentiates each block right after computing it again. Activations take the
memory of two streams, for any depth.

Dropout, autocast and choices by content are replayed (see `replay`). The streams are in float32 or wider, because every
subtraction rounds. Without gradients, in streaming, and in a compiled or exported graph, the pairs are computed in the
ordinary way; a compiled graph decides itself which activations it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kernels.dispatch.mode import is_plain
from searchspace.checks import at_least, not_empty, probability
from searchspace.combinators.replay import Replay, SideResults, call, cut_off, keeping_nothing, outside
from searchspace.combinators.residual import behind_norm, learns
from searchspace.combinators.sequence import SequenceConfig, Stack
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape
from searchspace.parts import Composite, Part, blocks_below, in_order
from searchspace.published import Published
from searchspace.registry import Branches, Configured, Norm, block_type, named, primitive


@dataclass(frozen=True, kw_only=True)
class ReversibleConfig:
    """`merge`: how the two streams are combined at the end. "concatenate" doubles the width, as published, and is only
    allowed at the end of a model.
    `of`: the branches f, g, f, g, ..., each a block or a list of blocks.
    `times`: how many times all branches are repeated, each time with their own weights.

    Raises ValueError if times is below 1, the dropout is not a probability, the branches are not pairs, or the streams
    are concatenated where the width must not change.
    """

    dim: int = given()
    widens: bool = given(False)
    times: int = 1
    norm: Norm = named("layer_norm")
    dropout: float = 0.0
    merge: Literal["mean", "sum", "concatenate"] = "mean"
    of: Branches

    def __post_init__(self) -> None:
        at_least(1, times=self.times)
        probability(dropout=self.dropout)
        not_empty(of=self.of)
        if len(self.of) % 2:
            raise ValueError(
                f"of must hold pairs of branches, f and g in turn, but got {len(self.of)}. "
                "Write a branch of several blocks as a list, [f, [g, h]]."
            )
        if self.merge == "concatenate" and not self.widens:
            raise ValueError(
                "merge='concatenate' leaves twice the width, which only the last block of a decoder's body may; "
                "use merge='mean' or 'sum' here."
            )

    @property
    def branches(self) -> tuple[tuple[Configured, ...], ...]:
        """The branches of all pairs in order."""
        return self.of * self.times


class Branch(nn.Module):
    """drop(f(norm(x))), one half of a pair."""

    def __init__(self, norm: Configured, blocks: tuple[Configured, ...], dropout: float) -> None:
        super().__init__()
        self.norm = norm.build()
        self.of = Stack(blocks)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        return self.dropout(behind_norm(self.norm, self.of, x, context)[1])


@primitive(
    "reversible",
    ReversibleConfig,
    published=Published(
        code=("google/trax", "transformers"),
        released={
            "the streams are concatenated at the end, and the norm after them has twice the width": "merge: concatenate"
        },
    ),
)
class Reversible(Composite, Primitive):
    """Pairs of branches on two streams."""

    capabilities = Capabilities(ragged=True)

    def __init__(self, config: ReversibleConfig) -> None:
        super().__init__()
        self.merge = config.merge
        inside = list(blocks_below(tuple(block for branch in config.of for block in branch)))
        written = {name for block in inside for name in block.type.module.writes(block.config)}
        # A lane from one branch to another needs its own gradient, which only the ordinary way gives.
        self.linked = any(written & {*block.type.module.reads(block.config)} for block in inside)
        self.of = nn.ModuleList(Branch(config.norm, branch, config.dropout) for branch in config.branches)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C], or [B, T, 2 C] with "concatenate"."""
        start = x.to(torch.promote_types(x.dtype, torch.float32))
        if not self.linked and context.streams is None and torch.is_grad_enabled() and not self._is_traced():
            first, second = self._reversibly(start, x.dtype, context)
        else:
            first, second = self._plainly(start, x.dtype, context)
        if self.merge == "concatenate":
            return torch.cat([first, second], dim=2).to(x.dtype)
        total = first + second
        return (total / 2 if self.merge == "mean" else total).to(x.dtype)

    @staticmethod
    def _is_traced() -> bool:
        return is_plain() or torch.compiler.is_compiling()

    def _plainly(self, x: Tensor, dtype: torch.dtype, context: Context) -> list[Tensor]:
        streams = [x, x]
        for i, branch in enumerate(self.of):
            streams[i % 2] = streams[i % 2] + branch(streams[1 - i % 2].to(dtype), context)
        return streams

    def _reversibly(self, x: Tensor, dtype: torch.dtype, context: Context) -> list[Tensor]:
        position = context.position
        learned = [*self.parameters(), *(position.parameters() if isinstance(position, nn.Module) else ())]
        parameters: list[Tensor] = list(dict.fromkeys(p for p in learned if p.requires_grad))
        run = _Run(self.of, parameters, dtype, context)
        first, second, *tensors = _Pairs.apply(run, x, *run.inputs)
        left = iter(tensors)
        for side in run.side_results:
            side.holding(left).hand_to(context)
        for name in context.lanes.keys() - run.context.lanes.keys():
            del context.lanes[name]
        return [first, second]

    @classmethod
    def widening(cls, fields: Mapping[str, Any]) -> int:
        return 2 if fields.get("merge") == "concatenate" else 1

    @classmethod
    def parts(cls, config: ReversibleConfig, shape: Shape) -> list[Part]:
        streams = Cost(activation_bytes=2 * shape.rows * config.dim * max(4, shape.element_bytes))
        norms = Part(name="norm", shape=shape, block=config.norm, count=len(config.branches), recomputed=True)
        width = config.dim * cls.widening(vars(config))
        return [norms, *_branches(config, shape), Part(name="streams", shape=shape, own=streams, width=width)]


def _branches(config: ReversibleConfig, shape: Shape) -> list[Part]:
    branches = [
        branch[0] if len(branch) == 1 else Configured(block_type("sequence"), SequenceConfig(of=branch))
        for branch in config.of
    ]
    first, rest = _behind_norm(config, branches, shape), config.times - 1
    if not shape.source or not rest:
        return [replace(part, count=config.times) for part in first]
    return first + [replace(part, count=rest) for part in _behind_norm(config, branches, shape.later)]


def _behind_norm(config: ReversibleConfig, branches: list[Configured], shape: Shape) -> list[Part]:
    parts = in_order("of", branches, shape, recomputed=True)
    return [replace(part, shape=replace(part.shape, normed=learns(config.norm, shape))) for part in parts]


class _Run:
    """One pass through the branches that keeps no activations, and everything that its backward pass needs.

    inputs: the parameters that any branch may use, then the tensors of the context that may need a gradient.
    """

    def __init__(self, branches: nn.ModuleList, parameters: list[Tensor], dtype: torch.dtype, context: Context) -> None:
        self.branches, self.parameters, self.dtype = branches, parameters, dtype
        # Copies: the results go into the caller's lists. Sharing them would create a reference cycle.
        self.context = replace(context, losses={}, lanes=dict(context.lanes))
        self.inputs = parameters + outside(context)
        self.replays: list[Replay] = []
        self.side_results: list[SideResults] = []
        self.places = {id(tensor): k for k, tensor in enumerate(self.inputs)}
        inside = {id(parameter) for parameter in branches.parameters()}
        self.shared = [k for k, each in enumerate(parameters) if id(each) not in inside]  # of the position encoding

    def forward(self, x: Tensor) -> list[Tensor]:
        """x: [B, T, C] -> both streams, [B, T, C] each."""
        streams = [x, x]
        for i, branch in enumerate(self.branches):
            replay = Replay(branch, x, self.context)
            with keeping_nothing(), replay.precision():
                context, _ = cut_off(replay.context)
                context.statistics = self.context.statistics
                y, side = call(branch, _entering(streams[1 - i % 2], self.dtype)[1], context)
            for name in self.context.lanes.keys() - context.lanes.keys():  # a branch took a lane
                del self.context.lanes[name]
            streams[i % 2] = streams[i % 2] + y.detach()
            side = side.holding(tensor.detach() for tensor in side.tensors())
            self.replays.append(replay)
            self.side_results.append(side)
        return streams

    def backward(
        self, streams: list[Tensor], gradients: list[Tensor], side_gradients: list[Tensor]
    ) -> list[Tensor | None]:
        """From both final streams, their gradients and those of the other results, compute the gradients of `inputs`.

        `gradients` is changed in place to the gradients of the initial streams.
        """
        sums: list[Tensor | None] = [None for _ in self.inputs]
        for i in reversed(range(len(self.branches))):
            count = len(self.side_results[i].tensors())
            side_gradients, own = (
                side_gradients[: len(side_gradients) - count],
                side_gradients[len(side_gradients) - count :],
            )
            for k, gradient in self._through(i, streams, gradients, own):
                before = sums[k]
                sums[k] = gradient if before is None else before + gradient
        return sums

    def _through(
        self, i: int, streams: list[Tensor], gradients: list[Tensor], side_gradients: list[Tensor]
    ) -> list[tuple[int, Tensor]]:
        """Undo branch i. Returns pairs of an index into `inputs` and its gradient."""
        branch, replay = self.branches[i], self.replays[i]
        write, read = i % 2, 1 - i % 2
        with torch.enable_grad(), replay.again():
            context, leaves = cut_off(replay.context)
            x, entering = _entering(streams[read], self.dtype)
            y, side = call(branch, entering, context)
        own = {self.places[id(parameter)] for parameter in branch.parameters() if id(parameter) in self.places}
        places = sorted({*self.shared, *own})
        outs = [(y, gradients[write].to(y.dtype)), *zip(side.tensors(), side_gradients, strict=True)]
        outs = [(out, gradient) for out, gradient in outs if out.requires_grad]
        wanted = [x, *(self.parameters[k] for k in places), *(leaf for _, leaf in leaves)]
        found = torch.autograd.grad(
            [out for out, _ in outs], wanted, [gradient for _, gradient in outs], allow_unused=True
        )
        streams[write] = streams[write] - y.detach()
        if found[0] is not None:
            gradients[read] = gradients[read] + found[0]
        places += [self.places[id(tensor)] for tensor, _ in leaves]
        return [(k, gradient) for k, gradient in zip(places, found[1:], strict=True) if gradient is not None]


def _entering(stream: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """stream: [B, T, C] -> a leaf that replaces the stream, and a non-leaf view of it for the branch (see
    `cut_off`).
    """
    leaf = stream.detach().requires_grad_()
    return leaf, leaf.view_as(leaf).to(dtype)


class _Pairs(torch.autograd.Function):
    """A whole run as one autograd operation: (run, x, *inputs) -> both streams and the other results of its calls."""

    @staticmethod
    def forward(ctx: Any, run: _Run, x: Tensor, *_inputs: Tensor) -> tuple[Tensor, ...]:
        first, second = run.forward(x)
        ctx.run = run
        ctx.save_for_backward(first, second)
        return first, second, *(tensor for side in run.side_results for tensor in side.tensors())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, first: Tensor, second: Tensor, *side_gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [first, second]
        sums = ctx.run.backward(list(ctx.saved_tensors), gradients, list(side_gradients))
        return None, gradients[0] + gradients[1], *sums
