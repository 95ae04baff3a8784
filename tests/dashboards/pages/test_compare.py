"""The comparison of trials: their lines side by side, from the drawings that the search stored."""

import json

import pytest

from dashboards.analysis.layers import USUAL, length_of
from nas.store import open_store
from tests.dashboards.conftest import LOSS, add_plain, drawing


@pytest.fixture
def compared(serve, tmp_path):
    """The page and its JSON of trials with these lines; None: no stored drawing. The server does not use torch."""

    def made(*lines):
        with open_store(tmp_path / "a.db") as store:
            study = store.create_study("a", {}, "kind: decoder", 0, LOSS, "d")
            for number, labels in enumerate(lines):
                add_plain(store, study.id, number, drawing=labels and drawing(labels, 100))
        client, query = serve(tmp_path / "a.db"), f"?trials={','.join(map(str, range(len(lines))))}"
        page = client.get(f"/studies/a/a/compare{query}").text
        return page, json.loads(client.get(f"/studies/a/a/compare.json{query}").text), client.app.state.sources

    return made


def test_equal_lines_share_a_row_and_others_differ(compared):
    _, found, sources = compared(["decoder", "gru", "attention"], ["decoder", "attention"])
    rows = [(row["0"], row["1"], row["differs"]) for row in found["tables"]["layers"]["rows"]]

    assert (rows[0] == ("decoder", "decoder", False) and ("| gru", "", True) in rows) or rows[1][2]
    assert length_of(sources.study("a", "a")) == (64, "")


def test_without_a_drawing_and_torch_the_page_says_what_is_missing(compared):
    page, found, _ = compared(["decoder"], None)

    assert "need torch" in found["problem"] and "need torch" in page
    assert {"name": "State", "0": "paused", "1": "paused"} in found["tables"]["values"]["rows"]


def test_the_length_is_a_guess_if_no_drawing_tells_it(compared):
    length, remark = length_of(compared(None)[2].study("a", "a"))

    assert length == USUAL and "unknown" in remark
