"""A recurrent decoder that reads the encoder's output at every step through additive attention.

Formula: s_i = GRU(s_{i-1}, [x_i; c_i]), c_i = sum_j softmax_j(v . tanh(W s_{i-1} + U h_j)) h_j

`order: paper`: Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
https://arxiv.org/abs/1409.0473, appendix A.2. The context c_i is read with the previous state, s_i = GRU(s_{i-1}, [x_i;
c_i]), and the output is a maxout: the larger of each pair of U_o s_{i-1} + V_o x_i + C_o c_i, which is twice as wide.

`order: luong`: Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation",
https://arxiv.org/abs/1508.04025, section 3.3. The output is fed back: s_i = GRU(s_{i-1}, [x_i; o_{i-1}]), c_i is read
with the NEW state, and the output is o_i = tanh(W [s_i; c_i]), with o_0 = 0. The paper uses an LSTM and scores by
products. `order: unfed` is the same without feeding o back: s_i = GRU(s_{i-1}, x_i).

In all, c_i = sum_j a_ij h_j with a = softmax_j v . tanh(W s + U h_j). The gated unit is that of Cho et al. 2014 (`gru:
{variant: cho}`). The first state is s_0 = tanh(W_s b_1), where b_1 is the second half of the first h: the backward
state of an encoder that ends with a bidirectional recurrent block.

Public translators differ. joeynmt has the unit of `torch.nn.GRU` (`variant: torch`), starts from both final states of
the encoder, tanh(W [last forward; first backward] + b) (`first_state: bridge`), or from zeros (`first_state: zeros`),
has a bias inside the tanh of o (`output_bias: true`), and can leave out the feeding (`order: unfed`). There and in
OpenNMT-py the state may be narrower than the memory (`hidden`); a linear map then brings o to the width C.

B batch, T time, S positions of the memory, A width of the scoring network, C width of x and h, H width of s and o.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.attention.additive_attention import additive_attention
from kernels.dispatch.precision import without_autocast
from kernels.recurrence.attending_gru import attending_gru
from kernels.recurrence.gru import gru
from searchspace.checks import at_least
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, linear, matmul
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class AttendingGRUConfig:
    """`order`: the publication to follow: Bahdanau et al. (paper), Luong et al. (luong), or Luong et al. without input
    feeding (unfed).
    `variant`: the unit, as in the paper (cho) or as in `torch.nn.GRU` (torch).
    `first_state`: what the first state comes from: the encoder's backward state, both final states (bridge), or zeros.
    `hidden`: H, the width of the state; null takes the width of the model.
    `alignment`: A, the width of the scoring network; null takes the width of the model.
    `output_bias`: whether o has a bias inside its tanh; the maxout of the paper always has one.

    Raises ValueError if the model has no encoder, dim is odd, or the hidden width or the alignment is below 1.
    """

    dim: int = given()
    memory: bool = given(False)
    order: Literal["paper", "luong", "unfed"] = "paper"
    variant: Literal["cho", "torch"] = "cho"
    first_state: Literal["backward", "bridge", "zeros"] = "backward"
    hidden: int | None = None
    alignment: int | None = None
    output_bias: bool = False

    def __post_init__(self) -> None:
        at_least(1, alignment=self.alignment, hidden=self.hidden)
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
    def width(self) -> int:
        """H, the width of the state."""
        return self.hidden or self.dim

    @property
    def paper(self) -> bool:
        """Whether it follows Bahdanau et al."""
        return self.order == "paper"


@primitive(
    "attending_gru",
    AttendingGRUConfig,
    published=Published(
        paper={"Luong et al. use LSTM layers and score by products": ""},
        code=("joeynmt/joeynmt",),
        released={
            "the GRU applies its reset gate after the product": "variant: torch, order: luong",
            "the first state comes from both final states, or is zero": "first_state: bridge, order: luong",
            "o has a bias": "order: luong, output_bias: true",
            "o is not fed back if input_feeding is false": "order: unfed",
            "the state is narrower than the memory": "order: luong, hidden: 8",
        },
    ),
)
class AttendingGRU(Primitive):
    """One layer of a decoder. Streaming keeps the memory with U h, s in float32 or wider, and o if it is fed back."""

    capabilities = Capabilities(bidirectional=False, cross=True)

    def __init__(self, config: AttendingGRUConfig) -> None:
        super().__init__()
        self.config = config
        C, H, A, paper = config.dim, config.width, config.scored, config.paper
        read = {"backward": C // 2, "bridge": C, "zeros": 0}[config.first_state]
        self.start = nn.Linear(read, H) if read else None  # W_s
        self.input = nn.Linear(C, 3 * H + (2 * C if paper else 0))  # of x into r, z and n, and V_o
        self.key = nn.Linear(C, A, bias=False)  # U
        self.query = nn.Parameter(torch.empty(A, H))  # W
        self.score = nn.Parameter(torch.empty(A))  # v
        self.recurrent = nn.Parameter(torch.empty(3 * H, H))  # of s into r, z and n
        # of c or o into r, z and n
        self.fed = None if config.order == "unfed" else nn.Parameter(torch.empty(3 * H, C if paper else H))
        self.combined = nn.Parameter(torch.empty(2 * C if paper else H, H + C))  # [U_o, C_o], or W of [s; c]
        self.reset_bias = nn.Parameter(torch.empty(H)) if config.variant == "torch" else None  # b' of the unit
        self.bias = nn.Parameter(torch.empty(H)) if config.output_bias and not paper else None  # of o
        self.output = None if paper or H == C else nn.Linear(H, C, bias=False)
        own = (self.query, self.score, self.recurrent, self.fed, self.combined, self.reset_bias, self.bias)
        for weight in own:
            if weight is not None:
                nn.init.uniform_(weight, -(H**-0.5), H**-0.5)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if the context has no memory."""
        H, paper = self.config.width, self.config.paper
        slot = context.slot(self)
        entered = self._read(slot) if slot else self._entered(x, context)
        projected = self.input(x)
        wide = torch.promote_types(x.dtype, torch.float32)
        with without_autocast(x.device.type):
            inputs = projected[..., : 3 * H].to(wide).transpose(0, 1)
            states, contexts, outs = (self._unfed if self.fed is None else self._looped)(inputs, entered, context)
        if slot is not None:
            slot |= {"keys": entered.keys, "memory": entered.memory, "s": states[-1].clone()}
            slot |= {} if entered.real is None else {"real": entered.real}
            slot |= {"o": outs[-1].clone()} if self.config.order == "luong" else {}
        if not paper:
            out = outs.transpose(0, 1).to(x.dtype)
            return out if self.output is None else self.output(out)
        before = torch.cat([entered.s[None].to(wide), states])[:-1]  # a trace has special cases for T - 1 positions
        both = torch.cat([before, contexts], dim=2).transpose(0, 1).to(projected.dtype)
        pairs = projected[..., 3 * H :] + F.linear(both, self.combined)
        first, second = pairs.unflatten(2, (self.config.dim, 2)).unbind(3)
        return torch.maximum(first, second).to(x.dtype)

    def _looped(self, inputs: Tensor, entered: _Entered, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """inputs: [T, B, 3H] -> s, c and o of each step: [T, B, H], [T, B, C] and [T, B, H]; o is empty for the
        paper.
        """
        assert self.fed is not None
        wide = inputs.dtype
        bias, output_bias = (None if b is None else b.to(wide) for b in (self.reset_bias, self.bias))
        return attending_gru(
            inputs, entered.keys.to(wide), entered.memory.to(wide), entered.s.to(wide), entered.o.to(wide),
            self.query.to(wide), self.score.to(wide), self.recurrent.to(wide), self.fed.to(wide),
            None if self.config.paper else self.combined.to(wide), entered.real, _mask(context), bias, output_bias,
        )  # fmt: skip

    def _unfed(self, inputs: Tensor, entered: _Entered, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """The same without feeding: the states come first, then all of them read the memory at once."""
        wide, mask = inputs.dtype, _mask(context)
        bias = None if self.reset_bias is None else self.reset_bias.to(wide)[None]
        states = gru(
            inputs[:, None], self.recurrent.to(wide)[None], None if bias is None else bias, entered.s.to(wide)[None],
            None if mask is None else mask[:, None],
        )[:, 0]  # fmt: skip
        q = F.linear(states.transpose(0, 1), self.query.to(wide))
        k, v = entered.keys.to(wide), entered.memory.to(wide)
        contexts = additive_attention(q[:, None], k[:, None], v[:, None], self.score.to(wide)[None], entered.real)[:, 0]
        both = torch.cat([states, contexts.transpose(0, 1)], dim=2)
        outs = F.linear(both, self.combined.to(wide), None if self.bias is None else self.bias.to(wide)).tanh()
        return states, contexts, outs

    def _read(self, slot: dict[str, Tensor]) -> _Entered:
        """What the previous piece has left."""
        return _Entered(slot["keys"], slot["memory"], slot.get("real"), slot["s"], slot.get("o", slot["s"]))

    def _entered(self, x: Tensor, context: Context) -> _Entered:
        """The same before the first position."""
        memory, real = context.get("memory"), context.get("memory_padding")
        if memory is None:
            raise ValueError("attending_gru needs the encoder's output, but the context has no lane 'memory'.")
        if self.start is None:
            s = memory.new_zeros(memory.shape[0], self.config.width)
        else:
            half = self.config.dim // 2
            ends = [_at_end(memory, real, last=False)[:, half:]]
            if self.config.first_state == "bridge":
                ends.insert(0, _at_end(memory, real, last=True)[:, :half])
            s = self.start(torch.cat(ends, dim=1)).tanh()
        return _Entered(self.key(memory), memory, real, s, torch.zeros_like(s))

    @classmethod
    def reads(cls, config: AttendingGRUConfig) -> tuple[str, ...]:
        return ("memory",)

    @classmethod
    def states(cls, config: AttendingGRUConfig) -> Mapping[str, str]:
        return {"keys": "B S A", "memory": "B S C", "real": "B S", "s": "B H", "o": "B H"}

    @classmethod
    def cost(cls, config: AttendingGRUConfig, shape: Shape) -> Cost:
        """The memory is projected once. Its scores have C * A and A products; the tanh between them is not counted."""
        C, H, A, B, S = config.dim, config.width, config.scored, shape.batch, shape.memory
        wide, paper = max(4, shape.element_bytes), config.paper
        fed = {"paper": 3 * H * C, "luong": 3 * H * H, "unfed": 0}[config.order]
        combined = (2 * C if paper else H) * (H + C)
        looped = A * H + 3 * H * H + fed + (0 if paper else combined)  # numbers of the matrices in the loop
        made = 4 * H + C + S + (H + 3 * C if paper else H)  # s, r, z, n, c, weights; [s; c] and the pairs, or o
        made += H if config.variant == "torch" else 0
        made += H + C + A - S if config.order == "unfed" else 0  # [s; c] and queries; weights are computed again
        read = {"backward": C // 2, "bridge": C, "zeros": 0}[config.first_state]
        states = 2 if config.order == "luong" else 1  # s, and o
        biases = (H if config.variant == "torch" else 0) + (H if config.output_bias and not paper else 0)
        return (
            linear(shape, C, 3 * H + (2 * C if paper else 0))
            + (linear(shape, read, H, rows=B) if read else Cost())
            + linear(shape, C, A, bias=False, rows=B * S)
            + matmul(shape.rows, looped, 1)
            + matmul(shape.rows, S, A + C)
            + (matmul(shape.rows, H + C, 2 * C) if paper else Cost())
            + (linear(shape, H, C, bias=False) if not paper and H != C else Cost())
            + Cost(
                parameters=A * H + A + 3 * H * H + fed + combined + biases,
                activation_bytes=(shape.rows * made + B * S * A) * wide,
                state_bytes=B * S * (A + C) * shape.element_bytes + B * H * states * wide,
            )
        )


class _Entered(NamedTuple):
    """U h: [B, S, A], h: [B, S, C], its padding: [B, S] or None, s and o before the first step: [B, H]."""

    keys: Tensor
    memory: Tensor
    real: Tensor | None
    s: Tensor
    o: Tensor


def _at_end(memory: Tensor, real: Tensor | None, *, last: bool) -> Tensor:
    """The first or last real position of memory: [B, S, C] -> [B, C]; zeros if there is none."""
    if real is None:
        return memory[:, -1 if last else 0]
    rows = torch.arange(memory.shape[0], device=memory.device)
    found = real.shape[1] - 1 - real.flip(1).int().argmax(1) if last else real.int().argmax(1)
    return memory[rows, found] * real.any(1, keepdim=True)


def _mask(context: Context) -> Tensor | None:
    """[T, B, 1], False at padding, where the state does not change."""
    return None if context.padding is None else context.padding.mT[:, :, None]
