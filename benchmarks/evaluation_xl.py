"""The cost of a token in evaluation: Transformer-XL with a memory, and a vanilla Transformer with a sliding window.

    python -m benchmarks.evaluation_xl [--width 410] [--repeats 2] [--quick] [--json]

Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860, table 9. Both models have the 16 layers of the
WikiText-103 base model (width 410, 10 heads, feed-forward 2100) and a small vocabulary, so that the layers are timed.
To predict a token from the L tokens before it, the vanilla model (with fused causal attention) computes all L tokens
again. Its time per token is the median of a few whole windows. Transformer-XL reads segments of 128 tokens, each token
once, with a memory of L positions. The memory is filled before timing starts, with random keys and values, which cost
the same. Its time per token is that of a segment divided by 128. Time is CPU time of this process on one thread;
windows and segments take turns.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.support.clock import ProcessTime
from benchmarks.support.report import report
from searchspace.contract import Context, Streams
from searchspace.model.architecture import Architecture
from searchspace.model.build import build
from tuner.measure.measure import compare, measure

BARS = {800: 363, 1800: 773, 2800: 1409, 3800: 1874}  # the paper's, by attention length
QUICK = {64: 1}
SEGMENT = 128
LAYERS, WIDTH, HEADS, HIDDEN = 16, 410, 10, 2100

MODEL = """
kind: decoder
width: {width}
vocabulary: 256
position: {position}
body:
  repeat:
    times: {layers}
    of:
      - residual: {{order: post, of: {mixer}}}
      - residual: {{order: post, of: {{feed_forward: {{hidden: {hidden}, activation: relu}}}}}}
final_norm: none
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=WIDTH, help="of both models; a multiple of 10")
    parser.add_argument("--repeats", type=int, default=2, help="windows, and segments, of each attention length")
    parser.add_argument(
        "--quick", action="store_true", help="one short length and two layers, only to check that everything works"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    layers, width = (2, 40) if arguments.quick else (LAYERS, arguments.width)
    bars = QUICK if arguments.quick else BARS
    with torch.inference_mode():
        rows = [row(length, bar, layers, width, arguments.repeats) for length, bar in bars.items()]
    report(f"evaluation_xl: {layers} layers of width {width}, per token", rows, as_json=arguments.json)


def row(length: int, bar: int, layers: int, width: int, repeats: int) -> dict[str, Any]:
    """One line of the table: both models at one attention length."""
    torch.manual_seed(0)
    vanilla = model(f"{{attention: {{heads: {HEADS}}}}}", "sinusoidal", layers, width)
    mixer = f"{{relative_attention: {{heads: {HEADS}, segment: {SEGMENT}, memory: {length}, share_biases: true}}}}"
    remembering = model(mixer, "none", layers, width)
    window, segment = torch.randint(256, (1, length)), torch.randint(256, (1, SEGMENT))
    context = Context(streams=full_memory(remembering, segment, length))
    candidates = {"window": partial(vanilla, window), "segment": partial(remembering, segment, context)}
    times = measure(candidates, warmup=1 if length <= min(BARS) else 0, repeats=repeats, clock=ProcessTime())
    ratio = compare(times["window"], times["segment"]).median * SEGMENT
    return {
        "attention length": str(length),
        "vanilla ms a token": round(times["window"].median, 1),
        "XL ms a token": round(times["segment"].median / SEGMENT, 3),
        "times as fast": round(ratio),
        "bar": bar,
        "reached": "yes" if ratio >= bar else "no",
    }


def model(mixer: str, position: str, layers: int, width: int) -> nn.Module:
    hidden = HIDDEN * width // WIDTH
    text = MODEL.format(width=width, position=position, layers=layers, mixer=mixer, hidden=hidden)
    return build(Architecture.parse(text)).eval()


def full_memory(remembering: nn.Module, segment: torch.Tensor, length: int) -> Streams:
    """A stream that has read whole segments and remembers `length` positions."""
    streams = Streams()
    remembering(segment, Context(streams=streams))
    streams.length = SEGMENT * -(-length // SEGMENT)
    for slot in streams.slots.values():
        for name, kept in slot.items():
            slot[name] = torch.randn(*kept.shape[:2], length, kept.shape[3])
    return streams


if __name__ == "__main__":
    main()
