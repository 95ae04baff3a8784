"""A recurrent decoder that reads the encoder's output at every step through additive attention.

Formula: s_i = GRU(s_{i-1}, [x_i; c_i]), c_i = sum_j softmax_j(v . tanh(W s_{i-1} + U h_j)) h_j

`order: paper`: Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
https://arxiv.org/abs/1409.0473, appendix A.2. The context c_i is read with the previous state, s_i = GRU(s_{i-1}, [x_i;
c_i]), and the output is a maxout: the larger of each pair of U_o s_{i-1} + V_o x_i + C_o c_i, which is twice as wide.

`order: luong`: Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation",
https://arxiv.org/abs/1508.04025, section 3.3. The output is fed back: s_i = GRU(s_{i-1}, [x_i; o_{i-1}]), c_i is read
with the NEW state, and the output is o_i = tanh(W [s_i; c_i]), with o_0 = 0. The paper uses an LSTM and scores by
products.

In both, c_i = sum_j a_ij h_j with a = softmax_j v . tanh(W s + U h_j). The gated unit is that of Cho et al. 2014 (`gru:
{variant: cho}`). The first state is s_0 = tanh(W_s b_1), where b_1 is the second half of the first h: the backward
state of an encoder that ends with a bidirectional recurrent block. B batch, T time, S positions of the memory, A width
of the scoring network, C width of x, s, h and o.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.dispatch.precision import without_autocast
from kernels.recurrence.attending_gru import attending_gru
from searchspace.checks import at_least
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, linear, matmul
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class AttendingGRUConfig:
    """`order`: the publication to follow, Bahdanau et al. (paper) or Luong et al. (luong).
    `alignment`: A, the width of the scoring network; null takes the width of the model.

    Raises ValueError if the model has no encoder, dim is odd, or the alignment is below 1.
    """

    dim: int = given()
    memory: bool = given(False)
    order: Literal["paper", "luong"] = "paper"
    alignment: int | None = None

    def __post_init__(self) -> None:
        at_least(1, alignment=self.alignment)
        if not self.memory:
            raise ValueError(
                "attending_gru reads the encoder's output at every step, but this model has no encoder; use gru."
            )
        if self.dim % 2:
            raise ValueError(f"dim must be even: the state starts from its second half, but got dim={self.dim}.")

    @property
    def scored(self) -> int:
        """A, the width of the scoring network."""
        return self.alignment or self.dim

    @property
    def paper(self) -> bool:
        """Whether it follows Bahdanau et al."""
        return self.order == "paper"


@primitive("attending_gru", AttendingGRUConfig)
class AttendingGRU(Primitive):
    """One layer of a decoder. Streaming keeps the memory with U h, s in float32 or wider, and o if it is fed back."""

    capabilities = Capabilities(bidirectional=False, cross=True)

    def __init__(self, config: AttendingGRUConfig) -> None:
        super().__init__()
        self.config = config
        C, A = config.dim, config.scored
        self.start = nn.Linear(C // 2, C)  # W_s
        self.input = nn.Linear(C, 5 * C if config.paper else 3 * C)  # of x into r, z and n, and V_o
        self.key = nn.Linear(C, A, bias=False)  # U
        self.query = nn.Parameter(torch.empty(A, C))  # W
        self.score = nn.Parameter(torch.empty(A))  # v
        self.recurrent = nn.Parameter(torch.empty(3 * C, C))  # of s into r, z and n
        self.fed = nn.Parameter(torch.empty(3 * C, C))  # of c or o into r, z and n
        self.combined = nn.Parameter(torch.empty(2 * C if config.paper else C, 2 * C))  # [U_o, C_o], or W of [s; c]
        for weight in (self.query, self.score, self.recurrent, self.fed, self.combined):
            nn.init.uniform_(weight, -(C**-0.5), C**-0.5)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if the context has no memory."""
        C, paper = self.config.dim, self.config.paper
        slot = context.slot()
        keys, memory, real, s, o = self._read(slot) if slot else self._entered(context)
        projected = self.input(x)
        wide = torch.promote_types(x.dtype, torch.float32)
        with without_autocast(x.device.type):
            states, contexts, fedback = attending_gru(
                projected[..., : 3 * C].to(wide).transpose(0, 1), keys.to(wide), memory.to(wide), s.to(wide),
                o.to(wide), self.query.to(wide), self.score.to(wide), self.recurrent.to(wide), self.fed.to(wide),
                None if paper else self.combined.to(wide), real, _mask(context),
            )  # fmt: skip
        if slot is not None:
            slot |= {"keys": keys, "memory": memory, "s": states[-1].clone()}
            slot |= {} if real is None else {"real": real}
            slot |= {} if paper else {"o": fedback[-1].clone()}
        if not paper:
            return fedback.transpose(0, 1).to(x.dtype)
        before = torch.cat([s[None].to(wide), states[:-1]])
        both = torch.cat([before, contexts], dim=2).transpose(0, 1).to(projected.dtype)
        first, second = (projected[..., 3 * C :] + F.linear(both, self.combined)).unflatten(2, (C, 2)).unbind(3)
        return torch.maximum(first, second).to(x.dtype)

    def _read(self, slot: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
        """U h, h, its padding, s and o after the previous piece."""
        return slot["keys"], slot["memory"], slot.get("real"), slot["s"], slot.get("o", slot["s"])

    def _entered(self, context: Context) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
        """The same before the first position."""
        memory, real = context.memory, context.memory_padding
        if memory is None:
            raise ValueError("attending_gru needs the encoder's output in the context, but context.memory is None.")
        first = memory[:, 0]
        if real is not None:  # the first real position; zeros if there is none
            rows = torch.arange(len(memory), device=memory.device)
            first = memory[rows, real.int().argmax(1)] * real.any(1, keepdim=True)
        s = self.start(first[:, self.config.dim // 2 :]).tanh()
        return self.key(memory), memory, real, s, torch.zeros_like(s)

    @classmethod
    def cost(cls, config: AttendingGRUConfig, shape: Shape) -> Cost:
        """The memory is projected once. Its scores have C * A and A products; the tanh between them is not counted."""
        C, A, B, S = config.dim, config.scored, shape.batch, shape.memory
        wide, paper = max(4, shape.element_bytes), config.paper
        looped = A * C + 3 * C * 2 * C + (0 if paper else 2 * C * C)  # numbers of the matrices in the loop
        made = 5 * C + S + (4 * C if paper else C)  # s, c, r, z, n, weights; [s; c] and the pairs, or o
        return (
            linear(shape, C, 5 * C if paper else 3 * C)
            + linear(shape, C // 2, C, rows=B)
            + linear(shape, C, A, bias=False, rows=B * S)
            + matmul(shape.rows, looped, 1)
            + matmul(shape.rows, S, A + C)
            + (matmul(shape.rows, 2 * C, 2 * C) if paper else Cost())
            + Cost(
                parameters=A * C + A + 6 * C * C + (4 if paper else 2) * C * C,
                activation_bytes=(shape.rows * made + B * S * A) * wide,
                state_bytes=B * S * (A + C) * shape.element_bytes + B * C * (1 if paper else 2) * wide,
            )
        )


def _mask(context: Context) -> Tensor | None:
    """[T, B, 1], False at padding, where the state does not change."""
    return None if context.padding is None else context.padding.mT[:, :, None]
