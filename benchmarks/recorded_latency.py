"""Does the form of the predictor fit devices that others measured? A sum of pieces, a linear model, a forest.

    python -m benchmarks.recorded_latency [--rows 100] [--seeds 5] [--json]

The tables (`NAS_DATA`): HW-GPT-Bench S, GPT-2 sub-networks on 14 devices, and HAT, translation models on 3. They have
only latencies of whole models. So the times of the pieces are fitted to `--rows` models: one time for each block at its
width, not below zero, such that the relative errors of the sums are smallest. The other rows are the test set: median
error, error of 9 in 10, rank correlation; means over seeds. The linear model (least squares) and the forest (100 trees)
get the columns of the table, with means over the layers, and predict the logarithm of the time, which is better for
both.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.stats import spearmanr

from benchmarks.support.report import report, skip

Numbers = NDArray[np.float64]
Row = Mapping[str, str]
Fit = Callable[[Numbers, Numbers], Callable[[Numbers], Numbers]]

HW_GPT, HAT = Path("hw-gpt-bench-s") / "hwgpt_s.csv.gz", Path("hat-latency-wmt14ende")
JUDGED = 2000  # rows at most


def main() -> None:
    parser = argparse.ArgumentParser(description="The predictor's form on recorded latencies.")
    parser.add_argument("--rows", type=int, default=100, help="models that the forms are fitted to")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(os.environ.get("NAS_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / HW_GPT).exists() and not (folder / HAT).exists():
        skip(f"there are no recorded latencies in {folder}; set NAS_DATA to the folder that holds {HAT}")
    rows = [judged(*each, options.rows, options.seeds) for each in tables(folder)]
    notes = [f"fitted to {options.rows} models, judged on up to {JUDGED} others, {options.seeds} seeds"]
    report("Recorded latencies: three forms of a predictor", rows, as_json=options.json, notes=notes)


def tables(folder: Path) -> Iterator[tuple[str, str, Numbers, Numbers, Numbers]]:
    """(the table, the device, the counts of pieces [N, P], plain columns [N, F], milliseconds [N])."""
    if (folder / HW_GPT).exists():
        rows = _read(folder / HW_GPT)
        pieces, plain = _stacked(map(gpt_pieces, rows)), _stacked(map(_gpt_plain, rows))
        for name in [each for each in rows[0] if each.startswith("lat_")]:
            yield "HW-GPT-Bench", name[4:-3], pieces, plain, np.array([float(row[name]) for row in rows])
    for file in sorted((folder / HAT).glob("*.csv.gz")):
        rows = _read(file)
        times = [float(row["latency_mean_encoder"]) + float(row["latency_mean_decoder"]) for row in rows]
        device = file.name.removeprefix("wmt14ende_").removesuffix(".csv.gz")
        yield "HAT", device, _stacked(map(hat_pieces, rows)), _stacked(map(_hat_plain, rows)), np.array(times)


def gpt_pieces(row: Row) -> dict[str, float]:
    """How often each piece occurs: at each width the bare model, attention with its heads, an MLP with its ratio."""
    width, found = row["embed_dim"], {f"{row['embed_dim']} model": 1.0}
    heads, ratios = row["n_head"].split("-"), row["mlp_ratio"].split("-")
    for name in (*(f"{width} heads {each}" for each in heads), *(f"{width} ratio {each}" for each in ratios)):
        found[name] = found.get(name, 0.0) + 1
    if row["bias"] == "True":
        found[f"{width} bias"] = float(len(heads))
    return found


def _gpt_plain(row: Row) -> dict[str, float]:
    each = {name: [float(part) for part in row[name].split("-")] for name in ("mlp_ratio", "n_head")}
    means = {name: float(np.mean(values)) for name, values in each.items()}
    return {
        "embed_dim": float(row["embed_dim"]),
        "n_layer": float(row["n_layer"]),
        **means,
        "bias": row["bias"] == "True",
    }


def hat_pieces(row: Row) -> dict[str, float]:
    """The pieces of both stacks at their widths. Only means over layers are known, so an MLP is linear in its width."""
    found: dict[str, float] = {}
    for part, columns in (
        ("encoder", ("ffn_embed_dim_avg", "self_attention_heads_avg")),
        (
            "decoder",
            ("ffn_embed_dim_avg", "self_attention_heads_avg", "ende_attention_heads_avg", "arbitrary_ende_attn_avg"),
        ),
    ):
        width, layers = row[f"{part}_embed_dim"], float(row[f"{part}_layer_num"])
        found |= {f"{part} {width} model": 1.0, f"{part} {width} layer": layers}
        for name in columns:
            found[f"{part} {width} {name}"] = layers * max(0.0, float(row[f"{part}_{name}"]))
    return found


def _hat_plain(row: Row) -> dict[str, float]:
    return {name: float(value) for name, value in row.items() if not name.startswith("latency")}


def _read(file: Path) -> list[dict[str, str]]:
    with gzip.open(file, "rt") as text:
        return list(csv.DictReader(text))


def _stacked(rows: Iterator[Mapping[str, float]]) -> Numbers:
    every = list(rows)
    names = sorted({name for row in every for name in row})
    return np.array([[float(row.get(name, 0.0)) for name in names] for row in every])


def composed(pieces: Numbers, times: Numbers) -> Callable[[Numbers], Numbers]:
    """A sum of pieces, fitted to the least squared relative error. A piece that no row has takes no time.

    pieces: [N, P]; times: [N].
    """
    found, _ = nnls(pieces / times[:, None], np.ones(len(times)))
    return lambda others: others @ found


def linear(plain: Numbers, times: Numbers) -> Callable[[Numbers], Numbers]:
    """Least squares on the columns, for the logarithm of the time. plain: [N, F]; times: [N]."""
    weights, *_ = np.linalg.lstsq(_with_one(plain), np.log(times), rcond=None)
    return lambda others: np.exp(_with_one(others) @ weights)


def forest(plain: Numbers, times: Numbers) -> Callable[[Numbers], Numbers]:
    """A random forest on the columns, for the logarithm of the time. plain: [N, F]; times: [N]."""
    from sklearn.ensemble import RandomForestRegressor

    trees = RandomForestRegressor(100, random_state=0).fit(plain, np.log(times))
    return lambda others: np.exp(trees.predict(others))


def _with_one(plain: Numbers) -> Numbers:
    return np.concatenate([plain, np.ones((len(plain), 1))], axis=1)


FORMS: dict[str, tuple[Fit, bool]] = {"pieces": (composed, True), "linear": (linear, False), "forest": (forest, False)}


def judged(
    table: str, device: str, pieces: Numbers, plain: Numbers, times: Numbers, count: int, seeds: int
) -> dict[str, Any]:
    """One row: median error, error of 9 in 10 and rank correlation of each form."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in FORMS}
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(times))
        known, others = order[:count], order[count : count + JUDGED]
        for name, (fit, by_piece) in FORMS.items():
            columns = pieces if by_piece else plain
            predicted = fit(columns[known], times[known])(columns[others])
            found[name].append(errors(predicted, times[others]))
    row: dict[str, Any] = {"table": table, "device": device}
    for name, some in found.items():
        median, ninth, correlation = np.mean(some, axis=0)
        row |= {name: float(median), f"{name} 9 in 10": float(ninth), f"{name} rank": float(correlation)}
    return row


def errors(predicted: Numbers, times: Numbers) -> tuple[float, float, float]:
    """(median relative error, that of 9 in 10, rank correlation)."""
    relative = np.abs(predicted / times - 1)
    correlation = float(spearmanr(predicted, times).statistic)
    return float(np.median(relative)), float(np.quantile(relative, 0.9)), correlation


if __name__ == "__main__":
    main()
