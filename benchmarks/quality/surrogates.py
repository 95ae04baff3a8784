"""Which regression predicts best from few results: the Gaussian process of `model`, trees, boosting, a linear model.

    python -m benchmarks.quality.surrogates [--tables own,hwgpt] [--counts 25,50,100] [--seeds 10] [--json]

Each is fitted to the last objective of random points of a table, and predicts it for 300 others. Trees and the
linear model get the same features as the process, which layers share (`features`); `holes` are trees on the plain
holes, with one column for each option. LightGBM takes part if it is installed (pip install lightgbm).
A figure is the rank correlation of prediction and value, with the 95 % interval of the seeds.
"""

from __future__ import annotations

import argparse
import random
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.quality.__main__ import interval, tables
from benchmarks.quality.table import Table
from benchmarks.support.report import report, skip
from nas.strategies._surrogate.codes import Codes
from nas.strategies._surrogate.features import Features, Rows
from nas.strategies._surrogate.process import Kernel, Posterior, fitted
from nas.strategies._surrogate.warp import standard
from searchspace.errors import nearest

HELD, FEWEST = 300, 100  # points at which each is tested, if the table has them; with fewer there is no figure
TREES = 300
NAMES = ("own", "hwgpt", "macro-flops", "lts-random-wt103", "invented-cell", "invented-order", "invented-pairs")

Regression = Callable[[Any, np.ndarray, Any], np.ndarray]  # (inputs, values [N], inputs of others) -> predictions


def process(rows: Rows, values: np.ndarray, others: Rows, *, features: Features) -> np.ndarray:
    """The Gaussian process of the strategy `model`."""
    kernel = Kernel(features, fitted(features, rows, values, None))
    return Posterior(kernel, rows, values).expected(others)


def of_sklearn(made: Callable[[], Any]) -> Regression:
    """A regression with the interface of scikit-learn."""
    return lambda rows, values, others: made().fit(rows, values).predict(others)


def regressions() -> dict[str, Regression]:
    """The other regressions by name."""
    from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import RidgeCV

    found = {
        "random forest": of_sklearn(lambda: RandomForestRegressor(TREES, max_features=0.5, random_state=0)),
        "extra trees": of_sklearn(lambda: ExtraTreesRegressor(TREES, max_features=0.5, random_state=0)),
        "boosting": of_sklearn(lambda: GradientBoostingRegressor(subsample=0.7, max_features=0.5, random_state=0)),
        "ridge": of_sklearn(lambda: RidgeCV(np.logspace(-3, 3, 13))),
    }
    if find_spec("lightgbm"):
        from lightgbm import LGBMRegressor

        settings = {"min_child_samples": 5, "num_leaves": 8, "verbose": -1, "random_state": 0}
        found["LightGBM"] = of_sklearn(lambda: LGBMRegressor(**settings))
    return found


def drawn(table: Table, count: int, seed: int) -> list[Any]:
    """Up to `count` different random points that have values."""
    generator, found = random.Random(seed), {}
    for _ in range(20 * count):
        point = table.space.sample(generator)
        key = point.architecture.hash
        if key not in found:
            try:
                table.values(point)
            except KeyError:
                continue
            found[key] = point
        if len(found) == count:
            break
    return list(found.values())


def holes(codes: Codes, rows: np.ndarray) -> np.ndarray:
    """Numbers as they are, and one column for each option of the others; 0 where a hole is not active. [N, columns]."""
    active = codes.active(rows)
    columns = []
    for index, count in enumerate(codes.counts.tolist()):
        on, numbers = active[:, index], rows[:, index]
        if codes.ordered[index] or count < 0:
            columns.append(np.where(on, numbers + 1, 0))
        else:
            columns += [on & (numbers == option) for option in range(count)]
    return np.array(columns, dtype=float).T


def one_seed(table: Table, count: int, seed: int) -> Iterator[tuple[str, float]]:
    """(name, rank correlation) of each regression, fitted to `count` points."""
    points = drawn(table, count + HELD, seed)
    if len(points) < count + FEWEST:
        return
    codes = Codes(table.space)
    generator = np.random.default_rng(seed)
    rows = np.array([codes.filled(codes.row(point.choices), generator) for point in points])
    values = standard(np.array([table.values(point)[-1] for point in points]))
    features = Features(codes)
    made = features(rows)
    told, asked = np.arange(count), np.arange(count, len(points))

    def score(predicted: np.ndarray) -> float:
        return float(spearmanr(predicted, values[count:]).statistic)

    yield "process of model", score(process(made.take(told), values[:count], made.take(asked), features=features))
    shared, plain = np.hstack([made.whole, made.layer]), holes(codes, rows)
    for name, regression in regressions().items():
        yield f"{name}, features", score(regression(shared[:count], values[:count], shared[count:]))
        if name != "ridge":
            yield f"{name}, holes", score(regression(plain[:count], values[:count], plain[count:]))


def lines(names: list[str], counts: list[int], seeds: int) -> Iterator[dict[str, Any]]:
    """One line for each table and regression, one column for each number of points."""
    for name in names:
        table = tables()[name]
        found: dict[str, dict[int, list[float]]] = {}
        for count in counts:
            for seed in range(seeds):
                for each, value in one_seed(table, count, seed):
                    found.setdefault(each, {}).setdefault(count, []).append(value)
        for regression, by in found.items():
            figures = {f"{each} points": interval(by[each]) if each in by else "" for each in counts}
            yield {"table": name, "regression": regression} | figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default=",".join(NAMES), help=f"default {','.join(NAMES)}")
    parser.add_argument("--counts", default="25,50,100", help="points that they are fitted to; default 25,50,100")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    known = tables()
    names = [name for name in arguments.tables.split(",") if name in known]
    for name in arguments.tables.split(","):
        if name not in (*known, *NAMES):
            parser.error(f"no table is called {name!r}.{nearest(name, known)} Known: {', '.join(known)}.")
    if not names:
        skip(f"none of these tables is here. Known: {', '.join(known)}.")
    counts = [int(count) for count in arguments.counts.split(",")]
    report("rank correlation on new points", list(lines(names, counts, arguments.seeds)), as_json=arguments.json)


if __name__ == "__main__":
    main()
