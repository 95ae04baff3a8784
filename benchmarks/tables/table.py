"""The table of trained architectures: reads it, and makes it from the rows of `benchmarks.tables.make`.

    python -m benchmarks.tables.table                   # print a summary
    python -m benchmarks.tables.table --pack ROWS...    # make it from files of rows
    python -m benchmarks.tables.table --scores FILE     # add the scores of `benchmarks.tables.probes`

`quickstart.json.xz` holds random architectures of `examples/spaces/quickstart.yaml`: the choices of each, its costs,
its training loss, and its bits per byte on held-out text after each of `STEPS`. Some have a second seed, some have
scores of probes.
"""

from __future__ import annotations

import argparse
import functools
import json
import lzma
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.tables.make import STEPS
from searchspace.cost import Shape
from searchspace.model.build import cost
from searchspace.space.space import Point, Space

FILE = Path(__file__).with_name("quickstart.json.xz")
SPACE = Path(__file__).parents[2] / "examples" / "spaces" / "quickstart.yaml"
LENGTH = 128  # positions; costs are those of one sequence
COSTS = ("parameters", "expected_flops", "training_flops", "activation_bytes", "state_bytes")
CURVES = ("bits_per_byte", "losses")  # of each seed
HIGHEST = 2_000_000  # bytes of the packed file


@dataclass(frozen=True)
class Row:
    """One architecture: its choices in the space, its costs, and the results of each training seed.

    bits_per_byte: by seed, on held-out text after each of `STEPS`. losses: by seed, means over five steps each. scores:
    of probes, by name; empty if none ran.
    """

    choices: Mapping[str, Any]
    costs: Mapping[str, float]
    bits_per_byte: Mapping[int, Sequence[float]]
    losses: Mapping[int, Sequence[float]]
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def final(self) -> float:
        """Bits per byte after the whole training, with the first seed."""
        return self.bits_per_byte[0][-1]


@dataclass(frozen=True)
class Table:
    """The space at the time of the training, the rows, and for each row its point in the space."""

    space: Space
    steps: Sequence[int]
    rows: Sequence[Row]

    @functools.cached_property
    def points(self) -> list[Point]:
        return [self.space.point(dict(row.choices)) for row in self.rows]


def load(path: Path = FILE) -> Table:
    """The table in `path`, as `pack` writes it. Raises FileNotFoundError if there is none."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        content = json.load(file)
    rows = [Row(**row | {name: _by_seed(row[name]) for name in CURVES}) for row in content["rows"]]
    return Table(Space.parse(content["space"]).with_length(LENGTH), content["steps"], rows)


def _by_seed(curves: Mapping[str, Sequence[float]]) -> dict[int, Sequence[float]]:
    return {int(seed): curve for seed, curve in curves.items()}


def pack(sources: Sequence[Path], path: Path = FILE) -> Table:
    """Write the rows in the files `sources` to `path`, and read them back.

    Raises ValueError if a training failed, if one is in the files twice, or if the packed file is too large.
    """
    space = Space.load(SPACE).with_length(LENGTH)
    found: dict[int, dict[str, Any]] = {}
    for line in (line for source in sources for line in source.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        if "failure" in row:
            raise ValueError(f"Architecture {row['index']}, seed {row['seed']}, failed: {row['failure']}.")
        kept = found.setdefault(row["index"], {"choices": row["choices"], "bits_per_byte": {}, "losses": {}})
        if row["seed"] in kept["losses"]:
            raise ValueError(f"Architecture {row['index']} with seed {row['seed']} is in the rows twice.")
        kept["bits_per_byte"][row["seed"]] = row["bits_per_byte"]
        kept["losses"][row["seed"]] = row["losses"]
    rows = [found[index] for index in sorted(found) if 0 in found[index]["losses"]]
    for row in rows:
        row["costs"] = costs(space.point(row["choices"]))
    return _written({"space": space.text(), "steps": STEPS, "rows": rows}, path)


def with_scores(scores: Path, path: Path = FILE) -> Table:
    """Add a line of `scores` to each row of the table in `path`, in their order, and read it back.

    Raises ValueError if there are more lines than rows.
    """
    with lzma.open(path, "rt", encoding="utf-8") as file:
        content = json.load(file)
    lines = scores.read_text(encoding="utf-8").splitlines()
    if len(lines) > len(content["rows"]):
        raise ValueError(f"{scores} has {len(lines)} lines, but the table only {len(content['rows'])} rows.")
    for row, line in zip(content["rows"], lines, strict=False):
        row["scores"] = json.loads(line)
    return _written(content, path)


def _written(content: dict[str, Any], path: Path) -> Table:
    """Write the table to `path`, and read it back. Raises ValueError if the packed file is too large."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(lzma.compress(json.dumps(content).encode(), preset=9 | lzma.PRESET_EXTREME))
    if partial.stat().st_size > HIGHEST:
        raise ValueError(f"{partial} has {partial.stat().st_size:,} bytes, more than {HIGHEST:,}.")
    partial.replace(path)
    return load(path)


def costs(point: Point) -> dict[str, float]:
    """The declared costs of the architecture of `point`, for one sequence of `LENGTH` positions."""
    found = cost(point.architecture, Shape(batch=1, length=LENGTH))
    return {name: getattr(found, name) for name in COSTS}


def summary(table: Table) -> str:
    """How many rows there are, the range of the results, and how well each number of steps ranks the final result."""
    final = np.array([row.final for row in table.rows])
    twice = [row for row in table.rows if len(row.losses) > 1]
    lines = [
        f"{len(table.rows)} architectures, {len(twice)} of them with a second seed",
        f"bits per byte after {table.steps[-1]} steps: {final.min():.3f} to {final.max():.3f}",
    ]
    for index, step in enumerate(table.steps):
        early = [row.bits_per_byte[0][index] for row in table.rows]
        one, other = ([row.bits_per_byte[seed][index] for row in twice] for seed in (0, 1))
        spread = np.std(np.subtract(one, other)) / 2**0.5
        ranks, repeats = spearmanr(early, final).statistic, spearmanr(one, other).statistic
        lines.append(
            f"after {step:3d} steps: rank correlation with the end {ranks:.3f}, between seeds {repeats:.3f}; "
            f"standard deviation of a seed {spread:.3f}, of architectures {np.std(early):.3f}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", nargs="+", type=Path, metavar="ROWS", help="files of rows to make the table from")
    parser.add_argument("--scores", type=Path, metavar="FILE", help="a file of scores, one line for each row")
    options = parser.parse_args(arguments)
    table = pack(options.pack) if options.pack else load()
    print(summary(with_scores(options.scores) if options.scores else table))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
