"""Pieces are counted as the tables describe models, and their times are found where times add up."""

import numpy as np
import pytest

from benchmarks import recorded_latency as recorded


def gpt(width, ratios, heads, bias="False"):
    layers = str(len(ratios.split("-")))
    return {"embed_dim": width, "n_layer": layers, "mlp_ratio": ratios, "n_head": heads, "bias": bias}


def test_counts_the_pieces_of_a_model():
    found = recorded.gpt_pieces(gpt("192", "2-4-2", "4-4-8", "True"))
    assert found == {
        "192 model": 1,
        "192 heads 4": 2,
        "192 heads 8": 1,
        "192 ratio 2": 2,
        "192 ratio 4": 1,
        "192 bias": 3,
    }


def test_finds_the_times_of_pieces_where_they_add_up():
    rng = np.random.default_rng(0)
    times = {"model": 3.0, "heads 4": 1.0, "heads 8": 1.5, "ratio 2": 0.5, "ratio 4": 0.7}
    rows = [
        gpt("192", "-".join(rng.choice(["2", "4"], n)), "-".join(rng.choice(["4", "8"], n)))
        for n in rng.integers(2, 9, 60)
    ]
    counts = recorded._stacked(map(recorded.gpt_pieces, rows))
    names = sorted({name for row in rows for name in recorded.gpt_pieces(row)})
    whole = counts @ np.array([times[name.removeprefix("192 ")] for name in names])
    predicted = recorded.composed(counts[:40], whole[:40])(counts[40:])
    assert recorded.errors(predicted, whole[40:]) == pytest.approx((0, 0, 1), abs=1e-6)
