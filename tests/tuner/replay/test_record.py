"""Whole spaces are recorded, all samples kept, go on after any end, and are read as any recorded space is."""

import gzip
import json

import numpy as np
import pytest

from kernels.dispatch.registry import Choice
from tuner.measure.children import Children
from tuner.outcome import Kind, Outcome
from tuner.replay import record, recorded
from tuner.replay.replay import replay


@pytest.fixture
def pretended(monkeypatch):
    """Children that measure at once; the block of 16 fails."""
    asked, limit = [], [10**9]

    def run(self, job):
        asked.extend(job.choices)
        if len(asked) > limit[0]:
            raise KeyboardInterrupt
        block = dict(job.choices[0].configuration).get("block", 8)
        if block == 16:
            return (Outcome(Kind.BUILD_ERROR, message="too large", seconds=0.5),)
        return (Outcome(Kind.TIMED, tuple(block + 0.1 * each for each in range(job.repeats)), seconds=0.25),)

    monkeypatch.setattr(Children, "run", run)
    return asked, limit


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(record, "FEWEST", 2)


def run(faulty, folder, *rows, **options):
    return record.record([faulty.problem(each) for each in rows or (32,)], device="cpu", folder=folder, **options)


def test_a_space_is_recorded_whole_and_read_again(pretended, few, faulty, tmp_path):
    report = run(faulty, tmp_path, samples=5)

    (file,) = tmp_path.glob("*.json.gz")
    assert report.whole == [file.name.removesuffix(".json.gz")]
    assert (report.left, report.measured, list(tmp_path.glob("*.partial.gz"))) == (0, 3, [])
    found = recorded.load(file)
    assert found.space.parameters == {"block": (4, 8, 16)}
    np.testing.assert_allclose(found.samples[0], [4, 4.1, 4.2, 4.3, 4.4])
    np.testing.assert_allclose(found.times, [4.2, 8.2, np.nan])
    np.testing.assert_allclose(found.compile, [250, 250, 500])
    assert replay(found, "random", 3).chosen == 0
    about = json.loads(gzip.decompress(file.read_bytes()))["about"]
    assert (about["operation"], about["problem"]["sizes"]) == ("faulty", {"rows": 32})
    assert about["device"]["torch"]


def test_what_is_recorded_is_not_measured_again(pretended, few, faulty, tmp_path):
    asked, _ = pretended
    run(faulty, tmp_path)
    before = list(asked)

    again = run(faulty, tmp_path, 32, 64)

    assert asked[: len(before)] == before
    assert (again.measured, len(again.whole)) == (3, 2)


def test_goes_on_where_it_was_interrupted(pretended, few, faulty, tmp_path):
    asked, limit = pretended
    limit[0] = 2
    with pytest.raises(KeyboardInterrupt):
        run(faulty, tmp_path)
    assert len(list(tmp_path.glob("*.partial.gz"))) == 1 and not list(tmp_path.glob("*.json.gz"))

    limit[0] = 10**9
    asked.clear()
    report = run(faulty, tmp_path)

    assert asked == [Choice.of("right", {"block": 16})]
    assert (report.left, len(report.whole)) == (0, 1)


def test_ends_when_the_time_is_up_and_says_what_is_left(pretended, few, faulty, tmp_path):
    report = run(faulty, tmp_path, budget_seconds=-1)

    assert (report.whole, report.left, report.measured) == ([], 3, 0)


def test_another_source_is_recorded_anew(pretended, few, faulty, tmp_path, monkeypatch):
    run(faulty, tmp_path)
    monkeypatch.setattr(type(faulty.IMPLEMENTATIONS[0]), "source", property(lambda each: "changed"))

    assert run(faulty, tmp_path).measured == 3


def test_the_command_says_what_it_did(pretended, few, faulty, tmp_path, capsys):
    assert record.main(["faulty", "--device", "cpu", "--folder", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["left"], told["folder"]) == (0, str(tmp_path))
    assert record.main(["fualty", "--device", "cpu"]) == 2
    assert "Did you mean 'faulty'" in capsys.readouterr().err


def test_measures_for_real(few, faulty, tmp_path):
    report = run(faulty, tmp_path, 8, samples=2, threads=1, load=[faulty.__file__])

    (file,) = tmp_path.glob("*.json.gz")
    assert report.measured == len(recorded.load(file).space) == 2
