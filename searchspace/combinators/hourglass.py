"""Stages of blocks, each at half the length of the previous one. At the end, the length can be restored.

Formula: x_k = stage_k(pool(x_{k-1})), out = decoder(repeat(x_last) + x_0), or x_last without a decoder

Dai et al. 2020, "Funnel-Transformer", https://arxiv.org/abs/2006.03236, sections 2.1 and 2.2. Between two stages the
length halves: pairs of positions are averaged, or their maximum is taken. If the length is odd, the last position stays
alone. In the first attention of the next stage, the queries (and the residual stream) come from the pooled sequence,
and the keys and values from the sequence before pooling.

separate_first: the first position is a class token and is not mixed with others. The pooling runs over [x_0, x_0, x_1,
x_2, ...], so pooled position 0 is the class token, and pooled position t comes from x_{2t - 1} and x_{2t}. With
`truncate`, the last position is left out. pool_query_only: if false, the first attention of a stage reads the keys of
the pooled sequence too. pooled_padding: a pooled position is real if both of its members are real ("min", as published)
or if one is ("max"). With "max" and nothing truncated, padding has no effect at any length. Padded members do not enter
a mean. With `pool_padding` they do, as in the released code; a decoder then sees the last of them. decoder: if it is
not empty, each position of the last stage is repeated until the full length is restored (zeros where truncation left no
position). The output of the first stage is added, and these blocks follow. With `decoder: []` the output is short. B
batch, T time, C width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from searchspace.checks import not_empty
from searchspace.combinators.pooling import Kind, Padding, Pooling, upsampled
from searchspace.combinators.repeat import RepeatConfig
from searchspace.combinators.residual import ResidualConfig
from searchspace.combinators.sequence import SequenceConfig, Stack
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Shape
from searchspace.lanes import axis
from searchspace.parts import Composite, Part, in_order
from searchspace.primitives.attention.heads import Source, places, with_source
from searchspace.published import Published
from searchspace.registry import Blocks, Branches, Configured, primitive


@dataclass(frozen=True, kw_only=True)
class HourglassConfig:
    """`stages`: the blocks of each stage; the length halves between two stages.
    `pool`: how two positions are pooled.
    `separate_first`: whether the first position is a class token that is not pooled with others.
    `truncate`: whether the last position is left out if `separate_first` is set.
    `pool_query_only`: whether the first attention of a stage reads the keys of the sequence before pooling.
    `pooled_padding`: when a pooled position is real: if both of its positions are (min), or if at least one is (max).
    `pool_padding`: whether padding takes part in the pooling, as in the released code.
    `decoder`: the blocks after the length is restored; an empty list leaves the output short.

    Raises ValueError if there are no stages, a stage is empty, or a stage starts with a block that cannot read the keys
    of the sequence before pooling.
    """

    dim: int = given()
    stages: Branches
    pool: Kind = "mean"
    separate_first: bool = True
    truncate: bool = True
    pool_query_only: bool = True
    pooled_padding: Padding = "min"
    pool_padding: bool = False
    decoder: Blocks

    def __post_init__(self) -> None:
        not_empty(stages=self.stages)
        for number, stage in enumerate(self.stages):
            if not stage:
                raise ValueError(f"every stage must hold at least one block, but stage {number} is empty.")
            if number and self.pool_query_only and not reads_source(stage[0]):
                raise ValueError(
                    f"stage {number} must begin with a block that can read the keys of the sequence before pooling, "
                    f"but {stage[0].type.name} cannot. Begin with attention or funnel_attention, alone or in a "
                    "residual of order post, or set pool_query_only: false."
                )

    @property
    def pooling(self) -> Pooling:
        """How the length is halved."""
        return Pooling(self.pool, self.separate_first, self.truncate, self.pooled_padding)

    @property
    def hides_padding(self) -> bool:
        """Whether padding after the end leaves the results of real positions unchanged."""
        everywhere = self.pooled_padding == "max" and not self.pool_padding
        return len(self.stages) == 1 or (everywhere and not (self.separate_first and self.truncate))

    @property
    def is_short(self) -> bool:
        """Whether the output has fewer positions than the input."""
        return len(self.stages) > 1 and len(self.decoder) == 0


@primitive(
    "hourglass",
    HourglassConfig,
    published=Published(
        code=("transformers",),
        released={"padding takes part in the pooling": "pool_padding: true"},
    ),
)
class Hourglass(Composite, Primitive):
    """Stages of blocks with pooling between them."""

    capabilities = Capabilities(causal=False, streaming=False, changes_length=True)

    def __init__(self, config: HourglassConfig) -> None:
        super().__init__()
        self.config = config
        self.pooling = config.pooling
        self.stages = nn.ModuleList(Stack(stage) for stage in config.stages)
        self.decoder = Stack(config.decoder)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C], or a shorter length without a decoder. Raises ValueError if the context is
        streaming.
        """
        context.slot(self, causal=False)
        first = short = self.stages[0](x, context)
        inner = context
        for stage in list(self.stages)[1:]:
            short, inner = self._pooled(short, inner)
            short = stage(short, inner)
        written = {name: lane for name, lane in inner.lanes.items() if name not in context.lanes}
        context.lanes.update({name: lane for name, lane in written.items() if axis(lane.axes, "T") is None})
        if self.config.is_short:
            context.padding, context.positions, context.lanes = inner.padding, inner.positions, inner.lanes
        if not len(self.decoder):
            return short
        times = 2 ** (len(self.stages) - 1)
        long = upsampled(short, times, x.shape[1], separate_first=self.config.separate_first)
        return self.decoder(long + first, context)

    def _pooled(self, x: Tensor, context: Context) -> tuple[Tensor, Context]:
        """The pooled sequence and its context. The first attention of the next stage finds the sequence before pooling
        there.
        """
        inner = self.pooling.context(x, context)
        if self.config.pool_query_only:
            inner = with_source(inner, Source(x, places(x, context), context.padding, context.get("segments")))
        return self.pooling.sequence(x, None if self.config.pool_padding else context.padding), inner

    @classmethod
    def parts(cls, config: HourglassConfig, shape: Shape) -> list[Part]:
        parts = [
            part
            for number, (stage, inner) in enumerate(zip(config.stages, _shapes(config, shape)))
            for part in in_order(f"stages.{number}", stage, inner)
        ]
        return parts + in_order("decoder", config.decoder, replace(shape, normed=False))

    @classmethod
    def after(cls, config: HourglassConfig, shape: Shape) -> Shape:
        return list(_shapes(config, shape))[-1].later if config.is_short else shape


def _shapes(config: HourglassConfig, shape: Shape) -> Iterator[Shape]:
    """The shape of the input of each stage."""
    for _ in config.stages:
        yield shape
        source = shape.length if config.pool_query_only else 0
        shape = replace(shape, length=config.pooling.length(shape.length), source=source, normed=False)


def reads_source(block: Configured) -> bool:
    """Whether `block` first reads keys, and reads them from a source if there is one.

    A pre-norm residual does not qualify: it would normalise the queries but not the keys, which no paper describes.
    """
    config = block.config
    if isinstance(config, ResidualConfig) and config.order != "post":
        return False
    if isinstance(config, ResidualConfig | SequenceConfig | RepeatConfig):
        return bool(config.of) and reads_source(config.of[0])
    reads = block.type.role == "block" and block.type.module.capabilities.source
    return reads and getattr(config, "over", "self") == "self"
