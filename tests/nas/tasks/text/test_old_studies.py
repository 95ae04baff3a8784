"""Studies of earlier releases go on with the text, the split and the held-out windows that they had."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from nas import tasks
from nas.config import factory, searchfile
from nas.config.schema import SearchConfig
from nas.engine.checks import continuing
from nas.engine.settled import settle
from nas.store import open_store
from nas.tasks.text import corpus

KEPT = Path(__file__).parents[3] / "kept" / "studies"

# SHA-256 of batches that the code of commit 9095e06 drew.
DRAWN = {
    "finished": (3, "2396732d8aea146ba79b6d6e399c2366a5d7b31554c680e070bf11dae02e199d"),
    "reversal": (2, "12a5b227f679ce2517a247a49565205cd5fe210a4b2e783274442e80694c3199"),
}


def drawn(task: tasks.Task, tensors: int) -> str:
    """The hash of two batches of each split and of all held-out batches, without the numbers of documents."""
    found = hashlib.sha256()
    for split in ("train", "validation", "test"):
        batches = [task.draw(split, 3, index) for index in (0, 7)]
        for batch in [*batches, *(task.held_out(split) if split != "train" else ())]:
            for tensor in batch[:tensors]:
                found.update(tensor.numpy().tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("name", DRAWN)
def test_an_old_study_draws_the_batches_that_it_drew(name, tmp_path):
    for file in (KEPT / "text.txt", *KEPT.glob("*.yaml")):
        shutil.copy(file, tmp_path)
    database = tmp_path / f"{name}.db"
    database.write_bytes(gzip.decompress((KEPT / f"{name}.db.gz").read_bytes()))
    config = searchfile.load(tmp_path / f"{name}.yaml")
    with open_store(database) as store:
        study = store.study(name)
        continuing.check_continues(store, study, config)  # raises UsageError if the file were of another search
    kept = settle(config, SearchConfig(**study.config))
    tensors, expected = DRAWN[name]

    assert kept.task.options["split_by"] == "position"
    assert drawn(factory.prepared_task(kept), tensors) == expected
    assert drawn(factory.prepared_task(config), tensors) != expected, "a new study divides the text by document"


def test_a_new_study_keeps_what_its_file_leaves_out(describe):
    config = settle(describe(task="{language_model: {length: 8, batch: 2}}"))
    assert config.task.options == {
        "length": 8,
        "batch": 2,
        "data": "embedded",
        "split_by": "documents",
        "documents": "auto",
        "evaluation": None,
    }
    assert settle(config, config) == config


def test_the_corpus_of_old_studies_is_still_read(tmp_path):
    options = {"data": corpus.FIRST, "split_by": "position", "evaluation": 32_768, "length": 64}
    spec, _ = tasks.ship({"language_model": options}, tmp_path)
    task = tasks.load(spec)
    task.prepare(tmp_path / "cache")
    whole = corpus.standard_library()

    assert task.data_hash == hashlib.sha256(whole).hexdigest()
    assert task.part("validation") == (1_800_000, 1_900_000)
    inputs, *_ = next(iter(task.held_out("validation")))
    assert bytes(inputs[0].numpy().astype(np.uint8)) == whole[1_800_000:1_800_064]
    assert sum(len(batch[0]) for batch in task.held_out("validation")) == 32_768 // 64
