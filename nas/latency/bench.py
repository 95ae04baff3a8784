"""Runs a single piece as inside a model: with an input, warm caches and other pieces between."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from itertools import cycle

import torch
from torch import Tensor, nn

from nas.latency import runs
from nas.latency.pieces import Call, Piece
from nas.latency.runs import Run, Setting
from searchspace.combinators.replay import keeping_nothing
from searchspace.combinators.sequence import Stack
from searchspace.contract import Context, Streams
from searchspace.sharing import one_model


class Weights:
    """The modules of the pieces that are run together: new ones, and in turns those again for calls that reuse them.

    A call with weights that an earlier call of the model has read may find them in the caches.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._made: dict[Piece, list[nn.Module]] = {}
        self._reused: dict[Piece, Iterator[nn.Module]] = {}

    def of(self, call: Call) -> nn.Module:
        """The module for the next run of a call: the first one of a piece is always new."""
        piece = call.piece
        if not call.fresh and piece in self._made:
            return next(self._reused.setdefault(piece, cycle(self._made[piece])))
        with one_model():
            module = runs.settled(piece.block.build(), piece.depth).to(self.device)
        return self.keep(piece, module)

    def keep(self, piece: Piece, module: nn.Module) -> nn.Module:
        """Note that `module` is one of `piece`."""
        self._made.setdefault(piece, []).append(module)
        return module

    def elements(self, piece: Piece) -> list[int]:
        """The numbers of elements of the parameters of a piece that was run."""
        return [each.numel() for each in self._made[piece][0].parameters()]


def run(call: Call, setting: Setting, device: torch.device, weights: Weights | None = None) -> Run:
    """The run that is timed for a call: the piece on a whole prompt, on one more position after it, or trained.

    weights: of the runs that it is timed with. A call that is made again in training keeps nothing, and runs once more
    right before its backward pass.
    """
    piece, weights = call.piece, weights or Weights(device)
    if piece.is_model:
        job = runs.job(piece.block, device, setting.batch, piece.length)
        weights.keep(piece, emptied(job.module, piece))
        return {"prefill": runs.prefill, "decode": runs.decode, "train": runs.learn}[setting.phase](job)
    module = weights.of(call)
    with one_model():
        position = piece.position.build().to(device) if piece.position else None
    fixture = _Fixture(module, position, piece, setting.batch, device)
    if setting.phase == "train":
        return _again(fixture) if call.again else _learn(fixture)
    return _forward(fixture) if setting.phase == "prefill" else _step(fixture)


def emptied(module: nn.Module, piece: Piece) -> nn.Module:
    """The module of a piece without the block that only makes its configuration valid."""
    if piece.is_model and piece.block.type.name == "encoder_decoder":
        module.decoder = Stack(())
    return module


class _Fixture:
    """A block, its position and its input [B, T, C]."""

    def __init__(self, module: nn.Module, position: nn.Module | None, piece: Piece, batch: int, device: torch.device):
        self.module, self.position, self.length = module, position, piece.length
        self.x = torch.randn(batch, piece.length, piece.width, device=device)
        self.positions = torch.arange(piece.length + 1, device=device)
        self.memory = torch.randn(batch, piece.memory, piece.width, device=device) if piece.memory else None

    def context(self, start: int = 0, streams: Streams | None = None) -> Context:
        """The context that a model passes to its blocks."""
        positions = self.positions[:-1] if start == 0 else self.positions[start:]
        return Context(
            positions=positions,
            position=self.position,  # type: ignore[arg-type]
            memory=self.memory,
            streams=streams,
        )


def _forward(fixture: _Fixture) -> Run:
    @torch.no_grad()
    def call() -> Tensor:
        return fixture.module(fixture.x, fixture.context())

    return Run(prepare=fixture.module.eval, call=call)


def _again(fixture: _Fixture) -> Run:
    learning, module = _learn(fixture), fixture.module
    buffers: list[Tensor] = []

    def call() -> None:
        buffers[:] = [each.clone() for each in module.buffers()]  # kept, so that the second pass has the same
        with keeping_nothing():
            module(fixture.x.view_as(fixture.x), fixture.context())

    def back() -> None:
        buffers[:] = [each.clone() for each in buffers]
        learning.all()

    return Run(learning.prepare, call, back)


def _step(fixture: _Fixture) -> Run:
    fixture.module.eval()
    x, prompt = fixture.x[:, :1].contiguous(), Streams()
    with torch.no_grad():
        fixture.module(fixture.x, fixture.context(0, prompt))
    prompt.length = fixture.length
    streams = prompt

    @torch.no_grad()
    def call() -> Tensor:
        return fixture.module(x, fixture.context(fixture.length, streams))

    def renew() -> None:
        nonlocal streams
        streams = copy.deepcopy(prompt)
        streams.rewind()

    return Run(renew, call)


def _learn(fixture: _Fixture) -> Run:
    x = fixture.x.requires_grad_()
    inputs = [x] if fixture.memory is None else [x, fixture.memory.requires_grad_()]
    gradient = torch.randn_like(x)
    parameters = list(fixture.module.parameters())

    def prepare() -> None:
        fixture.module.train()
        for each in (*inputs, *parameters):
            each.grad = None

    outs: list[Tensor] = []
    gradients: list[Tensor] = []

    def call() -> None:
        context = fixture.context()
        # A view, as inside a model: the gradient of a leaf is copied if no block computes it again.
        y = fixture.module(x.view_as(x), context)
        given = gradient if y.shape == x.shape else gradient[:, : y.shape[1], :].expand_as(y)
        outs[:], gradients[:] = [y], [given]
        if context.losses:
            outs.append(context.loss())
            gradients.append(torch.ones_like(outs[-1]))

    def back() -> None:
        torch.autograd.backward(outs, gradients)
        outs.clear()

    return Run(prepare, call, back)


def update(shapes: Iterable[tuple[int, ...]], device: torch.device) -> Run:
    """The optimiser's step over parameters of these shapes, all with gradients."""
    # Random values: with zeros a step takes three times as long on a CPU.
    parameters = [nn.Parameter(torch.randn(shape, device=device)) for shape in shapes]
    gradients = [torch.randn_like(each) for each in parameters]
    optimiser = torch.optim.AdamW(parameters, lr=0.0)

    def prepare() -> None:
        for each, gradient in zip(parameters, gradients, strict=True):
            each.grad = gradient

    def call() -> None:
        optimiser.step()
        optimiser.zero_grad()

    return Run(prepare, call)
