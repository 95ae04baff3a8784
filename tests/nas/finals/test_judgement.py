"""Which verdict a study shows: that of the finals in its search file, or one of `nas verdict` that extends them."""

import pytest

from nas import report
from nas.engine import launch
from nas.engine.resolve import resolve
from nas.finals import again
from nas.report.finals import answers
from nas.runners.inline import InlineRunner

FULL = (
    "{top: 2, seeds: 2, steps: [4, 8], baselines: [transformer, primer], match: parameters, shapes: usual, "
    "tune: {learning_rate: [0.003, 0.01]}}"
)
FEWER = {  # finals that need no run besides those of FULL
    "a baseline less": ("[transformer, primer]", "[transformer]"),
    "no baseline": ("[transformer, primer]", "[]"),
    "one seed": ("seeds: 2", "seeds: 1"),
    "one try": ("[0.003, 0.01]", "[0.003]"),
}


def finals(part):
    """What the shown verdict is of: finalists, baselines, seeds, lengths, tries."""
    roles = [each.role for each in part.entrants]
    return roles.count("finalist"), roles.count("baseline"), part.seeds, part.lengths, len(part.tries)


def shown(result):
    return report.verdict(result.store, result.study)


@pytest.fixture
def base(describe, search, documented):
    """A search whose finals have ended, and its verdict."""
    config = describe(finals=FULL, budget="{trials: 3}")
    with search(config, documented) as result:
        return config, shown(result)


@pytest.mark.parametrize("change", FEWER)
def test_other_finals_of_the_search_file_have_their_own_verdict(base, change, describe, search, documented):
    full, before = base
    fewer = describe(finals=FULL.replace(*FEWER[change]), budget="{trials: 3}")
    with search(fewer, documented) as result:
        runs = len(result.store.trials(result.study.id, purposes=("final",), limit=1000))
        found = shown(result)
        assert found.is_current and finals(found) == finals_of(fewer)
    assert not resolve(fewer, result.store).trains
    with search(full, documented) as result:
        assert finals(shown(result)) == finals(before) and shown(result).sentence == before.sentence
        assert len(result.store.trials(result.study.id, purposes=("final",), limit=1000)) == runs


def finals_of(config):
    given = config.finals
    return given.top, len(given.baselines), given.seeds, given.steps, len(next(iter(given.tune.values())))


@pytest.fixture
def extend(documented):
    """`nas verdict`: finals that extend those of a search."""

    def run(config, **changes):
        with launch.finals(again.extended(config, **changes), quiet=True, runner=InlineRunner(documented)) as result:
            found = shown(result)
            assert found.is_current
            return found

    return run


def test_a_verdict_that_extends_those_of_the_search_file_stays(base, extend, search, documented):
    config, before = base
    for changes in ({"against": ["transformer_modern"]}, {"seeds": 3}):
        more = extend(again.as_judged(config), **changes)
        with search(config, documented) as result:
            assert shown(result) == more
        assert not resolve(config, result.store).trains
    assert len(before.entrants) + 1 == len(more.entrants) and more.seeds == 3


def test_a_verdict_extends_the_finals_of_the_search_file_that_the_study_has_now(
    base, describe, extend, search, documented
):
    config, before = base
    other = describe(finals=FULL.replace("[transformer, primer]", "[primer]"), budget="{trials: 3}")
    with launch.open_for(other) as store:
        launch.enter(store, resolve(other, store))  # a search that was stopped before its finals
    more = extend(other, seeds=3)
    with search(other, documented) as result:
        assert shown(result) == more
    with search(config, documented) as result:
        assert finals(shown(result)) == finals(before)


def test_finals_that_have_not_been_trained_are_not_what_the_verdict_says(base, describe, search, documented):
    config, before = base
    more = describe(finals=FULL.replace("seeds: 2", "seeds: 3"), budget="{trials: 3}")
    with launch.open_for(more) as store:
        launch.enter(store, resolve(more, store))  # a search that was stopped before its finals
        status = report.status(store, store.study(more.study))
        assert not status.verdict.is_current and "other finals now" in status.to_text()
        assert "not up to date" in status.verdict.notes()[0]
    with search(config, documented) as result:
        assert finals(shown(result)) == finals(before) and shown(result).is_current
    with search(more, documented) as result:
        assert shown(result).seeds == 3 and shown(result).is_current


def test_a_search_file_without_finals_asks_for_no_verdict():
    assert answers({"finals": {"top": 2}, "extends": None}, {"top": 0})
    assert not answers({"finals": {"top": 2}, "extends": None}, {"top": 1})
