"""The example spaces: each can be read, sampled, mutated and counted, and contains known good architectures."""

import random
import re
from pathlib import Path

import pytest

from searchspace import zoo
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space

FOLDER = Path("examples/spaces")
BYTES = {"vocabulary": 256}  # what the task decides, where a space leaves it out
LENGTH = 64
# What a task decides for each encoder; the encoders of the zoo have the inputs and outputs of their papers.
TASK = {
    "everything": {"vocabulary": 256},
    "everything_encoder": {"vocabulary": 256, "features": None, "classes": 3, "tokens": False},
    "everything_encoder_decoder": {"vocabulary": 256},
    "encoder": {"vocabulary": 257, "classes": None, "tokens": True},
    "vision": {"features": 4, "classes": 10},
    "decoder": {"vocabulary": 256},
    "efficient_long": {"vocabulary": 256},
    "recurrent_depth": {"vocabulary": 256},
}
KIND = {"everything": "decoder", "everything_encoder": "encoder", "everything_encoder_decoder": "encoder_decoder"}
POINTS = {
    "decoder": ["transformer_decoder", "transformer_modern", "primer", "lstm", "gru", "evolved_transformer_decoder"],
    "encoder": ["transformer_encoder", "linformer", "nystromformer", "longformer", "bigbird", "funnel_decoder"],
    "vision": ["vit"],
    "efficient_long": ["performer", "linear_transformer", "transformer_xl", "sparse_transformer", "adaptive_span"],
    "recurrent_depth": ["universal_transformer", "universal_transformer_fixed"],
}
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.yaml")}
# From the texts alone, because every worker collects all tests, and to read the large spaces takes seconds.
SPACES = sorted(name for name, text in TEXTS.items() if re.search(r": !|- !", text))
ROWS = [
    (name, row)
    for name, kind in KIND.items()
    for row in zoo.names()
    if re.search(rf"^kind: {kind}$", text := zoo.text(row), re.MULTILINE)
    and "\ndefine:" not in text  # the definitions of a space are its own
]
_read: dict[str, Space] = {}


def space(name: str) -> Space:
    """The space called `name`, for sequences of `LENGTH` positions, read once."""
    if name not in _read:
        _read[name] = Space.load(FOLDER / f"{name}.yaml", BYTES).with_length(LENGTH)
    return _read[name]


@pytest.mark.parametrize("name", SPACES)
def test_a_space_reads_samples_mutates_and_counts(name: str) -> None:
    rng = random.Random(0)
    point = space(name).sample(rng)
    other = space(name).mutate(point, rng)
    for each in (point, other, space(name).crossover(point, other, rng)):
        assert space(name).feasible(each)
        assert space(name).point(each.choices).architecture == each.architecture
        if name not in KIND:  # locating a deep model in these spaces takes seconds
            assert space(name).contains(each.architecture)
    assert space(name).size().discrete > 1000


@pytest.mark.parametrize("name", SPACES)
def test_a_space_says_at_its_head_what_it_is_for(name: str) -> None:
    first = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_every_row_of_the_zoo_is_a_point_of_everything(name: str, row: str) -> None:
    assert space(name).contains(zoo.load(row, "tiny", **TASK[name]))


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("everything", "primer"),
        ("everything", "lstm"),
        ("everything", "reformer"),
        ("everything", "universal_transformer"),
        ("everything_encoder", "funnel"),
    ],
)
def test_published_sizes_are_points_of_everything_too(name: str, row: str) -> None:
    assert space(name).contains(zoo.load(row, **TASK[name]))


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, rows in POINTS.items() for row in rows])
def test_models_of_its_kind_are_points_of_a_space(name: str, row: str) -> None:
    assert space(name).contains(zoo.load(row, "tiny", **TASK[name]))


@pytest.mark.parametrize("baseline", ["quickstart_transformer", "quickstart_modern"])
def test_the_baselines_of_the_quickstart_are_points_of_the_space_of_decoders(baseline: str) -> None:
    assert space("decoder").contains(Architecture.load(FOLDER / f"{baseline}.yaml"))
