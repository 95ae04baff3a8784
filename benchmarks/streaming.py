"""Decoding one token at a time: speed and state of token mixers by context, and key caches (ours, Hugging Face's).

    python -m benchmarks.streaming [--only mixers|gpt2] [--quick] [--json]

Mixers: language models with 4 layers of width 256, each with one mixer and a feed-forward. They have read 1,024, 4,096
and 16,384 tokens (full attention 1,024; its further keys are random) and continue token by token, the three in turns.
State bytes are measured; `declared` says whether they equal the declared size.

GPT-2: the shape of GPT-2 small with random weights, in `transformers` (its own cache and default attention; installed
into a temporary folder) and in Tessera. Both caches are filled with random keys, and greedy steps take turns. In ours,
one step in 256 appends its newest keys to the others. That step is timed separately and counted in proportion. All
times are CPU time of this process, one thread.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.support.clock import ProcessTime
from benchmarks.support.report import report
from searchspace import zoo
from searchspace.contract import Context, Streams
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost
from searchspace.primitives.attention import kept_keys
from searchspace.tree import Block
from tuner.measure.measure import compare, measure

CONTEXTS = (1024, 4096, 16384)
QUICK = (1024, 1536)
PIECE = 512  # tokens read at a time
FLAT = 1.1
ROOM = 1024  # positions after the longest context
MIXERS = {
    "full attention": "attention: {heads: 4}",
    "window 128": "sliding_window_attention: {heads: 4, window: 128}",
    "linear": "linear_attention: {heads: 4}",
    "random features": "random_feature_attention: {heads: 4, features: 64}",
    "convolution 31": "convolution: {kernel: 31}",
    "LSTM": "lstm: {}",
    "Transformer-XL": "relative_attention: {heads: 4, segment: 128, memory: 128}",
    "compressive": "compressive_attention: {heads: 4, segment: 128, memory: 128, compressed: 128, rate: 4}",
}
MODEL = """
kind: decoder
width: 256
vocabulary: 256
position: none
body:
  repeat:
    times: 4
    of:
      - residual: {of: {MIXER}}
      - residual: {of: feed_forward}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("mixers", "gpt2"))
    parser.add_argument(
        "--quick", action="store_true", help="short contexts and few steps, only to check that everything works"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    contexts, steps = (QUICK, 3) if arguments.quick else (CONTEXTS, 40)
    with torch.inference_mode():
        if arguments.only != "gpt2":
            rows = [mixer_row(name, contexts, steps) for name in MIXERS]
            report("streaming: tokens per second, batch 1", rows, as_json=arguments.json)
        if arguments.only != "mixers":
            rows, notes = gpt2_rows(contexts, max(3, steps // 4))
            report("streaming: GPT-2 small, ms per token", rows, as_json=arguments.json, notes=notes)


def mixer_row(name: str, contexts: tuple[int, ...], steps: int) -> dict[str, Any]:
    torch.manual_seed(0)
    architecture = Architecture.parse(MODEL.replace("MIXER", MIXERS[name]))
    model, grows = build(architecture).eval(), name == "full attention"
    streams = read(model, contexts, grows)
    state = {length: streams[length].nbytes() for length in contexts}
    declared = all(state[length] == cost(architecture, length=length).state_bytes for length in contexts)
    calls = {str(length): step(model, streams[length]) for length in contexts}
    times = measure(calls, warmup=3, repeats=steps, clock=ProcessTime())
    first, last = str(contexts[0]), str(contexts[-1])
    change = compare(times[last], times[first]).median
    flat = "yes" if 1 / FLAT <= change <= FLAT else "no"
    return {
        "mixer": name,
        **{f"at {length}": round(1000 / times[str(length)].median) for length in contexts},
        "last / first": round(change, 3),
        "bar": "" if grows else f"{FLAT}: {flat}",
        "state KB": " / ".join(f"{state[length] / 1000:,.0f}" for length in contexts),
        "declared": "yes" if declared else "no",
    }


def read(model: nn.Module, contexts: tuple[int, ...], grows: bool) -> dict[int, Streams]:
    """Streams that have read `contexts` tokens each."""
    streams, snapshots = Streams(), {}
    for length in contexts:
        if grows and length > contexts[0]:
            longer(streams, length)
        while streams.length < length:
            model(torch.randint(256, (1, PIECE)), Context(streams=streams))
        snapshots[length] = Streams()
        snapshots[length].length = length
        snapshots[length].slots = {key: dict(slot) for key, slot in streams.slots.items()}
    return snapshots


def longer(streams: Streams, length: int) -> None:
    """Extend a stream with random keys and values to the size for `length` positions."""
    for slot in streams.slots.values():
        slot.update({name: torch.randn(*kept.shape[:2], length, kept.shape[3]) for name, kept in slot.items()})
    streams.length = length


def step(model: nn.Module, streams: Streams) -> Callable[[], None]:
    """A call that reads the most probable token, and does nothing else."""
    token = torch.zeros(1, 1, dtype=torch.long)

    def call() -> None:
        token.copy_(model(token, Context(streams=streams)).argmax(2))

    return call


def gpt2_rows(contexts: tuple[int, ...], steps: int) -> tuple[list[dict[str, Any]], list[str]]:
    with installed("transformers") as reason:
        if reason is not None:
            return [], [f"skipped: transformers could not be installed: {reason}"]
        import transformers

        rows = [gpt2_row(length, steps) for length in contexts]
        return rows, [f"transformers {transformers.__version__}"]


def gpt2_row(length: int, steps: int) -> dict[str, Any]:
    torch.manual_seed(0)
    position = Block("learned", {"length": length + ROOM})
    model = build(zoo.load("transformer_decoder", position=position)).eval()
    streams = Streams()
    model(torch.zeros(1, 1, dtype=torch.long), Context(streams=streams))
    longer(streams, length)
    ours = step(model, streams)
    candidates = {"theirs": of_transformers(length), "ours": ours, "joining": partial(joining, ours)}
    times = measure(candidates, warmup=1, repeats=steps, clock=ProcessTime())
    share = 1 / kept_keys.MANY
    mine = (1 - share) * times["ours"].median + share * times["joining"].median
    ratio = mine / times["theirs"].median
    return {
        "context": str(length),
        "transformers": round(times["theirs"].median, 1),
        "ours": round(mine, 1),
        "ours, most steps": round(times["ours"].median, 1),
        "ours, a joining step": round(times["joining"].median, 1),
        "ours / theirs": f"{ratio:.2f}",
        "bar": f"1: {'yes' if ratio <= 1 else 'no'}",
    }


def joining(call: Callable[[], None]) -> None:
    """Time a step that appends the newest keys to the others."""
    many, kept_keys.MANY = kept_keys.MANY, 1
    try:
        call()
    finally:
        kept_keys.MANY = many


def of_transformers(length: int) -> Callable[[], None]:
    """A greedy step of its GPT-2 with a full cache."""
    from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_positions=length + ROOM)).eval()
    cache, token = DynamicCache(), torch.zeros(1, 1, dtype=torch.long)
    config = model.config
    for layer in range(config.n_layer):
        shape = (1, config.n_head, length, config.n_embd // config.n_head)
        cache.update(torch.randn(shape), torch.randn(shape), layer)

    def call() -> None:
        logits: Tensor = model(token, past_key_values=cache, use_cache=True).logits
        token.copy_(logits.argmax(2))

    return call


@contextmanager
def installed(package: str) -> Iterator[str | None]:
    """In this context `package` can be imported. Gives None, or the reason why it cannot."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            yield (done.stderr.strip().splitlines() or ["pip gave no message"])[-1]
            return
        sys.path.append(folder)  # after ours, so that packages installed here, such as numpy, come first
        try:
            yield None
        finally:
            sys.path.remove(folder)


if __name__ == "__main__":
    main()
