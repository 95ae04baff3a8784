"""Measurements travel between machines as a file."""

import pytest

from tuner.search import exchange


def test_measurements_travel_as_a_file_and_arrive_once(pretended, store, faulty, tmp_path, run):
    run(store, faulty)
    path = tmp_path / "measurements.jsonl.gz"
    count = exchange.export(store, path)
    pytest.importorskip("sqlalchemy")
    from nas.store import open_store

    with open_store(tmp_path / "other.db") as other:
        assert exchange.import_(other, path) == count
        assert exchange.import_(other, path) == 0
        assert other.measurements() == store.measurements()
        assert run(other, faulty).measured == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 0: is empty"),
        ('{"format": "another"}\n', "line 1: does not begin with the format"),
        ('{"format": "tessera measurements 1"}\n{"operation": "x"}\n', "line 2"),
        ("no json\n", "line 1"),
    ],
)
def test_a_file_that_holds_no_measurements_is_refused_with_its_line(text, says, store, tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        exchange.import_(store, path)
