"""Our own table: architectures of the quickstart's space, all of them trained (`benchmarks.tables`).

The space of the table is its rows, as for LTS. The objectives are expected FLOPs, which need no training, and bits per
byte after the whole training with one seed: the noise of training is part of the table.
"""

from __future__ import annotations

from benchmarks.quality.lts import Rows
from benchmarks.quality.table import Missing, Table, Values, relative_hypervolume, scaled
from benchmarks.tables.table import FILE, load


def tables() -> list[Table]:
    if not FILE.exists():
        raise Missing(f"{FILE} is missing; benchmarks.tables.make trains it again.")
    table = load()
    raw: dict[str, Values] = {}
    points = {}
    for row, point in zip(table.rows, table.points):
        raw.setdefault(point.architecture.hash, (row.costs["expected_flops"], row.final))
        points.setdefault(point.architecture.hash, point)
    values = scaled(raw)
    return [
        Table(
            name="own",
            title=f"our own table (expected FLOPs, bits per byte), {len(points)} trained architectures",
            space=Rows(table.space, list(points.values())),
            values=lambda point: values[point.architecture.hash],
            evaluate=lambda point: (values[point.architecture.hash][0], None),
            score=relative_hypervolume(list(values.values())),
            budgets=(27, 50, 81, 200),
        )
    ]
