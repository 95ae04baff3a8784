"""A forest of regression trees, and how much each feature matters to it.

The importance is permutation importance (Breiman 2001, "Random forests", https://doi.org/10.1023/A:1010933404324): how
much worse a tree predicts its out-of-bag rows if the values of one feature are shuffled among them. The trees are
extremely randomised (Geurts et al. 2006, https://doi.org/10.1007/s10994-006-6226-1). All of them grow together, level
by level: one after the other would take three times as long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dashboards.analysis.tabulated import Numbers
from dashboards.analysis.thinning import distinct

Indices = NDArray[np.int64]
DEPTH = 6
LEAF = 3  # rows in a leaf, at least
LEAST_TRIED = 3  # features at a split, at least; else half of those that vary
UNSHUFFLED = -1


@dataclass(frozen=True)
class Level:
    """The nodes of all trees at one depth, by number; those of the first level are the roots.

    tree: of each node. value: the mean of its rows. feature, threshold: of its split; -1 at a leaf. child: the number
    of its left child at the next level; the right one follows it.
    """

    tree: Indices
    value: Numbers
    feature: Indices
    threshold: Numbers
    child: Indices


@dataclass(frozen=True)
class Questions:
    """Rows whose values are asked of a tree. shuffled: the feature that has `value` in place of that of the row."""

    tree: Indices
    row: Indices
    shuffled: Indices
    value: Numbers


def losses(x: Numbers, y: Numbers, trees: int, generator: np.random.Generator) -> Numbers:
    """How much the mean squared error of each tree grows if a feature is shuffled, [trees, features].

    x: [rows, features]; y: [rows].
    """
    seen = generator.integers(0, len(y), (trees, len(y)))
    levels = _grown(x[seen.ravel()], y[seen.ravel()], np.repeat(np.arange(trees), len(y)), generator)
    asked = _questions(x, seen, _used(levels, trees, x.shape[1]), generator)
    errors = (_answers(levels, x, asked) - y[asked.row]) ** 2
    shape = trees, 1 + x.shape[1]  # for each tree the plain rows, then those with each feature shuffled
    group = np.ravel_multi_index((asked.tree, 1 + asked.shuffled), shape)
    count = np.bincount(group, minlength=trees * shape[1]).reshape(shape)
    mean = np.bincount(group, errors, count.size).reshape(shape) / np.maximum(count, 1)
    return np.where(count[:, 1:] > 0, mean[:, 1:] - mean[:, :1], 0.0)


def _grown(x: Numbers, y: Numbers, tree: Indices, generator: np.random.Generator) -> list[Level]:
    """x: [rows, features] and y: [rows], of all trees; tree: the tree of each row, ascending."""
    levels, trees, node = [], distinct(tree), tree
    for depth in range(DEPTH + 1):
        starts = np.flatnonzero(np.diff(node, prepend=-1))
        count = np.diff(starts, append=len(y))
        value = np.add.reduceat(y, starts) / count
        feature, threshold, left = _splits(x, y - value[node], node, starts, count, generator)
        is_split = (feature >= 0) & (depth < DEPTH)
        child = 2 * (np.cumsum(is_split) - 1)
        levels.append(Level(trees, value, np.where(is_split, feature, -1), threshold, child))
        stays = is_split[node]
        if not stays.any():
            break
        below = (child[node] + ~left)[stays]
        order = np.argsort(below, kind="stable")
        x, y, node, trees = x[stays][order], y[stays][order], below[order], np.repeat(trees[is_split], 2)
    return levels


def _splits(
    x: Numbers, y: Numbers, node: Indices, starts: Indices, count: Indices, generator: np.random.Generator
) -> tuple[Indices, Numbers, NDArray[np.bool_]]:
    """The feature and the threshold of each node, the feature -1 if none splits it; and which rows are left of it.

    y: less the mean of the node. starts, count: of the rows of each node.
    """
    low, high = np.minimum.reduceat(x, starts), np.maximum.reduceat(x, starts)  # [nodes, features]
    varies = np.minimum.reduceat(y, starts) < np.maximum.reduceat(y, starts)
    is_open = (high > low) & (varies & (count >= 2 * LEAF))[:, None]
    most = np.maximum(LEAST_TRIED, is_open.sum(axis=1) // 2)
    rank = np.where(is_open, generator.random(low.shape), 2.0).argsort(axis=1).argsort(axis=1)
    thresholds = low + (high - low) * generator.random(low.shape)
    left = x <= thresholds[node]  # [rows, features]
    many = np.add.reduceat(left, starts, dtype=np.int64)
    rest = count[:, None] - many
    inside = is_open & (rank < most[:, None]) & (many >= LEAF) & (rest >= LEAF)
    sums = np.add.reduceat(np.where(left, y[:, None], 0.0), starts)
    # The gain is larger if the spread within both sides is smaller.
    gain = np.where(inside, sums**2 * (1 / np.maximum(many, 1) + 1 / np.maximum(rest, 1)), -1.0)
    best = gain.argmax(axis=1)
    of_node = np.arange(len(best)), best
    feature = np.where(inside[of_node], best, -1)
    return feature, thresholds[of_node], left[np.arange(len(x)), best[node]]


def _used(levels: list[Level], trees: int, features: int) -> NDArray[np.bool_]:
    """Whether each tree uses each feature, [trees, features]."""
    used = np.zeros((trees, features), dtype=bool)
    for level in levels:
        splits = level.feature >= 0
        used[level.tree[splits], level.feature[splits]] = True
    return used


def _questions(x: Numbers, seen: Indices, used: NDArray[np.bool_], generator: np.random.Generator) -> Questions:
    """For each tree its out-of-bag rows: as they are, and with each feature that it uses shuffled."""
    trees, rows, shuffled, values = [], [], [], []
    for tree, of_tree in enumerate(used):
        unseen = np.flatnonzero(np.bincount(seen[tree], minlength=len(x)) == 0)
        features = np.flatnonzero(of_tree)
        trees.append(np.full(len(unseen) * (1 + len(features)), tree))
        rows.append(np.tile(unseen, 1 + len(features)))
        shuffled.append(np.repeat([UNSHUFFLED, *features.tolist()], len(unseen)))
        values += [np.zeros(len(unseen)), generator.permuted(x[np.ix_(unseen, features)], axis=0).T.ravel()]
    return Questions(np.concatenate(trees), np.concatenate(rows), np.concatenate(shuffled), np.concatenate(values))


def _answers(levels: list[Level], x: Numbers, asked: Questions) -> Numbers:
    """What the trees predict."""
    found = np.zeros(len(asked.row))
    open_, node = np.arange(len(asked.row)), asked.tree
    for level in levels:
        feature = level.feature[node]
        is_leaf = feature < 0
        found[open_[is_leaf]] = level.value[node[is_leaf]]
        open_, node, feature = open_[~is_leaf], node[~is_leaf], feature[~is_leaf]
        is_shuffled = asked.shuffled[open_] == feature
        value = np.where(is_shuffled, asked.value[open_], x[asked.row[open_], feature])
        node = level.child[node] + (value > level.threshold[node])
    return found
