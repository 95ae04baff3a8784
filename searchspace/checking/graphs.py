"""torch.compile and torch.export. Several blocks share one call: what it takes is mostly the same for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from searchspace.checking.cases import Case, context, drawn
from searchspace.checking.contract import near
from searchspace.contract import Context


class _Together(nn.Module):
    """The blocks of several cases, each called on its own."""

    def __init__(self, cases: Sequence[Case]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(case.built() for case in cases)

    def forward(self, x: Tensor, contexts: list[Context] | None = None) -> list[Tensor]:
        contexts = [context(x) for _ in self.blocks] if contexts is None else contexts
        return [block(x, used) for block, used in zip(self.blocks, contexts)]


def compiles_as_one_graph(cases: Sequence[Case]) -> None:
    """Each operation's gradients are traced by its own tests; the rest of a block is plain PyTorch.

    Raises what torch.compile raises, and AssertionError if outputs differ.
    """
    torch.compiler.reset()
    together, x = _Together(cases), drawn(20)
    compiled = torch.compile(together, backend="eager", fullgraph=True)
    contexts = [[context(x) for _ in cases] for _ in range(2)]
    _agree(cases, compiled(x, contexts[0]), together(x, contexts[1]))


def exports_as_a_program(cases: Sequence[Case]) -> None:
    """Raises what torch.export raises, and AssertionError if outputs differ."""
    x, together = drawn(20), _Together(cases)
    exported = torch.export.export(together, (x,)).module()
    _agree(cases, exported(x), together(x))


def _agree(cases: Sequence[Case], found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    for case, here, there in zip(cases, found, expected, strict=True):
        near(here, there, 1e-12, case.id)
