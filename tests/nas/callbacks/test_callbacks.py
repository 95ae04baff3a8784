"""Callbacks write what they are given, and say what is missing."""

import csv
import importlib.util

import pytest

from nas.callbacks.registry import make, registry
from nas.errors import NasError, UsageError

ABOUT = {"name": "tiny:0", "steps": 2}
LIBRARIES = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}


def test_a_csv_file_grows_when_a_training_resumes(tmp_path):
    for step in (1, 2):
        one = make("csv", tmp_path, ABOUT)
        one.log(step, {"loss": 1 / step})
        one.close()

    with (tmp_path / "metrics.csv").open() as file:
        assert list(csv.reader(file)) == [["step", "name", "value"], ["1", "loss", "1.0"], ["2", "loss", "0.5"]]


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_what_was_written(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    one = make("tensorboard", tmp_path, ABOUT)
    one.log(1, {"loss": 2.0})
    one.log(5, {"loss": 1.0})
    one.close()
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("loss")

    assert [(each.step, each.value) for each in found] == [(1, 2.0), (5, 1.0)]


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_missing_library_is_named(name, tmp_path):
    if importlib.util.find_spec(LIBRARIES[name]) is not None:
        pytest.skip(f"{LIBRARIES[name]} is installed")
    with pytest.raises(NasError, match=f"pip install {LIBRARIES[name]}"):
        make(name, tmp_path, ABOUT)


def test_an_unknown_callback_is_told(tmp_path):
    assert registry.names() == ["csv", "mlflow", "tensorboard", "wandb"]
    with pytest.raises(UsageError, match="Did you mean 'csv'"):
        make("cvs", tmp_path, ABOUT)
