"""The large study of the benchmark is in order, and a search goes on from it without building its architectures."""

import pytest

from benchmarks import scale
from benchmarks.support import studies
from nas.config.parts import parts
from nas.engine import arm, launch, session
from nas.engine.resolve import resolve
from nas.engine.source import point_of
from nas.store import TrialState, open_reader
from searchspace.space.space import Space

TRIALS = 120


@pytest.fixture(scope="module")
def storage(tmp_path_factory) -> str:
    """A database with a study of 120 trials."""
    url = f"sqlite:///{tmp_path_factory.mktemp('large') / 'study.db'}"
    studies.fill(url, scale.STUDY, TRIALS)
    return url


def resumed(storage: str):
    """What a search knows after a restart."""
    config = studies.config_for(storage, scale.STUDY)
    with launch.open_for(config) as store:
        study = launch.enter(store, resolve(config, store))
        proposer = session.proposer(parts(config), store, study)
        proposer.absorb()
        return proposer


def proposed(storage: str) -> list[str]:
    arm = resumed(storage).arms["main"]
    return [each.point.architecture.hash for each in arm.propose(arm.trials, 5)]


def test_the_filled_study_is_in_order(storage):
    with open_reader(storage) as store:
        study = store.study(scale.STUDY)
        assert not store.faults()
        assert sum(each.trials for each in store.counts(study.id)) == TRIALS
        assert {each.state for each in store.trials(study.id)} >= {TrialState.COMPLETE, TrialState.RUNNING}


def test_a_resumed_search_builds_no_architecture_of_the_log(storage, monkeypatch):
    built = []
    realise = Space.realise
    monkeypatch.setattr(Space, "realise", lambda self, choose: built.append(1) or realise(self, choose))

    resumed(storage)

    assert len(built) < 10


def test_a_resumed_search_proposes_the_same_as_if_it_had_built_all_of_them(storage, monkeypatch):
    deferred = proposed(storage)
    monkeypatch.setattr(arm, "chosen_point", lambda space, choices, hash: point_of(space, choices, str, hash))

    assert proposed(storage) == deferred
