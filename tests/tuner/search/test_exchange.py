"""Measurements travel between machines as a file."""

import pytest

from tuner.device import fingerprint
from tuner.search import exchange
from tuner.search.folder import Folder
from tuner.search.row import Row


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


def test_the_measurements_of_users_kernels_travel_too_and_arrive_where_they_are_looked_for(store, tmp_path):
    pytest.importorskip("sqlalchemy")
    from nas.store import open_store

    about = {"operation": "package.scale", "dtype": "float32", "implementation": "triton", "source": "8ce8"}
    rows = [
        Row(**about, problem=f'{{"sizes":[["size",{size}]]}}', configuration="{}", milliseconds=0.5, samples=(0.5,))
        for size in (1, 2)
    ]
    here, there = Folder(tmp_path / "here"), Folder(tmp_path / "there")
    here.add(fingerprint("cpu"), rows)
    here.pack("package.scale", rows[0].problem, fingerprint("cpu"))
    path = tmp_path / "measurements.jsonl"

    assert exchange.export(store, path, kernels=here) == 2
    assert exchange.export(store, path, "package.scale", here) == 2
    with open_store(tmp_path / "other.db") as other:
        assert [exchange.import_(other, path, there) for _ in range(2)] == [2, 0]
        assert other.measurements() == []
    assert there.every_row() == here.every_row() and len(there.every_row()) == 2
    assert there.devices() == here.devices()
