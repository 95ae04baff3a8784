"""How much an earlier study helps the strategy `model` (`learn_from`), and how much a misleading one harms it.

    python -m benchmarks.quality.transfer [--tables macro-flops,hwgpt] [--arms none,other,...]
                                          [--seeds 10] [--file build/transfer.jsonl]
                                          [--picture docs/pictures/earlier.svg] [--json]

The earlier study is a search with `model` of 100 evaluations of the same space with other objectives and another seed:
on nas-bench-macro parameters and the error of the first of three trainings, the new search minimises FLOPs and the mean
error; on HW-GPT-Bench latency on a Xeon and the error of predicted tokens, the new search minimises latency on an H100
and perplexity; on our own table parameters and bits per byte after 15 of 240 steps, the new search minimises expected
FLOPs and bits per byte after all. `none` learns from no study, `other` from that one, `reversed` from the same with
both values negated, `shuffled` with the values permuted at random, and `unrelated` with a random linear function of the
holes for each objective. `worse` and `useless` keep the cost, which is right in every study of a space: only their
second value is negated, or is such a function. A line gives the mean over the seeds and the half-width of its 95 %
interval. Each run is stored in the file when it ends, and not repeated.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.quality import __main__ as quality
from benchmarks.quality import arms, hwgpt, macro
from benchmarks.quality.picture import FONT, HEIGHT, LEFT, TOP, WIDTH, panel
from benchmarks.quality.table import Values, found
from benchmarks.support.report import report
from benchmarks.tables.table import load
from nas.strategies._surrogate.codes import Codes
from nas.strategies.contract import Result, Started
from nas.strategies.earlier import Earlier
from nas.strategies.registry import make

EVALUATIONS = 100  # of the earlier study
BUDGETS = (10, 25, 50, 100)
OTHER_SEED = 1000
COLOURS = {"none": "#7f8c8d", "other": "#c0392b", "reversed": "#2471a3", "shuffled": "#7d3c98", "unrelated": "#b9770e"}
COLOURS |= {"worse": "#1e8449", "useless": "#5d4037"}
LEGEND = {"none": "no earlier study", "other": "other objectives"}


@lru_cache(maxsize=1)
def other_macro() -> Callable[[Any], Values]:
    """(parameters, error of the first training) of a point of nas-bench-macro."""
    with gzip.open(found("nas-bench-macro", "nas-bench-macro_cifar10.json.gz"), "rt") as file:
        raw = json.load(file)

    def values(point: Any) -> Values:
        row = raw[macro.word(point)]
        return row["params"], 100 - row["test_acc"][0]

    return values


@lru_cache(maxsize=1)
def other_hwgpt() -> Callable[[Any], Values]:
    """(latency on a Xeon, share of tokens predicted wrongly), by one ridge regression for each width and depth."""
    inputs, outputs = defaultdict(list), defaultdict(list)
    with gzip.open(found("hw-gpt-bench-s", "hwgpt_s.csv.gz"), "rt") as file:
        for row in csv.DictReader(file):
            depth = int(row["n_layer"])
            heads, expand = ([int(each) for each in row[name].split("-")][:depth] for name in ("n_head", "mlp_ratio"))
            kind = int(row["embed_dim"]), depth
            inputs[kind].append(_inputs(row["bias"] == "True", heads, expand))
            outputs[kind].append((float(row["lat_cpu_mlgpu_ms"]), 1 - float(row["accuracy"])))
    solved = {}
    for kind, rows in inputs.items():
        x, y = np.array(rows), np.array(outputs[kind])
        middle = y.mean(0)
        solved[kind] = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (y - middle)), middle

    def values(point: Any) -> Values:
        width, bias, heads, expand = hwgpt.described(point)
        weights, middle = solved[width, len(heads)]
        return tuple(float(each) for each in middle + _inputs(bias, heads, expand) @ weights)

    return values


def _inputs(bias: bool, heads: list[int], expand: list[int]) -> np.ndarray:
    layers = [[h == v for v in (4, 8, 12)] + [e == v for v in (2, 3, 4)] for h, e in zip(heads, expand, strict=True)]
    return np.array([1.0, float(bias), *np.array(layers, float).ravel()])


@lru_cache(maxsize=1)
def other_own() -> Callable[[Any], Values]:
    """(parameters, bits per byte after the shortest training) of a row of our own table."""
    table = load()
    rows = {point.architecture.hash: row for row, point in zip(table.rows, table.points)}

    def values(point: Any) -> Values:
        row = rows[point.architecture.hash]
        return row.costs["parameters"], row.bits_per_byte[0][0]

    return values


OTHERS = {"macro-flops": other_macro, "hwgpt": other_hwgpt, "own": other_own}


def earlier(name: str, kind: str, seed: int) -> list[Earlier]:
    """The earlier study of a seed; none for the arm `none`."""
    if kind == "none":
        return []
    points, found = _searched(name, seed)
    if kind == "reversed":
        found = [tuple(-value for value in row) for row in found]
    if kind == "worse":
        found = [(cost, -value) for cost, value in found]
    if kind in ("unrelated", "useless"):
        codes, rng = Codes(quality.tables()[name].space), np.random.default_rng(seed)
        weights = rng.standard_normal((len(codes.paths), max(20, codes.counts.max()), 2))  # by hole and value
        filled = [codes.row(each) for each in points]
        made = [tuple(sum(weights[hole, int(row[hole])] for hole in np.flatnonzero(row >= 0))) for row in filled]
        found = made if kind == "unrelated" else [(cost, value) for (cost, _), (_, value) in zip(found, made)]
    if kind == "shuffled":
        found = random.Random(seed).sample(found, len(found))
    return [Earlier("earlier", (0, 1), tuple(points), (1,) * len(points), tuple(found))]


@lru_cache(maxsize=4)
def _searched(name: str, seed: int) -> tuple[list[Any], list[Values]]:
    """(choices, values) of the earlier search of a seed."""
    space, values = quality.tables()[name].space, OTHERS[name]()
    strategy = make("model", space, OTHER_SEED + seed, 2)
    points, found = [], []
    for number in range(EVALUATIONS):
        point = strategy.ask(number)[0].point
        points.append(point.choices)
        found.append(values(point))
        strategy.start(Started(number, point))
        strategy.tell(Result(number, 0, 1, point, found[-1]))
    return points, found


def one_run(name: str, kind: str, seed: int) -> dict[str, Any]:
    """The scores of one search after each budget, and the CPU milliseconds of a proposal."""
    table = quality.tables()[name]
    known = earlier(name, kind, seed)
    strategy = make(
        "model", table.space, seed, 2, table.evaluate, None, known, **({"learn_from": ("earlier",)} if known else {})
    )
    values, scores, seconds = [], {}, 0.0
    for row, cpu in islice(arms.asked(strategy, table), BUDGETS[-1]):
        values.append(row)
        seconds += cpu
        if len(values) in BUDGETS:
            scores[str(len(values))] = round(table.score(values), 6)
    return {"table": name, "arm": kind, "seed": seed, "scores": scores, "ms": round(1000 * seconds / len(values), 2)}


def rows(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each table and arm."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        groups[run["table"], run["arm"]].append(run)
    return [
        {"table": name, "learns from": kind, "seeds": len(group)}
        | {f"after {each}": quality.interval([run["scores"][str(each)] for run in group]) for each in BUDGETS}
        | {"ms a proposal": round(sum(run["ms"] for run in group) / len(group), 1)}
        for (name, kind), group in sorted(groups.items())
    ]


def picture(runs: list[dict[str, Any]]) -> str:
    """An SVG with one panel for each table."""
    names = sorted({run["table"] for run in runs})
    parts = []
    for place, name in enumerate(names):
        curves = {
            kind: [
                quality.point(each, [run["scores"][str(each)] for run in runs if _is(run, name, kind)])
                for each in BUDGETS
            ]
            for kind in COLOURS
            if any(_is(run, name, kind) for run in runs)
        }
        x = place * (WIDTH + LEFT + 26) + LEFT
        parts.append(f'<g transform="translate({x},{TOP})">{panel(name, curves, COLOURS)}</g>')
    for place, (kind, colour) in enumerate(COLOURS.items()):
        label, x = LEGEND.get(kind, kind), LEFT + place * 130
        parts.append(f'<text x="{x}" y="{HEIGHT + TOP + 40}" fill="{colour}">&#9632; {label}</text>')
    width, height = len(names) * (WIDTH + LEFT + 26), HEIGHT + TOP + 50
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {FONT}>'
    return "\n".join([head, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>\n"])


def _is(run: dict[str, Any], name: str, kind: str) -> bool:
    return run["table"] == name and run["arm"] == kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = {"type": lambda text: text.split(",")}
    parser.add_argument("--tables", default=list(OTHERS), **names)  # type: ignore[arg-type]
    parser.add_argument("--arms", default=list(COLOURS), **names)  # type: ignore[arg-type]
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--code", default=None, help="a name for the state of the code, in place of its hash")
    parser.add_argument("--file", type=Path, default=quality.ROOT / "build" / "transfer.jsonl")
    parser.add_argument("--picture", type=Path, default=None, help="write the curves as an SVG")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    code = arguments.code or quality.source_hash()
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    text = arguments.file.read_text() if arguments.file.exists() else ""
    runs = [run for run in map(json.loads, text.splitlines()) if run["code"] == code]
    done = {(run["table"], run["arm"], run["seed"]) for run in runs}
    wanted = [(t, a, s) for s in range(arguments.seeds) for t in arguments.tables for a in arguments.arms]
    with arguments.file.open("a") as file:
        for job in wanted:
            if job not in done:
                runs.append(one_run(*job) | {"code": code})
                file.write(json.dumps(runs[-1]) + "\n")
                file.flush()
    runs = [run for run in runs if (run["table"], run["arm"], run["seed"]) in set(wanted)]
    if arguments.picture:
        arguments.picture.write_text(picture(runs))
    report("what an earlier study is worth: mean and 95 % interval", rows(runs), as_json=arguments.json)


if __name__ == "__main__":
    main()
