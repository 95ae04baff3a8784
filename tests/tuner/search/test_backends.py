"""Results in a folder: what is damaged is left out, and the rest is read."""

import json

import pytest

from tuner.device import fingerprint
from tuner.search.backends import Folder, Row


def row(**changes):
    known = {"operation": "softmax", "problem": "{}", "dtype": "float32", "implementation": "torch"}
    return Row(**(known | {"configuration": "{}", "source": "8ce8", "milliseconds": 0.5, "samples": [0.5]} | changes))


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"operation": "softmax"',
        b"[" * 100_000,
        b"\xff\xfe",
        b"null",
        b'"text"',
        b" " * (5 * 2**20),
        b'{"device": 3}',
        b'{"device": {"key": ["a"]}}',
    ],
    ids=["cut", "deep", "no text", "null", "a text", "long", "no device", "a device without a name"],
)
def test_a_damaged_line_spoils_no_other(damaged, tmp_path):
    folder, device = Folder(tmp_path), fingerprint("cpu")
    folder.add(device, [row()])
    with next(tmp_path.iterdir()).open("ab") as file:
        file.write(b"\n" + damaged)
    folder.add(device, [row(source="9999")])
    assert [each.source for each in folder.rows("softmax")] == ["8ce8", "9999"]


@pytest.mark.parametrize("name", ["milliseconds", "samples", "problem", "failure"])
def test_a_row_with_a_value_of_another_kind_is_left_out(name, tmp_path):
    folder = Folder(tmp_path)
    folder.add(fingerprint("cpu"), [row()])
    file = next(tmp_path.iterdir())
    file.write_text(file.read_text() + "\n" + json.dumps(json.loads(file.read_text()) | {name: {"a": -1}}))
    assert len(folder.rows("softmax")) == 1
