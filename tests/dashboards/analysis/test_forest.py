"""The forest that says which choices matter, against its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.analysis import forest
from dashboards.analysis.holes import importances

TREES = 5


def data(generator, rows, features, values=4):
    x = generator.integers(0, values, (rows, features)).astype(float)
    return x, x[:, 0] + 0.1 * generator.normal(size=rows)


def leaf_of(levels, tree, row):
    """(depth, node) of the leaf that a row of features reaches."""
    node = tree
    for depth, level in enumerate(levels):
        if level.feature[node] < 0:
            return depth, node
        node = level.child[node] + (row[level.feature[node]] > level.threshold[node])
    raise AssertionError("a tree must end in leaves")


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 60), features=st.integers(1, 6), values=st.integers(1, 5))
def test_every_leaf_predicts_the_mean_of_its_rows(seed, rows, features, values):
    generator = np.random.default_rng(seed)
    x, y = data(generator, rows, features, values)
    seen = generator.integers(0, rows, (TREES, rows))
    levels = forest._grown(x[seen.ravel()], y[seen.ravel()], np.repeat(np.arange(TREES), rows), generator)

    assert len(levels) <= forest.DEPTH + 1
    for tree in range(TREES):
        leaves: dict = {}
        for row in seen[tree]:
            leaves.setdefault(leaf_of(levels, tree, x[row]), []).append(y[row])
        assert len(leaves) == 1 or min(map(len, leaves.values())) >= forest.LEAF
        for (depth, node), reached in leaves.items():
            assert levels[depth].tree[node] == tree
            assert levels[depth].value[node] == pytest.approx(np.mean(reached))


@given(seed=st.integers(0, 2**32), rows=st.integers(12, 60), features=st.integers(1, 6))
def test_a_shuffled_feature_has_another_value_and_all_others_their_own(seed, rows, features):
    generator = np.random.default_rng(seed)
    x, y = data(generator, rows, features)
    seen = generator.integers(0, rows, (TREES, rows))
    levels = forest._grown(x[seen.ravel()], y[seen.ravel()], np.repeat(np.arange(TREES), rows), generator)
    asked = forest._questions(x, seen, forest._used(levels, TREES, features), generator)
    answers = forest._answers(levels, x, asked)

    for place, (tree, row, shuffled) in enumerate(zip(asked.tree, asked.row, asked.shuffled)):
        assert row not in seen[tree]
        features_then = x[row].copy()
        if shuffled != forest.UNSHUFFLED:
            features_then[shuffled] = asked.value[place]
        depth, node = leaf_of(levels, tree, features_then)
        assert answers[place] == levels[depth].value[node]
    for tree in range(TREES):
        for shuffled in set(asked.shuffled[asked.tree == tree]) - {forest.UNSHUFFLED}:
            of = (asked.tree == tree) & (asked.shuffled == shuffled)
            assert sorted(asked.value[of]) == sorted(x[asked.row[of], shuffled])


def test_what_decides_the_score_matters_and_nothing_else_does():
    generator = np.random.default_rng(0)
    columns = {f"hole {index}": generator.integers(0, 8, 200).tolist() for index in range(10)}
    columns["text"] = [f"value {number % 3}" for number in columns["hole 1"]]
    scores = np.array(columns["hole 0"]) + 0.5 * (np.array(columns["hole 1"]) % 3) + generator.normal(size=200) * 0.1
    found = importances(columns, scores)

    assert found[0].hole == "hole 0" and found[0].low > 0.5
    assert found[1].hole in ("text", "hole 1") and found[1].low > 0
    assert all(abs(each.value) < 0.05 for each in found if each.hole not in ("hole 0", "hole 1", "text"))
    assert found == importances(columns, scores), "the same data, the same answer"


def test_huge_scores_are_compared_like_others():
    generator = np.random.default_rng(0)
    columns = {"hole": generator.integers(0, 8, 40).tolist()}
    scores = np.array(columns["hole"], dtype=float)
    (found,), (huge,) = importances(columns, scores), importances(columns, scores * 1e300)
    assert huge.value == pytest.approx(found.value) and found.low > 0.5


@pytest.mark.parametrize("scores", [[1.0] * 30, [1.0] * 5 + [np.nan] * 25])
def test_without_results_that_differ_nothing_is_known(scores):
    columns = {"hole": list(range(30))}
    assert importances(columns, np.array(scores)) == []
