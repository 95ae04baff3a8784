"""A model with something to do: reading a prompt, generating one token, taking a training step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.backbones.entry import cannot_stream
from searchspace.combinators.halting import Halting
from searchspace.contract import Context, Streams
from searchspace.errors import nearest
from searchspace.registry import Configured

PHASES = ("prefill", "decode", "train")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is timed where. length: of the prompt, which decoding has read before. threads: of torch on a CPU."""

    phase: str
    device: str = "cpu"
    batch: int = 1
    length: int = 256
    threads: int = 1

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise ValueError(
                f"No phase is called {self.phase!r}.{nearest(self.phase, PHASES)} Known: {', '.join(PHASES)}."
            )
        for name in ("length", "batch", "threads"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be at least 1, but got {value}.")


@dataclass(frozen=True)
class Job:
    """A model with something to do: `read` the whole input, tell its `loss`, and generate `one` token (or None)."""

    module: nn.Module
    read: Callable[[Context], Tensor]
    loss: Callable[[Tensor], Tensor]
    one: Callable[[Context], Tensor] | None
    cannot: str = ""  # what cannot read its input in pieces, where there is no `one`


@dataclass(frozen=True)
class Run:
    """One call of a phase, and what brings the model into the state it starts from."""

    prepare: Callable[[], object]
    call: Callable[[], object]


def job(configured: Configured, device: torch.device, batch: int, length: int) -> Job:
    """The model on `device`, in float32, with random weights and a random input."""
    module = settled(configured.build()).to(device)
    return _JOBS[configured.type.name](module, configured.config, device, batch, length)


def settled(module: nn.Module) -> nn.Module:
    """Halting blocks go as deep as costs expect of untrained ones: random weights would draw another depth each."""
    for each in module.modules():
        if isinstance(each, Halting):
            nn.init.zeros_(each.halt.weight)
    return module


def _decoder(module: Any, config: Any, device: torch.device, batch: int, length: int) -> Job:
    tokens = torch.randint(config.vocabulary, (batch, length), device=device)
    return Job(
        module,
        read=lambda context: module(tokens, context),
        loss=lambda logits: F.cross_entropy(logits.flatten(0, 1), tokens.flatten()),
        one=None if module.cannot_stream else lambda context: module(tokens[:, :1], context),
        cannot=", ".join(module.cannot_stream),
    )


def _encoder(module: nn.Module, config: Any, device: torch.device, batch: int, length: int) -> Job:
    if config.vocabulary is None:
        inputs = torch.randn(batch, length, config.features, device=device)
    else:
        inputs = torch.randint(config.vocabulary, (batch, length), device=device)
    labels = torch.randint(config.classes or 1, (batch,), device=device)

    def loss(output: Tensor) -> Tensor:
        return output.square().mean() if config.classes is None else F.cross_entropy(output, labels)

    return Job(module, read=lambda context: module(inputs, context), loss=loss, one=None, cannot="encoder")


def _encoder_decoder(module: Any, config: Any, device: torch.device, batch: int, length: int) -> Job:
    source = torch.randint(config.source_vocabulary or config.vocabulary, (batch, length), device=device)
    target = torch.randint(config.vocabulary, (batch, length), device=device)
    with torch.no_grad():
        memory = module.encode(source)
    return Job(
        module,
        read=lambda context: module(source, target, context),
        loss=lambda logits: F.cross_entropy(logits.flatten(0, 1), target.flatten()),
        one=None
        if module.cannot_stream
        else lambda context: module.decode(target[:, :1], replace(context, memory=memory)),
        cannot=", ".join(module.cannot_stream),
    )


_JOBS = {"decoder": _decoder, "encoder": _encoder, "encoder_decoder": _encoder_decoder}


def prefill(job: Job) -> Run:
    """The forward pass over a whole prompt."""

    @torch.no_grad()
    def call() -> Tensor:
        return job.read(Context())

    return Run(prepare=job.module.eval, call=call)


def decode(job: Job) -> Run:
    """One more token. Every step starts from a copy of the state after the prompt, so that the context never grows."""
    if job.one is None:
        raise ValueError(f"This architecture has no phase 'decode': {job.cannot} cannot read its input in pieces.")
    one = job.one
    job.module.eval()
    prompt = Streams()
    with torch.no_grad():
        job.read(Context(streams=prompt))
    streams = prompt

    def renew() -> None:
        nonlocal streams
        streams = copy.deepcopy(prompt)

    @torch.no_grad()
    def call() -> Tensor:
        return one(Context(streams=streams))

    def prepare() -> None:
        # A step follows another in use, so it finds the weights in the cache; after a training step it would not.
        job.module.eval()
        renew()
        call()
        renew()

    return Run(prepare, call)


def learn(job: Job) -> Run:
    """Forward and backward pass."""

    def prepare() -> None:
        job.module.train()
        job.module.zero_grad()

    def call() -> None:
        context = Context()
        (job.loss(job.read(context)) + context.loss()).backward()

    return Run(prepare, call)


def train(job: Job) -> Run:
    """Forward and backward pass and an AdamW step."""
    # A rate of zero takes the same steps and leaves the weights as they are.
    optimiser = torch.optim.AdamW(job.module.parameters(), lr=0.0)
    learning = learn(job)

    def call() -> None:
        optimiser.zero_grad()
        learning.call()
        optimiser.step()

    return Run(prepare=job.module.train, call=call)


RUNS = {"prefill": prefill, "decode": decode, "train": train}


def run(configured: Configured, setting: Setting, device: torch.device) -> tuple[nn.Module, Run]:
    """A fresh model and its run. Raises ValueError where the model does not have that phase."""
    made = job(configured, device, setting.batch, setting.length)
    return made.module, RUNS[setting.phase](made)


def chosen(phases: Sequence[str] | None, configured: Configured) -> list[str]:
    """The phases to measure, in the order of PHASES: those that are asked for, else all that the model has."""
    if phases is not None and not phases:
        raise ValueError(f"phases must name some of {', '.join(PHASES)}, but is empty.")
    for phase in phases or ():
        Setting(phase=phase)  # says what is wrong with it
    wanted = [phase for phase in PHASES if phases is None or phase in phases]
    return wanted if phases is not None or streams(configured) else [each for each in wanted if each != "decode"]


def streams(configured: Configured) -> bool:
    """Whether the model can generate token by token."""
    return not why_not(configured)


def why_not(configured: Configured) -> str:
    """What cannot read its input in pieces; empty where all can."""
    if configured.type.name == "encoder":
        return "encoder"
    blocks = getattr(configured.config, "decoder", None) or configured.config.body
    return ", ".join(cannot_stream(blocks))


@contextmanager
def on_threads(count: int | None) -> Iterator[None]:
    """torch with so many threads inside the block; None leaves them."""
    if count is not None and count < 1:
        raise ValueError(f"threads must be at least 1, but got {count}.")
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def seeded(device: torch.device) -> Iterator[None]:
    """The same weights and inputs every time, and the caller's random state as it was afterwards."""
    with torch.random.fork_rng([device.index] if device.type == "cuda" else []):
        torch.manual_seed(0)
        yield
