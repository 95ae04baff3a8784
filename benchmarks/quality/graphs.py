"""NAS-Bench-Graph: 26,206 graph networks, trained on each of eight graphs (https://arxiv.org/abs/2206.09166).

Needs `pip install nas-bench-graph`, whose tables are pickles; it also has the rule that tells when two descriptions are
one network. A network has one of nine shapes and an operation at each of its four nodes. In our language each option is
a block; their order has no meaning. The objectives are the recorded latency and the validation error; a strategy learns
both. The network of four skips, which was not trained, has the worst values of the table. These tables were not used to
choose any setting.
"""

from __future__ import annotations

from importlib.util import find_spec

from benchmarks.quality.table import Missing, Table, Values, relative_hypervolume, scaled
from searchspace.language.holes import labels
from searchspace.space.point import Point
from searchspace.space.space import Space
from searchspace.tree import Choice

GRAPHS = ("cora", "citeseer", "pubmed", "cs", "physics", "photo", "computers", "arxiv")
SHAPES = (
    "attention",
    "linear_attention",
    "adaptive_span_attention",
    "causal_long_short_attention",
    "compressive_attention",
    "favor_attention",
    "gated_random_feature_attention",
    "shaw_attention",
    "t5_attention",
)
OPERATIONS = (
    "feed_forward",
    "gated_feed_forward",
    "gated_linear_unit",
    "gru",
    "lstm",
    "separable_convolution",
    "lightweight_convolution",
    "dynamic_convolution",
    "sliding_window_attention",
)
SPACE = f"""
kind: decoder
width: 16
vocabulary: 16
body:
  - !choice [{", ".join(SHAPES)}]
  - repeat:
      times: 4
      of: !choice {{each: true, options: [{", ".join(OPERATIONS)}]}}
"""
WORST = (1.0, 1.0)


def tables() -> list[Table]:
    """(latency, error) of each graph. Raises Missing if the package is not installed."""
    if find_spec("nas_bench_graph") is None:
        raise Missing("NAS-Bench-Graph is not installed (pip install nas-bench-graph; 1.4.0 was used).")
    return [_table(name) for name in GRAPHS]


def _table(graph: str) -> Table:
    from nas_bench_graph import architecture, light_read

    names, raw = architecture.gnn_list, light_read(graph)
    rows = scaled({key: (float(row["latency"]), 1 - float(row["valid_perf"])) for key, row in raw.items()})
    space = Space.parse(SPACE)
    holes = {path: hole for path, hole in space.dimensions.items() if isinstance(hole, Choice)}
    places = {path: {str(label): place for place, label in enumerate(labels(hole))} for path, hole in holes.items()}

    def values(point: Point) -> Values:
        shape, *operations = (places[path][str(label)] for path, label in point.choices.items())
        network = architecture.Arch(list(architecture.link_list[shape]), [names[place] for place in operations])
        return rows.get(network.valid_hash(), WORST)

    return Table(
        name=f"graph-{graph}",
        title=f"NAS-Bench-Graph, {graph} (latency, error)",
        space=space,
        values=values,
        score=relative_hypervolume(list(rows.values())),
        budgets=(25, 50, 100, 200),
    )
