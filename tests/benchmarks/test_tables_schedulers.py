"""Schedulers replayed on recorded curves."""

import math

import numpy as np

from benchmarks.tables.schedulers import Curves, chosen, own, rows


def test_halving_finds_what_full_training_of_all_would_find_with_a_share_of_it():
    losses = np.array([[5.0 - 0.01 * n, 4.0 - 0.01 * n, 3.0 - 0.01 * n] for n in range(60)])
    losses[7:20] = math.nan  # these diverged
    curves = Curves("made", (1, 3, 9), losses, (1, 3, 9))
    best, spent = chosen(curves, "halving", {"rungs": [1, 3, 9]}, 0.3, seed=0)
    assert best == 59
    assert spent < 0.31


def test_the_table_says_how_far_each_scheduler_is_from_the_best():
    found = {row["scheduler"]: row for row in rows(own(), seeds=2, share=0.15)}
    assert set(found) == {"full", "halving", "hyperband", "hurdles"}
    assert float(found["halving"]["regret, mean"]) < float(found["full"]["regret, mean"])
    assert found["halving"]["within 0.01 nats"].endswith("of 2")
