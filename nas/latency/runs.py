"""A model and the work that is timed: read a prompt, generate one token, take a training step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.errors import UsageError
from nas.options import Positive, Threads
from nas.registry import checked
from nas.threads import checked_threads
from searchspace.backbones.entry import cannot_stream
from searchspace.combinators.halting import Halting
from searchspace.contract import Context, Streams
from searchspace.cost import Shape
from searchspace.parts import Part, too_long
from searchspace.registry import Configured

Phase = Literal["prefill", "decode", "train", "first_token", "generate"]
PHASES: tuple[Phase, ...] = ("prefill", "decode", "train")
WHOLE: tuple[Phase, ...] = ("first_token", "generate")  # phases that are measured as a whole, never predicted
NEW_TOKENS = 32
# Untimed calls right before each timed one: in use a step follows a step, and finds code and weights in the caches.
# Prompts of `LONG` positions, over all sequences, need none: they find little of themselves in the caches.
WARM, LONG = {"decode": 3, "prefill": 2}, 256
ALWAYS = 30.0  # the bias of a block that halts after the first step


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The phase to time and its conditions.

    length: of the prompt, which decoding has read before. threads: of torch on a CPU. depth: the steps of halting
    blocks, None for those of untrained blocks. new_tokens: of the phase `generate`. Raises ValueError for an unknown
    phase and for a number below one.
    """

    phase: Phase
    device: str = "cpu"
    batch: Positive = 1
    length: Positive = 256
    threads: Threads = 1
    depth: Positive | None = None
    new_tokens: Positive = NEW_TOKENS

    def __post_init__(self) -> None:
        try:
            checked(type(self), vars(self), "setting")
        except UsageError as error:
            raise ValueError(str(error)) from error

    @property
    def tokens(self) -> int:
        """Positions that one call reads (prefill, first_token, train) or generates (decode, generate)."""
        each = {"decode": 1, "generate": self.new_tokens}.get(self.phase, self.length)
        return self.batch * each

    @property
    def warm(self) -> int:
        """Untimed calls right before each timed one."""
        return 0 if self.phase == "prefill" and self.tokens >= LONG else WARM.get(self.phase, 0)


@dataclass(frozen=True)
class Job:
    """A model and its work. read: the whole input. loss: of the output. one: reads one more token, in a decoder."""

    module: nn.Module
    read: Callable[[Context], Tensor]
    loss: Callable[[Tensor], Tensor]
    one: Callable[[Context], Tensor]


@dataclass(frozen=True)
class Run:
    """call: one call of a phase. prepare: brings the model into the state that the call starts from.

    back: the backward pass of that call, if the two are timed one after the other; None if `call` does everything.
    """

    prepare: Callable[[], object]
    call: Callable[[], object]
    back: Callable[[], object] | None = None

    def all(self) -> None:
        """The call and its backward pass."""
        self.call()
        if self.back is not None:
            self.back()


def job(configured: Configured, device: torch.device, batch: int, length: int, depth: int | None = None) -> Job:
    """The model on `device`, in float32, with random weights and a random input; depth: of its halting blocks."""
    module = settled(configured.build(), depth).to(device)
    return _JOBS[configured.type.name](module, configured.config, device, batch, length)


def settled(module: nn.Module, depth: int | None = None) -> nn.Module:
    """Set halting blocks to a depth; with random weights each would have a random depth.

    depth: steps, at most those that a block has; None for the depth of untrained blocks, which costs assume.
    """
    for each in module.modules():
        if isinstance(each, Halting):
            nn.init.zeros_(each.halt.weight)
            if depth is not None:
                nn.init.constant_(each.halt.bias, _bias(each.config.threshold, depth))
    return module


def _bias(threshold: float, depth: int) -> float:
    """The bias with which a halting block takes `depth` steps: each adds the same p, and the last one exceeds the
    threshold.
    """
    p = (threshold + 1) / 2 if depth == 1 else threshold / (depth - 0.5)
    return math.log(p / (1 - p)) if p < 1 else ALWAYS


def _decoder(module: Any, config: Any, device: torch.device, batch: int, length: int) -> Job:
    tokens = torch.randint(config.vocabulary, (batch, length), device=device)
    return Job(
        module,
        read=lambda context: module(tokens, context),
        loss=lambda logits: F.cross_entropy(logits.flatten(0, 1), tokens.flatten()),
        one=lambda context: module(tokens[:, :1], context),
    )


def _encoder(module: nn.Module, config: Any, device: torch.device, batch: int, length: int) -> Job:
    if config.vocabulary is None:
        inputs = torch.randn(batch, length, config.features, device=device)
    else:
        inputs = torch.randint(config.vocabulary, (batch, length), device=device)
    labels = torch.randint(config.classes or 1, (batch,), device=device)

    def loss(output: Tensor) -> Tensor:
        return output.square().mean() if config.classes is None else F.cross_entropy(output, labels)

    def read(context: Context) -> Tensor:
        return module(inputs, context)

    return Job(module, read, loss, one=read)


