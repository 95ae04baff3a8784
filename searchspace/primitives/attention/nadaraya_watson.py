"""Nadaraya-Watson attention: a mean of the values, weighted by how close their keys are to the query.

Formula: f(q) = sum_j K((q - k_j) / h) v_j / sum_j K((q - k_j) / h)

Nadaraya 1964, "On Estimating Regression", https://doi.org/10.1137/1109020; Watson 1964, "Smooth Regression Analysis".
The kernel K of a head depends on the length u of its argument: gaussian exp(-u^2 / 2), and for u <= 1 boxcar 1,
epanechnikov 1 - u^2, triangular 1 - u. If no key is within reach, the result is zero. The bandwidth h is a number. With
`learned`, w = 1 / h is a parameter, one per head or one per dimension of a head.

Without `project`, queries, keys and values are the input itself, and each head takes a slice of it: no parameters, the
regression as published. With `project` they are linear maps of the input, and an output map follows, as in multi-head
attention. The weights of a boxcar have no gradient, so it allows neither `learned` nor `project`. Rotary positions and
ALiBi have no effect, because there are distances instead of scores. B batch, T time, S positions of the memory, H
heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kernels.attention.nadaraya_watson import nadaraya_watson
from kernels.dispatch.precision import without_autocast
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.attention.over_memory import Over, check_over, memory_of
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class NadarayaWatsonConfig:
    """`kernel`: K, the kernel of the distance.
    `bandwidth`: h, the initial bandwidth; null takes sqrt(2 D), the typical distance between two normalised inputs.
    `learned`: which values of 1 / h are learned: none, one per head (head), or one per dimension of a head (dimension).
    `project`: whether queries, keys, values and output are linear maps; otherwise they are the input itself.
    `over`: "self" reads the sequence itself, "memory" the encoder's output.

    Raises ValueError if heads does not divide dim, the bandwidth is not above 0, a boxcar would have to learn, or the
    block reads a memory in a model without an encoder.
    """

    dim: int = given()
    causal: bool = given(False)
    memory: bool = given(False)
    heads: int = 4
    kernel: Literal["gaussian", "boxcar", "epanechnikov", "triangular"] = "gaussian"
    bandwidth: float | None = None
    learned: Literal["none", "head", "dimension"] = "none"
    project: bool = False
    over: Over = "self"

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise ValueError(f"bandwidth must be above 0, but got {self.bandwidth}.")
        check_over(self.over, self.memory)
        if self.kernel == "boxcar" and (self.project or self.learned != "none"):
            raise ValueError(
                "a boxcar passes no gradient to distances, so it needs learned='none' and project=false, "
                f"but got learned={self.learned!r}, project={self.project}; use another kernel to learn them."
            )

    @property
    def h(self) -> float:
        """The bandwidth."""
        return math.sqrt(2 * self.dim / self.heads) if self.bandwidth is None else self.bandwidth


@primitive(
    "nadaraya_watson",
    NadarayaWatsonConfig,
    published=Published(
        paper={"each head reads a slice of the channels, with distances of its own": "heads: 1"},
    ),
)
class NadarayaWatson(Primitive):
    """Kernel regression over the sequence or the memory. Streaming keeps the keys, and the values if they differ."""

    capabilities = Capabilities(cross=True)

    def __init__(self, config: NadarayaWatsonConfig) -> None:
        super().__init__()
        self.config = config
        C, H, project = config.dim, config.heads, config.project
        self.query = nn.Linear(C, C, bias=False) if project else None
        self.key_value = nn.Linear(C, 2 * C, bias=False) if project else None
        self.output = nn.Linear(C, C, bias=False) if project else None
        width = C // H if config.learned == "dimension" else 1
        learned = config.learned != "none"
        self.inverse = nn.Parameter(torch.full((H, 1, width), 1 / config.h)) if learned else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it reads the memory and the context has none."""
        over_self = self.config.over == "self"
        slot = context.slot(self, causal=self.config.causal or not over_self)
        read, keys = self._self(x, context, slot) if over_self else self._memory(context, slot)
        q = x if self.query is None else self.query(x)
        wide = torch.promote_types(q.dtype, torch.float32)
        with without_autocast(x.device.type):
            q, *read = (split(part.to(wide), self.config.heads) for part in (q, *read))
            factor = 1 / self.config.h if self.inverse is None else self.inverse.to(wide)
            out = nadaraya_watson(
                q * factor,
                read[0] * factor,
                read[-1],
                self.config.kernel,
                keys,
                causal=over_self and self.config.causal,
            )
        means = merge(out).to(x.dtype)
        return means if self.output is None else self.output(means)

    def _self(self, x: Tensor, context: Context, slot: dict[str, Tensor] | None) -> tuple[list[Tensor], Tensor | None]:
        read = self._keys_values(x)
        if slot is not None:
            names = ("k", "v")[: len(read)]
            read = [
                torch.cat([slot[name], new], dim=1) if name in slot else new.clone()
                for name, new in zip(names, read, strict=True)
            ]
            slot |= dict(zip(names, read, strict=True))
        return read, context.padding

    def _memory(self, context: Context, slot: dict[str, Tensor] | None) -> tuple[list[Tensor], Tensor | None]:
        """Keys and values of the memory. In streaming they are computed once and kept, together with the padding of the
        memory.
        """
        if slot:
            return [slot[name] for name in ("k", "v") if name in slot], slot.get("padding")
        memory = memory_of(context)
        read = self._keys_values(memory)
        if slot is not None:
            slot |= dict(zip(("k", "v"), (part.clone() for part in read), strict=False))
            if (padding := context.get("memory_padding")) is not None:
                slot["padding"] = padding
        return read, context.get("memory_padding")

    def _keys_values(self, y: Tensor) -> list[Tensor]:
        """The keys and the values, or one tensor if they are the same."""
        return [y] if self.key_value is None else list(self.key_value(y).chunk(2, dim=2))

    @classmethod
    def reads(cls, config: NadarayaWatsonConfig) -> tuple[str, ...]:
        return ("memory",) if config.over == "memory" else ()

    @classmethod
    def states(cls, config: NadarayaWatsonConfig) -> Mapping[str, str]:
        axes = "B S C" if config.over == "memory" else "B T C"
        return {"k": axes, "v": axes, "padding": "B S"}

    @classmethod
    def cost(cls, config: NadarayaWatsonConfig, shape: Shape) -> Cost:
        """Weights are counted for every pair, including masked ones; a distance counts as a matrix product."""
        C, H, wide = config.dim, config.heads, max(4, shape.element_bytes)
        over_self, width = config.over == "self", _width(config)
        keys = shape.length if over_self else shape.memory
        rows = shape.batch * keys
        streamed = rows * C * (2 if config.project else 1) if config.causal or not over_self else 0
        cost = matmul(shape.length, width, 2 * keys, count=shape.batch * H) + Cost(
            parameters={"none": 0, "head": H, "dimension": C}[config.learned],
            activation_bytes=_kept(config, shape.rows, rows) * wide,
            state_bytes=streamed * shape.element_bytes,
            growing_bytes=streamed * shape.element_bytes if config.over == "self" else 0,
        )
        if not config.project:
            return cost
        maps = matmul(shape.rows, C, C, count=2) + matmul(rows, C, 2 * C)
        return cost + maps + Cost(parameters=4 * C * C)


def _width(config: NadarayaWatsonConfig) -> int:
    """The width of a head in the products. A Gaussian adds one column to keys and queries, and one to the values."""
    return config.dim // config.heads + (1 if config.kernel == "gaussian" else 0)


def _kept(config: NadarayaWatsonConfig, rows: int, keys: int) -> int:
    """The number of elements that the backward pass needs, for `rows` queries and `keys` keys."""
    C, learned, wide = config.dim, config.learned != "none", config.heads * _width(config)
    held = rows * (2 * wide + config.heads) + keys * wide  # scaled queries, results, normalisers; scaled keys
    if config.kernel == "gaussian":
        held += keys * (wide + C)  # the values with one more column, and the keys of |k|^2
    entered = rows if config.over == "self" else rows + keys
    raw = learned or config.kernel != "gaussian"  # then the unscaled keys and values are kept too
    if config.project:  # the input, what the last map reads, [k; v], and the queries for the gradient of w
        return held + (entered + rows + 2 * raw * keys + learned * rows) * C
    return held + (raw * keys if config.over == "self" else learned * rows + raw * keys) * C
