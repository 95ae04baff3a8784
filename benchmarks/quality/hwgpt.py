"""HW-GPT-Bench S (https://arxiv.org/abs/2405.10299): GPT-2 models with heads and expansion chosen for each layer.

Three tables. `hwgpt` is the whole space, with latency on an H100 and perplexity modelled from the recorded rows by
`tools/hwgpt_modelled.py` next to the data. `hwgpt-rows` has the 10,000 recorded rows: a proposal is evaluated as the
nearest row of the same width and depth that was not used before. `hwgpt-double` has twice the layers: its values are
the means of two models, one with the odd and one with the even layers.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.quality.table import Missing, Table, Values, folder, found, relative_hypervolume, scaled
from searchspace.space.point import Point
from searchspace.space.space import Space

SPACE = """
kind: decoder
width: !choice [192, 384, 768]
vocabulary: 50257
logits_bias: !choice [true, false]
body:
  - repeat:
      times: !int [{low}, {high}]
      of:
        - residual: {{of: {{attention: {{heads: !choice {{each: true, options: [4, 8, 12]}}}}}}}}
        - residual: {{of: {{feed_forward: {{expand: !choice {{each: true, options: [2, 3, 4]}}}}}}}}
"""


def described(point: Point) -> tuple[int, bool, list[int], list[int]]:
    """(width, bias, heads of each layer, expansion of each layer)."""
    heads, expand = [], []
    for path, value in point.choices.items():
        if path.endswith(".heads"):
            heads.append(value)
        elif path.endswith(".expand"):
            expand.append(value)
    named = {path.rpartition(".")[2]: value for path, value in point.choices.items()}
    return named["width"], named["logits_bias"], heads, expand  # type: ignore[return-value]


def tables() -> list[Table]:
    found("hw-gpt-bench-s", "hwgpt_s.csv.gz")
    return [_rows(), *_modelled()]


def _modelled() -> list[Table]:
    tool = folder().parent / "tools" / "hwgpt_modelled.py"
    if not tool.exists():
        raise Missing(f"{tool} is missing, so the whole space of HW-GPT-Bench has no values.")
    spec = importlib.util.spec_from_file_location("hwgpt_modelled", tool)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Modelled(folder() / "hw-gpt-bench-s")

    def values(point: Point) -> Values:
        width, bias, heads, expand = described(point)
        return model.values(width=width, bias=bias, heads=heads, expand=expand)

    def doubled(point: Point) -> Values:
        width, bias, heads, expand = described(point)
        halves = [model.values(width=width, bias=bias, heads=heads[part::2], expand=expand[part::2]) for part in (0, 1)]
        return tuple(sum(each) / 2 for each in zip(*halves))

    def score(rows: Sequence[Values]) -> float:
        return model.relative_hypervolume(rows)

    whole = Table(
        name="hwgpt",
        title="HW-GPT-Bench S, whole space, modelled (latency, perplexity)",
        space=Space.parse(SPACE.format(low=10, high=12)),
        values=values,
        score=score,
        targets={100: 0.95, 200: 0.97, 500: 0.985},
    )
    double = Table(
        name="hwgpt-double",
        title="HW-GPT-Bench S with twice the layers, modelled (latency, perplexity)",
        space=Space.parse(SPACE.format(low=20, high=24).replace("[20, 24]", "{low: 20, high: 24, step: 2}")),
        values=doubled,
        score=score,
    )
    return [whole, double]


def _rows() -> Table:
    space = Space.parse(SPACE.format(low=10, high=12))
    raw: dict[str, tuple[dict[str, str], Values]] = {}
    with gzip.open(found("hw-gpt-bench-s", "hwgpt_s.csv.gz"), "rt") as file:
        for index, row in enumerate(csv.DictReader(file)):
            raw[str(index)] = row, (float(row["lat_h100_ms"]), float(row["perplexity"]))
    values = scaled({key: pair[1] for key, pair in raw.items()})
    groups: dict[tuple[int, int], list[tuple[str, np.ndarray]]] = {}
    for key, (row, _) in raw.items():
        depth = int(row["n_layer"])
        layers = [int(each) for name in ("n_head", "mlp_ratio") for each in row[name].split("-")[:depth]]
        bias = 1.0 if row["bias"] == "True" else 0.0
        groups.setdefault((int(row["embed_dim"]), depth), []).append((key, np.array([bias, *layers], float)))
    matrices = {kind: ([key for key, _ in rows], np.array([x for _, x in rows])) for kind, rows in groups.items()}

    class Row(Point):
        """A point with the number of the row whose values it gets."""

    def snap(point: Point, used: set[str]) -> Any:
        width, bias, heads, expand = described(point)
        keys, matrix = matrices[width, len(heads)]
        order = np.argsort((matrix != np.array([float(bias), *heads, *expand])).sum(1), kind="stable")
        key = next(keys[index] for index in order if keys[index] not in used)
        row = raw[key][0]
        layers = itertools.chain(*zip(*(row[name].split("-")[: len(heads)] for name in ("n_head", "mlp_ratio"))))
        numbers = iter([int(each) for each in layers])
        choices: dict[str, Any] = {}
        for path, value in point.choices.items():
            if path.endswith((".heads", ".expand")):
                choices[path] = next(numbers)
            else:
                choices[path] = row["bias"] == "True" if path.endswith("logits_bias") else value
        made = space.point(choices)
        found_row = Row(made.choices, made.architecture)
        object.__setattr__(found_row, "row", key)
        return found_row

    return Table(
        name="hwgpt-rows",
        title="HW-GPT-Bench S, 10,000 recorded rows (latency, perplexity), nearest unused row",
        space=space,
        values=lambda point: values[point.row],
        score=relative_hypervolume(list(values.values())),
        snap=snap,
    )
