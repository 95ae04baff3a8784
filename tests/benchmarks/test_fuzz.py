import itertools
import random
import time

import pytest

from benchmarks import fuzz
from searchspace.errors import SpaceError


# Search files of the largest spaces take seconds; tests/test_examples.py reads and runs them.
@pytest.mark.parametrize("origin", sorted(name for name in fuzz.files() if "everything" not in name))
def test_every_file_is_read_before_it_is_mangled(origin, tmp_path):
    content, read = fuzz.files()[origin]
    path = tmp_path / "file.yaml"
    if origin.startswith("examples/"):
        path = fuzz.EXAMPLES / origin.removeprefix("examples/")
    else:
        path.write_bytes(content)
    assert fuzz.outcome(read, path) == "read"


def test_two_hundred_mangled_files_are_read_or_refused():
    tally, accidents, _ = fuzz.run(200, seed=1)
    assert accidents == []
    assert sum(counts["refused"] for counts in tally.values()) > 100
    assert sum(counts["read"] for counts in tally.values()) > 5


def test_the_same_seed_mangles_alike():
    content = fuzz.SPACE.encode()
    one, other = (fuzz.mangled(content, random.Random("0/7")) for _ in range(2))
    assert one == other != content


def test_accidents_and_hangs_are_seen(tmp_path, monkeypatch):
    def refuse(path):
        raise SpaceError("")

    monkeypatch.setattr(fuzz, "SECONDS", 0.05)
    assert "ZeroDivisionError" in fuzz.outcome(lambda path: 1 / 0, tmp_path)
    for hang in (lambda path: time.sleep(150), lambda path: all(True for _ in itertools.count())):  # wait, compute
        assert fuzz.outcome(hang, tmp_path) == "still running after 0.05 s of CPU"
    assert fuzz.outcome(refuse, tmp_path) == "refused without a message"
