"""The schema of a search file: short spellings, defaults, and that a study gives back what it was given."""

import pytest
from pydantic import ValidationError

from nas.config.schema import BARE, Finals, Named, SearchConfig

LEAST = {
    "study": "one",
    "space": "kind: decoder",
    "task": "language_model",
    "objectives": ["loss"],
    "scheduler": {"full": {"steps": 1}},
    "budget": {"trials": 1},
}


def test_names_may_be_written_with_or_without_options():
    config = SearchConfig(**LEAST | {"strategy": {"optuna": "TPESampler"}, "runner": {"ray": None}})
    assert config.task == Named(name="language_model")
    assert config.scheduler == Named(name="full", options={"steps": 1})
    assert config.strategy == Named(name="optuna", options={BARE: "TPESampler"})
    assert config.runner == Named(name="ray")


@pytest.mark.parametrize("written", ["flops", {"flops": {"a": 1}}, {"optuna": "TPESampler"}])
def test_a_name_is_written_as_it_was_read(written):
    assert SearchConfig(**LEAST | {"strategy": written}).strategy.written() == written


def test_a_metric_by_its_own_name_is_written_as_it_was_read():
    written = {"metric": "accuracy", "direction": "maximize"}
    assert SearchConfig(**LEAST | {"objectives": [written]}).objectives[0].written() == written


def test_places_carry_the_name_of_the_study_by_default_too():
    config = SearchConfig(**LEAST)
    assert (config.storage, config.checkpoints) == ("sqlite:///runs/one.db", "runs/one")
    config = SearchConfig(**LEAST | {"storage": "postgresql://host/{study}", "checkpoints": None})
    assert (config.storage, config.checkpoints) == ("postgresql://host/one", None)


@pytest.mark.parametrize(
    "changes",
    [
        {"study": "../elsewhere"},
        {"study": ""},
        {"seed": -1},
        {"budget": {"trials": 1, "minutes": float("nan")}},
        {"limits": {"attempts": 0}},
        {"finals": {"seeds": 0}},
        {"task": {"a": 1, "b": 2}},
        {"objectives": "loss"},
        {"nonsense": 1},
    ],
)
def test_what_makes_no_sense_is_refused(changes):
    with pytest.raises(ValidationError):
        SearchConfig(**LEAST | changes)


def test_a_config_survives_the_database():
    config = SearchConfig(**LEAST | {"strategy": {"optuna": "TPESampler"}, "limits": {"unit_seconds": 2}})
    assert SearchConfig(**config.model_dump(mode="json")) == config


def test_a_single_value_to_tune_is_a_list_of_one():
    assert Finals(tune={"learning_rate": 1e-3}).tune == Finals(tune={"learning_rate": [1e-3]}).tune


WHOLE = {
    "seed": {},
    "budget": {"trials": 1, "steps": 1, "tokens": 1},
    "finals": {"top": 1, "seeds": 1, "steps": 1, "winner_steps": 1},
    "limits": {"attempts": 1},
}
OTHER = {"budget": {"flops": 1, "device_seconds": 1, "minutes": 1}, "limits": {"unit_seconds": 1}}


def written(sections, value):
    """(where, search file) for each number of `sections`, with this value."""
    for section, keys in sections.items():
        if not keys:
            yield section, LEAST | {section: value}
        for key in keys:
            yield f"{section}.{key}", LEAST | {section: {**LEAST.get(section, {}), key: value}}


def test_a_whole_number_may_be_written_as_a_float():
    for place, file in written(WHOLE, 8.0):
        section, _, key = place.partition(".")
        found = SearchConfig(**file).model_dump()[section]
        assert repr(found[key] if key else found) in ("8", "(8,)"), place


@pytest.mark.parametrize("value", [True, "eight", 8.5, [8.5]], ids=repr)
def test_true_text_and_fractions_are_no_whole_numbers(value):
    for place, file in written(WHOLE, value):
        with pytest.raises(ValidationError, match=r"a valid integer|a number such as"):
            SearchConfig(**file)
            pytest.fail(f"{place} accepts it")


def test_true_is_no_number():
    for place, file in written(OTHER, True):
        with pytest.raises(ValidationError, match="a valid number"):
            SearchConfig(**file)
            pytest.fail(f"{place} accepts it")


def test_a_number_may_be_text():
    for place, file in written(WHOLE, "2k"):
        section, _, key = place.partition(".")
        found = SearchConfig(**file).model_dump()[section]
        assert (found[key] if key else found) in (2000, (2000,)), place
    for _, file in written(OTHER, "0.5"):
        SearchConfig(**file)
