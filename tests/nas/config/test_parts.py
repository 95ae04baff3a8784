"""A search file is read once, and what it names is built once in a process."""

from collections import Counter

import pytest

import nas
from nas.config import searchfile
from nas.config.parts import parts
from nas.objectives.contract import Objective
from nas.tasks import registry
from nas.tasks.contract import Task
from searchspace.language import documents
from searchspace.space.space import Space

SEARCH = """
study: counted
space: {kind: decoder, width: !choice [8, 16], body: !choice [feed_forward, gru]}
task: {copy: {symbols: 4, length: 4, batch: 2}}
objectives: [loss, flops]
strategy: nsga2
scheduler: {halving: {rungs: [1, 2], factor: 2}}
runner: {inline: {process: false}}
budget: {trials: 2}
finals: {top: 1, seeds: 1, steps: 1}
storage: sqlite:///FOLDER/counted.db
checkpoints: null
"""


@pytest.fixture
def search_file(tmp_path):
    (tmp_path / "search.yaml").write_text(SEARCH.replace("FOLDER", str(tmp_path)))
    return tmp_path / "search.yaml"


@pytest.fixture
def built(monkeypatch):
    """How often each kind of thing was made from here on."""
    registry._loaded.cache_clear()
    registry._prepared.cache_clear()
    counts = Counter()

    def counted(owner, method, name):
        original = getattr(owner, method)

        def call(self, *args, **options):
            counts[name if isinstance(name, str) else name(self)] += 1
            return original(self, *args, **options)

        monkeypatch.setattr(owner, method, call)

    for cls in (registry.registry.find("copy"),):
        assert issubclass(cls, Task)
        counted(cls, "__init__", "task")
        counted(cls, "prepare", "prepared")
    counted(Objective, "__init__", lambda objective: f"objective {objective.name}")
    counted(Space, "__init__", "space")
    counted(documents, "load", "file")
    return counts


def test_a_search_builds_its_task_space_and_objectives_once(search_file, built):
    with nas.search(search_file, quiet=True) as result:
        assert len(result.front) >= 1 and result.verdict is not None
    assert built == {"file": 1, "task": 1, "prepared": 1, "space": 1, "objective loss": 1, "objective flops": 1}


def test_a_study_from_python_uses_what_the_reader_built(search_file, built, tmp_path):
    with nas.open_study(tmp_path / "counted.db", "counted", search_file) as study:
        (asked,) = study.ask()
        assert study.tell(asked, {"loss": 1.0})
    assert built == {"file": 1, "task": 1, "prepared": 1, "space": 1, "objective loss": 1, "objective flops": 1}


def test_copies_of_a_config_share_the_parts_whose_keys_are_the_same(search_file):
    config = searchfile.load(search_file)
    elsewhere = config.model_copy(update={"storage": "sqlite:///elsewhere.db", "seed": 3})
    assert parts(elsewhere).space is parts(config).space
    assert parts(elsewhere).objectives is parts(config).objectives
    other = config.model_copy(update={"objectives": config.objectives[:1]})
    assert parts(other).space is parts(config).space
    assert [len(parts(each).objectives) for each in (other, config)] == [1, 2]
    assert config == searchfile.load(search_file)  # what was built is no part of its value


def test_a_copy_with_another_task_has_the_space_at_its_length(search_file):
    config = searchfile.load(search_file)
    longer = config.task.model_copy(update={"options": config.task.options | {"length": 6}})
    other = config.model_copy(update={"task": longer})
    assert parts(other).space.length == parts(other).shape.length > parts(config).space.length
