"""How long an architecture takes on a device: reading a prompt, generating one token, one training step.

Everything is measured on random inputs with fresh weights, in turns, with warm-up (`tuner.measure`); nothing is stored.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.architecture import Architecture
from searchspace.build import as_architecture, build
from searchspace.contract import Context, Streams
from searchspace.errors import nearest
from tuner.device import resolve
from tuner.measure import measure

PHASES = ("prefill", "decode", "train")


@dataclass(frozen=True, kw_only=True)
class PhaseLatency:
    """Milliseconds of one phase: the median and the interval around it.

    prefill: the forward pass over a whole prompt. decode: one more token after it, from the state it left. train:
    forward and backward pass and an AdamW step. peak_bytes: the most memory the device held during one call, weights
    included; None where it was not measured, which is on a CPU.
    """

    phase: str
    milliseconds: float
    low: float
    high: float
    samples: int
    coverage: float  # of the interval: below 0.95 when time ran out after a few samples
    peak_bytes: int | None
    kind: str = "measured"


def as_row(latency: PhaseLatency) -> dict[str, Any]:
    """As plain data, for a table or JSON."""
    return asdict(latency)


def profile(
    architecture: Architecture | str | Path,
    device: str = "cpu",
    *,
    length: int = 256,
    batch: int = 1,
    phases: Sequence[str] | None = None,
    threads: int | None = None,
    warmup: int = 2,
    repeats: int = 20,
    budget_seconds: float | None = 30.0,
) -> list[PhaseLatency]:
    """Measure `architecture` on `device` ("cpu", "cuda", "cuda:1") in float32, with `batch` sequences of `length`.

    phases: some of "prefill", "decode", "train"; without it all that the model has (an encoder decodes nothing, and
    some blocks cannot). threads: of torch on a CPU, as they are set by default. budget_seconds: what all phases
    together may take; each is timed at least once. Raises ValueError for a phase that the model does not have and for
    a device that is not there.
    """
    for name, value in (("length", length), ("batch", batch)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, but got {value}.")
    where = resolve(device)
    architecture = as_architecture(architecture)
    with _threads(threads), _seeded(where):
        job = _job(architecture, where, batch, length)
        runs = {phase: _PHASES[phase](job) for phase in _chosen(phases, architecture, job)}
        peaks = {phase: _peak(run, where) for phase, run in runs.items()}
        timings = measure(
            {phase: run.call for phase, run in runs.items()},
            prepare={phase: run.prepare for phase, run in runs.items()},
            device=device,
            warmup=warmup,
            repeats=repeats,
            budget_seconds=budget_seconds,
        )
    return [
        PhaseLatency(
            phase=phase,
            milliseconds=timing.median,
            low=timing.low,
            high=timing.high,
            samples=len(timing.samples),
            coverage=timing.coverage,
            peak_bytes=peaks[phase],
        )
        for phase, timing in timings.items()
    ]


def calls(architecture: Architecture, device: torch.device, batch: int, length: int) -> Iterator[Callable[[], object]]:
    """A call of every phase that the architecture has, ready to be made before the next is asked for."""
    job = _job(architecture, device, batch, length)
    for phase in _chosen(None, architecture, job):
        run = _PHASES[phase](job)
        run.prepare()
        yield run.call


@dataclass(frozen=True)
class _Job:
    """A model with something to do: `read` the whole input, tell its `loss`, and generate `one` token (or None)."""

    module: nn.Module
    read: Callable[[Context], Tensor]
    loss: Callable[[Tensor], Tensor]
    one: Callable[[Context], Tensor] | None


@dataclass(frozen=True)
class _Run:
    """One call of a phase, and what brings the model into the state it starts from."""

    prepare: Callable[[], object]
    call: Callable[[], object]


def _job(architecture: Architecture, device: torch.device, batch: int, length: int) -> _Job:
    configured = architecture.configured
    module = build(architecture).to(device)
    return _JOBS[configured.type.name](module, configured.config, device, batch, length)


def _decoder(module: Any, config: Any, device: torch.device, batch: int, length: int) -> _Job:
    tokens = torch.randint(config.vocabulary, (batch, length), device=device)
    return _Job(
        module,
        read=lambda context: module(tokens, context),
        loss=lambda logits: F.cross_entropy(logits.flatten(0, 1), tokens.flatten()),
        one=None if module.cannot_stream else lambda context: module(tokens[:, :1], context),
    )


def _encoder(module: nn.Module, config: Any, device: torch.device, batch: int, length: int) -> _Job:
    if config.vocabulary is None:
        inputs = torch.randn(batch, length, config.features, device=device)
    else:
        inputs = torch.randint(config.vocabulary, (batch, length), device=device)
    labels = torch.randint(config.classes or 1, (batch,), device=device)

    def loss(output: Tensor) -> Tensor:
        return output.square().mean() if config.classes is None else F.cross_entropy(output, labels)

    return _Job(module, read=lambda context: module(inputs, context), loss=loss, one=None)


def _encoder_decoder(module: Any, config: Any, device: torch.device, batch: int, length: int) -> _Job:
    source = torch.randint(config.source_vocabulary or config.vocabulary, (batch, length), device=device)
    target = torch.randint(config.vocabulary, (batch, length), device=device)
    with torch.no_grad():
        memory = module.encode(source)
    return _Job(
        module,
        read=lambda context: module(source, target, context),
        loss=lambda logits: F.cross_entropy(logits.flatten(0, 1), target.flatten()),
        one=None
        if module.cannot_stream
        else lambda context: module.decode(target[:, :1], replace(context, memory=memory)),
    )


_JOBS = {"decoder": _decoder, "encoder": _encoder, "encoder_decoder": _encoder_decoder}


def _prefill(job: _Job) -> _Run:
    @torch.no_grad()
    def call() -> Tensor:
        return job.read(Context())

    return _Run(prepare=job.module.eval, call=call)


def _decode(job: _Job) -> _Run:
    """Every step starts from a copy of the state after the prompt, so that the context never grows."""
    assert job.one is not None
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

    return _Run(prepare, call)


def _train(job: _Job) -> _Run:
    # A rate of zero takes the same steps and leaves the weights as they are: halting blocks would change their depth.
    optimiser = torch.optim.AdamW(job.module.parameters(), lr=0.0)

    def call() -> None:
        optimiser.zero_grad()
        context = Context()
        (job.loss(job.read(context)) + context.loss()).backward()
        optimiser.step()

    return _Run(prepare=job.module.train, call=call)


_PHASES = {"prefill": _prefill, "decode": _decode, "train": _train}


def _chosen(phases: Sequence[str] | None, architecture: Architecture, job: _Job) -> list[str]:
    """The phases to measure, in the order of PHASES."""
    if phases is not None and not phases:
        raise ValueError(f"phases must name some of {', '.join(PHASES)}, but is empty.")
    for phase in phases or ():
        if phase not in PHASES:
            raise ValueError(f"No phase is called {phase!r}.{nearest(phase, PHASES)} Known: {', '.join(PHASES)}.")
    if phases is not None and "decode" in phases and job.one is None:
        because = ", ".join(getattr(job.module, "cannot_stream", ())) or architecture.configured.type.name
        raise ValueError(f"This architecture has no phase 'decode': {because} cannot read its input in pieces.")
    wanted = PHASES if phases is None else phases
    return [phase for phase in PHASES if phase in wanted and (phase != "decode" or job.one is not None)]


def _peak(run: _Run, device: torch.device) -> int | None:
    """The most bytes that one call held, or None on a CPU, where nothing counts them."""
    if device.type != "cuda":
        return None
    run.prepare()
    torch.cuda.reset_peak_memory_stats(device)
    run.call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    if count is not None and count < 1:
        raise ValueError(f"threads must be at least 1, but got {count}.")
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _seeded(device: torch.device) -> Iterator[None]:
    """The same weights and inputs every time, and the caller's random state as it was afterwards."""
    with torch.random.fork_rng([device.index] if device.type == "cuda" else []):
        torch.manual_seed(0)
        yield