def _encoder_decoder(module: Any, config: Any, device: torch.device, batch: int, length: int) -> Job:
    source = torch.randint(config.source_vocabulary or config.vocabulary, (batch, length), device=device)
    target = torch.randint(config.vocabulary, (batch, length), device=device)
    with torch.no_grad():
        memory = module.encode(source)
    return Job(
        module,
        read=lambda context: module(source, target, context),
        loss=lambda logits: F.cross_entropy(logits.flatten(0, 1), target.flatten()),
        one=lambda context: module.decode(target[:, :1], Context(streams=context.streams, memory=memory)),
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
    job.module.eval()
    prompt = Streams()
    with torch.no_grad():
        job.read(Context(streams=prompt))
    streams = prompt

    @torch.no_grad()
    def call() -> Tensor:
        return job.one(Context(streams=streams))

    def prepare() -> None:
        nonlocal streams
        job.module.eval()
        streams = copy.deepcopy(prompt)

    return Run(prepare, call)


def learn(job: Job) -> Run:
    """Forward and backward pass."""
    loss: Tensor

    def prepare() -> None:
        job.module.train()
        job.module.zero_grad()

    def call() -> None:
        nonlocal loss
        context = Context()
        loss = job.loss(job.read(context)) + context.loss()

    def back() -> None:
        nonlocal loss
        loss.backward()
        del loss

    return Run(prepare, call, back)


def train(job: Job) -> Run:
    """Forward and backward pass and an AdamW step."""
    # With a learning rate of zero the step does the same work and keeps the weights.
    optimiser = torch.optim.AdamW(job.module.parameters(), lr=0.0)
    learning = learn(job)

    def call() -> None:
        optimiser.zero_grad()
        learning.all()
        optimiser.step()

    return Run(prepare=job.module.train, call=call)


def first_token(job: Job) -> Run:
    """Read a prompt, keep the state after it, and choose the next token."""
    return generate(job, 1)


def generate(job: Job, count: int = NEW_TOKENS) -> Run:
    """Read a prompt and choose `count` new tokens, one after the other.

    The tokens that are read are random ones, because the choice does not change the time.
    """

    @torch.no_grad()
    def call() -> None:
        streams = Streams()
        logits = job.read(Context(streams=streams))
        for _ in range(count - 1):
            logits[:, -1].argmax(-1)
            logits = job.one(Context(streams=streams))
        logits[:, -1].argmax(-1)

    return Run(prepare=job.module.eval, call=call)


RUNS = {"prefill": prefill, "decode": decode, "train": train, "first_token": first_token, "generate": generate}


def run(configured: Configured, setting: Setting, device: torch.device) -> tuple[nn.Module, Run]:
    """A new model and its run. Raises ValueError if the model does not have the phase, or cannot read that far."""
    if reason := impossible(configured, setting):
        raise ValueError(f"This architecture has no phase {setting.phase!r}: {reason}")
    made = job(configured, device, setting.batch, setting.length, setting.depth)
    if setting.phase == "generate":
        return made.module, generate(made, setting.new_tokens)
    return made.module, RUNS[setting.phase](made)


def chosen(phases: Sequence[str] | None, configured: Configured) -> list[Phase]:
    """The phases to measure, in a fixed order: those in `phases`, else all of PHASES that the model has.

    Raises ValueError for an empty list, an unknown phase, and one that the model does not have.
    """
    if phases is not None and not phases:
        raise ValueError(f"phases must name some of {', '.join((*PHASES, *WHOLE))}, but is empty.")
    for phase in phases or ():
        Setting(phase=cast(Phase, phase))  # says what is wrong with it
    wanted = list(PHASES) if phases is None else [each for each in (*PHASES, *WHOLE) if each in phases]
    return wanted if phases is not None or not why_not(configured) else [each for each in wanted if each != "decode"]


def why_not(configured: Configured) -> str:
    """The blocks that cannot read their input in pieces, as text; empty if all can."""
    if configured.type.name == "encoder":
        return "encoder"
    blocks = getattr(configured.config, "decoder", None) or configured.config.body
    return ", ".join(cannot_stream(blocks))


def impossible(configured: Configured, setting: Setting) -> str:
    """Why the model cannot run in this setting, as a sentence; empty if nothing is known that prevents it."""
    if setting.phase in ("decode", *WHOLE) and (cannot := why_not(configured)):
        return f"{cannot} cannot read its input in pieces."
    after = {"decode": 1, "generate": setting.new_tokens - 1}  # tokens that are read after the prompt
    read = setting.length + after.get(setting.phase, 0)
    return too_long(Part(name="model", shape=Shape(length=read), block=configured)) or ""


@contextmanager
def on_threads(count: int | None) -> Iterator[None]:
    """torch uses `count` threads inside the block; None keeps its own. Raises ValueError if it cannot use as many."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else checked_threads(count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def seeded(device: torch.device) -> Iterator[None]:
    """A fixed random seed inside the block, so that weights and inputs are always the same."""
    with torch.random.fork_rng([device.index] if device.type == "cuda" else []):
        torch.manual_seed(0)
        yield
