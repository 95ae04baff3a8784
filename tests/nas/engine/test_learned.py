"""What a new study learns from earlier ones: read when it starts, kept with it, with an error if it cannot help."""

import json

import pytest

import nas
from nas.config.schema import SearchConfig
from nas.engine.learned import with_learned
from nas.engine.replay import replay
from nas.errors import UsageError
from nas.store import open_reader

FIXED = "{kind: decoder, width: 32, vocabulary: 256, body: [feed_forward: {expand: !int [1, 4]}]}"
NARROW = "{kind: decoder, width: !choice [48, 64], vocabulary: 256, body: [feed_forward]}"


def evaluated(study, trials, sign=1.0):
    """The hashes of the next trials of a study, each told a loss that follows from its architecture."""
    found = []
    for _ in range(trials):
        (asked,) = study.ask()
        study.tell(asked, {"loss": sign * (len(asked.architecture.text()) % 97) / 10})
        found.append(asked.architecture.hash)
    return found


@pytest.fixture
def earlier(describe, tmp_path):
    """A database with the study `old` of 10 trials."""
    with nas.open_study(tmp_path / "mine.db", "old", describe(budget="{trials: 10}")) as study:
        evaluated(study, 10)
    return tmp_path / "mine.db"


def learning(describe, **changes):
    return describe(budget="{trials: 10}", strategy="{model: {learn_from: [old], start: 4}}", **changes)


def test_a_study_keeps_what_it_learned_and_proposes_the_same_after_a_restart(describe, earlier, tmp_path):
    config = learning(describe)
    with nas.open_study(earlier, "new", config) as study:
        first = evaluated(study, 6)
        assert "earlier" in {trial.operator for trial in study.store.trials(study.record.id)}
        kept = study.record.config["learned"]["old"]
        assert len(kept["values"]) == 10 and kept["sequence"] == 10
    with nas.open_study(earlier, "old", describe(budget="{trials: 12}")) as study:
        evaluated(study, 2)  # the earlier study goes on
    with nas.open_study(earlier, "new", config) as study:
        assert study.record.config["learned"]["old"] == kept
        evaluated(study, 4)
        assert replay(study.store, study.record).same
    stored = json.loads(json.dumps(study.record.config))
    assert SearchConfig.stored(stored).learned["old"] == kept
    assert len(set(first)) == 6


def test_a_study_in_a_file_of_its_own_is_found_beside_it(describe, tmp_path):
    folder = tmp_path / "50% of a%20year?"
    folder.mkdir()
    with nas.open_study(folder / "old.db", "old", describe(budget="{trials: 5}")) as study:
        evaluated(study, 5)
    with nas.open_study(folder / "new.db", "new", learning(describe)) as study:
        assert len(study.record.config["learned"]["old"]["values"]) == 5
    (folder / "other.db").write_bytes((folder / "old.db").read_bytes())
    with pytest.raises(UsageError, match=r"learn_from: .*other\.db has no study 'other', but old\."):
        nas.open_study(folder / "third.db", "third", describe(strategy="{model: {learn_from: [other]}}"))


def test_auto_learns_as_model_does(describe, earlier):
    config = describe(strategy="{auto: {learn_from: old}}")
    with nas.open_study(earlier, "new", config) as study:
        assert study.config.strategy.name == "model" and study.config.strategy.options["learn_from"] == "old"
    with pytest.raises(UsageError, match="other settings"):
        nas.open_study(earlier, "new", describe(strategy="{auto: {learn_from: [old, tried]}}"))


def test_says_why_it_cannot_learn(describe, earlier):
    for changes, message in [
        (
            {"strategy": "{model: {learn_from: [odl]}}"},
            r"learn_from: no study .* 'odl' in .* Did you mean 'old'\? Known: old\.",
        ),
        ({"strategy": "{model: {learn_from: [tried]}}"}, "cannot learn from itself"),
        ({"objectives": "[bits_per_byte]"}, "no objective in common .* It has loss, parameters; .* has bits_per_byte"),
        ({"space": FIXED}, "no hole in common .* Its first is 'width'; this space has 'body"),
        ({"space": NARROW}, "0 finished trials .* lie in this space; at least 4 are needed"),
    ]:
        config = describe(**({"strategy": "{model: {learn_from: [old]}}"} | changes))
        with open_reader(f"sqlite:///{earlier}") as store, pytest.raises(UsageError, match=message):
            with_learned(config, store)
    with pytest.raises(UsageError, match="must name each of them once"):
        nas.open_study(earlier, "new", describe(strategy="{model: {learn_from: [old, old]}}"))
