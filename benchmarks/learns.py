"""What each architecture of the zoo learns in seconds, at its tiny size: does every mechanism do what its paper claims?

    python -m benchmarks.learns [--only NAME ...] [--quick] [--json]

Decoders are trained on tasks that separate mechanisms, all with one seed, one learning rate and the number of steps of
the column. `copy` needs positions. `recall` needs content. `recall apart` needs content, with the answer next to it.
`across 24` and `across 72` need reach: with segments and memories of 16, the first is within the memory and the second
is beyond it. Controls are rows of the zoo with one part removed. Encoders and encoder-decoders learn text: to fill in
hidden symbols, to recognise how text was disturbed, to classify digits, to write backwards. A figure is the share of
right answers on held-out sequences; at least `SOLVED` counts as solved. `expected` names the columns that the published
mechanism should solve; `differs` names those where the run disagrees. `--quick` trains a tenth of the steps, which only
shows that everything runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.support.report import report
from nas import tasks
from nas.tasks.fields import fitted, suited
from nas.training import standalone
from searchspace import zoo
from searchspace.model.architecture import Architecture
from searchspace.tree import Block, Value

SOLVED = 0.9
RECIPE = {"learning_rate": 5e-3, "weight_decay": 0.0}
Spec = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Column:
    """A task and its number of training steps; chance: the share that guessing gets right."""

    spec: Spec
    steps: int
    chance: float


COLUMNS = {
    "copy": Column({"copy": {"length": 32, "symbols": 16}}, 300, 1 / 16),
    "recall": Column({"associative_recall": {"pairs": 4, "symbols": 4, "joined": True}}, 300, 1 / 4),
    "recall apart": Column({"associative_recall": {"pairs": 4, "symbols": 8}}, 1000, 1 / 8),
    "across 24": Column({"long_copy": {"remembered": 4, "gap": 24}}, 300, 1 / 8),
    "across 72": Column({"long_copy": {"remembered": 1, "gap": 72, "batch": 16}}, 400, 1 / 8),
}
FULL = ("copy", "recall", "across 24", "across 72")

# What the papers claim, for a model of this size and this number of steps. The README gives the reasons.
EXPECTED: dict[str, tuple[str, ...]] = {
    "adaptive_span": ("copy", "recall", "across 24"),
    "compressive_transformer": FULL,
    "evolved_transformer_decoder": (*FULL, "recall apart"),
    "gru": ("across 72",),
    "linear_transformer": ("copy", "across 24", "across 72"),
    "long_short_transformer": FULL,
    "lstm": ("across 72",),
    "mixture_of_experts": FULL,
    "nadaraya_watson": ("recall",),
    "nadaraya_watson_fixed": ("recall",),
    "performer": FULL,
    "primer": (*FULL, "recall apart"),
    "random_feature_attention": FULL,
    "random_feature_attention_gated": FULL,
    "reformer": FULL,
    "shared_keys": FULL,
    "sparse_transformer": FULL,
    "sparse_transformer_strided": FULL,
    "subformer_decoder": FULL,
    "transformer_decoder": FULL,
    "transformer_modern": FULL,
    "transformer_xl": ("copy", "recall", "across 24"),
    "universal_transformer": FULL,
    "universal_transformer_fixed": FULL,
    "value_residual": FULL,
}


@dataclass(frozen=True)
class Control:
    """`row` with the fields of the blocks `block` changed, or the blocks `block` replaced."""

    row: str
    block: str
    fields: Mapping[str, Value]
    replaced: str | None = None
    expected: tuple[str, ...] = ()

    def architecture(self) -> Architecture:
        root = self._changed(zoo.load(self.row, "tiny").root)
        assert isinstance(root, Block)
        return Architecture.from_block(root)

    def _changed(self, value: Value) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._changed, value))
        if not isinstance(value, Block):
            return value
        if value.name == self.block:
            return Block(self.replaced or value.name, self.fields if self.replaced else {**value.fields, **self.fields})
        return Block(value.name, {name: self._changed(field) for name, field in value.fields.items()})


CONTROLS = {
    "transformer_decoder, windows of 8": Control(
        "transformer_decoder", "attention", {"heads": 4, "window": 8}, "sliding_window_attention"
    ),
    "transformer_xl, no memory": Control("transformer_xl", "relative_attention", {"memory": 0}),
    "long_short_transformer, windows of 8 alone": Control(
        "long_short_transformer", "causal_long_short_attention", {"heads": 4, "window": 8}, "sliding_window_attention"
    ),
    "adaptive_span, spans start at 64": Control(
        "adaptive_span", "adaptive_span_attention", {"initial": 1.0}, expected=("copy", "recall", "across 24")
    ),
    "lstm, forget bias 4": Control("lstm", "lstm", {"forget_bias": 4.0}, expected=("across 72",)),
}
TEXT = {
    "masked_language_model": Column({"masked_language_model": {"length": 64, "evaluation": 4096}}, 300, 0.17),
    "disturbed_text": Column({"disturbed_text": {"length": 32, "evaluation": 8192}}, 300, 1 / 3),
    "digits": Column({"digits": {}}, 200, 1 / 10),
    "reversal": Column({"reversal": {"length": 12, "evaluation": 4096}}, 400, 0.17),
}


def accuracy(architecture: Architecture, column: Column, *, quick: bool) -> float:
    """The share of right answers on held-out sequences after the column's steps. Raises SystemExit if
    training fails.
    """
    task = tasks.load(column.spec)
    task.prepare(None)
    steps = max(2, column.steps // 10) if quick else column.steps
    outcome = standalone.train(fitted(architecture, task).text(), column.spec, RECIPE, steps=steps, threads=1)
    if outcome.failure is not None:
        raise SystemExit(f"{outcome.failure.kind}: {outcome.failure.message}")
    return round(1 - outcome.metrics["error"], 3)


def decoder_row(name: str, architecture: Architecture, expected: Sequence[str], *, quick: bool) -> dict[str, Any]:
    began = time.monotonic()
    row: dict[str, Any] = {"name": name}
    for title, column in COLUMNS.items():
        row[title] = accuracy(architecture, column, quick=quick)
        _note(f"{name}: {title} {row[title]:.3f}")
    wrong = [title for title in COLUMNS if (row[title] >= SOLVED) != (title in expected)]
    seconds = round(time.monotonic() - began)
    return {**row, "expected": ", ".join(expected) or "none", "differs": ", ".join(wrong), "seconds": seconds}


def text_row(name: str, architecture: Architecture, *, quick: bool) -> dict[str, Any]:
    began = time.monotonic()
    task = suited(architecture)
    right = accuracy(architecture, TEXT[task], quick=quick)
    _note(f"{name}: {task} {right:.3f}")
    seconds = round(time.monotonic() - began)
    return {"name": name, "task": task, "right": right, "steps": TEXT[task].steps, "seconds": seconds}


def decoders() -> Iterator[tuple[str, Architecture, Sequence[str]]]:
    for name in zoo.names():
        if (architecture := zoo.load(name, "tiny")).root.name == "decoder":
            yield name, architecture, EXPECTED[name]
    for name, control in CONTROLS.items():
        yield name, control.architecture(), control.expected


def others() -> Iterator[tuple[str, Architecture]]:
    for name in zoo.names():
        if (architecture := zoo.load(name, "tiny")).root.name != "decoder":
            yield name, architecture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="a row; can be repeated")
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    known = [name for name, *_ in (*decoders(), *others())]
    only = arguments.only or known
    if unknown := set(only) - set(known):
        parser.error(f"no row is called {', '.join(sorted(unknown))}; there are: {', '.join(known)}.")
    told, quick = _told(arguments.quick), arguments.quick
    rows = [decoder_row(*row, quick=quick) for row in decoders() if row[0] in only]
    if rows:
        report(f"Decoders on memory tasks, {told}", rows, as_json=arguments.json, notes=[_chances()])
    rows = [text_row(*row, quick=quick) for row in others() if row[0] in only]
    if rows:
        report(f"Encoders and encoder-decoders on text and digits, {told}", rows, as_json=arguments.json)


def _told(quick: bool) -> str:
    return "a tenth of the steps, only to check that everything runs" if quick else "share of right answers, one seed"


def _chances() -> str:
    return "By chance: " + ", ".join(f"{title} {column.chance:.3f}" for title, column in COLUMNS.items()) + "."


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
