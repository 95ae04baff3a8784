"""Measurements travel between machines as a file."""

import pytest

from tuner.device import fingerprint
from tuner.search import exchange
from tuner.search.backends import Database, Joined
from tuner.search.folder import Folder
from tuner.search.row import EVERY, FORGOTTEN, Row


def test_measurements_travel_as_a_file_and_arrive_once(pretended, store, faulty, tmp_path, run):
    run(store, faulty)
    path = tmp_path / "measurements.jsonl.gz"
    count = exchange.export(store, path)

    for other in (Folder(tmp_path / "other"), database(tmp_path / "other.db")):
        assert [exchange.import_(other, path) for _ in range(2)] == [count, 0]
        exchange.export(other, tmp_path / "again.jsonl.gz")
        assert exchange.import_(store, tmp_path / "again.jsonl.gz") == 0
        assert run(other, faulty).measured == 0


def database(path):
    pytest.importorskip("sqlalchemy")
    from nas.store import open_store

    return Database(open_store(path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "jsonl: is empty"),
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


@pytest.mark.parametrize(
    "value",
    ["255", '{"registers": -1}', '{"registers": 1.5}', '{"registers": 4294967296}', '{"threads": 1}', "[]"],
)
def test_resources_that_no_kernel_can_use_are_refused(value, tmp_path):
    path = tmp_path / "measurements.jsonl"
    store, used = Folder(tmp_path / "kernels"), {"registers": 255, "shared": 0}
    store.add(fingerprint("cpu"), [row(1, resources=used)])
    exchange.export(store, path)
    path.write_text(path.read_text().replace('{"registers":255,"shared":0}', value))

    with pytest.raises(ValueError, match="line 3: 'resources' of a measurement must be whole numbers of at most"):
        exchange.import_(Folder(tmp_path / "other"), path)


def row(size, **changes):
    about = {"operation": "package.scale", "dtype": "float32", "implementation": "triton", "source": "8ce8"}
    times = {"milliseconds": 0.5, "samples": (0.5,)}
    return Row(**(about | times | {"problem": f'{{"sizes":[["size",{size}]]}}', "configuration": "{}"} | changes))


def test_measurements_that_a_folder_has_packed_are_known(tmp_path):
    store, device, path = Folder(tmp_path / "here"), fingerprint("cpu"), tmp_path / "measurements.jsonl"
    samples = (0.123456, 0.223456, 0.323456, 0.423456, 0.523456)
    store.add(device, [row(1, samples=samples, milliseconds=0.323456), row(2)])
    exchange.export(store, path)
    store.pack("package.scale", row(1).problem, device)

    assert exchange.export(store, tmp_path / "one.jsonl", "package.scale") == 2
    with pytest.raises(ValueError, match=r"no measurements of 'package.scle'\. Did you mean 'package.scale'"):
        exchange.export(store, tmp_path / "none.jsonl", "package.scle")
    assert not (tmp_path / "none.jsonl").exists()
    assert exchange.import_(store, path) == 0
    there = Folder(tmp_path / "there")
    assert exchange.import_(there, path) == 2
    assert [each.problem for each in there.every_row()] == [each.problem for each in store.every_row()]
    assert there.devices() == store.devices()


@pytest.mark.parametrize("kind", [Folder, database])
def test_what_was_measured_after_all_was_forgotten_is_valid_elsewhere_too(kind, tmp_path):
    store, device, path = Folder(tmp_path / "here"), fingerprint("cpu"), tmp_path / "measurements.jsonl"
    every = row(1, problem=EVERY, dtype="", failure=FORGOTTEN, milliseconds=None, samples=())
    for each in (row(1), row(2), every, row(1, source="new"), row(2, source="new")):
        store.add(device, [each])
    exchange.export(store, path)

    there = kind(tmp_path / "there.db")
    exchange.import_(there, path)

    for size in (1, 2):
        rows = [each for each in there.rows("package.scale", row(size).problem) if each.problem != EVERY]
        assert [each.failure or each.source for each in rows] == ["8ce8", FORGOTTEN, "new"]


def test_what_an_older_place_holds_is_read_and_what_is_new_is_kept_in_the_newer_one(tmp_path):
    older, newer, device = database(tmp_path / "tuning.db"), Folder(tmp_path / "kernels"), fingerprint("cpu")
    older.add(device, [row(1)])
    store = Joined(newer, older)
    store.add(device, [row(1, source="new")])

    assert [each.source for each in store.rows("package.scale", row(1).problem)] == ["8ce8", "new"]
    assert [each.source for each in store.every_row()] == ["8ce8", "new"]
    assert [each.source for each in newer.every_row()] == ["new"]
    assert list(store.devices()) == [device.key]
