"""Every search file in examples/ runs as it is written, only smaller; every space there has such a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nas.config import searchfile
from nas.config.parts import parts
from nas.config.schema import Budget, Finals, Named, SearchConfig
from nas.engine import launch
from nas.store import TrialState
from searchspace.language import documents, language

EXAMPLES = Path(__file__).parent.parent / "examples"
FILES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
NAMED = [name for name in FILES if "\nspace: spaces/" in (EXAMPLES / f"{name}.yaml").read_text()]
OF_TEXT = ("language_model", "masked_language_model", "reversal", "disturbed_text")


def test_every_space_has_a_search_file():
    named = {documents.load(EXAMPLES / f"{name}.yaml", language.TAGS).data["space"] for name in FILES if name in NAMED}
    spaces = {f"spaces/{path.name}" for path in (EXAMPLES / "spaces").glob("*.yaml") if "!choice" in path.read_text()}
    assert spaces == named


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A copy of the examples with a text and pairs of sentences for those that ask for the user's own."""
    copied = tmp_path_factory.mktemp("copy") / "examples"
    shutil.copytree(EXAMPLES, copied)
    (copied / "texts").mkdir()
    (copied / "texts" / "a.txt").write_text("A text of your own stands here.\n" * 200)
    (copied / "pairs").mkdir()
    for ending, noun in (("en", "house"), ("de", "Haus")):
        (copied / "pairs" / f"a.{ending}").write_text("".join(f"{noun} {number}\n" for number in range(200)))
    return copied


def smaller(config: SearchConfig, place: Path) -> SearchConfig:
    """Two trials of one step each with tiny batches, in this process. The length stays: the space is read for it.

    place: the folder of the database. A search reads all databases next to its own.
    """
    options = {**config.task.options, "batch": 2}
    if config.task.name in OF_TEXT:
        options |= {"batch": 1, "evaluation": parts(config).shape.length}
    task = Named(name=config.task.name, options=options)
    return config.model_copy(
        update={
            "task": task,
            "scheduler": Named(name="full", options={"steps": 1}),
            "strategy": Named(name="random"),
            "runner": Named(name="inline", options={"process": False}),
            "budget": Budget(trials=2),
            "baselines": (),
            "finals": Finals(),
            "storage": f"sqlite:///{place}/nas.db",
            "checkpoints": None,
            "seed": 1,  # with it the spaces of everything give small models
        }
    )


@pytest.mark.parametrize("name", FILES)
def test_an_example_is_read_and_runs_two_trials(name, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    config = searchfile.load(folder / f"{name}.yaml")
    written = documents.load(folder / f"{name}.yaml", language.TAGS).data
    assert len(config.baselines) == len(written.get("baselines", []))
    with launch.search(smaller(config, tmp_path), quiet=True) as result:
        trials = result.store.trials(result.study.id)
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 2, [trial.error_text for trial in trials]
