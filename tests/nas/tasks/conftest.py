"""Every shipped task with a model of its kind, as small as they come."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from torch import nn

from nas import tasks
from searchspace.model.architecture import Architecture
from searchspace.model.build import build

SMALL = {"length": 8, "batch": 2, "evaluation": 16}
OPTIONS = {
    "copy": {"length": 8, "batch": 2},
    "associative_recall": {"pairs": 2, "symbols": 3, "batch": 2},
    "long_copy": {"remembered": 2, "gap": 3, "batch": 2},
    "digits": {"batch": 2},
}
BODIES = {
    "decoder": "body: [convolution]",
    "encoder": "body: [feed_forward]",
    "encoder_decoder": "encoder: [feed_forward]\ndecoder: [{attention: {heads: 1, over: memory}}]",
}


@pytest.fixture(scope="session")
def prose(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "prose.txt"
    path.write_text("Die Häuser stehen fest, und wer sie baut, der weiß warum.\n" * 30, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def sentences(tmp_path_factory) -> dict[str, str]:
    """`source` and `target`: aligned files of 400 sentences that are translated word by word."""
    words = {"a": "ein", "the": "das", "dog": "Hund", "house": "Haus", "sees": "sieht", "green": "grün", "old": "alt"}
    random = Random(1)
    lines = [" ".join(random.choices(list(words), k=random.randint(2, 6))) + "." for _ in range(400)]
    translated = [" ".join(words[word] for word in line[:-1].split()) + "." for line in lines]
    folder = tmp_path_factory.mktemp("pairs")
    for name, text in (("source", lines), ("target", translated)):
        (folder / f"{name}.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in text).encode()))
    return {name: str(folder / f"{name}.gz") for name in ("source", "target")}


@pytest.fixture(scope="session")
def small(prose: Path, sentences: dict[str, str]) -> Callable[..., tasks.Task]:
    """`small(name)`: the task of that name, prepared, with small batches."""
    known = OPTIONS | {"translation": sentences | {"length": 48, "batch": 2, "evaluation": 4}}

    def made(name: str, **options) -> tasks.Task:
        task = tasks.load({name: known.get(name, {"data": str(prose), **SMALL}) | options})
        task.evaluation_batches = 2
        task.prepare(None)
        return task

    return made


@pytest.fixture(scope="session")
def model_for() -> Callable[[tasks.Task], nn.Module]:
    """A tiny model with the fields that a task decides."""

    def made(task: tasks.Task) -> nn.Module:
        fields = task.requires()
        written = "".join(f"{name}: {str(value).lower()}\n" for name, value in fields.items())
        return build(Architecture.parse(f"{written}width: 8\n{BODIES[fields['kind']]}\n")).eval()

    return made
