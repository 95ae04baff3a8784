"""How well probes and sizes rank the trained architectures of the table.

    python -m benchmarks.tables.probes [--count N] [--file build/probes.jsonl] [--json]
    python -m benchmarks.tables.probes --lts      # parameters in the tables of LiteTransformerSearch (see NAS_DATA)

Every probe scores the untrained model of each row on one batch of the task, with seed 0. The rank correlation is with
the quality after the whole training, with its 95 % interval. Positive: a larger score is better; `short_race` is a
loss, so a useful one is negative. Scores in the table are not computed again. The others are stored in a file, from
which the same command continues; `benchmarks.tables.table --scores` adds them to the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.quality import lts
from benchmarks.quality.table import Missing
from benchmarks.support.report import report, skip
from benchmarks.tables.make import QUICKSTART
from benchmarks.tables.table import LENGTH, Table, load
from nas.config import searchfile
from nas.config.parts import parts
from nas.objectives import make
from nas.statistics.rank_correlation import correlation
from nas.training.determinism import deterministic, set_seed
from nas.training.loop import Deadline
from nas.training.probe import scores
from searchspace.cost import Shape
from searchspace.model.build import build
from searchspace.space.space import Point

PROBES = ("gradient_norm", "snip", "synflow", "jacobian_covariance", "activation_distance", "zico", "short_race")
SIZES = ("parameters", "non_embedding_parameters", "flops")
CPU = torch.device("cpu")


def scored(point: Point) -> dict[str, float]:
    """The sizes of an architecture, and the probes' scores of its untrained model."""
    task = parts(searchfile.load(QUICKSTART)).prepared_task
    shape = Shape(batch=1, length=LENGTH)
    sizes = {name: make(name, shape).evaluate(point.architecture) for name in SIZES}
    with deterministic(1, CPU):
        set_seed(0, CPU)
        values, _ = scores(PROBES, point.architecture, build(point.architecture), task, 0, CPU, Deadline(None))
    return sizes | values


def known(table: Table, count: int, file: Path) -> list[dict[str, float]]:
    """The scores of the first `count` rows: from the table or `file`, or computed now and added to `file`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, float]] = [dict(row.scores) for row in table.rows if row.scores]  # the first rows have them
    if file.exists():
        found = max(found, [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()], key=len)
    file.write_text("".join(json.dumps(each) + "\n" for each in found), encoding="utf-8")
    with file.open("a", encoding="utf-8") as kept:
        for point in table.points[len(found) : count]:
            found.append(scored(point))
            kept.write(json.dumps(found[-1]) + "\n")
            kept.flush()
    return found[:count]


def rows_of(table: Table, found: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    """One row for each size and probe: its rank correlation with quality."""
    quality = [-row.final for row in table.rows[: len(found)]]
    rows = []
    for name in (*SIZES, *PROBES):
        known = correlation([each[name] for each in found], quality)
        rows.append({"score": name, "rank correlation": str(known), "architectures": len(found)})
    return rows


def of_lts() -> list[dict[str, Any]]:
    """Sizes against quality in the tables of LiteTransformerSearch: one row for each set of GPT-2 models.

    All rows with a validation perplexity count. Raises Missing if the table is not on this machine.
    """
    sets: dict[str, list[dict[str, str]]] = {}
    for row in lts.rows():
        sets.setdefault(row["set"], []).append(row)
    found = []
    for name, some in sorted(sets.items()):
        quality = [-float(row["valid_ppl"]) for row in some]
        line: dict[str, Any] = {"set": name, "architectures": len(some)}
        for title, column in (("non-embedding parameters", "params_nonembedding"), ("all parameters", "params_total")):
            known = correlation([float(row[column]) for row in some], quality)
            assert known is not None  # each set has 38 rows or more
            line[title] = f"{known.value:.3f} ({known.low:.3f} to {known.high:.3f})"
        found.append(line)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="the first rows only")
    parser.add_argument("--file", type=Path, default=Path("build/probes.jsonl"))
    parser.add_argument("--lts", action="store_true", help="sizes in the tables of LiteTransformerSearch instead")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.lts:
        try:
            report("Sizes against quality, LiteTransformerSearch", of_lts(), as_json=options.json)
        except Missing as error:
            skip(str(error))
        return 0
    table = load()
    rows = rows_of(table, known(table, options.count, options.file))
    report("Probes and sizes against quality", rows, as_json=options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
