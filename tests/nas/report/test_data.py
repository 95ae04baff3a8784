"""The facts about data are told in plain words, with a warning where a score by document cannot be believed."""

from __future__ import annotations

from nas.report.data import data_lines

FACTS = {
    "document": "a file",
    "documents": {"train": 200, "validation": 40, "test": 12},
    "bytes": {"train": 2_000_000, "validation": 350_000, "test": 380_000},
    "largest": {"validation": 0.1, "test": 0.75},
    "overlap": {"validation": 0.125, "test": 0.0},
    "left_out": 2_000,
}


def test_the_lines_tell_sizes_overlap_and_what_to_doubt():
    lines = data_lines(FACTS)
    assert lines[0] == (
        "documents",
        "training 200 (2M bytes), validation 40 (350k bytes), test 12 (380k bytes); a document is a file",
    )
    assert lines[1] == ("left out", "2000 bytes of held-out documents: ends of long ones, and copies")
    assert lines[2][1].startswith("12.5% of the validation text and 0.0% of the test text is in the training text")
    assert [text for name, text in lines if name == "warning"] == [
        "the test part has only 12 documents, so an interval over documents is rough",
        "one document is 75% of the test part",
    ]


def test_what_is_removed_is_told():
    ((_, text),) = [line for line in data_lines({**FACTS, "removed": {"validation": 0.25}}) if line[0] == "overlap"]
    assert text.endswith("these strings, 25.0% of the validation text, are not scored")


def test_pairs_that_are_too_long_are_told():
    lines = dict(data_lines({**FACTS, "too_long": {"train": 8, "validation": 0, "test": 2}}))
    assert lines["too long"].startswith("8 of training, 2 of test: left out of training")


def test_a_task_that_tells_nothing_has_no_lines():
    assert data_lines(None) == data_lines({}) == data_lines({"sha256": "5eed"}) == []
