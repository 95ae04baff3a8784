"""The comparison of trials: its lines without torch, and what it says about lines that are not shown."""

import json

from dashboards.server.app import application
from nas.store import open_store
from tests.dashboards.conftest import Client

HEAD = "kind: decoder\nwidth: 16\nvocabulary: 11\nbody:\n"


def compared(path, *texts):
    """The page and its JSON. The server does not use torch."""
    with open_store(path / "a.db") as store:
        study = store.create_study("a", {}, HEAD, 0, [{"name": "loss", "direction": "minimize"}], "d")
        for number, text in enumerate(texts):
            store.add_trial(
                study.id, number, architecture=(f"{number:064x}", text), seed=0, purpose="search", operator="random",
                choices={}, known_results=0, steps=10,
            )  # fmt: skip
    made = application([str(path / "a.db")], costs=False)
    client = Client(made)
    address, query = "/studies/a/a/compare", f"?trials={','.join(map(str, range(len(texts))))}"
    found = client.get(f"{address}{query}").text, json.loads(client.get(f"{address}.json{query}").text)
    made.state.sources.close()
    return found


def test_lines_that_are_not_shown_are_counted(tmp_path):
    long, short = (HEAD + "".join(f"  - gru: {{width: {i}}}\n" for i in range(most)) for most in (450, 420))
    page, found = compared(tmp_path, long, short)

    assert len(found["tables"]["layers"]["rows"]) == 400 and found["lines"] == 451
    assert "Lines 1 to 400 of 451. Different lines that are not shown: 30. All lines" in page
    assert f"<code>nas show a:0 a:1 --storage {tmp_path}/a.db</code>" in page


def test_without_torch_the_texts_are_aligned(tmp_path):
    page, found = compared(tmp_path, HEAD + "  - gru\n  - attention\n", HEAD + "  - attention\n")
    rows = [(row["0"], row["1"], row["differs"]) for row in found["tables"]["layers"]["rows"]]

    assert rows[1:] == [("| gru", "", True), ("| attention", "| attention", False)]
    assert "These are the lines of the texts" in page and "need torch" in found["problem"]
    assert "not shown" not in page


def test_a_trial_that_waits_is_paused_as_on_the_other_pages(tmp_path):
    _, found = compared(tmp_path, HEAD + "  - gru\n")

    assert {"name": "State", "0": "paused"} in found["tables"]["values"]["rows"]
