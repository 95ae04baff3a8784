"""Scores by document add up to the metric, survive a trip through JSON and pickle, and reject what cannot be right."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.documents import GROUPS, Documents, Tally


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1e6), st.floats(0.1, 1e3)), min_size=1))
def test_a_tally_adds_up_to_the_metric_and_leaves_out_what_has_no_weight(scores):
    documents, totals, weights = (np.array(each) for each in zip(*scores))
    tally = Tally("abcdefgh")
    half = len(scores) // 2
    for part in (slice(0, half), slice(half, None)):
        tally.add(documents[part].astype(np.int64), totals[part], weights[part])
    found = tally.documents("loss")

    assert found.value == pytest.approx(totals.sum() / weights.sum())
    assert set(found.names) == {"abcdefgh"[each] for each in documents}
    place = found.names.index("abcdefgh"[documents[0]])
    assert found.weights[place] == pytest.approx(weights[documents == documents[0]].sum())


def test_examples_are_numbered_and_joined_if_there_are_very_many():
    few, many = Tally(), Tally()
    few.add(np.array([0, 2]), np.array([1, 0]))
    many.add(np.arange(2 * GROUPS + 1), np.ones(2 * GROUPS + 1))

    assert few.documents("error").names == ("example 0", "example 2")
    joined = many.documents("error")
    assert len(joined.names) <= GROUPS and joined.names[0] == "examples 0 to 2"
    assert joined.weights.sum() == 2 * GROUPS + 1 and joined.value == 1


def test_documents_survive_pickle_and_json():
    documents = Documents("bits_per_byte", ("a.txt", "b.txt"), [10.0, 20.0], [2, 5])
    again = pickle.loads(pickle.dumps(documents)), Documents.from_dict(json.loads(json.dumps(documents.to_dict())))
    assert again == (documents, documents)
    assert documents.totals.dtype == documents.weights.dtype == np.float64
    assert documents.values.tolist() == [5.0, 4.0]


@pytest.mark.parametrize(
    ("names", "totals", "weights", "message"),
    [
        (("a",), [1.0, 2.0], [1.0], "equally many"),
        ((), [], [], "at least 1"),
        (("a", "a"), [1.0, 2.0], [1.0, 1.0], "'a' occurs twice"),
        (("a",), [1.0], [float("nan")], "finite"),
        (("a",), [1.0], [0.0], "above 0"),
        (("a",), [[1.0]], [1.0], "must be a list of numbers"),
    ],
)
def test_documents_that_cannot_be_right_are_refused(names, totals, weights, message):
    with pytest.raises(ValueError, match=message):
        Documents("loss", names, totals, weights)
