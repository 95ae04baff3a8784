"""Finals of a study that has ended, and of one architecture."""

import pytest

from nas import report
from nas.engine import launch
from nas.errors import UsageError
from nas.finals import again
from nas.finals.plan import plan
from nas.runners.inline import InlineRunner
from searchspace import zoo
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture

SMALL = "{top: 1, seeds: 2, steps: 20, baselines: transformer, match: parameters, shapes: usual, tune: {}}"


def run(config, unit, ran=None):
    def counted(work, progress=None):
        if ran is not None:
            ran.append((work.architecture, work.seed, work.steps))
        return unit(work)

    return launch.finals(config, quiet=True, runner=InlineRunner(counted))


def test_more_lengths_seeds_and_baselines_use_what_was_trained(describe, search, table, tmp_path):
    config = describe(finals=SMALL)
    with search(config) as result:
        ending = result.store.study(config.study).ending
    (tmp_path / "mine.yaml").write_text("{kind: decoder, width: 32, vocabulary: 256, body: attention}")
    ran = []
    more = again.extended(config, against=[str(tmp_path / "mine.yaml")], steps=[20, 40], seeds=3)
    with run(more, table, ran) as result:
        found = report.verdict(result.store, result.study)
        assert ending and result.store.study(config.study).ending == ending
    assert found.lengths == (20, 40) and set(found.comparison.lengths) == {20, 40}
    assert {each.role for each in found.entrants} == {"finalist", "baseline"}
    assert len(found.entrants) == 3 and all(len(each.test[40]) == 3 for each in found.entrants)
    assert len(ran) == 3 * 6 - 2 * 2  # the two seeds at 20 steps of winner and Transformer are there
    search(config).store.close()
    with search(config) as result:
        kept = report.verdict(result.store, result.study)
    assert kept.lengths == (20, 40), "the search file asks for less, and what is known stays"


def test_a_search_without_finals_gets_a_verdict(describe, search, table):
    config = describe()
    search(config).store.close()
    with run(again.extended(config, against=[], steps=[20], seeds=1), table) as result:
        assert len(result.verdict.finalists) == 1 and result.verdict.against


def test_a_search_that_has_not_ended_is_refused(describe, search, table):
    config = describe()

    def stop(work, progress=None):
        raise UsageError("stop")

    with pytest.raises(UsageError, match="stop"):
        search(config, stop)
    with pytest.raises(UsageError, match=r"has not ended.*nas search tried"):
        run(again.extended(config), table)


def test_a_baseline_that_does_not_fit_is_refused_by_name(describe, tmp_path):
    (tmp_path / "other.yaml").write_text("kind: decoder\nwidth: 16\nvocabulary: 77\nbody: [residual: {of: gru}]\n")
    name = str(tmp_path / "other.yaml")
    with pytest.raises(UsageError, match=r"The baseline .*other\.yaml cannot be used: .*needs vocabulary: 256"):
        again.extended(describe(), against=[name])
    with pytest.raises(SpaceError, match="mistake"):
        (tmp_path / "other.yaml").write_text("kind: decoder\nwidth: 16\nbody: [mistake]\n")
        again.extended(describe(), against=[name])


def test_a_baseline_whose_file_has_changed_replaces_the_former_one(describe, tmp_path):
    file, config = tmp_path / "mine.yaml", describe(finals=SMALL)
    for width in (16, 24):
        file.write_text(f"{{kind: decoder, width: {width}, body: [residual: {{of: gru}}]}}")
        config = again.extended(config, against=[str(file), str(file)])
    plain, mine = config.finals.baselines
    assert plain == "transformer" and "width: 24" in mine.text


def test_the_winner_alone_is_never_trained_longer_than_its_baselines(describe):
    config = describe(finals="{top: 1, steps: [10, 20], winner_steps: [5, 15]}")
    assert plan(config).winner_lengths == (5, 15)
    assert plan(again.extended(config, steps=[4, 10])).winner_lengths == (5,)


def test_one_architecture_is_compared_on_the_task_of_a_search(describe, table):
    model = zoo.load("linear_transformer", "tiny")
    config = again.extended(again.of_architecture(model, describe(finals=SMALL)))
    with run(config, table) as result:
        found = report.verdict(result.store, result.study)
    assert found.winner == result.verdict.winner
    assert Architecture.parse(found.winner.architecture).root.fields["width"] == model.root.fields["width"]
    assert config.study.startswith("tried-")


def test_an_architecture_of_another_kind_is_refused(describe):
    with pytest.raises(UsageError, match="decoder"):
        again.of_architecture(zoo.load("vit", "tiny"), describe(finals=SMALL))
